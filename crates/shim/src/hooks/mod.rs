//! The hooks: libc's functions as the program sees them, one group per file.
//!
//! `hooks!` declares a function, exports it under all names that [`crate::surface`] gives it (`open64` is `open` on 64-bit
//! systems), and gives the group's `real` module a caller of libc's own. A body decides by [`crate::descriptors::table`] or
//! [`crate::routing`] whether the call is weft's. Bodies do not allocate, do not panic, and reach the kernel only by raw
//! system calls.
//!
//! A variadic function (`open`, `fcntl`, `ioctl`, `syscall`) is defined with its greatest number of arguments. In the C calling
//! conventions of x86-64 and AArch64 Linux, variadic integer arguments travel in the same registers as named ones, so
//! the extra parameter reads what the caller passed, or a stale register that the flags or command say not to look at.

use crate::real::Symbol;

macro_rules! hooks {
    ($($(#[$meta:meta])* fn $name:ident $args:tt -> $ret:ty $body:block)*) => {
        /// libc's own functions.
        #[allow(dead_code, non_snake_case)]
        pub mod real {
            #[allow(unused_imports)]
            use super::*;
            $crate::real::real_functions! { $(fn $name $args -> $ret;)* }
        }
        /// What the hooks do.
        #[allow(clippy::missing_safety_doc, missing_docs, unused_unsafe, non_snake_case)]
        pub mod body {
            #[allow(unused_imports)]
            use super::*;
            $(hooks!(@body [$(#[$meta])*] $name $args -> $ret $body);)*
        }
        /// The exported symbols, under the names that the table of the surface gives them.
        #[allow(clippy::missing_safety_doc, missing_docs, unused_imports, non_snake_case)]
        pub mod exports {
            use super::*;
            $(names_of!($name {$args -> $ret});)*
        }
    };
    (@body [$($meta:tt)*] $name:ident ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        $($meta)*
        #[allow(clippy::too_many_arguments)]
        #[inline(always)]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller promises what the function's manual asks; the body relies on no more.
            unsafe { $body }
        }
    };
    (@export $export:ident $name:ident {($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty}) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C-unwind" fn $export($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's promise to libc's function.
            unsafe { body::$name($($arg),*) }
        }
    };
}

pub mod aio;
pub mod attributes;
pub mod change;
pub mod control;
pub mod cwd;
pub mod data;
pub mod dir;
pub mod exec;
pub mod exit;
pub mod fork;
pub mod identity;
pub mod kernel;
pub mod libaio;
pub mod libc;
pub mod library;
pub mod limit;
pub mod lookup;
pub mod mmap;
pub mod names;
pub mod open;
pub mod raw;
pub mod signal;
pub mod socket;
pub mod spawn;
pub mod stdio;
pub mod uring;
pub mod xattr;

macro_rules! groups {
    ($($($group:ident)::+),* $(,)?) => {
        /// The functions of libc that the hooks call, to be looked up. Those of other libraries, which few programs load, are
        /// looked up when they are called.
        pub static SYMBOLS: &[&[&Symbol]] = &[
            $($($group)::+::real::SYMBOLS,)*
            #[cfg(target_arch = "x86_64")]
            &[&fork::REAL_VFORK, &library::REAL],
        ];
    };
}
groups!(
    aio,
    attributes,
    change,
    control,
    cwd,
    data,
    dir,
    exec,
    exit,
    fork,
    identity,
    kernel,
    libc::fts,
    libc::print,
    libc::temp,
    libc::walk,
    libc::wide,
    limit,
    mmap,
    names,
    open,
    raw,
    signal,
    socket,
    spawn,
    stdio,
    xattr
);
