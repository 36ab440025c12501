//! Attributes of inodes, flags and lists, and those of the volume.

use super::{Front, IOCTL_BYTES_MAX, capabilities, inode};
use crate::abi::{
    self, GetxattrIn, GetxattrOut, IoctlIn, IoctlOut, SetAttrIn, SetxattrIn, StatfsOut, fattr, op,
};
use crate::attr::{attr_out, time_spec};
use crate::channel::{Answer, Errno, Outcome, Request, name};
use std::time::Duration;
use weft_core::{BLOCK_BYTES, Capabilities, Ino, refuse};
use weft_server::Watcher;
use weft_server::ops::Change;
use weft_vfs::compound::ioctl::Command;
use weft_vfs::{NAME_MAX, TimeSpec, XFlags, flag_request};
use zerocopy::{FromBytes, IntoBytes};

impl Front {
    pub(super) fn set_attr(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let (set, _) = request.argument::<SetAttrIn>()?;
        let ino = Ino(request.head.node);
        let has = |field: u32| set.valid & field != 0;
        let time = |now, given, seconds, nanos| match (has(now), has(given)) {
            (true, _) => Some(TimeSpec::now()),
            (false, true) => Some(time_spec(seconds, nanos)),
            (false, false) => None,
        };
        // To files that are for appends, too.
        let touch = has(fattr::ATIME_NOW) && has(fattr::MTIME_NOW);
        let change = Change {
            size: has(fattr::SIZE).then_some(set.size),
            perm: has(fattr::MODE).then_some(set.mode & 0o7777),
            uid: has(fattr::UID).then_some(set.uid),
            gid: has(fattr::GID).then_some(set.gid),
            atime: time(fattr::ATIME_NOW, fattr::ATIME, set.atime, set.atime_nsec).filter(|_| !touch),
            mtime: time(fattr::MTIME_NOW, fattr::MTIME, set.mtime, set.mtime_nsec).filter(|_| !touch),
            ctime: time(0, fattr::CTIME, set.ctime, set.ctime_nsec),
            touch,
        };
        // The kernel sets KILL_SUIDGID for each change of an owner or a group, and does not say who may keep the bits that can stay.
        let changes_owner = has(fattr::UID) || has(fattr::GID);
        let kills = if changes_owner { request.head.uid != 0 } else { has(fattr::KILL_SUIDGID) };
        let attr = self.ask_with(request, capabilities(kills), |session| {
            session.set_attr(inode(ino), libc::AT_EMPTY_PATH, &change)?;
            session.stat(inode(ino), libc::AT_EMPTY_PATH)
        });
        // An error may come after a first change.
        self.handles.note_changed(ino);
        let attr = attr?;
        // Kernels before 6.16 would keep them even if others have come since.
        answer.put(&attr_out(&attr, Duration::ZERO));
        Ok(())
    }

    pub(super) fn statfs(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let stats = self.ask(request, |session| session.statfs())?;
        let blocks = |bytes: u64| bytes / BLOCK_BYTES as u64;
        let free = blocks(stats.free_bytes);
        answer.put(&StatfsOut {
            blocks: blocks(stats.total_bytes),
            free,
            available: free,
            files: stats.inodes + stats.free_inodes,
            free_files: stats.free_inodes,
            block_bytes: BLOCK_BYTES as u32,
            name_max: NAME_MAX as u32,
            fragment_bytes: BLOCK_BYTES as u32,
            ..StatfsOut::default()
        });
        Ok(())
    }

    /// Programs, and what `lsattr` and `chattr` ask for: of that, the kernel has checked who may set what.
    pub(super) fn ioctl(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<Outcome, Errno> {
        let (ask, data) = request.argument::<IoctlIn>()?;
        // No command has room for so much.
        refuse(ask.out_size > IOCTL_BYTES_MAX, Errno(libc::EINVAL))?;
        if let Some(command) = Command::of(ask.command) {
            return self.program(request, command, &ask, data, answer);
        }
        let (at, flags) = (inode(Ino(request.head.node)), libc::AT_EMPTY_PATH);
        let has = || self.ask(request, |session| Ok(session.stat(at, flags)?.marks.flags));
        let set = |new: u32, mask: u32| {
            self.ask(request, |session| session.set_inode_flags(at, flags, new, mask))?;
            // The kernel does not know that the time of the last change moves.
            self.handles.note_changed(Ino(request.head.node));
            self.attr_changed(Ino(request.head.node));
            Ok::<_, Errno>(())
        };
        let mut told = match ask.command {
            flag_request::GET => has()?.bits().as_bytes().to_vec(),
            flag_request::GET_X => XFlags::of(has()?).0.as_bytes().to_vec(),
            flag_request::SET => {
                let (new, _) = u32::read_from_prefix(data).map_err(|_| Errno(libc::EINVAL))?;
                set(new, u32::MAX)?;
                Vec::new()
            }
            flag_request::SET_X => {
                let (words, _) = <[u32; 7]>::read_from_prefix(data).map_err(|_| Errno(libc::EINVAL))?;
                let (new, mask) = XFlags(words).flags().ok_or(Errno(libc::EOPNOTSUPP))?;
                set(new.bits(), mask.bits())?;
                Vec::new()
            }
            _ => return Err(Errno(libc::ENOTTY)),
        };
        told.resize(ask.out_size as usize, 0);
        answer.put(&IoctlOut::default());
        answer.put_bytes(&told);
        Ok(Outcome::Answered)
    }

    pub(super) fn xattr(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let at = inode(Ino(request.head.node));
        let flags = libc::AT_EMPTY_PATH;
        match request.head.opcode {
            op::SETXATTR => {
                let (set, rest) = request.argument::<SetxattrIn>()?;
                let (name, value) = name(rest)?;
                let value = value.get(..set.size as usize).ok_or(Errno(libc::EIO))?;
                let (how, kills) = (set.flags as i32, set.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0);
                self.ask_with(request, capabilities(kills), |session| {
                    session.set_xattr(at, flags, name, value, how)
                })?;
                self.handles.note_changed(Ino(request.head.node));
                Ok(())
            }
            op::REMOVEXATTR => {
                let (name, _) = name(request.body())?;
                self.ask(request, |session| session.remove_xattr(at, flags, name))?;
                self.handles.note_changed(Ino(request.head.node));
                Ok(())
            }
            op::GETXATTR => {
                let (get, rest) = request.argument::<GetxattrIn>()?;
                let (name, _) = name(rest)?;
                let value = self.ask(request, |session| session.get_xattr(at, flags, name))?;
                put_sized(answer, get.size, &value)
            }
            _ => {
                let (list, _) = request.argument::<GetxattrIn>()?;
                // Which names a user may see, the kernel leaves to the server.
                let sees_all = request.head.uid == 0;
                let rights = if sees_all { Capabilities::ALL } else { Capabilities::from_bits(0) };
                let names = self.ask_with(request, rights, |session| session.list_xattr(at, flags))?;
                put_sized(answer, list.size, &names)
            }
        }
    }
}

/// The answer to a question for extended attributes: with a size of 0, how long it would be.
fn put_sized(answer: &mut Answer<'_>, size: u32, value: &[u8]) -> Result<(), Errno> {
    match size {
        0 => answer.put(&GetxattrOut { size: value.len() as u32, pad: 0 }),
        size if value.len() > size as usize => return Err(Errno(libc::ERANGE)),
        _ => answer.put_bytes(value),
    }
    Ok(())
}
