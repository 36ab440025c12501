//! Placeholder descriptors: each open weft file is a real kernel descriptor. So `dup`, `fork`, `select`, `poll` and
//! close-on-exec are the kernel's, and a program that was executed finds out which of its descriptors are weft files.
//!
//! What slips past the hooks has to fail. So the descriptor is a file of *secret memory* (`memfd_secret`), for which the kernel
//! has no `read`, no `write`, no `fsync` (all `EINVAL`) and, as it has a size already, no `ftruncate`. Its times are free: that of
//! access tells the server, that of change the file, their nanoseconds that it is a placeholder.
//!
//! Where the kernel has no secret memory (before Linux 5.14, or switched off) it is an empty memory file named
//! `weft:<server>:<file>` (both hexadecimal), sealed: a write fails (`EPERM`), but a read ends at once and `fsync` does
//! nothing. A descriptor that is on its way to another process is one of these, too: its name has room for a secret.

use crate::owned::Fd;
use crate::{process, sys};
use libc::{c_int, timespec};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weft_client::{Errno, FileRef};

const PREFIX: &[u8] = b"weft:";
/// What `readlink` shows in front of a memory file's name.
const SHOWN: &[u8] = b"/memfd:";
const HEX: usize = 16;
/// What `readlink` shows of secret memory.
const SECRET_MEMORY: &[u8] = b"/secretmem (deleted)";
/// Nanoseconds of the times of a placeholder of secret memory.
const MARKS: [i64; 2] = [0x0077_6566, 0x0074_3a66];
/// Its size: with one it cannot be given another.
const SECRET_MEMORY_BYTES: u64 = 1;

/// This kernel has no secret memory to give.
static NO_SECRET_MEMORY: AtomicBool = AtomicBool::new(false);

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

/// The server and file of a placeholder, and the secret when it is on its way; `None` for all other descriptors.
pub fn identify(fd: c_int) -> Option<(u64, FileRef, Option<u64>)> {
    let mut shown = [0; 128];
    let shown = process::descriptor_name(fd, &mut shown)?;
    if shown != SECRET_MEMORY {
        return parse(shown).map(|(server, file)| (server, file, secret(shown)));
    }
    let stat = sys::fstat(fd).ok()?;
    let marked = [stat.st_atime_nsec, stat.st_mtime_nsec] == MARKS;
    marked.then_some((stat.st_atime as u64, FileRef(stat.st_mtime as u64), None))
}

/// The server and file that a memory file's shown name tells.
fn parse(shown: &[u8]) -> Option<(u64, FileRef)> {
    let text = shown.strip_prefix(SHOWN)?.strip_prefix(PREFIX)?;
    let (server, text) = take_hex(text)?;
    let (file, _) = take_hex(text.strip_prefix(b":")?)?;
    Some((server, FileRef(file)))
}

/// The secret in the shown name of a memory file that was passed to this process.
fn secret(shown: &[u8]) -> Option<u64> {
    let text = shown.get(SHOWN.len() + PREFIX.len() + 2 * HEX + 1..)?.strip_prefix(b":")?;
    take_hex(text).map(|(secret, _)| secret)
}

/// Makes the descriptor of an open file.
pub fn create(server: u64, file: FileRef, cloexec: bool) -> Result<Fd, Errno> {
    if !NO_SECRET_MEMORY.load(Relaxed) {
        match create_secret(server, file, cloexec) {
            Err(error) if !matches!(error, libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                NO_SECRET_MEMORY.store(true, Relaxed);
            }
            result => return result,
        }
    }
    create_named(&name(server, file, None), cloexec)
}

fn create_secret(server: u64, file: FileRef, cloexec: bool) -> Result<Fd, Errno> {
    let fd = Fd(sys::memfd_secret(if cloexec { libc::O_CLOEXEC } else { 0 })?);
    let [access, change] = MARKS;
    let times = [
        timespec { tv_sec: server as i64, tv_nsec: access },
        timespec { tv_sec: file.0 as i64, tv_nsec: change },
    ];
    // The size first: it sets the time of change.
    sys::ftruncate(*fd, SECRET_MEMORY_BYTES)?;
    sys::set_times(*fd, &times)?;
    Ok(fd)
}

/// Makes a descriptor that is sent to another process for an open file: close-on-exec, not readable.
pub fn create_to_pass(server: u64, file: FileRef, secret: u64) -> Result<c_int, Errno> {
    let fd = create_named(&name(server, file, Some(secret)), true)?;
    sys::open_again(*fd, libc::O_WRONLY | libc::O_CLOEXEC)
}

/// Makes the descriptor one for a path only (`O_PATH`), with the same number. When that fails it is what it was.
pub fn become_path(fd: c_int, cloexec: bool) -> Result<c_int, Errno> {
    let cloexec = if cloexec { libc::O_CLOEXEC } else { 0 };
    let path = Fd(sys::open_again(fd, libc::O_PATH | libc::O_CLOEXEC)?);
    sys::dup3(*path, fd, cloexec)
}

fn create_named(name: &Name, cloexec: bool) -> Result<Fd, Errno> {
    let name = CStr::from_bytes_until_nul(name).unwrap_or(c"weft:");
    let cloexec = if cloexec { libc::MFD_CLOEXEC } else { 0 };
    let fd = Fd(sys::memfd_create(name, cloexec | libc::MFD_ALLOW_SEALING)?);
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    let _ = sys::fcntl(*fd, libc::F_ADD_SEALS, seals as usize);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of which all bits count.
    const SERVER: u64 = 0xfeed_0000_0000_0001;

    #[test]
    fn a_placeholder_tells_its_server_and_file() {
        let file = FileRef::new(77, 12);
        for fd in
            [create(SERVER, file, true).unwrap(), create_named(&name(SERVER, file, None), true).unwrap()]
        {
            assert_eq!(identify(*fd), Some((SERVER, file, None)));
            assert!(sys::write(*fd, b"x").is_err());
        }
        // Any reference whatever.
        let fd = create(u64::MAX, FileRef(u64::MAX - 7), true).unwrap().keep();
        assert_eq!(identify(fd), Some((u64::MAX, FileRef(u64::MAX - 7), None)));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn whatever_passes_the_hooks_by_fails_on_secret_memory() {
        let fd = create(SERVER, FileRef::new(77, 12), true).unwrap().keep();
        if NO_SECRET_MEMORY.load(Relaxed) {
            return;
        }
        let sync = |number| {
            // SAFETY: a system call on a descriptor.
            unsafe { sys::raw(number, [fd.into(), 0, 0, 0, 0, 0]) }
        };
        assert_eq!(sys::read(fd, &mut [0]), Err(libc::EINVAL));
        assert_eq!(sys::write(fd, b"x"), Err(libc::EINVAL));
        assert_eq!(sync(libc::SYS_fsync), -i64::from(libc::EINVAL));
        assert_eq!(sync(libc::SYS_fdatasync), -i64::from(libc::EINVAL));
        assert_eq!(sys::ftruncate(fd, 4096), Err(libc::EINVAL));
        assert_eq!(sys::ftruncate(fd, 0), Err(libc::EINVAL));
        // And yet it is ready, as every regular file.
        assert_eq!(sys::is_ready(fd, libc::POLLIN | libc::POLLOUT, false), Ok(true));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn one_for_a_path_only_is_told_apart_by_the_kernel() {
        let file = FileRef::new(77, 12);
        let fd = create(1, file, false).unwrap().keep();
        assert_eq!(become_path(fd, true), Ok(fd));
        assert_eq!(identify(fd), Some((1, file, None)));
        assert_eq!(sys::fcntl(fd, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC as usize));
        assert_eq!(sys::read(fd, &mut [0]), Err(libc::EBADF));
        weft_client::sys::close(fd).unwrap();
    }

    #[test]
    fn what_is_passed_tells_its_secret_and_nothing_else() {
        let file = FileRef::new(77, 12);
        let fd = create_to_pass(1, file, 0x0123_4567_89ab_cdef).unwrap();
        assert_eq!(identify(fd), Some((1, file, Some(0x0123_4567_89ab_cdef))));
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
        if let Ok(fd) = sys::memfd_secret(libc::O_CLOEXEC) {
            assert_eq!(identify(fd), None);
            weft_client::sys::close(fd).unwrap();
        }
    }
}
