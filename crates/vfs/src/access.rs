//! Who may do what: the one permission check that every front uses.

use crate::{Attr, FileKind, FsError, FsResult};

/// Identity of a caller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// May read.
pub const READ: u32 = 4;
/// May write.
pub const WRITE: u32 = 2;
/// May execute or search.
pub const EXECUTE: u32 = 1;

impl Cred {
    /// Whether the caller is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Fails with `Access` unless the caller has all of `wanted` (of [`READ`], [`WRITE`], [`EXECUTE`]).
    pub fn check(&self, attr: &Attr, wanted: u32) -> FsResult<()> {
        if self.is_root() {
            let executable = attr.kind == FileKind::Directory || attr.perm & 0o111 != 0;
            return if wanted & EXECUTE != 0 && !executable { Err(FsError::Access) } else { Ok(()) };
        }
        let granted = if self.uid == attr.uid {
            attr.perm >> 6
        } else if self.in_group(attr.gid) {
            attr.perm >> 3
        } else {
            attr.perm
        };
        if granted & wanted == wanted { Ok(()) } else { Err(FsError::Access) }
    }

    /// Fails unless the caller may remove or rename `victim` within `dir`: write and search on the directory, and in a
    /// sticky directory ownership of either.
    pub fn check_remove(&self, dir: &Attr, victim: &Attr) -> FsResult<()> {
        self.check(dir, WRITE | EXECUTE)?;
        let sticky = dir.perm & libc::S_ISVTX != 0;
        if sticky && !self.is_root() && self.uid != victim.uid && self.uid != dir.uid {
            return Err(FsError::NotPermitted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateArgs, FileSystem, MemFs, NewNode};
    use weft_core::{Ino, Tag};

    fn attr(kind: FileKind, perm: u32, uid: u32, gid: u32) -> Attr {
        let node = if kind == FileKind::Directory { NewNode::Directory } else { NewNode::File };
        let args = CreateArgs { node, perm, uid, gid, tag: Tag::default(), open: false };
        MemFs::new().create(Ino::ROOT, b"x", &args).unwrap()
    }

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: groups.to_vec() }
    }

    /// What of read, write and execute a caller is granted, as an octal digit.
    fn granted(cred: &Cred, attr: &Attr) -> u32 {
        [READ, WRITE, EXECUTE].into_iter().filter(|wanted| cred.check(attr, *wanted).is_ok()).sum()
    }

    #[test]
    fn the_first_class_that_fits_decides_alone() {
        let file = attr(FileKind::File, 0o421, 1, 2);
        assert_eq!(granted(&cred(1, 2, &[]), &file), 4);
        assert_eq!(granted(&cred(9, 2, &[]), &file), 2);
        assert_eq!(granted(&cred(9, 8, &[7, 2]), &file), 2);
        assert_eq!(granted(&cred(9, 8, &[7]), &file), 1);
        // An owner or a member is not helped by what others may do.
        let others = attr(FileKind::File, 0o007, 1, 2);
        assert_eq!(granted(&cred(1, 2, &[]), &others), 0);
        assert_eq!(granted(&cred(9, 2, &[]), &others), 0);
        assert_eq!(granted(&cred(9, 8, &[]), &others), 7);
    }

    #[test]
    fn all_that_is_wanted_must_be_granted() {
        let file = attr(FileKind::File, 0o640, 1, 2);
        assert!(cred(1, 2, &[]).check(&file, READ | WRITE).is_ok());
        assert!(matches!(cred(1, 2, &[]).check(&file, READ | EXECUTE), Err(FsError::Access)));
        assert!(matches!(cred(9, 2, &[]).check(&file, READ | WRITE), Err(FsError::Access)));
        assert!(cred(9, 9, &[]).check(&file, 0).is_ok());
    }

    #[test]
    fn root_may_all_but_execute_what_nobody_may() {
        let root = Cred::default();
        assert_eq!(granted(&root, &attr(FileKind::File, 0o000, 1, 2)), READ | WRITE);
        assert_eq!(granted(&root, &attr(FileKind::File, 0o001, 1, 2)), READ | WRITE | EXECUTE);
        assert_eq!(granted(&root, &attr(FileKind::Directory, 0o000, 1, 2)), READ | WRITE | EXECUTE);
    }

    #[test]
    fn removing_takes_write_and_search_on_the_directory_alone() {
        let file = attr(FileKind::File, 0o000, 5, 5);
        let user = cred(1, 1, &[]);
        assert!(user.check_remove(&attr(FileKind::Directory, 0o300, 1, 1), &file).is_ok());
        for perm in [0o200, 0o100, 0o500] {
            let dir = attr(FileKind::Directory, perm, 1, 1);
            assert!(matches!(user.check_remove(&dir, &file), Err(FsError::Access)), "{perm:o}");
        }
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let dir = attr(FileKind::Directory, 0o1777, 1, 1);
        let file = attr(FileKind::File, 0o666, 2, 2);
        assert!(cred(1, 1, &[]).check_remove(&dir, &file).is_ok());
        assert!(cred(2, 2, &[]).check_remove(&dir, &file).is_ok());
        assert!(matches!(cred(3, 2, &[]).check_remove(&dir, &file), Err(FsError::NotPermitted)));
        assert!(Cred::default().check_remove(&dir, &file).is_ok());
    }
}
