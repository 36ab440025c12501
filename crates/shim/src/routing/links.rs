//! Paths by which a program names its own descriptors and working directory: `/proc/self/fd/N`, `/dev/stdin` and the like.

use crate::descriptors::table;
use crate::process;
use crate::text::decimal;
use libc::c_int;
use weft_client::FileRef;

pub(super) fn may_be_descriptor(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") || path.starts_with(b"/dev/")
}

/// What follows `/proc/self/` and the like in a path.
pub(super) fn of_this_process(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (who, rest) = rest.split_at_checked(slash)?;
    let me = decimal(weft_client::sys::getpid().into());
    if who == b"self" || who == b"thread-self" || *who == *me { rest.get(1..) } else { None }
}

/// The descriptor that `/dev/fd/N`, `/dev/stdin`, `/proc/self/fd/N` and the like mean, and what follows it in the path.
pub(super) fn descriptor_of(path: &[u8]) -> Option<(c_int, &[u8])> {
    match path {
        b"/dev/stdin" => return Some((0, b"")),
        b"/dev/stdout" => return Some((1, b"")),
        b"/dev/stderr" => return Some((2, b"")),
        _ => {}
    }
    let number = match path.strip_prefix(b"/dev/fd/") {
        Some(number) => number,
        None => of_this_process(path)?.strip_prefix(b"fd/")?,
    };
    let end = number.iter().position(|&byte| byte == b'/').unwrap_or(number.len());
    let (number, rest) = number.split_at(end);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

/// The open weft file that a link of `/proc` leads to, by which the path begins, and what follows in the path.
pub fn linked(path: &[u8]) -> Option<(FileRef, &[u8])> {
    if let Some((fd, rest)) = descriptor_of(path) {
        return Some((table::get(fd)?, rest));
    }
    let rest = of_this_process(path)?.strip_prefix(b"cwd")?;
    if matches!(rest.first(), None | Some(b'/')) { Some((process::cwd()?.0, rest)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_paths_are_known() {
        assert_eq!(descriptor_of(b"/dev/fd/7"), Some((7, &b""[..])));
        assert_eq!(descriptor_of(b"/dev/stdin"), Some((0, &b""[..])));
        assert_eq!(descriptor_of(b"/proc/self/fd/12"), Some((12, &b""[..])));
        let mine = format!("/proc/{}/fd/3", std::process::id());
        assert_eq!(descriptor_of(mine.as_bytes()), Some((3, &b""[..])));
        assert_eq!(descriptor_of(b"/proc/1/fd/3"), None);
        assert_eq!(descriptor_of(b"/proc/self/fd/3/x"), Some((3, &b"/x"[..])));
        assert_eq!(descriptor_of(b"/proc/self/fd/x"), None);
        assert_eq!(of_this_process(b"/proc/thread-self/cwd/a"), Some(&b"cwd/a"[..]));
        assert_eq!(of_this_process(b"/proc/1/cwd"), None);
    }
}
