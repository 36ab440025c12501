//! Flags of inodes (`chattr`): who sets them, and what they keep from happening beside what permission checks see to
//! ([`Access`](weft_vfs::Access)).

use super::Error::Errno;
use super::{At, Result, Session};
use crate::state::inodes::OpenInode;
use weft_core::{Capability, Ino, refuse};
use weft_vfs::{Access, Attr, FLAGS_XATTR, FileKind, InodeFlags, SetAttr};

impl Session<'_> {
    /// Changes those flags of a file or directory that are in `mask`. What clients accepted before a file became immutable is stored; from
    /// then on nobody writes to it, whoever has it open.
    pub fn set_inode_flags(&self, at: At<'_>, flags: i32, new: u32, mask: u32) -> Result<()> {
        self.retry_stale(|| {
            let ino = self.target(at, flags)?.ino;
            self.check_writable()?;
            let new = InodeFlags::from_bits(new & mask).ok_or(Errno(libc::EOPNOTSUPP))?;
            let volume = self.volume;
            let alone = self.alone()?;
            let attr = self.fs().getattr(ino)?;
            let flags = self.check_flags(&attr, new, mask)?;
            let value = flags.to_value();
            let value = (!flags.is_empty()).then_some(&value[..]);
            self.fs().set_with_xattrs(ino, &SetAttr::default(), &[(FLAGS_XATTR, value)])?;
            volume.inodes.must_ask_for_sync(ino);
            let to_revoke = volume.inodes.flags_changed(ino, flags);
            drop(alone);
            if flags.contains(InodeFlags::APPEND)
                && let Some(open) = volume.inodes.find(ino)
            {
                // A client that has not seen it yet is done with what it was about to overwrite.
                drop(volume.inodes.exclude_writers(&open));
            }
            if let Some(open) = to_revoke {
                volume.inodes.revoke_rings(&open);
            }
            Ok(())
        })
    }

    /// The flags that an inode has after a change, if the caller may make it.
    fn check_flags(&self, attr: &Attr, new: InodeFlags, mask: u32) -> Result<InodeFlags> {
        let (cred, old) = (self.cred(), attr.marks.flags);
        refuse(!matches!(attr.kind, FileKind::File | FileKind::Directory), Errno(libc::ENOTTY))?;
        let is_erased = new.contains(InodeFlags::SECURE_DELETE);
        refuse(is_erased && !self.fs().erases(), Errno(libc::EOPNOTSUPP))?;
        let is_for_names = new.contains(InodeFlags::DIR_SYNC);
        refuse(is_for_names && attr.kind != FileKind::Directory, Errno(libc::EOPNOTSUPP))?;
        refuse(!cred.owns(attr), Errno(libc::EPERM))?;
        let flags = (old - InodeFlags::from_bits_truncate(mask)) | new;
        let changed = flags ^ old;
        refuse(changed.are_fixed() && !cred.may(Capability::LinuxImmutable), Errno(libc::EPERM))?;
        // As ext4: what is immutable and stays so keeps its other flags, too.
        let stays = (flags & old).contains(InodeFlags::IMMUTABLE);
        refuse(stays && !changed.is_empty(), Errno(libc::EPERM))?;
        Ok(flags)
    }

    /// Fails for what nobody changes any more.
    pub(super) fn check_not_immutable(&self, open: &OpenInode) -> Result<()> {
        refuse(open.flags().contains(InodeFlags::IMMUTABLE), Errno(libc::EPERM))
    }

    /// Makes changes of the names of these directories durable that are to be so at once.
    pub(super) fn sync_names(&self, dirs: &[Ino]) -> Result<()> {
        for dir in dirs {
            // One that has been removed since has no names.
            let is_due = self.fs().getattr(*dir).is_ok_and(|attr| attr.marks.flags.sync_names());
            if is_due {
                self.fs().fsync(*dir)?;
            }
        }
        Ok(())
    }
}
