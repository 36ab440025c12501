//! Extended attributes of the host's files; of symlinks themselves.

use rustix::fs::{
    XattrFlags, getxattr, lgetxattr, llistxattr, lremovexattr, lsetxattr, removexattr, setxattr,
};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// The most bytes that Linux gives of a value or of a list of names.
const BYTES_MAX: usize = 64 << 10;

/// What a call writes to a buffer.
fn filled(call: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; BYTES_MAX];
    let len = call(&mut out)?;
    out.truncate(len);
    Ok(out)
}

/// Every attribute that can be read, sorted by name; none where there are no attributes.
pub fn all(path: &Path) -> io::Result<Vec<Xattr>> {
    match filled(|out| llistxattr(path, out)) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        names => of_names(&names?, |name| Ok(filled(|out| lgetxattr(path, name, out))?)),
    }
}

/// The attributes of a list of names, each with a zero behind it, sorted by name.
pub fn of_names(names: &[u8], get: impl Fn(&[u8]) -> io::Result<Vec<u8>>) -> io::Result<Vec<Xattr>> {
    let mut found = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match get(name).map_err(|error| (error.raw_os_error(), error)) {
            Ok(value) => found.push((name.to_vec(), value)),
            // It was listed, but is not for this user, or is gone.
            Err((Some(libc::EPERM | libc::EACCES | libc::ENODATA | libc::EOPNOTSUPP), _)) => {}
            Err((_, error)) => return Err(error),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Sets an attribute as `flags` (`XATTR_CREATE`, `XATTR_REPLACE`) say; without a value, removes it.
pub fn change(path: &Path, name: &[u8], value: Option<&[u8]>, flags: i32) -> io::Result<()> {
    let done = match value {
        Some(value) => lsetxattr(path, name, value, XattrFlags::from_bits_retain(flags as u32)),
        None => lremovexattr(path, name),
    };
    Ok(done?)
}

/// An attribute of what a path leads to.
pub fn get(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(filled(|out| getxattr(path, name, out))?)
}

/// Sets an attribute of what a path leads to.
pub fn set_of_target(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(setxattr(path, name, value, XattrFlags::empty())?)
}

/// Removes an attribute of what a path leads to.
pub fn remove(path: &Path, name: &[u8]) -> io::Result<()> {
    Ok(removexattr(path, name)?)
}

/// Whether attributes of users can be kept at a path: a test without them proves nothing.
#[cfg(test)]
pub fn are_kept(dir: &Path) -> bool {
    change(dir, b"user.weft-test", Some(b"1"), 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_set() {
        let dir = tempfile::tempdir().unwrap();
        if !are_kept(dir.path()) {
            return;
        }
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        change(&file, b"user.b", Some(b""), 0).unwrap();
        change(&file, b"user.a", Some(&[0, 255, 7]), libc::XATTR_CREATE).unwrap();
        change(&file, b"user.c", Some(b"1"), 0).unwrap();
        change(&file, b"user.c", None, 0).unwrap();
        let users: Vec<Xattr> =
            all(&file).unwrap().into_iter().filter(|(name, _)| name.starts_with(b"user.")).collect();
        assert_eq!(users, [(b"user.a".to_vec(), vec![0, 255, 7]), (b"user.b".to_vec(), vec![])]);
        assert!(all(&dir.path().join("none")).is_err());
    }
}
