//! Placeholders that do not say yet which file they stand for.
//!
//! To make a [placeholder] with the name of its file takes some five microseconds, and only a program that is executed reads the
//! name. So the descriptor of a file that is opened is a duplicate of one *blank* placeholder of the process. Before a program is
//! executed that may inherit it, a placeholder with the file's name takes the descriptor's number.
//!
//! Nobody may close the number meanwhile or lead it elsewhere. Whoever names a descriptor holds its number, and looks at the
//! table again when it does; whoever closes one has taken it out of the table, and waits until nobody holds its number.
//! All accesses to both are sequentially consistent, so that one of the two sees the other.

use super::table::{self, DESCRIPTORS_MAX, LOST, OWN};
use super::{keep, limit, placeholder};
use crate::owned::Fd;
use crate::sys;
use libc::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering::*, fence};
use weft_client::{Client, Errno};

/// The descriptor may lead to a placeholder without a name.
const BLANK: u8 = 1;
/// Somebody names it, or leads its number elsewhere.
const HELD: u8 = 2;
/// So often somebody lets others run who hold a number. A handler of the program's may have interrupted one of them, in
/// this very thread.
const WAITS_MAX: u32 = 10_000;

static STATES: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(0) }; DESCRIPTORS_MAX];

/// From here on no number was ever held: a forked child looks at no page that its parent has not touched.
static HELD_BELOW: AtomicUsize = AtomicUsize::new(0);

/// What [`ORIGINAL`] is before the first file is opened, and where none can be had.
const NONE_YET: c_int = -1;
const NEVER: c_int = -2;
/// The placeholder that others are duplicates of.
static ORIGINAL: AtomicI32 = AtomicI32::new(NONE_YET);

fn state(fd: c_int) -> Option<&'static AtomicU8> {
    STATES.get(fd as u32 as usize)
}

/// Makes the descriptor of an open file.
pub fn create(client: &Client, cloexec: bool) -> Result<Option<Fd>, Errno> {
    let original = match ORIGINAL.load(Acquire) {
        NONE_YET => make_original(client),
        original => original,
    };
    if original == NEVER {
        return Ok(None);
    }
    let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    Ok(Some(Fd(sys::fcntl(original, command, 0)? as c_int)))
}

#[cold]
fn make_original(client: &Client) -> c_int {
    // One with a number that a program counts on would be in its way.
    let made = placeholder::create(client.session(), LOST, true).and_then(keep::high);
    let original = made.unwrap_or(NEVER);
    match ORIGINAL.compare_exchange(NONE_YET, original, AcqRel, Acquire) {
        Ok(_) => original,
        Err(others) => {
            keep::let_go(original);
            others
        }
    }
}

/// A number that nobody else names or leads elsewhere.
pub struct Held(&'static AtomicU8);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_and(!HELD, SeqCst);
    }
}

/// Holds a number; `None` where others hold it for too long, and for one that no weft file has.
pub fn hold(fd: c_int) -> Option<Held> {
    let state = state(fd)?;
    if HELD_BELOW.load(Relaxed) <= fd as usize {
        HELD_BELOW.fetch_max(fd as usize + 1, SeqCst);
    }
    for _ in 0..WAITS_MAX {
        if state.fetch_or(HELD, SeqCst) & HELD == 0 {
            return Some(Held(state));
        }
        sys::yield_now();
    }
    None
}

/// Waits until nobody holds a number, which is not in the table any more.
#[inline]
pub fn wait(fd: c_int) {
    let Some(state) = state(fd) else { return };
    for _ in 0..WAITS_MAX {
        if state.load(SeqCst) & HELD == 0 {
            return;
        }
        sys::yield_now();
    }
}

/// Notes that a descriptor, which is about to be entered in the table, may have no name.
#[inline]
pub fn note(fd: c_int) {
    if let Some(state) = state(fd) {
        state.fetch_or(BLANK, SeqCst);
    }
}

/// Gives all descriptors of weft files their names.
///
/// # Errors
/// What the kernel says when there are no descriptors or no memory for a placeholder.
pub fn name_all(client: &Client) -> Result<(), Errno> {
    let mut result = Ok(());
    table::each(0, u32::MAX, |fd, file| {
        let is_blank = state(fd).is_some_and(|state| state.load(SeqCst) & BLANK != 0);
        if is_blank && result.is_ok() && !matches!(file, OWN | LOST) {
            result = name(client, fd);
        }
    });
    result
}

fn name(client: &Client, fd: c_int) -> Result<(), Errno> {
    let Some(held) = hold(fd) else { return Err(libc::EAGAIN) };
    // Another thread may have closed it, or led it to another file.
    fence(SeqCst);
    let Some(file) = table::get(fd).filter(|file| !matches!(*file, OWN | LOST)) else { return Ok(()) };
    let cloexec = sys::fcntl(fd, libc::F_GETFD, 0)? as c_int & libc::FD_CLOEXEC != 0;
    let named = limit::with_descriptors(|| placeholder::create(client.session(), file, true))?;
    if client.flags(file)? & libc::O_PATH != 0 {
        limit::with_descriptors(|| placeholder::become_path(*named, true))?;
    }
    sys::dup3(*named, fd, if cloexec { libc::O_CLOEXEC } else { 0 })?;
    held.0.fetch_and(!BLANK, SeqCst);
    Ok(())
}

/// In a forked child: the other threads are in the parent.
pub fn open_locks() {
    for state in STATES.iter().take(HELD_BELOW.load(Relaxed)) {
        if state.load(Relaxed) & HELD != 0 {
            state.fetch_and(!HELD, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_held_by_one() {
        let fd = 50_000;
        let held = hold(fd).unwrap();
        let other = std::thread::spawn(move || {
            wait(fd);
            drop(hold(fd).unwrap());
        });
        note(fd);
        drop(held);
        other.join().unwrap();
        assert_eq!(state(fd).unwrap().load(SeqCst), BLANK);
        assert!(hold(-1).is_none());
    }
}
