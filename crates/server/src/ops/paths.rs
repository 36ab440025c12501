//! Paths of open files, after renames.
//!
//! An open file remembers the path by which the server last found it, and the directory and name by which it was
//! opened. The path is right while it leads to the file. When it does not, the server finds a directory by its
//! parents, and any other file by its directory and name; renames keep these up to date.

use super::Error::Errno;
use super::{Result, Session};
use crate::state::open_files::{Name, OpenFile};
use weft_client::FileRef;
use weft_core::Ino;
use weft_vfs::{Attr, FileKind, FileSystem};

/// Looks for a directory that has a name, and whose path leads elsewhere.
const LOOKS: u32 = 20;
/// What Linux puts behind the path of a file whose name is gone.
const DELETED: &[u8] = b" (deleted)";

impl Session<'_> {
    /// The path of an open file, and whether it has lost that name: ` (deleted)` stands behind it then.
    pub fn path_of(&self, file: FileRef) -> Result<(Vec<u8>, bool)> {
        let open = self.open_file(file)?;
        let fs = self.volume.fs.as_ref();
        let mut path = open.last_path();
        for _ in 0..LOOKS {
            if leads_to(fs, &path, open.inode.ino) {
                return Ok((path, false));
            }
            if let Some(found) = find(fs, &open) {
                open.set_last_path(found.clone());
                path = found;
            }
            // A directory that has a name is moved just now. A file can have others than the one that it was opened by.
            let is_moved = |attr: Attr| attr.kind == FileKind::Directory && attr.links > 0;
            if !fs.getattr(open.inode.ino).is_ok_and(is_moved) {
                break;
            }
        }
        let deleted = !leads_to(fs, &path, open.inode.ino);
        if deleted {
            path.extend_from_slice(DELETED);
        }
        Ok((path, deleted))
    }
}

/// Whether a path leads to an inode by names alone.
fn leads_to(fs: &dyn FileSystem, path: &[u8], ino: Ino) -> bool {
    let mut at = Ino::ROOT;
    for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
        match fs.lookup(at, name) {
            Ok(attr) => at = attr.ino,
            Err(_) => return false,
        }
    }
    at == ino
}

/// The path by which a file should be found: it does not lead there when the name is gone.
fn find(fs: &dyn FileSystem, open: &OpenFile) -> Option<Vec<u8>> {
    let ino = open.inode.ino;
    if fs.getattr(ino).ok()?.kind == FileKind::Directory
        && let Ok(path) = path_of_directory(fs, ino)
    {
        return Some(path);
    }
    let Name { dir, name } = open.name()?;
    path_in(fs, dir, &name).ok()
}

/// The canonical path of a name in a directory.
pub fn path_in(fs: &dyn FileSystem, dir: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let mut path = path_of_directory(fs, dir)?;
    if path != b"/" {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Ok(path)
}

/// The canonical path of a directory.
pub fn path_of_directory(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = dir;
    while at != Ino::ROOT {
        let parent = fs.parent(at)?;
        let mut name = None;
        fs.readdir(parent, 0, &mut |entry| {
            if entry.ino == at {
                name = Some(entry.name.to_vec());
            }
            name.is_none()
        })?;
        names.push(name.ok_or(Errno(libc::ENOENT))?);
        at = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    Ok(path)
}
