//! What comes between a program and its own code: signal handlers that wait for the end of a call on a weft file, and system
//! calls that it makes past libc.

#[cfg(target_arch = "x86_64")]
pub mod alternate;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_dispatch.rs")]
pub mod dispatch;
pub mod handlers;
