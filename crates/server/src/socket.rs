//! Where the server of an image listens: a directory of its user, in which commands of the same user look for it.
//!
//! ```text
//!  $XDG_RUNTIME_DIR/weft        when $XDG_RUNTIME_DIR belongs to the user
//!  /run/weft                    of root
//!  $TMPDIR/weft-<user>          otherwise
//!  <any of them>.<random>       when another user has made the first name
//! ```
//!
//! Anybody can make a name in `/tmp` before its user does. A directory of another user is never used; a new one with a random end
//! takes its place. Commands find that one by its beginning and its owner, so nobody can keep a user from having a server.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use weft_core::checksum::crc32c;
use weft_sys::effective_user;
use weft_sys::file::random;

/// Others may pass: a socket in the directory can be opened to them.
const DIR_MODE: u32 = 0o711;
/// What nobody but the owner may have in the mode of the directory.
const OF_OTHERS: u32 = 0o022;
/// Random names that are tried for a directory.
const NAMES_MAX: u32 = 16;

/// The socket of the volume that is all of `image`, or the `part` of it that has this name: the same for everyone who names the
/// same file.
///
/// # Errors
/// The image is not there, or there is no place for a directory.
pub fn socket_path(image: &Path, part: &str) -> io::Result<PathBuf> {
    let meta = std::fs::metadata(image)?;
    Ok(socket_dir()?.join(socket_name(&meta, part)))
}

/// This user's directory of sockets. It is made when it is not there.
///
/// # Errors
/// There is no place where one can be made.
pub fn socket_dir() -> io::Result<PathBuf> {
    let (uid, _) = effective_user();
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for name in places(uid) {
        match own_dir(&name, uid) {
            Ok(dir) => return Ok(dir),
            Err(error) => failed = io::Error::new(error.kind(), format!("{}: {error}", name.display())),
        }
    }
    Err(failed)
}

/// Where else this user's server of an image may listen: one that was started with other variables in its environment, such as a
/// service at boot.
pub fn other_sockets(image: &Path, part: &str) -> Vec<PathBuf> {
    let Ok(meta) = std::fs::metadata(image) else { return Vec::new() };
    socket_dirs().into_iter().map(|dir| dir.join(socket_name(&meta, part))).collect()
}

/// All directories in which servers of this user may listen.
pub fn socket_dirs() -> Vec<PathBuf> {
    let (uid, _) = effective_user();
    let of_user = format!("weft-{uid}");
    let mut names = places(uid);
    names.push(Path::new("/run/user").join(uid.to_string()).join("weft"));
    names.extend(["/tmp", "/var/tmp"].map(|dir| Path::new(dir).join(&of_user)));
    let mut dirs: Vec<PathBuf> = Vec::new();
    for name in names {
        let plain = Some(name.clone()).filter(|dir| is_own(dir, uid));
        let found = plain.into_iter().chain(own_beside(&name, uid));
        dirs.extend(found.filter(|dir| !dirs.contains(dir)).collect::<Vec<_>>());
    }
    dirs
}

fn socket_name(meta: &std::fs::Metadata, part: &str) -> String {
    // A name of a part may be longer than that of a socket, and have slashes.
    let part = match part {
        "" => String::new(),
        part => format!("-{:08x}", crc32c(part.as_bytes())),
    };
    format!("{:x}-{:x}{part}.sock", meta.dev(), meta.ino())
}

/// Names for the directory of a user, the best first.
fn places(uid: u32) -> Vec<PathBuf> {
    // After 'su' or 'sudo -E', the variable can name the directory of another user: a directory made there would lock that user out.
    let belongs =
        |dir: &PathBuf| std::fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == uid);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(belongs);
    // To the superuser of another user namespace, /run belongs to somebody else.
    let system = Some(PathBuf::from("/run")).filter(|dir| uid == 0 && is_own(dir, uid));
    let mut names: Vec<PathBuf> = runtime.into_iter().chain(system).map(|dir| dir.join("weft")).collect();
    names.push(std::env::temp_dir().join(format!("weft-{uid}")));
    names
}

/// Whether a directory is this user's, and nobody else can change what is in it.
fn is_own(dir: &Path, uid: u32) -> bool {
    let is_safe = |found: &std::fs::Metadata| found.uid() == uid && found.mode() & OF_OTHERS == 0;
    std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && is_safe(&found))
}

/// Makes or finds the directory of this name, or one that stands for it.
fn own_dir(name: &Path, uid: u32) -> io::Result<PathBuf> {
    let make = |dir: &Path| DirBuilder::new().mode(DIR_MODE).create(dir);
    let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    match make(name) {
        Err(error) if !is_there(&error) => return Err(error),
        _ if is_own(name, uid) => return Ok(name.to_path_buf()),
        _ => {}
    }
    if let Some(found) = own_beside(name, uid).into_iter().next() {
        return Ok(found);
    }
    for _ in 0..NAMES_MAX {
        let mut fresh = beginning(name).into_vec();
        fresh.extend(format!("{:08x}", u32::from_ne_bytes(random()?)).bytes());
        let fresh = name.with_file_name(OsString::from_vec(fresh));
        match make(&fresh) {
            Err(error) if is_there(&error) => {}
            made => return made.map(|()| fresh),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// This user's directories that stand for a name, in the order of their names.
fn own_beside(name: &Path, uid: u32) -> Vec<PathBuf> {
    let beginning = beginning(name);
    let entries = name.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(beginning.as_bytes()));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).filter(|dir| is_own(dir, uid)).collect();
    found.sort();
    found
}

/// What the names begin with that stand for one.
fn beginning(name: &Path) -> OsString {
    let mut beginning = name.file_name().unwrap_or_default().to_owned();
    beginning.push(".");
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_name_that_is_taken_has_one_other_that_all_find() {
        let (uid, _) = effective_user();
        let base = tempfile::tempdir().unwrap();
        let name = base.path().join("weft-1");
        assert_eq!(own_dir(&name, uid).unwrap(), name);
        assert!(own_beside(&name, uid).is_empty());
        // As if it were another user's: others can change it, a file, a link.
        let takes: [&dyn Fn(); 3] = [
            &|| std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o777)).unwrap(),
            &|| std::fs::write(&name, "").unwrap(),
            &|| std::os::unix::fs::symlink(base.path(), &name).unwrap(),
        ];
        let mut other = None;
        for take in takes {
            take();
            let found = own_dir(&name, uid).unwrap();
            assert!(is_own(&found, uid) && found != name, "{}", found.display());
            assert_eq!(*other.get_or_insert(found.clone()), found);
            assert_eq!(own_beside(&name, uid), [found]);
            std::fs::remove_file(&name).or_else(|_| std::fs::remove_dir(&name)).unwrap();
        }
        // What others have made by such a name is not it.
        std::fs::write(base.path().join("weft-1.00000000"), "").unwrap();
        assert_eq!(own_beside(&name, uid), [other.unwrap()]);
        assert!(own_beside(&name, uid + 1).is_empty());
        assert_eq!(own_dir(&name, uid).unwrap(), name);
    }
}
