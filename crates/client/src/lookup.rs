//! Walks paths and tells attributes by what the server has published ([`Names`]), without a call.
//!
//! What the cache does not tell, and whatever is not plain (symlinks on the way, threads of different users), is asked of the
//! server: `None` here. The walk goes as the server's goes ([`weft_vfs::path`]).

use crate::client::{Client, Leases};
use crate::proto::{FileRef, ITSELF, WireAttr};
use crate::shared::channel::{GROUPS_MAX, Identity};
use crate::shared::names::{Seen, SlotWord};
use crate::shared::volume::Inode;
use crate::sys::Errno;
use std::sync::atomic::{Ordering::*, fence};
use weft_core::{Capabilities, Capability, Credentials, Ino};
use weft_vfs::access::{self, Subject};
use weft_vfs::{InodeFlags, NAME_MAX, PATH_MAX, TimeSpec, acl, atime_after_read};

/// Flags of `fstatat` and `faccessat` that say how a path is walked.
const WALK_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;

/// Longest name of an extended attribute, as in Linux.
const XATTR_NAME_MAX: usize = 255;

/// The calling process, as the server judges it.
pub(crate) struct Caller<'a>(&'a Identity);

/// Where a path leads.
pub(crate) struct Found<'a> {
    pub attr: WireAttr,
    /// What is told beside the attributes.
    pub word: SlotWord,
    /// The directory that has the name, and what tells whether it still has; of a path that ends with a name.
    pub name: Option<(u64, Seen<'a>)>,
}

impl Subject for Caller<'_> {
    fn uid(&self) -> u32 {
        self.0.uid.load(Relaxed)
    }

    fn in_group(&self, gid: u32) -> bool {
        let count = (self.0.group_count.load(Relaxed) as usize).min(GROUPS_MAX);
        self.0.groups[..count].iter().any(|group| group.load(Relaxed) == gid)
    }

    fn may(&self, capability: Capability) -> bool {
        Capabilities::from_bits(self.0.capabilities.load(Relaxed)).contains(capability)
    }
}

impl Caller<'_> {
    /// Who that is. What changes meanwhile is not believed by [`Client::judge`].
    pub fn credentials(&self) -> Credentials {
        let count = (self.0.group_count.load(Relaxed) as usize).min(GROUPS_MAX);
        let mut groups: Vec<u32> = self.0.groups[..count].iter().map(|group| group.load(Relaxed)).collect();
        let gid = if groups.is_empty() { u32::MAX } else { groups.remove(0) };
        let capabilities = Capabilities::from_bits(self.0.capabilities.load(Relaxed));
        Credentials { uid: self.uid(), gid, groups, capabilities }
    }
}

impl Client {
    /// Attributes and flags as [`Client::stat_with_flags`] tells them.
    pub(crate) fn stat_here(
        &self,
        at: FileRef,
        path: &[u8],
        flags: i32,
    ) -> Option<Result<(WireAttr, InodeFlags), Errno>> {
        let leases = self.leases()?;
        if flags & !WALK_FLAGS != 0 || !leases.control().volume.is_alive() {
            return None;
        }
        if path.is_empty() {
            let open = flags & libc::AT_EMPTY_PATH != 0;
            return if open {
                leases.attr(leases.base(at)?).map(|(attr, word)| Ok((attr, word.flags())))
            } else {
                None
            };
        }
        self.judge(|caller| {
            let found = leases.walk(caller, at, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
            Some(found.map(|found| (found.attr, found.word.flags())))
        })
    }

    /// Length of an extended attribute, as [`Client::get_xattr`] tells it, of a file that has none: mostly why there is no
    /// such attribute.
    pub(crate) fn get_xattr_here(&self, at: FileRef, path: &[u8], flags: i32, name: &[u8]) -> Option<Errno> {
        let is_in = |namespace: &[u8]| name.starts_with(namespace) && name.len() > namespace.len();
        let error = match name {
            _ if name.len() > XATTR_NAME_MAX => return None,
            acl::ACCESS | acl::DEFAULT => libc::ENODATA,
            _ if is_in(b"system.") => libc::EOPNOTSUPP,
            _ if is_in(b"security.") || is_in(b"trusted.") => libc::ENODATA,
            // Those of programs need permissions.
            _ => return None,
        };
        let is_link = |attr: WireAttr| attr.mode & libc::S_IFMT == libc::S_IFLNK;
        self.plain_here(at, path, flags)?.map_or_else(Some, |attr| match name {
            acl::ACCESS | acl::DEFAULT if is_link(attr) => Some(libc::EOPNOTSUPP),
            _ => Some(error),
        })
    }

    /// The attributes of a file that has no extended ones, or an error says why it cannot be told; `None` when it may have some.
    pub(crate) fn plain_here(&self, at: FileRef, path: &[u8], flags: i32) -> Option<Result<WireAttr, Errno>> {
        let attr = match self.stat_here(at, path, flags)? {
            Ok((attr, _)) => attr,
            Err(error) => return Some(Err(error)),
        };
        self.leases()?.names().attr(attr.ino, |_, word| word.is_plain().then_some(Ok(attr)))
    }

    /// Whether the caller may do `mode`, as [`Client::access`] tells it.
    pub(crate) fn access_here(
        &self,
        at: FileRef,
        path: &[u8],
        mode: i32,
        flags: i32,
    ) -> Option<Result<(), Errno>> {
        let leases = self.leases()?;
        let plain = flags & !(WALK_FLAGS | libc::AT_EACCESS) == 0 && !path.is_empty();
        // What of a volume that is read-only can be written depends on its kind.
        let asks = mode as u32 & access::WRITE != 0 && leases.names().head.writable.load(Relaxed) == 0;
        if !plain || asks || !leases.control().volume.is_alive() {
            return None;
        }
        self.judge(|caller| {
            let found = leases.walk(caller, at, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
            match found {
                Ok(found) => check(caller, (&found.attr, found.word), mode as u32 & 7),
                Err(error) => Some(Err(error)),
            }
        })
    }

    /// What `look` finds by the rights of the process, when all its threads have the same and they did not change meanwhile.
    pub(crate) fn judge<T>(&self, look: impl FnOnce(&Caller<'_>) -> Option<T>) -> Option<T> {
        if self.identities.load(Relaxed) != 0 {
            return None;
        }
        let identity = &self.channel().identity;
        let seq = identity.seq.load(Acquire);
        if seq & 1 != 0 || identity.known.load(Relaxed) == 0 {
            return None;
        }
        let found = look(&Caller(identity))?;
        fence(Acquire);
        (identity.seq.load(Relaxed) == seq).then_some(found)
    }
}

impl Leases {
    /// The inode of an open file or of the root.
    pub(crate) fn base(&self, file: FileRef) -> Option<u64> {
        if file == FileRef::ROOT {
            return Some(Ino::ROOT.0);
        }
        self.open_file(file).ok().map(|(_, inode, _)| inode.ino.load(Relaxed))
    }

    /// Attributes of an inode, with what clients have changed in shared memory, and what is told beside them.
    pub(crate) fn attr(&self, ino: u64) -> Option<(WireAttr, SlotWord)> {
        self.names().attr(ino, |mut attr, word| {
            if let Some(slot) = word.slot()
                && attr.mode & libc::S_IFMT == libc::S_IFREG
            {
                let notes_reads = !word.flags().contains(InodeFlags::NO_ATIME);
                let inode = self.control().inodes.get(slot as usize)?;
                inode.between_steps(|| overlay(&mut attr, notes_reads, inode))?;
            }
            Some((attr, word))
        })
    }

    /// Where a path leads.
    pub(crate) fn walk(
        &self,
        caller: &Caller<'_>,
        at: FileRef,
        path: &[u8],
        follow: bool,
    ) -> Option<Result<Found<'_>, Errno>> {
        if path == ITSELF || path.len() >= PATH_MAX {
            return None;
        }
        let mut dir = if path[0] == b'/' { Ino::ROOT.0 } else { self.base(at)? };
        let mut rest = path;
        loop {
            let begin = rest.iter().position(|&byte| byte != b'/').unwrap_or(rest.len());
            let end = rest[begin..].iter().position(|&byte| byte == b'/').map_or(rest.len(), |at| begin + at);
            let (name, tail) = (&rest[begin..end], &rest[end..]);
            let last = tail.iter().all(|&byte| byte == b'/');
            let (here, word) = self.attr(dir)?;
            if here.mode & libc::S_IFMT != libc::S_IFDIR {
                return Some(Err(libc::ENOTDIR));
            }
            if name.is_empty() {
                return Some(Ok(Found { attr: here, word, name: None }));
            }
            if let Err(error) = check(caller, (&here, word), access::EXECUTE)? {
                return Some(Err(error));
            }
            if name.len() > NAME_MAX {
                return None;
            }
            let (ino, seen) = match name {
                b"." => (dir, None),
                name => match self.names().ino(dir, name) {
                    Some((ino, seen)) => (ino, Some(seen)),
                    None if word.slot().is_some_and(|slot| self.is_listed_without(dir, slot, name)) => {
                        (0, None)
                    }
                    None => return None,
                },
            };
            if ino == 0 {
                return Some(Err(libc::ENOENT));
            }
            if last {
                let (attr, word) = self.attr(ino)?;
                let kind = attr.mode & libc::S_IFMT;
                let must_be_dir = !tail.is_empty();
                if kind == libc::S_IFLNK && (follow || must_be_dir) {
                    return None;
                }
                let refused = must_be_dir && kind != libc::S_IFDIR;
                let found = Found { attr, word, name: seen.map(|seen| (dir, seen)) };
                return Some(if refused { Err(libc::ENOTDIR) } else { Ok(found) });
            }
            // A symlink is no directory that the next turn could go on from.
            if name != b"." && self.attr(ino)?.0.mode & libc::S_IFMT == libc::S_IFLNK {
                return None;
            }
            dir = ino;
            rest = tail;
        }
    }
}

/// Whether the caller may do all of `wanted`; `None` when the server has to say.
pub(crate) fn check(
    caller: &Caller<'_>,
    (attr, word): (&WireAttr, SlotWord),
    wanted: u32,
) -> Option<Result<(), Errno>> {
    if !word.is_judged_by_mode(wanted) {
        return None;
    }
    let granted = access::is_granted(caller, attr.mode, attr.uid, attr.gid, None, wanted);
    Some(if granted { Ok(()) } else { Err(libc::EACCES) })
}

/// Puts what clients have changed of an open inode over what the core knows, as the server does.
fn overlay(attr: &mut WireAttr, notes_reads: bool, inode: &Inode) {
    attr.size = inode.size.load(Acquire);
    let after_read = |attr: &WireAttr, noted: i64| match noted {
        0 => attr.atime_ns,
        _ if !notes_reads => attr.atime_ns,
        when => {
            let [atime, mtime, ctime] = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns].map(TimeSpec);
            atime_after_read(atime, mtime, ctime, TimeSpec(when)).map_or(attr.atime_ns, |time| time.0)
        }
    };
    attr.atime_ns = after_read(attr, inode.atime_ns.load(Relaxed));
    let mtime = inode.mtime_ns.load(Relaxed);
    if mtime != 0 {
        attr.mtime_ns = mtime;
        attr.ctime_ns = mtime.max(attr.ctime_ns);
    }
    attr.atime_ns = after_read(attr, inode.atime_after_ns.load(Relaxed));
}
