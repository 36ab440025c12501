//! The errno of a failed operation: its name, and what it means there.

use std::io;
use weft_vfs::compound::{Failure, Kind};

macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an errno that a program can answer.
        pub fn name(errno: i32) -> String {
            match errno {
                $(libc::$name => stringify!($name).to_string(),)*
                other => format!("errno {other}"),
            }
        }
    };
}
names! {
    EPERM ENOENT EIO ENXIO E2BIG EBADF ENOMEM EACCES EBUSY EEXIST EXDEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ETXTBSY EFBIG ENOSPC EROFS
    EMLINK ERANGE ETIME ENOEXEC EFAULT ENAMETOOLONG ENOTEMPTY ELOOP ENODATA EOVERFLOW EBADMSG EMSGSIZE EOPNOTSUPP ESTALE EDQUOT ECANCELED
}

/// What an errno means for this operation.
pub fn meaning(errno: i32, kind: &Kind) -> String {
    let of_programs = match errno {
        libc::ECANCELED => Some(Failure::Expect),
        libc::EBADMSG => Some(Failure::Crc),
        libc::EOVERFLOW => Some(Failure::Overflow),
        libc::EBADF => Some(Failure::NotOpenFor),
        libc::EBUSY => Some(Failure::NoName),
        libc::EMSGSIZE => Some(Failure::Limit("values of 16 MiB, exports and writes of 4 MiB")),
        libc::ERANGE if matches!(kind, Kind::Slice { .. } | Kind::Unpack { .. } | Kind::Patch { .. }) => {
            Some(Failure::Range)
        }
        _ => None,
    };
    of_programs.map_or_else(|| of_system(errno), |failure| failure.to_string())
}

/// The system's words for an errno, without its number.
fn of_system(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_vfs::compound::Bytes;

    #[test]
    fn an_errno_has_the_meaning_that_it_has_for_its_operation() {
        let len = Kind::Len { bytes: Bytes::Lit(Vec::new()) };
        assert_eq!((name(libc::ENOENT), name(4095)), ("ENOENT".to_string(), "errno 4095".to_string()));
        assert_eq!(meaning(libc::ENOENT, &len), "No such file or directory");
        assert_eq!(meaning(libc::ECANCELED, &len), "an expected comparison does not hold");
        assert_eq!(meaning(libc::ERANGE, &len), "Numerical result out of range");
        let slice = Kind::Slice {
            bytes: Bytes::Lit(Vec::new()),
            from: weft_vfs::compound::Num::Lit(0),
            len: weft_vfs::compound::Num::Lit(1),
        };
        assert_eq!(meaning(libc::ERANGE, &slice), "a range of bytes is not there");
    }
}
