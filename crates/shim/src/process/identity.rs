//! Changes of who the process or a thread of it is (user, groups, capabilities): the server hears of each before the call that made
//! it returns, so that no later call is answered by rights that are gone.
//!
//! A process that drops the superuser's rights may not reach the server's socket any more. So it connects before, if it has not,
//! and programs that it executes inherit the connection ([`crate::process::environment`]).

use crate::{process, sys};
use std::sync::atomic::{AtomicU32, Ordering::*};
pub use weft_client::Changed;

/// Changes so far.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Makes a change by `make` and tells the server when `is_made` says of the result that there was one. errno stays as `make` left
/// it.
pub fn change<T>(changed: Changed, make: impl FnOnce() -> T, is_made: impl FnOnce(&T) -> bool) -> T {
    if !process::is_on() {
        return make();
    }
    process::connect_ahead();
    let result = make();
    if is_made(&result) {
        let error = sys::errno();
        CHANGES.fetch_add(1, SeqCst);
        tell(changed);
        sys::set_errno(error);
    }
    result
}

fn tell(changed: Changed) {
    if process::is_connected()
        && let Ok(client) = process::client()
    {
        // When it fails the connection has ended, and all that follows on the volume is `EIO`.
        let _ = client.renew_identity(changed);
    }
}

/// How many changes there were.
pub fn changes() -> u32 {
    CHANGES.load(SeqCst)
}

/// In a forked child whose connection was made when there had been so many changes. Another thread may have changed all since.
pub fn catch_up(changes_then: u32) {
    if changes() != changes_then {
        tell(Changed::Process);
    }
}
