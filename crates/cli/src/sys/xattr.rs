//! Extended attributes of the host's files; of symlinks themselves.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Attempts to read what grows while it is read.
const ATTEMPTS: usize = 8;

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// What a call that is first asked for the size, and then for the content, tells.
fn sized(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    for _ in 0..ATTEMPTS {
        let wanted =
            usize::try_from(call(std::ptr::null_mut(), 0)).map_err(|_| io::Error::last_os_error())?;
        let mut out = vec![0; wanted];
        match usize::try_from(call(out.as_mut_ptr(), out.len())) {
            Ok(len) => {
                out.truncate(len);
                return Ok(out);
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::ERANGE) {
                    return Err(error);
                }
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::ERANGE))
}

/// Every attribute that can be read, sorted by name; none where there are no attributes.
pub fn all(path: &Path) -> io::Result<Vec<Xattr>> {
    let file = c_string(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string; `out` has room for `len` bytes.
    let listed = sized(|out, len| unsafe { libc::llistxattr(file.as_ptr(), out.cast(), len) });
    let names = match listed {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let attribute = c_string(name)?;
        // SAFETY: as above, with the name another C string.
        let value =
            sized(|out, len| unsafe { libc::lgetxattr(file.as_ptr(), attribute.as_ptr(), out.cast(), len) });
        match value {
            Ok(value) => found.push((name.to_vec(), value)),
            // It was listed, but is not for this user, or is gone.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENODATA | libc::EOPNOTSUPP)
                ) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Sets an attribute.
pub fn set(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    let (file, name) = (c_string(path.as_os_str().as_bytes())?, c_string(name)?);
    // SAFETY: both are C strings, and `value` is as long as it says; nothing is kept.
    let result =
        unsafe { libc::lsetxattr(file.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether attributes of users can be kept at a path: a test without them proves nothing.
#[cfg(test)]
pub fn are_kept(dir: &Path) -> bool {
    set(dir, b"user.weft-test", b"1").is_ok()
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
        set(&file, b"user.b", b"").unwrap();
        set(&file, b"user.a", &[0, 255, 7]).unwrap();
        let users: Vec<Xattr> =
            all(&file).unwrap().into_iter().filter(|(name, _)| name.starts_with(b"user.")).collect();
        assert_eq!(users, [(b"user.a".to_vec(), vec![0, 255, 7]), (b"user.b".to_vec(), vec![])]);
        assert!(all(&dir.path().join("none")).is_err());
    }
}
