//! Where the kernel's working directory is while the program's lies on the volume.
//!
//! Programs that the library does not reach (static ones, those that gain rights) and functions that it does not hook use
//! relative names as the kernel understands them. Such a name must not meet files of some other directory, and `/` has many. So
//! the process makes a directory, enters it and removes it. Linux finds nothing in a removed directory and makes nothing there
//! (`ENOENT`), also for root. `..` still leads out of it, so it is the innermost of several, all removed:
//!
//! ```text
//!  /dev/shm / weft-nowhere-N / w / w / ... / w     <- working directory: `x`, `../x`, `../../x` are not there
//! ```
//!
//! Children and executed programs inherit it.

use crate::text::{Text, decimal};
use crate::{process, sys};
use std::ffi::CStr;
use weft_client::Errno;
use weft_client::scratch::Scratch;

/// Directories, one in the other: from the innermost, so many `..` less one lead to a removed one.
const DEPTH: usize = 8;
/// Where they are made: the first directory that allows it.
const PLACES: [&[u8]; 2] = [b"/dev/shm", b"/tmp"];
/// Name of each but the outermost.
const INNER: &CStr = c"w";

/// Moves the kernel's working directory there; to `/` where no directory can be made.
pub fn enter() {
    if !PLACES.iter().any(|place| enter_below(place)) {
        let _ = sys::chdir(c"/");
    }
}

/// Whether the program's parent left the kernel's working directory elsewhere, although its own was on the volume: a program that
/// the library does not reach has changed it.
pub fn is_left() -> bool {
    let Ok(mut room) = Scratch::<[u8; process::PATH_BYTES]>::any() else { return false };
    match sys::getcwd(room.as_mut_slice()) {
        // What cannot be reached from the root does not begin with a slash.
        Ok(path) => path.len() > 1 && path.first() == Some(&b'/'),
        Err(error) => error != libc::ENOENT,
    }
}

fn enter_below(place: &[u8]) -> bool {
    let mut random = [0; 8];
    sys::random(&mut random);
    let outermost = Text::<64>::of(&[place, b"/weft-nowhere-", &decimal(u64::from_ne_bytes(random))]);
    match make(outermost.c_str()) {
        Ok(true) => {}
        Ok(false) => {
            let _ = sys::rmdir(outermost.c_str());
            return false;
        }
        Err(_) => return false,
    }
    let mut depth = 1;
    while depth < DEPTH && make(INNER) == Ok(true) {
        depth += 1;
    }
    // From the innermost to the outermost; what was made but not entered lies in the innermost.
    let _ = sys::rmdir(INNER);
    let mut way = Text::<64>::of(&[b"../"]);
    let mut removed = true;
    for level in (1..=depth).rev() {
        let gone = if level == 1 {
            sys::rmdir(outermost.c_str())
        } else {
            sys::rmdir(Text::<64>::of(&[&way, INNER.to_bytes()]).c_str())
        };
        removed &= level != depth || gone.is_ok();
        way.put(b"../");
    }
    removed
}

/// Makes a directory and enters it: `false` when it was only made.
fn make(path: &CStr) -> Result<bool, Errno> {
    const MODE: u32 = 0o700;
    sys::mkdir(path, MODE)?;
    if process::umask() & MODE != 0 {
        let _ = sys::chmod(path, MODE);
    }
    Ok(sys::chdir(path).is_ok())
}
