//! The working directory.
//!
//! When it lies on the volume, the kernel's own working directory is [`nowhere`]: paths that the hooks do not see (of a function
//! that is not hooked, of a program that the library does not reach) then fail visibly instead of meeting files of some other
//! directory.

use crate::descriptors;
use crate::hooks::names::put_shown;
use crate::process::{self, nowhere};
use crate::report::{Refusal, refused};
use crate::routing::{Place, fail, finish, on_file, on_target};
use libc::{c_char, c_int, size_t};
use weft_client::scratch::Scratch;
use weft_client::{Errno, FileRef, OUTSIDE, RESOLVED_MAX, Resolution};

/// Makes an open directory (whose reference is taken over) the working directory.
fn enter(file: FileRef, place: Place) -> Result<(), Errno> {
    let result = place.access(libc::X_OK, libc::AT_EACCESS).and_then(|()| {
        let mut room = Scratch::<[u8; RESOLVED_MAX]>::any()?;
        match place.client.resolve(place.at, place.path, 0, room.as_mut_slice()) {
            Ok(Resolution::Inside(len)) if len < process::PATH_BYTES => Ok((room, len)),
            Ok(Resolution::Inside(_)) => Err(libc::ENAMETOOLONG),
            Ok(Resolution::Outside(_)) => Err(OUTSIDE),
            // It is open already, and can have been removed: it has the path then that it had.
            Err(libc::ENOENT) => match place.client.path_of(file, room.as_mut_slice())? {
                now if now.deleted && now.len < process::PATH_BYTES => Ok((room, now.len)),
                _ => Err(libc::ENOENT),
            },
            Err(error) => Err(error),
        }
    });
    let (room, len) = result.inspect_err(|_| {
        let _ = place.client.give_back(file);
    })?;
    set(file, room.get(..len).unwrap_or(b"/"));
    Ok(())
}

fn set(file: FileRef, path: &[u8]) {
    let before = process::set_cwd(Some((file, path)));
    // In this order: of a thread that leaves the volume meanwhile, it overrides the change of the kernel's directory.
    if before.is_none() {
        nowhere::enter();
    }
    descriptors::release(before);
}

/// The same of an open directory.
fn enter_open(dir: FileRef) -> Result<(), Errno> {
    let client = process::client()?;
    let file = client.open(dir, b".", libc::O_PATH | libc::O_DIRECTORY, 0)?.file;
    enter(file, Place { client, at: dir, path: b"." })
}

/// The kernel's working directory is the program's again.
fn leave(result: c_int) -> c_int {
    if result == 0 && process::is_on() {
        descriptors::release(process::set_cwd(None));
    }
    result
}

/// Copies the working directory on the volume to where `getcwd` wants it.
unsafe fn put_cwd(path: &[u8], out: *mut c_char, room: size_t) -> Result<*mut c_char, Errno> {
    let path = if path == b"/" { &[] } else { path };
    if !out.is_null() && room == 0 {
        return Err(libc::EINVAL);
    }
    if (!out.is_null() || room != 0) && room <= process::mount().len() + path.len() {
        return Err(libc::ERANGE);
    }
    // SAFETY: `out` has `room` bytes, which is more than both need.
    unsafe { put_shown(path, out, room) }
}

/// Puts the path of the working directory on the volume where `getcwd` wants it. The server is asked, as somebody may have moved
/// it, or its name may be gone (`ENOENT`).
#[inline(never)]
unsafe fn put_now(file: FileRef, out: *mut c_char, room: size_t) -> Result<*mut c_char, Errno> {
    let mut path = Scratch::<[u8; RESOLVED_MAX]>::any()?;
    match process::client()?.path_of(file, path.as_mut_slice())? {
        now if now.deleted => Err(libc::ENOENT),
        // SAFETY: the caller's promise.
        now => unsafe { put_cwd(path.get(..now.len).unwrap_or(b"/"), out, room) },
    }
}

/// The working directory when it lies on the volume.
fn cwd() -> Option<FileRef> {
    if process::is_on() { process::cwd().map(|(file, _)| file) } else { None }
}

hooks! {
    fn chdir(path: *const c_char) -> c_int {
        on_target(path, |path| leave(real::chdir(path)), |place| {
            enter(place.open(libc::O_PATH | libc::O_DIRECTORY)?.file, place)
        })
    }

    fn fchdir(fd: c_int) -> c_int {
        on_file(fd, || leave(real::fchdir(fd)), enter_open)
    }

    fn getcwd(out: *mut c_char, room: size_t) -> *mut c_char {
        match cwd() {
            None => real::getcwd(out, room),
            Some(_) if !out.is_null() && room == 0 => fail(libc::EINVAL),
            Some(cwd) => finish(put_now(cwd, out, room)),
        }
    }

    fn __getcwd_chk(out: *mut c_char, room: size_t, object: size_t) -> *mut c_char {
        match cwd() {
            Some(cwd) if room <= object => finish(put_now(cwd, out, room)),
            _ => real::__getcwd_chk(out, room, object),
        }
    }

    fn getwd(out: *mut c_char) -> *mut c_char {
        match cwd() {
            None => real::getwd(out),
            Some(_) if out.is_null() => fail(libc::EINVAL),
            Some(cwd) => finish(put_now(cwd, out, process::PATH_BYTES)),
        }
    }

    fn __getwd_chk(out: *mut c_char, object: size_t) -> *mut c_char {
        // libc ends the program when the buffer may be too small.
        if out.is_null() || object < process::PATH_BYTES || !process::is_on() {
            return real::__getwd_chk(out, object);
        }
        body::getwd(out)
    }

    fn get_current_dir_name() -> *mut c_char {
        match cwd() {
            None => real::get_current_dir_name(),
            Some(cwd) => finish(put_now(cwd, std::ptr::null_mut(), 0)),
        }
    }

    fn chroot(path: *const c_char) -> c_int {
        on_target(path, |path| real::chroot(path), |_| refused(Refusal::Chroot))
    }
}
