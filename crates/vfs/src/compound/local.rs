//! A host over any file system, in the same process.

use super::Host;
use crate::change::{Change, Made, Node, Refused};
use crate::{Attr, FileSystem, FsError, FsResult, Protections, TimeSpec};
use weft_core::{Credentials, Ino, Tag};

/// Runs programs on a file system that this process has for itself: paths begin at the root, the caller is the superuser unless another is
/// named, and what is made carries no tag.
///
/// It takes no lock: who changes the same files meanwhile by other calls may come between a program's reads and its step.
pub struct Local<'a> {
    fs: &'a dyn FileSystem,
    caller: Credentials,
}

impl<'a> Local<'a> {
    /// For the superuser.
    pub fn new(fs: &'a dyn FileSystem) -> Local<'a> {
        Local { fs, caller: Credentials::default() }
    }

    /// For somebody else.
    pub fn of(fs: &'a dyn FileSystem, caller: Credentials) -> Local<'a> {
        Local { fs, caller }
    }

    /// Does one change by its plain operation.
    fn one(&self, change: &Change<'_>) -> FsResult<Option<Ino>> {
        let fs = self.fs;
        let ino = |node| match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(_) => Err(FsError::Invalid("no earlier change makes this node")),
        };
        match *change {
            Change::Expect { dir, name, ino: expected } => {
                let found = match fs.lookup(ino(dir)?, name) {
                    Ok(attr) => Some(attr.ino),
                    Err(FsError::NotFound) => None,
                    Err(_) => return Err(FsError::Stale),
                };
                if found == expected { Ok(()) } else { Err(FsError::Stale) }
            }
            Change::Create { dir, name, ref args } => {
                return fs.create(ino(dir)?, name, args).map(|attr| Some(attr.ino));
            }
            Change::Link { node, dir, name } => fs.link(ino(node)?, ino(dir)?, name).map(drop),
            Change::Remove { dir, name, is_dir: true } => fs.rmdir(ino(dir)?, name),
            Change::Remove { dir, name, is_dir: false } => fs.unlink(ino(dir)?, name),
            Change::Rename { from, name, to, new_name, flags } => {
                fs.rename(ino(from)?, name, ino(to)?, new_name, flags)
            }
            Change::SetAttr { node, ref set } => fs.setattr(ino(node)?, set).map(drop),
            Change::Xattr { node, name, value: Some(value), mode } => {
                fs.setxattr(ino(node)?, name, value, mode)
            }
            Change::Xattr { node, name, value: None, .. } => fs.removexattr(ino(node)?, name),
            Change::Write { node, offset, data } => fs.write(ino(node)?, offset, data),
            Change::Fallocate { node, mode, offset, len } => fs.fallocate(ino(node)?, mode, offset, len),
            Change::SetTag { node, tag } => fs.set_tag(ino(node)?, tag),
        }
        .map(|()| None)
    }
}

impl Host for Local<'_> {
    fn files(&self) -> &dyn FileSystem {
        self.fs
    }

    fn caller(&self) -> &Credentials {
        &self.caller
    }

    fn start(&self) -> Ino {
        Ino::ROOT
    }

    fn umask(&self) -> u32 {
        0
    }

    fn mount_point(&self) -> &[u8] {
        b""
    }

    fn protections(&self) -> Protections {
        Protections::default()
    }

    fn now(&self) -> TimeSpec {
        TimeSpec::now()
    }

    fn tag(&self, _dir: &Attr, _name: &[u8]) -> Tag {
        Tag::default()
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        let [change] = changes else { return self.fs.commit(changes, durable) };
        let refused = |error| Refused { at: 0, error };
        let made = self.one(change).map_err(refused)?;
        if durable {
            self.fs.sync().map_err(refused)?;
        }
        Ok(vec![made])
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        self.fs.fsync(ino)
    }
}
