//! The changes that a program has come to, and their step.

use super::Host;
use super::data::Data;
use crate::change::{Change, EXPECTED_MAX, Made, Node, Refused};
use crate::{CreateArgs, FallocateMode, FsError, NewNode, RenameFlags, SetAttr, XattrMode};
use std::collections::BTreeMap;
use weft_core::{Ino, Tag};

/// Numbers from here on are those of inodes that a change of the plan makes: this, and the change's place. No core counts that far.
const FIRST_MADE: u64 = 1 << 63;

/// Whether an inode is one that the plan makes.
pub(super) fn is_made(ino: Ino) -> bool {
    ino.0 >= FIRST_MADE
}

/// What a planned node is.
#[derive(Clone, Debug)]
pub(super) enum NewKind<'a> {
    File,
    Directory,
    Symlink(Data<'a>),
}

/// A planned node.
#[derive(Clone, Debug)]
pub(super) struct New<'a> {
    pub kind: NewKind<'a>,
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    pub tag: Tag,
    pub open: bool,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A planned change, which holds what a [`Change`] borrows.
#[derive(Clone, Debug)]
pub(super) enum Planned<'a> {
    Create { dir: Ino, name: Vec<u8>, new: New<'a> },
    Link { ino: Ino, dir: Ino, name: Vec<u8> },
    Remove { dir: Ino, name: Vec<u8>, is_dir: bool },
    Rename { from: Ino, name: Vec<u8>, to: Ino, new_name: Vec<u8>, flags: RenameFlags },
    SetAttr { ino: Ino, set: SetAttr },
    Xattr { ino: Ino, name: Vec<u8>, value: Option<Data<'a>>, mode: XattrMode },
    Write { ino: Ino, offset: u64, data: Data<'a> },
    Fallocate { ino: Ino, mode: FallocateMode, offset: u64, len: u64 },
    SetTag { ino: Ino, tag: Tag },
}

impl Planned<'_> {
    /// The change, with `before` others in front of the plan's.
    fn change<'c>(&'c self, before: usize, xattrs: &'c [(&'c [u8], &'c [u8])]) -> Change<'c> {
        let node = |ino: Ino| match ino.0.checked_sub(FIRST_MADE) {
            Some(at) => Node::Made(before + at as usize),
            None => Node::Ino(ino),
        };
        match *self {
            Planned::Create { dir, ref name, ref new } => {
                let kind = match &new.kind {
                    NewKind::File => NewNode::File,
                    NewKind::Directory => NewNode::Directory,
                    NewKind::Symlink(target) => NewNode::Symlink(target),
                };
                let New { perm, uid, gid, tag, open, .. } = *new;
                let args = CreateArgs { node: kind, perm, uid, gid, tag, open, xattrs };
                Change::Create { dir: node(dir), name, args }
            }
            Planned::Link { ino, dir, ref name } => Change::Link { node: node(ino), dir: node(dir), name },
            Planned::Remove { dir, ref name, is_dir } => Change::Remove { dir: node(dir), name, is_dir },
            Planned::Rename { from, ref name, to, ref new_name, flags } => {
                Change::Rename { from: node(from), name, to: node(to), new_name, flags }
            }
            Planned::SetAttr { ino, set } => Change::SetAttr { node: node(ino), set },
            Planned::Xattr { ino, ref name, ref value, mode } => {
                Change::Xattr { node: node(ino), name, value: value.as_deref(), mode }
            }
            Planned::Write { ino, offset, ref data } => Change::Write { node: node(ino), offset, data },
            Planned::Fallocate { ino, mode, offset, len } => {
                Change::Fallocate { node: node(ino), mode, offset, len }
            }
            Planned::SetTag { ino, tag } => Change::SetTag { node: node(ino), tag },
        }
    }
}

/// In place of an operation: all of them would be carried out.
const OP_NEVER: usize = usize::MAX;

/// Why a plan was not carried out: the operation whose change was refused.
#[derive(Debug)]
pub(super) struct PlanRefused {
    /// The operation of the program.
    pub op: usize,
    pub error: FsError,
}

/// A name that was looked up.
#[derive(Clone, Debug)]
struct Pin {
    /// The operation that did so.
    op: usize,
    ino: Option<Ino>,
}

/// The changes so far, each with the operation that it comes from, and the names that they rely on.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    changes: Vec<(usize, Planned<'a>)>,
    pins: BTreeMap<(Ino, Vec<u8>), Pin>,
}

impl<'a> Plan<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The operation that the first change comes from.
    pub(super) fn first_op(&self) -> Option<usize> {
        self.changes.first().map(|(op, _)| *op)
    }

    /// Adds a change; returns the number of the inode that it makes, should it make one.
    pub(super) fn push(&mut self, op: usize, change: Planned<'a>) -> Ino {
        self.changes.push((op, change));
        Ino(FIRST_MADE + self.changes.len() as u64 - 1)
    }

    /// The step relies on a name of the state before it. Only the first look counts: later ones see the same.
    pub(super) fn pin(&mut self, op: usize, dir: Ino, name: &[u8], ino: Option<Ino>) {
        self.pins.entry((dir, name.to_vec())).or_insert(Pin { op, ino });
    }

    /// Whether the step writes to a file that exists.
    pub(super) fn writes(&self, file: Ino) -> bool {
        self.changes.iter().any(|(_, change)| matches!(change, Planned::Write { ino, .. } if *ino == file))
    }

    /// The inode that a change of the plan has made.
    pub(super) fn made(&self, made: &Made, ino: Ino) -> Option<Ino> {
        let at = ino.0.checked_sub(FIRST_MADE)? as usize;
        // Names that were looked up stand in front.
        let before = made.len() - self.changes.len();
        made.get(before + at).copied().flatten()
    }

    /// Forgets what comes from operation `end` and those behind it.
    pub(super) fn truncate(&mut self, end: usize) {
        self.changes.retain(|(op, _)| *op < end);
        self.pins.retain(|_, pin| pin.op < end);
    }

    /// Carries all out in one step.
    pub(super) fn commit(&self, host: &dyn Host, durable: bool) -> Result<Made, PlanRefused> {
        self.step(host, durable, None)
    }

    /// Why the core would refuse to carry all out, when it may refuse something that the program could not see: nothing is done.
    pub(super) fn refusal(&self, host: &dyn Host) -> Option<PlanRefused> {
        let unseen = |(_, change): &(usize, Planned<'_>)| {
            use Planned::*;
            matches!(change, Link { .. } | Remove { is_dir: true, .. } | Rename { .. } | Xattr { .. })
        };
        if !self.changes.iter().any(unseen) || self.pins.len() >= EXPECTED_MAX {
            return None;
        }
        // No name has a slash: the step gets as far as this, and no further.
        let never = Change::Expect { dir: Node::Ino(Ino::ROOT), name: b"/", ino: Some(Ino::ROOT) };
        let refused = self.step(host, false, Some(never)).err();
        refused.filter(|refused| refused.op < OP_NEVER)
    }

    fn step(&self, host: &dyn Host, durable: bool, behind: Option<Change<'_>>) -> Result<Made, PlanRefused> {
        let pins: Vec<_> = self.pins.iter().collect();
        let xattrs = self.xattrs();
        let expected =
            pins.iter().map(|((dir, name), pin)| Change::Expect { dir: Node::Ino(*dir), name, ino: pin.ino });
        let planned =
            self.changes.iter().zip(&xattrs).map(|((_, change), xattrs)| change.change(pins.len(), xattrs));
        let is_tried = behind.is_some();
        let changes: Vec<Change<'_>> = expected.chain(planned).chain(behind).collect();
        host.commit(&changes, durable).map_err(|Refused { at, error }| {
            let op = match pins.get(at) {
                Some((_, pin)) => pin.op,
                None if is_tried && at >= pins.len() + self.changes.len() => OP_NEVER,
                // What is wrong with the step as a whole is told of its first change.
                None => {
                    self.changes.get(at.wrapping_sub(pins.len())).or(self.changes.first()).map_or(0, |c| c.0)
                }
            };
            PlanRefused { op, error }
        })
    }

    /// Carries the changes out one by one, and relies on no names: each checks its own.
    pub(super) fn commit_each(&self, host: &dyn Host, durable: bool) -> Result<Made, PlanRefused> {
        let xattrs = self.xattrs();
        let mut made = Made::new();
        for ((op, change), xattrs) in self.changes.iter().zip(&xattrs) {
            let done = host.change(&change.change(0, xattrs), durable);
            made.push(done.map_err(|error| PlanRefused { op: *op, error })?);
        }
        Ok(made)
    }

    /// The extended attributes that the node of each change begins with.
    fn xattrs(&self) -> Vec<Vec<(&[u8], &[u8])>> {
        let mut all = Vec::with_capacity(self.changes.len());
        for (_, change) in &self.changes {
            let xattrs = if let Planned::Create { new, .. } = change { &new.xattrs[..] } else { &[] };
            all.push(xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect());
        }
        all
    }
}
