//! Path resolution over [`FileSystem`]: `.`, `..`, symlinks, search permission.

use crate::{Attr, Cred, FileKind, FileSystem, FsError, FsResult, NAME_MAX, PATH_MAX, access};
use weft_core::Ino;

/// Most symlinks followed in one resolution, as in Linux.
pub const SYMLINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// To an inode.
    Found(Place, Attr),
    /// To a name that does not exist in a directory that does.
    Missing(Place),
    /// Through a symlink with an absolute target outside the volume: the whole path that the caller has to resolve.
    Outside(Vec<u8>),
}

/// The directory and name at the end of a path; the name is empty when the path ends in the root, `.` or `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory that holds the name.
    pub dir: Ino,
    /// The last component.
    pub name: Vec<u8>,
    /// Whether the path ended in a slash, so that it must be a directory.
    pub must_be_dir: bool,
}

/// How to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Follow a symlink that is the last component.
    pub follow_last: bool,
    /// Where the volume appears to the caller, without a slash at the end: absolute symlink targets below it are the
    /// volume's, others are [`Resolved::Outside`].
    pub mount_point: &'a [u8],
}

/// Resolves `path` (relative to `start`, or to the root when it begins with a slash).
pub fn resolve(
    fs: &dyn FileSystem,
    cred: &Cred,
    start: Ino,
    path: &[u8],
    options: Options<'_>,
) -> FsResult<Resolved> {
    if path.len() >= PATH_MAX {
        return Err(FsError::NameTooLong);
    }
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    let mut dir = if path[0] == b'/' { Ino::ROOT } else { start };
    // What is left to walk; a followed symlink's target goes in front of it.
    let mut rest = path.to_vec();
    let mut links = 0;
    loop {
        let begin = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
        let end = rest[begin..].iter().position(|&b| b == b'/').map_or(rest.len(), |at| begin + at);
        let name = rest[begin..end].to_vec();
        let tail = rest[end..].to_vec();
        let last = tail.iter().all(|&b| b == b'/');
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let here = fs.getattr(dir)?;
        if here.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if name.is_empty() {
            return Ok(Resolved::Found(Place { dir, name, must_be_dir: true }, here));
        }
        cred.check(&here, access::EXECUTE)?;
        if name == b"." || name == b".." {
            if name == b".." {
                dir = fs.parent(dir)?;
            }
            if last {
                let attr = fs.getattr(dir)?;
                return Ok(Resolved::Found(Place { dir, name: Vec::new(), must_be_dir: true }, attr));
            }
            rest = tail;
            continue;
        }
        let place = |name| Place { dir, name, must_be_dir: last && !tail.is_empty() };
        let attr = match fs.lookup(dir, &name) {
            Ok(attr) => attr,
            Err(FsError::NotFound) if last => return Ok(Resolved::Missing(place(name))),
            Err(error) => return Err(error),
        };
        let place = place(name);
        if attr.kind == FileKind::Symlink && (!last || options.follow_last || place.must_be_dir) {
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(FsError::Loop);
            }
            let mut target = fs.readlink(attr.ino)?;
            if target.first() == Some(&b'/') {
                match below(&target, options.mount_point) {
                    Some(inside) => {
                        target = inside.to_vec();
                        dir = Ino::ROOT;
                    }
                    None => {
                        target.extend_from_slice(&tail);
                        return Ok(Resolved::Outside(target));
                    }
                }
            }
            target.extend_from_slice(&tail);
            if target.len() >= PATH_MAX {
                return Err(FsError::NameTooLong);
            }
            rest = target;
            continue;
        }
        if last {
            if place.must_be_dir && attr.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            return Ok(Resolved::Found(place, attr));
        }
        dir = attr.ino;
        rest = tail;
    }
}

/// The part of an absolute `path` below `mount_point` (with its slash), or `None` when it lies elsewhere.
pub fn below<'a>(path: &'a [u8], mount_point: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mount_point)?;
    match rest.first() {
        None => Some(b"/"),
        Some(b'/') => Some(rest),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn only_whole_components_are_below() {
        assert_eq!(below(b"/weft/a", b"/weft"), Some(&b"/a"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b"/"[..]));
        assert_eq!(below(b"/wefta", b"/weft"), None);
        assert_eq!(below(b"/", b"/weft"), None);
    }
}
