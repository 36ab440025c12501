//! Streams: opening, closing, `fileno`.

use crate::descriptors;
use crate::hooks::open;
use crate::routing::{Place, fail, finish, is_on_volume, on_file, on_target, result_of};
use crate::{process, streams, sys};
use libc::{FILE, c_char, c_int, mode_t};
use weft_client::Errno;

/// What `fopen` creates files with.
const CREATE_MODE: mode_t = 0o666;

unsafe fn mode_flags(mode: *const c_char) -> Result<c_int, Errno> {
    // SAFETY: a C string, by the program's promise, when it is not null.
    if mode.is_null() { Err(libc::EINVAL) } else { streams::flags_of(unsafe { sys::bytes(mode) }) }
}

fn open_stream(place: Place, flags: c_int, mode: mode_t) -> Result<*mut FILE, Errno> {
    let fd = descriptors::open(place, flags, mode)?;
    streams::open(fd, flags).inspect_err(|_| {
        let _ = descriptors::close(fd);
    })
}

/// `freopen` of a stream of ours: any path, or none to change the mode.
unsafe fn reopen_ours(path: *const c_char, flags: c_int, stream: *mut FILE) -> Result<*mut FILE, Errno> {
    // SAFETY: the program's own stream and path.
    unsafe {
        libc::fflush(stream);
        if path.is_null() {
            streams::set_mode(stream, flags);
            return Ok(stream);
        }
        let fd = result_of(open::body::open(path, flags, CREATE_MODE))?;
        streams::reopen(stream, fd, flags)?;
        libc::clearerr(stream);
        Ok(stream)
    }
}

/// `freopen` of one of libc's streams on a weft path: possible for the standard ones, by replacing them.
unsafe fn reopen_standard(path: *const c_char, flags: c_int, stream: *mut FILE) -> Result<*mut FILE, Errno> {
    let Some(number) = streams::number_of_standard(stream) else {
        return Err(crate::report::refuse(crate::report::Refusal::Reopen));
    };
    // SAFETY: the program's own stream and path.
    unsafe {
        libc::fflush(stream);
        let fd = result_of(open::body::open(path, flags | libc::O_CLOEXEC, CREATE_MODE))?;
        let moved = descriptors::duplicate_any(fd, number, flags & libc::O_CLOEXEC);
        let _ = descriptors::close_any(fd);
        moved?;
        let stream = streams::standard_stream(number).ok_or(libc::EBADF)?;
        if streams::is_ours(stream) {
            streams::set_mode(stream, flags);
        }
        Ok(stream)
    }
}

/// libc's `fopen`, and a hint for the file.
unsafe fn open_advised(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments, and a stream that libc has just made.
    unsafe {
        let stream = real::fopen(path, mode);
        if crate::advice::is_on()
            && !stream.is_null()
            && let Ok(flags) = mode_flags(mode)
        {
            crate::advice::opened(libc::fileno(stream), flags);
        }
        stream
    }
}

hooks! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        on_target(path, |path| open_advised(path, mode), |place| open_stream(place, mode_flags(mode)?, CREATE_MODE))
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        if !process::is_on() {
            return real::freopen(path, mode, stream);
        }
        let ours = streams::is_ours(stream);
        if !ours && (path.is_null() || !is_on_volume(libc::AT_FDCWD, path)) {
            return on_target(path, |path| real::freopen(path, mode, stream), |_| Err::<*mut FILE, Errno>(libc::EXDEV));
        }
        let result = mode_flags(mode).and_then(|flags| {
            if ours { reopen_ours(path, flags, stream) } else { reopen_standard(path, flags, stream) }
        });
        if result.is_err() {
            // As the manual says: when it fails, the stream is closed.
            let error = sys::errno();
            body::fclose(stream);
            sys::set_errno(error);
        }
        finish(result)
    }

    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        on_file(fd, || real::fdopen(fd, mode), |file| {
            let flags = mode_flags(mode)?;
            let client = process::client()?;
            let open = client.flags(file)?;
            let access = open & libc::O_ACCMODE;
            let wanted = flags & libc::O_ACCMODE;
            let denied = |only| access == only && wanted != only;
            if denied(libc::O_RDONLY) || denied(libc::O_WRONLY) {
                return Err(libc::EINVAL);
            }
            if flags & libc::O_APPEND != 0 && open & libc::O_APPEND == 0 {
                client.set_flags(file, open | libc::O_APPEND)?;
            }
            streams::open(fd, flags)
        })
    }

    fn fclose(stream: *mut FILE) -> c_int {
        // Out of the table first: the next stream may get the same address.
        if process::is_on() {
            streams::forget(stream);
        }
        real::fclose(stream)
    }

    fn fileno(stream: *mut FILE) -> c_int {
        let error = sys::errno();
        let fd = real::fileno(stream);
        if fd >= 0 || !process::is_on() {
            return fd;
        }
        match streams::descriptor_of(stream) {
            None => fd,
            Some(fd) => {
                sys::set_errno(error);
                fd
            }
        }
    }

    fn setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE {
        on_target(path, |path| real::setmntent(path, mode), |place| {
            open_stream(place, mode_flags(mode)? | libc::O_CLOEXEC, CREATE_MODE)
        })
    }

    /// libc's own opens in `/tmp` or by `TMPDIR` through inner functions; `/tmp` is outside unless the volume is there.
    fn tmpfile() -> *mut FILE {
        let tmp = c"/tmp".as_ptr();
        if !is_on_volume(libc::AT_FDCWD, tmp) {
            return real::tmpfile();
        }
        let flags = libc::O_RDWR | libc::O_TMPFILE | libc::O_EXCL;
        on_target(tmp, |_| fail(libc::ENOENT), |place| open_stream(place, flags, 0o600))
    }
}
