//! Programs that are executed under weft and that the preloaded library will not be in, or will not hear: static ones, those
//! that gain rights when they start, and Go's, which make their system calls past libc. They start as they would without
//! weft, but see no volume; the report says so and what helps, since their user would look for the reason in vain.

use crate::interception::dispatch;
use crate::owned::Fd;
use crate::{process, sys};
use libc::{c_char, c_int};
use weft_client::scratch::Scratch;

/// Bytes of an ELF file that are looked at: header and program headers lie at its beginning.
const HEAD_BYTES: usize = 4096;
/// Bytes of a program's note that are looked at.
const NOTE_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const ELF_CLASS_64: u8 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// Begin of Go's note: length of its name, any length of its text, its type, its name.
const GO_NOTE: ([u8; 4], [u8; 8]) = ([4, 0, 0, 0], [4, 0, 0, 0, b'G', b'o', 0, 0]);

/// Why a program does not see the volume, and what helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Static,
    Go,
    GainsRights,
}

impl Reason {
    fn text(self) -> &'static [u8] {
        match self {
            Reason::Static => {
                b" is statically linked: the system preloads nothing into it, so it sees no volume; \
                use a dynamically linked one, or bring its files by weft cp"
            }
            Reason::Go => {
                b" is a Go program, which makes its system calls past libc, so it sees no volume; \
                use weft run --intercept sud"
            }
            Reason::GainsRights => {
                b" gains rights when it starts (setuid or setgid): the system preloads nothing into it, so it sees no \
                volume; run it as the user whose rights it gains, from a copy without the bit"
            }
        }
    }
}

/// Looks at a program on the host that is about to be executed, when its path leads to one.
///
/// # Safety
/// `path` is the program's own argument of an `exec`.
pub unsafe fn tell_of_path(dirfd: c_int, path: *const c_char) {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    if let Ok(fd) = sys::open_at(dirfd, path, flags).map(Fd) {
        // SAFETY: it was opened, so it is a string.
        tell_of(*fd, unsafe { sys::bytes(path) });
    }
}

/// Looks at a program that is open.
#[inline(never)]
pub fn tell_of(fd: c_int, name: &[u8]) {
    let Ok(mut head) = Scratch::<[u8; HEAD_BYTES]>::any() else { return };
    let filled = sys::pread(fd, &mut *head, 0).unwrap_or(0);
    let head = head.get(..filled).unwrap_or(&[]);
    let note = |at: u64, out: &mut [u8; NOTE_BYTES]| sys::pread(fd, out, at).is_ok();
    let reason = match read(head, note) {
        _ if !head.starts_with(b"\x7fELF") => None,
        // The loader itself is static, and loads what it is given with all that is preloaded.
        _ if name.rsplit(|&byte| byte == b'/').next().is_some_and(|last| last.starts_with(b"ld-")) => None,
        _ if sys::gains_rights(fd) => Some(Reason::GainsRights),
        Some(Reason::Go) if dispatch::is_on() => None,
        reason => reason,
    };
    if let Some(reason) = reason {
        say(name, reason);
    }
}

#[cold]
fn say(name: &[u8], reason: Reason) {
    let Ok(mut line) = Scratch::<[u8; HEAD_BYTES]>::any() else { return };
    let mut used = 0;
    for byte in b"exec: ".iter().chain(name).chain(reason.text()) {
        if let Some(place) = line.get_mut(used) {
            *place = *byte;
            used += 1;
        }
    }
    if let Ok(client) = process::client() {
        let _ = client.note(line.get(..used).unwrap_or(&[]));
    }
}

/// What the head of an ELF file says; `note` reads a note of it.
fn read(head: &[u8], note: impl Fn(u64, &mut [u8; NOTE_BYTES]) -> bool) -> Option<Reason> {
    if head.get(4) != Some(&ELF_CLASS_64) {
        return None;
    }
    let table = usize::try_from(u64_at(head, 32)?).ok()?;
    let (entry, count) = (usize::from(u16_at(head, 54)?), usize::from(u16_at(head, 56)?));
    let mut reason = Some(Reason::Static);
    for header in head.get(table..)?.chunks_exact(entry.max(PROGRAM_HEADER_BYTES)).take(count) {
        match u32_at(header, 0)? {
            PT_INTERP if reason == Some(Reason::Static) => reason = None,
            PT_NOTE if reason.is_none() => {
                let mut text = [0; NOTE_BYTES];
                if note(u64_at(header, 8)?, &mut text)
                    && text.starts_with(&GO_NOTE.0)
                    && text[8..].starts_with(&GO_NOTE.1)
                {
                    reason = Some(Reason::Go);
                }
            }
            _ => {}
        }
    }
    reason
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file's head with these program headers: kind and offset.
    fn head(headers: &[(u32, u64)]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32..40].copy_from_slice(&64u64.to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        for (kind, at) in headers {
            let mut header = [0; PROGRAM_HEADER_BYTES];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&at.to_le_bytes());
            head.extend(header);
        }
        head
    }

    fn note(at: u64, out: &mut [u8; NOTE_BYTES]) -> bool {
        match at {
            700 => out[..16].copy_from_slice(b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0"),
            _ => out[..16].copy_from_slice(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"),
        }
        true
    }

    #[test]
    fn static_programs_and_those_of_go_are_known_by_their_headers() {
        for (headers, reason) in [
            (&[(PT_INTERP, 0), (1, 0), (PT_NOTE, 500)][..], None),
            (&[(1, 0), (PT_NOTE, 500)], Some(Reason::Static)),
            (&[(1, 0), (PT_NOTE, 700)], Some(Reason::Static)),
            (&[(6, 0), (PT_INTERP, 0), (PT_NOTE, 700)], Some(Reason::Go)),
            (&[(6, 0), (PT_INTERP, 0), (PT_NOTE, 500), (PT_NOTE, 700)], Some(Reason::Go)),
        ] {
            assert_eq!(read(&head(headers), note), reason, "{headers:?}");
        }
    }

    #[test]
    fn what_is_no_whole_head_says_nothing_wrong() {
        let whole = head(&[(PT_INTERP, 0), (PT_NOTE, 700)]);
        for len in 0..64 {
            assert_eq!(read(&whole[..len], note), None, "{len}");
        }
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(read(&far, note), None);
    }
}
