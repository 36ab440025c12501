//! Where open files are: their paths now, after whatever was renamed since they were opened.
//!
//! An open file knows the path by which it was last found, and in which directory under which name. The path is right as
//! long as it leads to the file; if not, a directory is found anew by its parents, any other file by directory and name,
//! which renames keep up to date.

use super::{Ask, Failure, Outcome};
use crate::state::open_files::{Name, OpenFile};
use crate::state::volume::Volume;
use weft_client::shared::channel::Response;
use weft_core::Ino;
use weft_vfs::{FileKind, FileSystem};

/// What Linux puts behind the path of a file whose name is gone.
const DELETED: &[u8] = b" (deleted)";

/// Path of an open file. The result is 1 when the file has lost the name.
pub fn path_of(ask: &Ask<'_>) -> Outcome {
    let open = ask.open_file(0)?;
    let fs = ask.volume.fs.as_ref();
    let mut path = open.last_path();
    let mut deleted = false;
    if !leads_to(fs, &path, open.inode.ino) {
        if let Some(found) = find(fs, &open) {
            open.set_last_path(found.clone());
            path = found;
        }
        deleted = !leads_to(fs, &path, open.inode.ino);
        if deleted {
            path.extend_from_slice(DELETED);
        }
    }
    let reply = ask.reply_bytes(0, &path)?;
    Ok(Response { ret: i64::from(deleted), ..reply })
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
    let mut path = path_of_directory(fs, dir).ok()?;
    if path != b"/" {
        path.push(b'/');
    }
    path.extend_from_slice(&name);
    Some(path)
}

/// The canonical path of a directory.
pub fn path_of_directory(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<u8>, Failure> {
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
        names.push(name.ok_or(Failure(libc::ENOENT))?);
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

/// A file that is open somewhere, perhaps, has got another name.
pub fn renamed(volume: &Volume, ino: Ino, from: &Name, to: &Name) {
    if volume.inodes.find(ino).is_some() {
        volume.files.renamed(ino, from, to);
    }
}
