//! Several changes of a core in one step: what [`FileSystem::commit`] takes.

use crate::{CreateArgs, FallocateMode, FileSystem, FsError, FsResult, RenameFlags, SetAttr, XattrMode};
use weft_core::{Ino, Tag};

/// Changes of one step, at most, without those that only [expect](Change::Expect).
pub const CHANGES_MAX: usize = 64;
/// Names that one step expects, at most.
pub const EXPECTED_MAX: usize = 192;
/// Bytes of data that the changes of one step write, at most.
pub const CHANGE_BYTES_MAX: usize = 4 << 20;
/// Inodes whose data one step changes, at most.
pub const CHANGE_INODES_MAX: usize = 16;

/// An inode that a change is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// One that exists.
    Ino(Ino),
    /// What the change at this place of the same step makes, which comes before.
    Made(usize),
}

impl Node {
    /// The inode that it was before the step, if it was one.
    pub fn existing(self) -> Option<Ino> {
        match self {
            Node::Ino(ino) => Some(ino),
            Node::Made(_) => None,
        }
    }

    /// The inode that it is after a step that has made these.
    pub fn after(self, made: &Made) -> Option<Ino> {
        match self {
            Node::Ino(ino) => Some(ino),
            Node::Made(at) => made.get(at).copied().flatten(),
        }
    }
}

/// A change. Each does, and refuses, what the operation of [`FileSystem`] with its name does after those before it.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Changes nothing: refused with `Stale` unless this name is that of `ino`, or nobody's (`None`). What was looked up before the step
    /// still holds then.
    Expect {
        /// Directory.
        dir: Node,
        /// Name in it.
        name: &'a [u8],
        /// Whose name it has to be.
        ino: Option<Ino>,
    },
    /// [`create`](crate::FileSystem::create).
    Create {
        /// Directory.
        dir: Node,
        /// Name in it.
        name: &'a [u8],
        /// What to make.
        args: CreateArgs<'a>,
    },
    /// [`link`](crate::FileSystem::link).
    Link {
        /// What gets the name.
        node: Node,
        /// Directory.
        dir: Node,
        /// Name in it.
        name: &'a [u8],
    },
    /// [`unlink`](crate::FileSystem::unlink), or [`rmdir`](crate::FileSystem::rmdir).
    Remove {
        /// Directory.
        dir: Node,
        /// Name in it.
        name: &'a [u8],
        /// Whether it is a directory's.
        is_dir: bool,
    },
    /// [`rename`](crate::FileSystem::rename).
    Rename {
        /// Directory.
        from: Node,
        /// Name in it.
        name: &'a [u8],
        /// Directory of the new name.
        to: Node,
        /// The new name.
        new_name: &'a [u8],
        /// How.
        flags: RenameFlags,
    },
    /// [`setattr`](crate::FileSystem::setattr), the size included.
    SetAttr {
        /// Whose.
        node: Node,
        /// What to set.
        set: SetAttr,
    },
    /// [`setxattr`](crate::FileSystem::setxattr), or [`removexattr`](crate::FileSystem::removexattr) without a value.
    Xattr {
        /// Whose.
        node: Node,
        /// The attribute's name.
        name: &'a [u8],
        /// Its new value.
        value: Option<&'a [u8]>,
        /// When it may be set.
        mode: XattrMode,
    },
    /// [`write`](crate::FileSystem::write).
    Write {
        /// File.
        node: Node,
        /// Where.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// [`fallocate`](crate::FileSystem::fallocate), but for `CollapseRange` and `InsertRange`, which are refused with `Unsupported`.
    Fallocate {
        /// File.
        node: Node,
        /// What happens to the range.
        mode: FallocateMode,
        /// Its first byte.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// [`set_tag`](crate::FileSystem::set_tag).
    SetTag {
        /// File.
        node: Node,
        /// The tag that its data carries from here on, also that of later changes of the step.
        tag: Tag,
    },
}

/// Why a step was refused. Nothing has changed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("change {at}: {error}")]
pub struct Refused {
    /// The change that was refused; the number of changes when it was the step as a whole.
    pub at: usize,
    /// Why.
    pub error: FsError,
}

/// What a step that was done has made: for each change, the inode if it was a [`Change::Create`].
pub type Made = Vec<Option<Ino>>;

/// Refuses a step that goes beyond the limits, or that speaks of what it has not made yet.
pub fn check(changes: &[Change<'_>]) -> Result<(), Refused> {
    let whole = |error| Err(Refused { at: changes.len(), error });
    let expected = changes.iter().filter(|change| matches!(change, Change::Expect { .. })).count();
    if changes.len() - expected > CHANGES_MAX {
        return whole(FsError::Invalid("more than 64 changes in one step"));
    }
    if expected > EXPECTED_MAX {
        return whole(FsError::Invalid("more than 192 expected names in one step"));
    }
    let mut bytes = 0usize;
    let mut files: Vec<Node> = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let refused = |error| Err(Refused { at, error });
        for node in change.nodes().into_iter().flatten() {
            if let Node::Made(made) = node
                && !(made < at && matches!(changes[made], Change::Create { .. }))
            {
                return refused(FsError::Invalid("no earlier change makes this node"));
            }
        }
        match *change {
            Change::Write { node, data, .. } => {
                bytes = bytes.saturating_add(data.len());
                files.push(node);
            }
            Change::Fallocate { mode: FallocateMode::CollapseRange | FallocateMode::InsertRange, .. } => {
                return refused(FsError::Unsupported("moving the rest of a file within a step"));
            }
            Change::Fallocate { node, .. } | Change::SetAttr { node, set: SetAttr { size: Some(_), .. } } => {
                files.push(node);
            }
            _ => {}
        }
    }
    files.sort_unstable_by_key(|node| match *node {
        Node::Ino(ino) => (0, ino.0),
        Node::Made(at) => (1, at as u64),
    });
    files.dedup();
    if bytes > CHANGE_BYTES_MAX {
        return whole(FsError::Invalid("more than 4 MiB of data in one step"));
    }
    if files.len() > CHANGE_INODES_MAX {
        return whole(FsError::Invalid("the data of more than 16 files in one step"));
    }
    Ok(())
}

impl Change<'_> {
    /// Does it by the plain operation; the inode that it makes, should it make one.
    ///
    /// # Errors
    /// As the operation fails.
    pub fn alone(&self, fs: &dyn FileSystem) -> FsResult<Option<Ino>> {
        let ino = |node| match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(_) => Err(FsError::Invalid("no earlier change makes this node")),
        };
        match *self {
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

    /// The nodes that it names.
    pub fn nodes(&self) -> [Option<Node>; 2] {
        match *self {
            Change::Expect { dir, .. } | Change::Create { dir, .. } | Change::Remove { dir, .. } => {
                [Some(dir), None]
            }
            Change::Link { node, dir, .. } => [Some(node), Some(dir)],
            Change::Rename { from, to, .. } => [Some(from), Some(to)],
            Change::SetAttr { node, .. }
            | Change::Xattr { node, .. }
            | Change::Write { node, .. }
            | Change::Fallocate { node, .. }
            | Change::SetTag { node, .. } => [Some(node), None],
        }
    }
}
