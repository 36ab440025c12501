//! Weft descriptors: opening, duplicating and closing them, in step with the server's references.
//!
//! Each descriptor in the table holds one reference of this process to the server's open file.

pub mod blank;
pub mod keep;
pub mod limit;
pub mod passing;
pub mod placeholder;
pub mod table;

use crate::file::batch;
use crate::ipc::fifo;
use crate::report::{Refusal, refuse};
use crate::routing::Place;
use crate::{process, streams, sys};
use libc::c_int;
use weft_client::busy::Busy;
use weft_client::proto::with_umask;
use weft_client::{Client, Errno, FileRef};

/// What the kernel does with an open's flags before it looks at the path.
fn checked(flags: c_int) -> Result<c_int, Errno> {
    const UNNAMED: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;
    const FOR_NAMES: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    if flags & libc::O_PATH != 0 {
        return Ok(flags & FOR_NAMES);
    }
    let makes_file_of_directory = flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0;
    let half_unnamed = flags & UNNAMED != 0 && flags & libc::O_DIRECTORY == 0;
    let unnamed_to_read = flags & UNNAMED != 0 && flags & libc::O_ACCMODE == libc::O_RDONLY;
    if makes_file_of_directory || half_unnamed || unnamed_to_read {
        return Err(libc::EINVAL);
    }
    Ok(flags)
}

/// Opens a path on the volume; the new descriptor.
pub fn open(place: Place, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    let _busy = Busy::new();
    let flags = checked(flags)?;
    let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let mode = if creates { with_umask(mode & 0o7777, process::umask()) } else { 0 };
    let client = place.client;
    let open = match client.open(place.at, place.path, flags & !libc::O_CLOEXEC, mode) {
        // The server's answer for what has no bytes on the volume.
        Err(libc::ENXIO) => {
            return fifo::open(place, flags)?.ok_or_else(|| refuse(Refusal::SpecialFile));
        }
        result => result?,
    };
    let opens_data = flags & libc::O_PATH == 0;
    let special = !matches!(open.mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
    if opens_data && special {
        let _ = client.give_back(open.file);
        return Err(refuse(Refusal::SpecialFile));
    }
    enter(client, open.file, flags)
}

/// Gives an open file a descriptor; takes over the reference also when it fails.
fn enter(client: &Client, file: FileRef, flags: c_int) -> Result<c_int, Errno> {
    let cloexec = flags & libc::O_CLOEXEC != 0;
    let is_path = flags & libc::O_PATH != 0;
    let blank = if is_path { Ok(None) } else { blank::create(client, cloexec) };
    let made = blank.and_then(|blank| match blank {
        Some(fd) => Ok(fd),
        None => placeholder::create(client.session(), file, cloexec),
    });
    let made = made.and_then(|fd| {
        // The kernel's answer to `poll` and `select`.
        if is_path {
            placeholder::become_path(*fd, cloexec)?;
        }
        Ok(fd.keep())
    });
    lead_to(client, file, made).map(|(fd, _)| fd)
}

/// Makes a new descriptor lead to a file, whose reference it takes over also when there is none. Returns it, and the file that
/// the table had for its number.
fn lead_to(
    client: &Client,
    file: FileRef,
    made: Result<c_int, Errno>,
) -> Result<(c_int, Option<FileRef>), Errno> {
    let held = made.and_then(|fd| {
        if table::holds(fd) {
            return Ok(fd);
        }
        let _ = weft_client::sys::close(fd);
        Err(refuse(Refusal::DescriptorTable))
    });
    let fd = held.inspect_err(|_| {
        let _ = client.give_back(file);
    })?;
    debug_assert!(
        !matches!(file, table::OWN | table::LOST),
        "a new descriptor leads to a file of the volume"
    );
    blank::note(fd);
    let before = table::swap(fd, Some(file));
    streams::adopt_standard(fd);
    Ok((fd, before))
}

/// Closes a weft descriptor, whatever it says. The last writable descriptor returns the error of a failed write-back
/// and of which it has not heard.
pub fn close(fd: c_int) -> Result<c_int, Errno> {
    let _busy = Busy::new();
    if table::get(fd) == Some(table::OWN) {
        return Err(libc::EBADF);
    }
    // The entry goes first: once the placeholder is closed, the kernel gives its number to others.
    let file = table::swap(fd, None);
    blank::wait(fd);
    let closed = weft_client::sys::close(fd);
    end_batch(file);
    let heard = match file {
        None | Some(table::OWN | table::LOST) => Ok(()),
        Some(file) => match process::client().and_then(|client| client.close(file)) {
            // The reference was not this process's any more.
            Err(libc::EBADF) => Ok(()),
            told => told,
        },
    };
    closed.and(heard).map(|()| 0)
}

/// Closes any descriptor, weft's or the kernel's.
pub fn close_any(fd: c_int) -> Result<c_int, Errno> {
    if table::is_weft(fd) { close(fd) } else { weft_client::sys::close(fd).map(|()| 0) }
}

/// `dup3` of any descriptors.
pub fn duplicate_any(old: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    if old == new {
        return Ok(new);
    }
    if table::is_weft(old) || table::is_weft(new) {
        duplicate_to(old, new, flags)
    } else {
        sys::dup3(old, new, flags)
    }
}

/// A descriptor does not lead to the file any more.
fn end_batch(file: Option<FileRef>) {
    if batch::any()
        && let Some(file) = file
    {
        batch::descriptor_closed(file);
    }
}

/// Gives back the reference of a descriptor that no longer leads to the file.
pub fn release(file: Option<FileRef>) {
    end_batch(file);
    match file {
        None | Some(table::OWN | table::LOST) => {}
        Some(file) => {
            if let Ok(client) = process::client() {
                // As in Linux, only `close` itself tells of a write-back that failed.
                let _ = client.close(file);
            }
        }
    }
}

/// One more descriptor for a file, made by `make` from the placeholder.
pub fn duplicate(file: FileRef, make: impl FnOnce() -> Result<c_int, Errno>) -> Result<c_int, Errno> {
    let _busy = Busy::new();
    if matches!(file, table::OWN | table::LOST) {
        return Err(libc::EBADF);
    }
    let client = process::client()?;
    client.duplicate(file)?;
    let (fd, before) = lead_to(client, file, make())?;
    // With `dup2` the number may have led to another weft file, which the kernel has just closed.
    release(before);
    Ok(fd)
}

/// `dup2` and `dup3` where one of the two descriptors is weft's.
pub fn duplicate_to(old: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    let _busy = Busy::new();
    if table::get(new) == Some(table::OWN) {
        return Err(refuse(Refusal::OwnDescriptor));
    }
    let _held = blank::hold(new);
    match table::get(old) {
        Some(file) => duplicate(file, || sys::dup3(old, new, flags)),
        None => {
            // Another thread that uses `new` meanwhile sees the old file or the new one, as with the kernel's own.
            let before = table::swap(new, None);
            let moved = sys::dup3(old, new, flags).inspect_err(|_| {
                table::swap(new, before);
            })?;
            release(before);
            Ok(moved)
        }
    }
}

/// Closes (or marks close-on-exec) every descriptor from `first` to `last` but the connection's own.
pub fn close_range(first: u32, last: u32, flags: c_int) -> Result<(), Errno> {
    if first > last {
        return Err(libc::EINVAL);
    }
    if flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0 {
        crate::process::fork::check_parting()?;
    }
    let cloexec_only = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    let mut from = first;
    let mut result = Ok(());
    table::each(first, last, |fd, file| {
        if file == table::OWN {
            let own = fd as u32;
            if own > from && result.is_ok() {
                result = sys::close_range(from, own - 1, flags);
            }
            from = own + 1;
        } else if !cloexec_only {
            let before = table::swap(fd, None);
            blank::wait(fd);
            release(before);
        }
    });
    result?;
    if from <= last { sys::close_range(from, last, flags) } else { Ok(()) }
}
