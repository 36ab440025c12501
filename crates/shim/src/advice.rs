//! Kernel-hint mode: files stay where they are, and what placement knows of them goes to the kernel.
//!
//! When a file that is not weft's was opened for writing, the adviser (`weft run --hints`) is asked what to expect of it,
//! and its answer becomes the file's write-lifetime hint. A hint that the program gives itself comes later and stands.

use crate::text::Text;
use crate::{process, report, sys};
use libc::c_int;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::*};
use weft_client::advice::{self, AdviceRequest, MAGIC};
use weft_client::scratch::Scratch;
use weft_client::sys::{gettid, thread_name};

/// The adviser's socket.
pub const ENV_HINTS: &[u8] = b"WEFT_HINTS";
/// `fcntl` command that sets a file's write-lifetime hint.
pub const F_SET_RW_HINT: c_int = 1036;

struct Socket(UnsafeCell<Text<108>>);
// SAFETY: written by `start` before the program runs, while ON is false; only read afterwards.
unsafe impl Sync for Socket {}

/// The path of the adviser's socket.
static SOCKET: Socket = Socket(UnsafeCell::new(Text::EMPTY));
static ON: AtomicBool = AtomicBool::new(false);
static COMPLAINED: AtomicBool = AtomicBool::new(false);

/// Whether the mode is on.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Acquire)
}

/// Turns the mode on.
///
/// # Safety
/// Only before the program runs, with no other thread.
pub unsafe fn start(socket: &[u8]) {
    if socket.is_empty() || socket.len() >= 108 {
        report::complain(&[b"WEFT_HINTS must be a path of at most 107 bytes; no hints are given"]);
        return;
    }
    // SAFETY: the caller's promise.
    let place = unsafe { &mut *SOCKET.0.get() };
    place.set(socket);
    ON.store(true, Release);
}

/// To be called with the result of libc's `open`: gives the new descriptor its hint. Returns it, with `errno` as it was.
#[inline(always)]
pub fn opened(fd: c_int, flags: c_int) -> c_int {
    if is_on() && fd >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0 {
        advise(fd, flags);
    }
    fd
}

#[cold]
fn advise(fd: c_int, flags: c_int) {
    let before = sys::errno();
    let Ok(stat) = sys::fstat(fd) else { return sys::set_errno(before) };
    let Ok(mut path) = Scratch::<[u8; advice::PATH_MAX]>::any() else { return sys::set_errno(before) };
    if stat.st_mode & libc::S_IFMT == libc::S_IFREG
        && let Some(path) = process::descriptor_name(fd, path.as_mut_slice())
    {
        let mut thread = [0; 16];
        thread_name(&mut thread);
        let question = AdviceRequest {
            magic: MAGIC,
            flags: flags as u32,
            size: stat.st_size as u64,
            thread_id: gettid(),
            uid: stat.st_uid,
            path_len: path.len() as u32,
            zero: 0,
            thread,
        };
        // SAFETY: ON is true, so the path is written and will not change.
        let socket = unsafe { &*SOCKET.0.get() };
        match advice::ask(socket, &question, path) {
            Ok(0) => {}
            Ok(hint) => {
                let _ = sys::fcntl(fd, F_SET_RW_HINT, &raw const hint as usize);
            }
            Err(_) if COMPLAINED.swap(true, Relaxed) => {}
            Err(_) => report::complain(&[b"no adviser at ", socket, b": files get no hints"]),
        }
    }
    sys::set_errno(before);
}
