//! Extended attributes.

use crate::hooks::change::{NOFOLLOW, SELF, checked, place_for_data};
use crate::routing::{Place, on_file, on_name, on_target};
use crate::sys;
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use weft_client::{Errno, FileRef};

/// Longest name of an extended attribute, in bytes.
const ATTRIBUTE_NAME_MAX: usize = 255;

unsafe fn attribute_name<'a>(name: *const c_char) -> Result<&'a [u8], Errno> {
    // SAFETY: a C string, when it is not null.
    let name = if name.is_null() { return Err(libc::EFAULT) } else { unsafe { sys::bytes(name) } };
    if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX { Err(libc::ERANGE) } else { Ok(name) }
}

/// An open file, for a call with an attribute's name, which Linux looks at first.
unsafe fn place_after_name(file: FileRef, name: *const c_char) -> Result<Place<'static>, Errno> {
    // SAFETY: a C string, when it is not null.
    unsafe { attribute_name(name)? };
    place_for_data(file)
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
    place: Place,
    flags: c_int,
    name: *const c_char,
    value: *mut c_void,
    len: size_t,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promises.
    let (name, out) = unsafe { (attribute_name(name)?, value_room(value, len)) };
    place.client.get_xattr(place.at, place.path, flags, name, out)
}

unsafe fn set_xattr(
    place: Place,
    flags: c_int,
    name: *const c_char,
    value: *const c_void,
    len: size_t,
    how: c_int,
) -> Result<(), Errno> {
    let how = checked_how(how)?;
    // SAFETY: the caller's promises.
    let name = unsafe { attribute_name(name)? };
    if len > XATTR_BYTES_MAX {
        return Err(libc::E2BIG);
    }
    // SAFETY: as above.
    let value = unsafe { value_given(value, len) };
    place.client.set_xattr(place.at, place.path, flags, name, value, how)
}

fn checked_how(how: c_int) -> Result<c_int, Errno> {
    checked(how, libc::XATTR_CREATE | libc::XATTR_REPLACE)
}

unsafe fn list_xattr(place: Place, flags: c_int, list: *mut c_char, len: size_t) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let out = unsafe { value_room(list.cast(), len) };
    place.client.list_xattr(place.at, place.path, flags, out)
}

unsafe fn remove_xattr(place: Place, flags: c_int, name: *const c_char) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    place.client.remove_xattr(place.at, place.path, flags, unsafe { attribute_name(name)? })
}

hooks! {
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_target(path, |path| real::getxattr(path, name, value, len), |place| get_xattr(place, 0, name, value, len))
    }

    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_name(path, |path| real::lgetxattr(path, name, value, len), |place| {
            get_xattr(place, NOFOLLOW, name, value, len)
        })
    }

    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, len: size_t) -> ssize_t {
        on_file(fd, || real::fgetxattr(fd, name, value, len), |file| {
            get_xattr(place_after_name(file, name)?, SELF, name, value, len)
        })
    }

    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_target(path, |path| real::setxattr(path, name, value, len, how), |place| {
            set_xattr(place, 0, name, value, len, how)
        })
    }

    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_name(path, |path| real::lsetxattr(path, name, value, len, how), |place| {
            set_xattr(place, NOFOLLOW, name, value, len, how)
        })
    }

    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, how: c_int) -> c_int {
        on_file(fd, || real::fsetxattr(fd, name, value, len, how), |file| {
            checked_how(how)?;
            set_xattr(place_after_name(file, name)?, SELF, name, value, len, how)
        })
    }

    fn listxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_target(path, |path| real::listxattr(path, list, len), |place| list_xattr(place, 0, list, len))
    }

    fn llistxattr(path: *const c_char, list: *mut c_char, len: size_t) -> ssize_t {
        on_name(path, |path| real::llistxattr(path, list, len), |place| list_xattr(place, NOFOLLOW, list, len))
    }

    fn flistxattr(fd: c_int, list: *mut c_char, len: size_t) -> ssize_t {
        on_file(fd, || real::flistxattr(fd, list, len), |file| {
            list_xattr(place_for_data(file)?, SELF, list, len)
        })
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_target(path, |path| real::removexattr(path, name), |place| remove_xattr(place, 0, name))
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        on_name(path, |path| real::lremovexattr(path, name), |place| remove_xattr(place, NOFOLLOW, name))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        on_file(fd, || real::fremovexattr(fd, name), |file| remove_xattr(place_after_name(file, name)?, SELF, name))
    }
}
