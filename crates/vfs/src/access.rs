//! Who may do what: the one permission check that every front uses.

use crate::acl::{self, Acl};
pub use crate::subject::{EXECUTE, READ, Subject, WRITE};
use crate::{Attr, FileKind, FileSystem, FsError, FsResult, InodeFlags};
use weft_core::{Capability, Credentials, refuse};

/// Whether `who` may do all of `wanted` (of [`READ`], [`WRITE`], [`EXECUTE`]) with an inode of this `st_mode`, these owners and this
/// list.
pub fn is_granted(who: &impl Subject, mode: u32, uid: u32, gid: u32, acl: Option<&Acl>, wanted: u32) -> bool {
    let has = |class: u32| class & wanted == wanted;
    let is_granted = match acl {
        _ if who.uid() == uid => has(mode >> 6),
        // Linux does not look at a list whose mask leaves nothing: it falls back to the mode.
        Some(acl) if mode & 0o070 != 0 => acl.grants(who, gid, wanted),
        _ if who.in_group(gid) => has(mode >> 3),
        _ => has(mode),
    };
    let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
    let reads = if is_dir { wanted & WRITE == 0 } else { wanted == READ };
    let executable = is_dir || mode & 0o111 != 0;
    is_granted
        || who.may(Capability::DacOverride) && (wanted & EXECUTE == 0 || executable)
        || who.may(Capability::DacReadSearch) && reads
}

/// What a caller may do with an inode: the permission checks of POSIX, for [`Credentials`].
pub trait Access {
    /// Fails with `Access` unless the caller has all of `wanted` (of [`READ`], [`WRITE`], [`EXECUTE`]), and with `NotPermitted` when
    /// nobody may write. `fs` has the inode's list.
    fn check(&self, fs: &dyn FileSystem, attr: &Attr, wanted: u32) -> FsResult<()>;

    /// Whether the caller owns an inode, or may all that its owner may.
    fn owns(&self, attr: &Attr) -> bool;

    /// Fails unless the caller may make a name in `dir`: write and search, on one that has not been removed.
    fn check_add(&self, fs: &dyn FileSystem, dir: &Attr) -> FsResult<()>;

    /// Fails unless the caller may remove or rename `victim` within `dir`: write and search on the directory, which is not for appends
    /// only, a victim that may change, and in a sticky directory ownership of either.
    fn check_remove(&self, fs: &dyn FileSystem, dir: &Attr, victim: &Attr) -> FsResult<()>;

    /// Fails unless a link to an inode gives the caller no hold on what he could not have opened: he owns it, or it is a
    /// file that he may read and write and that runs as nobody else.
    fn check_link(&self, fs: &dyn FileSystem, attr: &Attr) -> FsResult<()>;

    /// Fails unless the caller may give an inode this owner and this group; `None` leaves one as it is. To name the owner
    /// that it has already is the owner's right, too, and nobody else's.
    fn check_chown(&self, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> FsResult<()>;

    /// The permission bits that an inode of group `gid` gets when the caller asks for `perm`: the set-group-id bit is not
    /// for those outside of the group.
    fn perm_for_chmod(&self, perm: u32, gid: u32) -> u32;

    /// The permission bits that an inode of `kind` gets that the caller makes in `dir`, and its group: a directory with the
    /// set-group-id bit passes its group on, and the bit itself to directories.
    fn perm_for_new(&self, dir: &Attr, kind: FileKind, perm: u32) -> (u32, u32);

    /// The permission bits left when the caller changes the content of a file, if others than before: a program that runs
    /// as its owner does not when somebody else can have changed it.
    fn perm_after_write(&self, attr: &Attr) -> Option<u32>;

    /// The permission bits left when an inode gets another owner or group, if others than before.
    fn perm_after_chown(&self, attr: &Attr) -> Option<u32>;
}

impl Access for Credentials {
    fn check(&self, fs: &dyn FileSystem, attr: &Attr, wanted: u32) -> FsResult<()> {
        refuse(
            wanted & WRITE != 0 && attr.marks.flags.contains(InodeFlags::IMMUTABLE),
            FsError::NotPermitted,
        )?;
        let (attr, acl) = acl::of(fs, attr)?;
        let is_granted = is_granted(self, attr.mode(), attr.uid, attr.gid, acl.as_ref(), wanted);
        refuse(!is_granted, FsError::Access)
    }

    fn owns(&self, attr: &Attr) -> bool {
        self.may(Capability::Fowner) || self.uid == attr.uid
    }

    fn check_add(&self, fs: &dyn FileSystem, dir: &Attr) -> FsResult<()> {
        refuse(dir.links == 0, FsError::NotFound)?;
        self.check(fs, dir, WRITE | EXECUTE)
    }

    fn check_remove(&self, fs: &dyn FileSystem, dir: &Attr, victim: &Attr) -> FsResult<()> {
        self.check(fs, dir, WRITE | EXECUTE)?;
        refuse(
            dir.marks.flags.contains(InodeFlags::APPEND) || victim.marks.flags.are_fixed(),
            FsError::NotPermitted,
        )?;
        let sticky = dir.perm & libc::S_ISVTX != 0;
        if sticky && !self.may(Capability::Fowner) && self.uid != victim.uid && self.uid != dir.uid {
            return Err(FsError::NotPermitted);
        }
        Ok(())
    }

    fn check_link(&self, fs: &dyn FileSystem, attr: &Attr) -> FsResult<()> {
        let runs_as_others = attr.perm & libc::S_ISUID != 0 || is_set_group_program(attr.perm);
        let safe =
            attr.kind == FileKind::File && !runs_as_others && self.check(fs, attr, READ | WRITE).is_ok();
        if safe || self.owns(attr) { Ok(()) } else { Err(FsError::NotPermitted) }
    }

    fn check_chown(&self, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        let owner = self.uid == attr.uid;
        let uid_is_good = uid.is_none_or(|uid| owner && uid == attr.uid);
        let gid_is_good = gid.is_none_or(|gid| owner && (gid == attr.gid || self.in_group(gid)));
        if self.may(Capability::Chown) || uid_is_good && gid_is_good {
            Ok(())
        } else {
            Err(FsError::NotPermitted)
        }
    }

    fn perm_for_chmod(&self, perm: u32, gid: u32) -> u32 {
        if self.may(Capability::Fsetid) || self.in_group(gid) { perm } else { perm & !libc::S_ISGID }
    }

    fn perm_for_new(&self, dir: &Attr, kind: FileKind, perm: u32) -> (u32, u32) {
        if dir.perm & libc::S_ISGID == 0 {
            return (perm, self.gid);
        }
        let perm = match kind {
            FileKind::Directory => perm | libc::S_ISGID,
            _ if is_set_group_program(perm) => self.perm_for_chmod(perm, dir.gid),
            _ => perm,
        };
        (perm, dir.gid)
    }

    fn perm_after_write(&self, attr: &Attr) -> Option<u32> {
        let left = without_set_id(self, attr);
        (attr.kind == FileKind::File && !self.may(Capability::Fsetid) && left != attr.perm).then_some(left)
    }

    fn perm_after_chown(&self, attr: &Attr) -> Option<u32> {
        let left = without_set_id(self, attr);
        (attr.kind != FileKind::Directory && left != attr.perm).then_some(left)
    }
}

/// The set-group-id bit of what is no program means something else (once: mandatory locking), and stays with the group.
fn without_set_id(caller: &Credentials, attr: &Attr) -> u32 {
    let perm = attr.perm & !libc::S_ISUID;
    if is_set_group_program(perm) { perm & !libc::S_ISGID } else { caller.perm_for_chmod(perm, attr.gid) }
}

fn is_set_group_program(perm: u32) -> bool {
    perm & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
}

/// What the kernel of this machine forbids beyond permissions, against files that are laid out for others as traps
/// (`/proc/sys/fs/protected_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protections {
    /// No links to others' files that one could not open for writing.
    pub hardlinks: bool,
    /// In a sticky directory that all may write, no symlink is followed but one's own and the directory owner's.
    pub symlinks: bool,
    /// In a sticky directory that all (1) or its group (2) may write, `O_CREAT` opens nobody else's file.
    pub regular: u32,
    /// The same of fifos.
    pub fifos: u32,
}

impl Default for Protections {
    /// What distributions set.
    fn default() -> Protections {
        Protections { hardlinks: true, symlinks: true, regular: 1, fifos: 1 }
    }
}

impl Protections {
    /// What this machine has set.
    pub fn of_host() -> Protections {
        let default = Protections::default();
        let value = |name: &str, default: u32| {
            let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).unwrap_or_default();
            text.trim().parse().unwrap_or(default)
        };
        Protections {
            hardlinks: value("hardlinks", default.hardlinks.into()) != 0,
            symlinks: value("symlinks", default.symlinks.into()) != 0,
            regular: value("regular", default.regular),
            fifos: value("fifos", default.fifos),
        }
    }

    /// Fails when a symlink at the end of a path in `dir` may be somebody's trap.
    pub fn check_follow(&self, cred: &Credentials, dir: &Attr, link: &Attr) -> FsResult<()> {
        let open_to_all = libc::S_ISVTX | libc::S_IWOTH;
        let trap = self.symlinks && dir.perm & open_to_all == open_to_all;
        if trap && link.uid != cred.uid && link.uid != dir.uid { Err(FsError::Access) } else { Ok(()) }
    }

    /// Fails when what `O_CREAT` found may be somebody's trap. (As in Linux, for the superuser, too.)
    pub fn check_open_for_creation(&self, cred: &Credentials, dir: &Attr, found: &Attr) -> FsResult<()> {
        let level = match found.kind {
            FileKind::File => self.regular,
            FileKind::Fifo => self.fifos,
            _ => 1,
        };
        let writers = match level {
            0 => 0,
            1 => libc::S_IWOTH,
            _ => libc::S_IWOTH | libc::S_IWGRP,
        };
        let trap = dir.perm & libc::S_ISVTX != 0 && dir.perm & writers != 0;
        if trap && found.uid != dir.uid && found.uid != cred.uid { Err(FsError::Access) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateArgs, Marks, MemFs, NewNode};
    use weft_core::{Capabilities, Ino};

    fn attr(kind: FileKind, perm: u32, uid: u32, gid: u32) -> Attr {
        let node = if kind == FileKind::Directory { NewNode::Directory } else { NewNode::File };
        let args = CreateArgs { uid, gid, ..CreateArgs::new(node, perm) };
        MemFs::new().create(Ino::ROOT, b"x", &args).unwrap()
    }

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials::new(uid, gid, groups.to_vec())
    }

    /// What of read, write and execute a caller is granted, as an octal digit.
    fn granted(cred: &Credentials, attr: &Attr) -> u32 {
        [READ, WRITE, EXECUTE]
            .into_iter()
            .filter(|wanted| cred.check(&MemFs::new(), attr, *wanted).is_ok())
            .sum()
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
        assert!(cred(1, 2, &[]).check(&MemFs::new(), &file, READ | WRITE).is_ok());
        assert!(matches!(cred(1, 2, &[]).check(&MemFs::new(), &file, READ | EXECUTE), Err(FsError::Access)));
        assert!(matches!(cred(9, 2, &[]).check(&MemFs::new(), &file, READ | WRITE), Err(FsError::Access)));
        assert!(cred(9, 9, &[]).check(&MemFs::new(), &file, 0).is_ok());
    }

    #[test]
    fn nobody_writes_what_is_immutable_and_of_what_is_for_appends_nothing_is_removed() {
        let with = |flags, attr: Attr| Attr { marks: Marks { flags, ..Marks::default() }, ..attr };
        let (fs, root) = (MemFs::new(), Credentials::default());
        let (file, dir) = (attr(FileKind::File, 0o666, 1, 2), attr(FileKind::Directory, 0o777, 1, 2));
        let fixed = with(InodeFlags::IMMUTABLE, file);
        assert!(matches!(root.check(&fs, &fixed, WRITE), Err(FsError::NotPermitted)));
        assert!(root.check(&fs, &fixed, READ).is_ok());
        for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
            assert!(matches!(root.check_remove(&fs, &dir, &with(flags, file)), Err(FsError::NotPermitted)));
            assert!(matches!(root.check_remove(&fs, &with(flags, dir), &file), Err(FsError::NotPermitted)));
        }
        assert!(root.check_add(&fs, &with(InodeFlags::APPEND, dir)).is_ok());
        assert!(matches!(root.check_add(&fs, &with(InodeFlags::IMMUTABLE, dir)), Err(FsError::NotPermitted)));
    }

    #[test]
    fn a_list_decides_for_all_but_the_owner_unless_its_mask_is_empty() {
        let fs = MemFs::new();
        let args = CreateArgs { uid: 1, gid: 2, ..CreateArgs::new(NewNode::File, 0o640) };
        let ino = fs.create(Ino::ROOT, b"x", &args).unwrap().ino;
        // u::rw-, u:3:rwx, g::r--, m::rwx, o::---
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries =
            [entry(1, 6, none), entry(2, 7, 3), entry(4, 4, none), entry(16, 7, none), entry(32, 0, none)];
        let value = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
        let set = crate::SetAttr { perm: Some(0o670), ..Default::default() };
        let file = fs.set_with_xattrs(ino, &set, &[(acl::ACCESS, Some(&value))]).unwrap();
        let granted = |cred: &Credentials, attr: &Attr| -> u32 {
            [READ, WRITE, EXECUTE].into_iter().filter(|wanted| cred.check(&fs, attr, *wanted).is_ok()).sum()
        };
        let whos = [cred(1, 9, &[]), cred(3, 9, &[]), cred(4, 2, &[]), cred(5, 5, &[])];
        assert_eq!(whos.each_ref().map(|who| granted(who, &file)), [6, 7, 4, 0]);
        let masked = fs.setattr(ino, &crate::SetAttr { perm: Some(0o642), ..Default::default() }).unwrap();
        assert_eq!(whos.each_ref().map(|who| granted(who, &masked)), [6, 4, 4, 2]);
        let without = fs.setattr(ino, &crate::SetAttr { perm: Some(0o602), ..Default::default() }).unwrap();
        assert_eq!(whos.each_ref().map(|who| granted(who, &without)), [6, 2, 0, 2]);
        // Attributes of a moment ago, when it had a list: it is judged as it is now.
        fs.removexattr(ino, acl::ACCESS).unwrap();
        fs.setattr(ino, &crate::SetAttr { perm: Some(0o640), ..Default::default() }).unwrap();
        assert_eq!(whos.each_ref().map(|who| granted(who, &file)), [6, 0, 4, 0]);
    }

    #[test]
    fn root_may_all_but_execute_what_nobody_may() {
        let root = Credentials::default();
        assert_eq!(granted(&root, &attr(FileKind::File, 0o000, 1, 2)), READ | WRITE);
        assert_eq!(granted(&root, &attr(FileKind::File, 0o001, 1, 2)), READ | WRITE | EXECUTE);
        assert_eq!(granted(&root, &attr(FileKind::Directory, 0o000, 1, 2)), READ | WRITE | EXECUTE);
    }

    #[test]
    fn whoever_has_dropped_a_power_has_only_the_others() {
        let with = |capabilities: &[Capability]| {
            let bits = capabilities.iter().fold(0, |bits, capability| bits | 1 << *capability as u32);
            Credentials { capabilities: Capabilities::from_bits(bits), ..Credentials::default() }
        };
        let file = attr(FileKind::File, 0o001, 1, 2);
        let dir = attr(FileKind::Directory, 0o000, 1, 2);
        for (capabilities, of_file, of_dir) in [
            (&[][..], EXECUTE, 0),
            (&[Capability::DacReadSearch], READ | EXECUTE, READ | EXECUTE),
            (&[Capability::DacOverride], READ | WRITE | EXECUTE, READ | WRITE | EXECUTE),
            (
                &[
                    Capability::Chown,
                    Capability::Fowner,
                    Capability::Fsetid,
                    Capability::SysAdmin,
                    Capability::Mknod,
                ],
                EXECUTE,
                0,
            ),
        ] {
            assert_eq!(granted(&with(capabilities), &file), of_file, "{capabilities:?}");
            assert_eq!(granted(&with(capabilities), &dir), of_dir, "{capabilities:?}");
        }
        // To read does not help who wants to read and execute.
        assert!(with(&[Capability::DacReadSearch]).check(&MemFs::new(), &file, READ | EXECUTE).is_err());
        assert!(!with(&[]).owns(&file) && with(&[Capability::Fowner]).owns(&file));
        assert!(with(&[Capability::Fowner]).check_chown(&file, Some(3), None).is_err());
        assert!(with(&[Capability::Chown]).check_chown(&file, Some(3), None).is_ok());
        let program = attr(FileKind::File, 0o6777, 1, 2);
        assert_eq!(with(&[]).perm_after_write(&program), Some(0o777));
        assert_eq!(with(&[Capability::Fsetid]).perm_after_write(&program), None);
    }

    #[test]
    fn nothing_is_made_in_a_removed_directory_whoever_asks() {
        let gone = Attr { links: 0, ..attr(FileKind::Directory, 0o000, 5, 5) };
        for who in [Credentials::default(), cred(5, 5, &[]), cred(6, 6, &[])] {
            assert!(matches!(who.check_add(&MemFs::new(), &gone), Err(FsError::NotFound)));
        }
    }

    #[test]
    fn removing_takes_write_and_search_on_the_directory_alone() {
        let file = attr(FileKind::File, 0o000, 5, 5);
        let user = cred(1, 1, &[]);
        assert!(user.check_remove(&MemFs::new(), &attr(FileKind::Directory, 0o300, 1, 1), &file).is_ok());
        for perm in [0o200, 0o100, 0o500] {
            let dir = attr(FileKind::Directory, perm, 1, 1);
            assert!(
                matches!(user.check_remove(&MemFs::new(), &dir, &file), Err(FsError::Access)),
                "{perm:o}"
            );
        }
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let dir = attr(FileKind::Directory, 0o1777, 1, 1);
        let file = attr(FileKind::File, 0o666, 2, 2);
        assert!(cred(1, 1, &[]).check_remove(&MemFs::new(), &dir, &file).is_ok());
        assert!(cred(2, 2, &[]).check_remove(&MemFs::new(), &dir, &file).is_ok());
        assert!(matches!(
            cred(3, 2, &[]).check_remove(&MemFs::new(), &dir, &file),
            Err(FsError::NotPermitted)
        ));
        assert!(Credentials::default().check_remove(&MemFs::new(), &dir, &file).is_ok());
    }

    #[test]
    fn a_link_needs_ownership_or_a_file_that_may_be_read_and_written() {
        let user = cred(1, 1, &[]);
        for (kind, perm, uid, good) in [
            (FileKind::File, 0o000, 1, true),
            (FileKind::File, 0o4711, 1, true),
            (FileKind::File, 0o666, 2, true),
            (FileKind::File, 0o644, 2, false),
            (FileKind::File, 0o622, 2, false),
            (FileKind::File, 0o4666, 2, false),
            (FileKind::File, 0o2666, 2, true),
            (FileKind::File, 0o2676, 2, false),
            (FileKind::Directory, 0o777, 2, false),
        ] {
            assert_eq!(
                user.check_link(&MemFs::new(), &attr(kind, perm, uid, 2)).is_ok(),
                good,
                "{kind:?} {perm:o} {uid}"
            );
            assert!(Credentials::default().check_link(&MemFs::new(), &attr(kind, perm, uid, 2)).is_ok());
        }
    }

    #[test]
    fn owners_give_to_their_groups_and_only_the_superuser_to_others() {
        let file = attr(FileKind::File, 0o644, 1, 2);
        let user = cred(1, 1, &[7]);
        let may = |cred: &Credentials, uid, gid| cred.check_chown(&file, uid, gid).is_ok();
        assert!(may(&user, Some(1), None) && may(&user, None, Some(2)) && may(&user, None, Some(7)));
        assert!(!may(&user, Some(2), None) && !may(&user, None, Some(8)) && !may(&user, Some(2), Some(7)));
        // To change nothing is no right of others, unless nothing is named.
        let other = cred(3, 2, &[]);
        assert!(may(&other, None, None) && !may(&other, Some(1), None) && !may(&other, None, Some(2)));
        assert!(may(&Credentials::default(), Some(9), Some(9)));
    }

    #[test]
    fn set_id_bits_go_when_others_may_have_changed_the_file() {
        let (root, member, other) = (Credentials::default(), cred(3, 2, &[]), cred(3, 3, &[]));
        let after = |cred: &Credentials, perm| cred.perm_after_write(&attr(FileKind::File, perm, 1, 2));
        assert_eq!(after(&root, 0o6777), None);
        assert_eq!(after(&other, 0o777), None);
        assert_eq!(after(&other, 0o6777), Some(0o777));
        assert_eq!(after(&member, 0o6777), Some(0o777));
        // Without the right to execute the bit marks no program: it is the group's.
        assert_eq!(after(&member, 0o2666), None);
        assert_eq!(after(&other, 0o2666), Some(0o666));
        assert_eq!(root.perm_after_chown(&attr(FileKind::File, 0o6777, 1, 2)), Some(0o777));
        assert_eq!(root.perm_after_chown(&attr(FileKind::File, 0o2666, 1, 2)), None);
        assert_eq!(root.perm_after_chown(&attr(FileKind::Directory, 0o6777, 1, 2)), None);
    }

    #[test]
    fn the_set_group_id_bit_is_given_by_members_and_directories_alone() {
        let (member, other) = (cred(3, 3, &[2]), cred(3, 3, &[]));
        assert_eq!(member.perm_for_chmod(0o2755, 2), 0o2755);
        assert_eq!(other.perm_for_chmod(0o6755, 2), 0o4755);
        assert_eq!(Credentials::default().perm_for_chmod(0o2755, 2), 0o2755);
        let plain = attr(FileKind::Directory, 0o777, 1, 2);
        let passes = attr(FileKind::Directory, 0o2777, 1, 2);
        assert_eq!(other.perm_for_new(&plain, FileKind::File, 0o2755), (0o2755, 3));
        assert_eq!(other.perm_for_new(&passes, FileKind::File, 0o644), (0o644, 2));
        assert_eq!(other.perm_for_new(&passes, FileKind::File, 0o2755), (0o755, 2));
        assert_eq!(member.perm_for_new(&passes, FileKind::File, 0o2755), (0o2755, 2));
        assert_eq!(other.perm_for_new(&passes, FileKind::Directory, 0o755), (0o2755, 2));
    }

    #[test]
    fn in_a_directory_for_all_others_files_and_symlinks_are_no_traps() {
        let (me, all) = (cred(3, 3, &[]), Protections::default());
        let tmp = attr(FileKind::Directory, 0o1777, 1, 1);
        let group = attr(FileKind::Directory, 0o1770, 1, 1);
        let of = |uid| attr(FileKind::File, 0o666, uid, uid);
        for (uid, good) in [(1, true), (2, false), (3, true)] {
            assert_eq!(all.check_follow(&me, &tmp, &of(uid)).is_ok(), good);
            assert_eq!(all.check_open_for_creation(&me, &tmp, &of(uid)).is_ok(), good);
        }
        assert!(all.check_open_for_creation(&me, &group, &of(2)).is_ok());
        let strict = Protections { regular: 2, ..all };
        assert!(strict.check_open_for_creation(&me, &group, &of(2)).is_err());
        let none = Protections { hardlinks: false, symlinks: false, regular: 0, fifos: 0 };
        assert!(none.check_follow(&me, &tmp, &of(2)).is_ok());
        assert!(none.check_open_for_creation(&me, &tmp, &of(2)).is_ok());
        let symlink = Attr { kind: FileKind::Symlink, ..of(2) };
        assert!(none.check_open_for_creation(&Credentials::default(), &tmp, &symlink).is_err());
    }
}
