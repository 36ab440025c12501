//! `dlsym` and `dlvsym`: a program that searches one library for a function, as interfaces of other languages to C do, or for a
//! version of it, gets the hook of that function.
//!
//! ```text
//!  dlopen("libc.so.6"), dlsym(handle, "open") --> libc's open, behind the hook `open` --> the hook
//!                                                 another library's open               --> that one
//! ```
//!
//! The hook takes the place only of the very function that it calls itself. So a library that stands between the program and
//! libc still finds what it passes calls on to, and never finds itself.

use super::{SYMBOLS, libaio, uring};
use crate::libraries;
use crate::real::{self, SEARCHES};
use libc::{c_char, c_void};
use std::ffi::CStr;

/// The hook whose own function a search has found.
///
/// # Safety
/// `name` is a C string.
unsafe fn hook_of(found: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    if found.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let hook = libraries::exported(name)?;
    let of_libc = || SYMBOLS.iter().copied().flatten().copied().chain(&SEARCHES);
    // Those of other libraries are looked up when they are called.
    let of_others = || [libaio::real::SYMBOLS, uring::real::SYMBOLS].into_iter().flatten().copied();
    let is_next = of_libc().any(|symbol| symbol.is_at(found))
        || of_others().any(|symbol| symbol.name() == name && symbol.address() == found);
    is_next.then_some(hook)
}

/// Whether the loader looks at its caller to see where a search begins (`RTLD_NEXT`, `RTLD_DEFAULT`).
fn depends_on_caller(handle: *mut c_void) -> bool {
    handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT
}

/// The searches, entered by a jump where the loader looks at its caller.
#[cfg(target_arch = "x86_64")]
pub mod entry {
    use super::*;
    use crate::process;

    unsafe extern "C" fn choose(handle: *mut c_void) -> *const c_void {
        // Such a search finds the hooks by itself, as the program's calls do.
        if !process::is_on() || depends_on_caller(handle) {
            SEARCHES[0].address_of_search()
        } else {
            search as *const c_void
        }
    }

    unsafe extern "C" fn search(handle: *mut c_void, name: *const c_char) -> *mut c_void {
        // SAFETY: what the program promises.
        unsafe {
            let found = real::dlsym(handle, name);
            hook_of(found, name).unwrap_or(found)
        }
    }

    unsafe extern "C" fn choose_version(
        handle: *mut c_void,
        name: *const c_char,
        version: *const c_char,
    ) -> *const c_void {
        // The hooks have no versions, so such a search passes them from everywhere.
        // SAFETY: what the program promises.
        let is_libcs = || unsafe { hook_of(version_in_libc(name, version), name) }.is_some();
        if process::is_on() && (!depends_on_caller(handle) || is_libcs()) {
            search_version as *const c_void
        } else {
            SEARCHES[1].address_of_search()
        }
    }

    unsafe extern "C" fn search_version(
        handle: *mut c_void,
        name: *const c_char,
        version: *const c_char,
    ) -> *mut c_void {
        // SAFETY: what the program promises.
        unsafe {
            let found = match depends_on_caller(handle) {
                true => version_in_libc(name, version),
                false => real::dlvsym(handle, name, version),
            };
            hook_of(found, name).unwrap_or(found)
        }
    }

    /// libc's function of a version; null: it has none, or no hook has this name.
    ///
    /// # Safety
    /// C strings.
    unsafe fn version_in_libc(name: *const c_char, version: *const c_char) -> *mut c_void {
        // SAFETY: the caller's promise.
        let is_hook = libraries::exported(unsafe { CStr::from_ptr(name) }).is_some();
        // SAFETY: libc is loaded and stays.
        let libc = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !is_hook || libc.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { real::dlvsym(libc, name, version) }
    }

    /// # Safety
    /// As `dlsym(3)`.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[unsafe(naked)]
    pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
        // Two pushes and 8 bytes more: the callee's stack is aligned.
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {choose}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            choose = sym choose,
        )
    }

    /// # Safety
    /// As `dlvsym(3)`.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[unsafe(naked)]
    pub unsafe extern "C" fn dlvsym(
        _handle: *mut c_void,
        _name: *const c_char,
        _version: *const c_char,
    ) -> *mut c_void {
        // Three pushes: the callee's stack is aligned.
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {choose}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            choose = sym choose_version,
        )
    }
}
