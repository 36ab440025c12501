//! Extended attributes.

use crate::descriptors::table;
use crate::hooks::change::{CWD, NOFOLLOW, SELF, checked, client_for_data};
use crate::routing::{Last, finish, on_path};
use crate::sys;
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use weft_client::{Client, Errno, FileRef};

/// Longest name of an extended attribute, in bytes.
const ATTRIBUTE_NAME_MAX: usize = 255;

unsafe fn attribute_name<'a>(name: *const c_char) -> Result<&'a [u8], Errno> {
    // SAFETY: a C string, when it is not null.
    let name = if name.is_null() { return Err(libc::EFAULT) } else { unsafe { sys::bytes(name) } };
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX { Err(libc::ERANGE) } else { Ok(name) }
}

/// The client, for a call on an open file with an attribute's name, which Linux looks at first.
unsafe fn data_after_name(file: FileRef, name: *const c_char) -> Result<&'static Client, Errno> {
    // SAFETY: a C string, when it is not null.
    unsafe { attribute_name(name)? };
    client_for_data(file)
}

/// Most bytes of an attribute's value and of a list of names, as in Linux.
const XATTR_BYTES_MAX: usize = 65536;

unsafe fn value_room<'a>(value: *mut c_void, len: size_t) -> &'a mut [u8] {
    if value.is_null() || len == 0 {
        // Length 0 asks for the length only.
        &mut []
    } else {
        // SAFETY: the program promises `len` writable bytes; no value and no list has more than this.
        unsafe { std::slice::from_raw_parts_mut(value.cast(), len.min(XATTR_BYTES_MAX)) }
    }
}

unsafe fn value_given<'a>(value: *const c_void, len: size_t) -> &'a [u8] {
    // SAFETY: the program promises `len` readable bytes.
    if value.is_null() || len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(value.cast(), len) } }
}

unsafe fn get_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    name: *const c_char,
    value: *mut c_void,
    len: size_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promises.
    let (name, out) = unsafe { (attribute_name(name)?, value_room(value, len)) };
    client.get_xattr(at, path, flags, name, out).map(|n| n as ssize_t)
}

#[allow(clippy::too_many_arguments)]
unsafe fn set_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    name: *const c_char,
    value: *const c_void,
    len: size_t,
    how: c_int,
) -> Result<c_int, Errno> {
    let how = checked(how, libc::XATTR_CREATE | libc::XATTR_REPLACE)?;
    // SAFETY: the caller's promises.
    let name = unsafe { attribute_name(name)? };
    if len > XATTR_BYTES_MAX {
        return Err(libc::E2BIG);
    }
    // SAFETY: as above.
    let value = unsafe { value_given(value, len) };
    client.set_xattr(at, path, flags, name, value, how).map(|()| 0)
}

unsafe fn list_xattr(
    client: &Client,
    at: FileRef,
    path: &[u8],
    flags: c_int,
    list: *mut c_char,
    len: size_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promise.
    let out = unsafe { value_room(list.cast(), len) };
    client.list_xattr(at, path, flags, out).map(|n| n as ssize_t)
}

hooks! {
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::Follow, |_, path| real::getxattr(path, name, value, len), |client, at, path| {
            get_xattr(client, at, path, 0, name, value, len)
        })
    }

    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lgetxattr(path, name, value, len), |client, at, path| {
            get_xattr(client, at, path, NOFOLLOW, name, value, len)
        })
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        match table::get(fd) {
            None => real::fgetxattr(fd, name, value, len),
            Some(file) => finish(
                data_after_name(file, name).and_then(|client| get_xattr(client, file, b"", SELF, name, value, len)),
            ),
        }
    }

    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::setxattr(path, name, value, len, how), |client, at, path| {
            set_xattr(client, at, path, 0, name, value, len, how)
        })
    }

    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lsetxattr(path, name, value, len, how), |client, at, path| {
            set_xattr(client, at, path, NOFOLLOW, name, value, len, how)
        })
    }

    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        match table::get(fd) {
            None => real::fsetxattr(fd, name, value, len, how),
            Some(file) => finish(
                checked(how, libc::XATTR_CREATE | libc::XATTR_REPLACE)
                    .and_then(|how| Ok((how, data_after_name(file, name)?)))
                    .and_then(|(how, client)| set_xattr(client, file, b"", SELF, name, value, len, how)),
            ),
        }
    }

    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::Follow, |_, path| real::listxattr(path, list, len), |client, at, path| {
            list_xattr(client, at, path, 0, list, len)
        })
    }

    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_path(CWD, path, Last::NoFollow, |_, path| real::llistxattr(path, list, len), |client, at, path| {
            list_xattr(client, at, path, NOFOLLOW, list, len)
        })
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        match table::get(fd) {
            None => real::flistxattr(fd, list, len),
            Some(file) => finish(client_for_data(file).and_then(|client| list_xattr(client, file, b"", SELF, list, len))),
        }
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_path(CWD, path, Last::Follow, |_, path| real::removexattr(path, name), |client, at, path| {
            client.remove_xattr(at, path, 0, attribute_name(name)?).map(|()| 0)
        })
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_path(CWD, path, Last::NoFollow, |_, path| real::lremovexattr(path, name), |client, at, path| {
            client.remove_xattr(at, path, NOFOLLOW, attribute_name(name)?).map(|()| 0)
        })
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        match table::get(fd) {
            None => real::fremovexattr(fd, name),
            Some(file) => finish(data_after_name(file, name).and_then(|client| {
                client.remove_xattr(file, b"", SELF, attribute_name(name)?).map(|()| 0)
            })),
        }
    }
}
