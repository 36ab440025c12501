//! Placeholder descriptors: each open weft file is a real kernel descriptor, an empty memory file named
//! `weft:<server>:<file>` (both hexadecimal). So `dup`, `fork`, `select`, `poll` and close-on-exec are the kernel's, and
//! a program that was executed finds out by the names which of its descriptors are weft files.
//!
//! The memory file is sealed: a write that slipped past the hooks fails (`EPERM`) instead of vanishing.

use crate::sys;
use libc::c_int;
use std::ffi::CStr;
use weft_client::{Errno, FileRef};

const PREFIX: &[u8] = b"weft:";
/// What `readlink` shows in front of a memory file's name.
const SHOWN: &[u8] = b"/memfd:";
const HEX: usize = 16;

fn put_hex(number: u64, out: &mut [u8]) {
    for (digit, place) in (0..HEX).rev().zip(out) {
        let nibble = (number >> (4 * digit) & 15) as u8;
        *place = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    }
}

fn take_hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(HEX)?;
    let mut number = 0;
    for digit in digits {
        number = number << 4 | u64::from((*digit as char).to_digit(16)?);
    }
    Some((number, rest))
}

/// Room for three numbers, two colons and the NUL.
type Name = [u8; PREFIX.len() + 3 * HEX + 3];

fn name(server: u64, file: FileRef, secret: Option<u64>) -> Name {
    let mut name = [0; PREFIX.len() + 3 * HEX + 3];
    let (prefix, mut rest) = name.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    for (place, number) in [Some(server), Some(file.0), secret].into_iter().flatten().enumerate() {
        if place > 0 {
            let (colon, behind) = rest.split_at_mut(1);
            colon.copy_from_slice(b":");
            rest = behind;
        }
        let (digits, behind) = rest.split_at_mut(HEX);
        put_hex(number, digits);
        rest = behind;
    }
    // What is left stays NUL: one byte at least.
    name
}

/// The server and file that a memory file's shown name tells.
pub fn parse(shown: &[u8]) -> Option<(u64, FileRef)> {
    let text = shown.strip_prefix(SHOWN)?.strip_prefix(PREFIX)?;
    let (server, text) = take_hex(text)?;
    let (file, _) = take_hex(text.strip_prefix(b":")?)?;
    Some((server, FileRef(file)))
}

/// The secret in the shown name of a memory file that was passed to this process.
pub fn secret(shown: &[u8]) -> Option<u64> {
    let text = shown.get(SHOWN.len() + PREFIX.len() + 2 * HEX + 1..)?.strip_prefix(b":")?;
    take_hex(text).map(|(secret, _)| secret)
}

/// Makes the descriptor of an open file.
pub fn create(server: u64, file: FileRef, cloexec: bool) -> Result<c_int, Errno> {
    create_named(&name(server, file, None), cloexec)
}

/// Makes a descriptor that is sent to another process for an open file: close-on-exec, not readable.
pub fn create_to_pass(server: u64, file: FileRef, secret: u64) -> Result<c_int, Errno> {
    let fd = create_named(&name(server, file, Some(secret)), true)?;
    let unreadable = sys::open_again(fd, libc::O_WRONLY | libc::O_CLOEXEC);
    let _ = weft_client::sys::close(fd);
    unreadable
}

/// Makes the descriptor one for a path only (`O_PATH`), with the same number. When that fails it is what it was.
pub fn become_path(fd: c_int, cloexec: bool) -> Result<c_int, Errno> {
    let cloexec = if cloexec { libc::O_CLOEXEC } else { 0 };
    let path = sys::open_again(fd, libc::O_PATH | libc::O_CLOEXEC)?;
    let moved = sys::dup3(path, fd, cloexec);
    let _ = weft_client::sys::close(path);
    moved
}

fn create_named(name: &Name, cloexec: bool) -> Result<c_int, Errno> {
    let name = CStr::from_bytes_until_nul(name).unwrap_or(c"weft:");
    let cloexec = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    let fd = sys::memfd_create(name, cloexec | libc::MFD_ALLOW_SEALING)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    let _ = sys::fcntl(fd, libc::F_ADD_SEALS, seals as usize);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_tells_its_server_and_file() {
        let file = FileRef::new(77, 12);
        let fd = create(0xfeed_0000_0000_0001, file, true).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let shown = link.to_str().unwrap().as_bytes();
        assert_eq!(parse(shown), Some((0xfeed_0000_0000_0001, file)));
        assert_eq!(secret(shown), None);
        assert_eq!(sys::write(fd, b"x"), Err(libc::EPERM));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn one_for_a_path_only_is_told_apart_by_the_kernel() {
        let file = FileRef::new(77, 12);
        let fd = create(1, file, false).unwrap();
        assert_eq!(become_path(fd, true), Ok(fd));
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        assert_eq!(parse(link.to_str().unwrap().as_bytes()), Some((1, file)));
        assert_eq!(sys::fcntl(fd, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC as usize));
        assert_eq!(sys::read(fd, &mut [0]), Err(libc::EBADF));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn what_is_passed_tells_its_secret_and_nothing_else() {
        let file = FileRef::new(77, 12);
        let fd = create_to_pass(1, file, 0x0123_4567_89ab_cdef).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let shown = link.to_str().unwrap().as_bytes();
        assert_eq!((parse(shown), secret(shown)), (Some((1, file)), Some(0x0123_4567_89ab_cdef)));
        assert_eq!(sys::write(fd, b"x"), Err(libc::EPERM));
        assert_eq!(sys::read(fd, &mut [0]), Err(libc::EBADF));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn other_names_are_no_placeholders() {
        for shown in
            ["/memfd:weft", "/memfd:weft:12:34", "/tmp/weft:0000000000000000:0000000000000000", "pipe:[1]"]
        {
            assert_eq!(parse(shown.as_bytes()), None);
        }
    }
}
