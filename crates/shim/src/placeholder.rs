//! Placeholder descriptors: each open weft file is a real kernel descriptor, an empty memory file named
//! `weft:<volume>:<file>` (both hexadecimal). So `dup`, `fork`, `select`, `poll` and close-on-exec are the kernel's, and
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

type Name = [u8; PREFIX.len() + HEX + 1 + HEX + 1];

fn name(volume: u64, file: FileRef) -> Name {
    let mut name = [0; PREFIX.len() + HEX + 1 + HEX + 1];
    let (prefix, rest) = name.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    let (first, rest) = rest.split_at_mut(HEX);
    put_hex(volume, first);
    let (colon, rest) = rest.split_at_mut(1);
    colon.copy_from_slice(b":");
    put_hex(file.0, rest);
    // `put_hex` fills 16 of the 17 bytes that are left; the last one stays NUL.
    name
}

/// The volume and file that a memory file's shown name tells.
pub fn parse(shown: &[u8]) -> Option<(u64, FileRef)> {
    let text = shown.strip_prefix(SHOWN)?.strip_prefix(PREFIX)?;
    let (volume, text) = take_hex(text)?;
    let (file, _) = take_hex(text.strip_prefix(b":")?)?;
    Some((volume, FileRef(file)))
}

/// Makes the descriptor of an open file.
pub fn create(volume: u64, file: FileRef, cloexec: bool) -> Result<c_int, Errno> {
    let name = name(volume, file);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"weft:");
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
    fn a_placeholder_tells_its_volume_and_file() {
        let file = FileRef::new(77, 12);
        let fd = create(0xfeed_0000_0000_0001, file, true).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let shown = link.to_str().unwrap().as_bytes();
        assert_eq!(parse(shown), Some((0xfeed_0000_0000_0001, file)));
        assert_eq!(sys::write(fd, b"x"), Err(libc::EPERM));
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
