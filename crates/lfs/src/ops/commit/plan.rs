//! Finds out whether all changes of a step can be done, and what they come to. The volume stays as it is: names, inodes and files are
//! looked up in what the changes so far have made of them, and in the volume where they have not.

use super::file::{FilePlan, RECORD_BYTES};
use crate::RENAMES_RESERVE_BYTES;
use crate::core::State;
use crate::layout::FILE_BYTES_MAX;
use crate::ops::name_checks::{Room, kind_of};
use crate::ops::xattrs::check_set;
use crate::state::inode::{ENTRY_BYTES, INODE_BYTES, Xattrs};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use weft_core::{Ino, Tag, refuse};
use weft_vfs::names::{Facts, Move, Names};
use weft_vfs::{
    Change, CreateArgs, FileKind, FsError, FsResult, Node, Refused, RenameFlags, SetAttr, XattrMode,
};

/// Bytes that an attribute takes in a checkpoint and in records, beside its name and its value.
const XATTR_BYTES: usize = 17;
/// Bytes of the record of a new node, beside its name and its target, at most.
const CREATE_BYTES: usize = 2 * RECORD_BYTES;

/// What a step comes to.
#[derive(Default, Debug)]
pub(super) struct Outcome {
    /// The inodes that its changes make.
    pub made: Vec<Option<Ino>>,
    /// Files whose data or size it changes, without those that it removes.
    pub files: BTreeMap<Ino, FilePlan>,
    /// Inodes that are gone behind it.
    pub gone: Vec<Ino>,
    /// Files whose content it puts in the place of another.
    pub replacing: Vec<Ino>,
    /// Bytes that programs write by it.
    pub bytes_written: u64,
    /// The number that the next inode has behind it.
    pub next_ino: u64,
    /// The volume's byte clock at each change.
    pub clock: Vec<u64>,
    /// Bytes of its records, at most.
    pub record_bytes: usize,
}

/// An inode after the changes so far.
#[derive(Clone, Debug)]
struct NodePlan {
    facts: Facts,
    /// Open references.
    opens: u32,
    tag: Tag,
    /// Its size before the step.
    size: u64,
    /// Its attributes, if one of them has changed.
    xattrs: Option<Xattrs>,
}

/// The volume after some changes of a step.
pub(super) struct Plan<'a> {
    state: &'a State,
    nodes: FxHashMap<u64, NodePlan>,
    /// The inode with a name of a directory, where that has changed.
    names: FxHashMap<(u64, &'a [u8]), Option<Ino>>,
    /// Bytes by which metadata has grown.
    growth: i64,
    /// Bytes that files are charged more than before the step.
    charge: i64,
    /// Bytes of the records of the step, those about files' data left out, at most.
    record_bytes: usize,
    /// Inodes that lost their last name.
    unnamed: Vec<Ino>,
    outcome: Outcome,
}

impl Names for Plan<'_> {
    fn facts(&mut self, ino: Ino) -> FsResult<Facts> {
        self.nodes.get(&ino.0).map_or_else(|| self.state.facts_of(ino), |node| Ok(node.facts))
    }

    fn named(&mut self, dir: Ino, name: &[u8]) -> FsResult<Option<Ino>> {
        let changed = self.names.get(&(dir.0, name)).copied();
        Ok(changed.unwrap_or_else(|| self.state.inode_named(dir, name)))
    }
}

impl Room for Plan<'_> {
    fn room(&self, bytes: usize) -> (u64, u64) {
        let used = self.state.space.used().saturating_add_signed(self.charge);
        (used, self.state.usable_after(self.growth + bytes as i64))
    }
}

/// Plans a step, of which [`check`](weft_vfs::change::check) has found nothing wrong.
pub(super) fn plan<'a>(state: &'a State, changes: &'a [Change<'a>]) -> Result<Outcome, Refused> {
    let outcome = Outcome { next_ino: state.tree.next_ino, ..Outcome::default() };
    let mut plan = Plan {
        state,
        nodes: FxHashMap::default(),
        names: FxHashMap::default(),
        growth: 0,
        charge: 0,
        record_bytes: 0,
        unnamed: Vec::new(),
        outcome,
    };
    for (at, change) in changes.iter().enumerate() {
        plan.outcome.clock.push(state.volume_bytes + plan.outcome.bytes_written);
        let made = plan.change(at, change).map_err(|error| Refused { at, error })?;
        plan.outcome.made.push(made);
    }
    plan.end().map_err(|error| Refused { at: changes.len(), error })
}

impl<'a> Plan<'a> {
    /// Plans the change at a place of the step. The inode that it makes.
    fn change(&mut self, at: usize, change: &'a Change<'a>) -> FsResult<Option<Ino>> {
        if !matches!(change, Change::Expect { .. }) {
            self.record_bytes += RECORD_BYTES;
        }
        match *change {
            Change::Expect { dir, name, ino } => {
                let dir = self.ino(dir)?;
                self.check_expected(dir, name, ino)?;
            }
            Change::Create { dir, name, ref args } => {
                let dir = self.ino(dir)?;
                return self.create(dir, name, args).map(Some);
            }
            Change::Link { node, dir, name } => {
                let (ino, dir) = (self.ino(node)?, self.ino(dir)?);
                self.check_new_link(ino, dir, name)?;
                self.record_bytes += name.len();
                self.set_name(dir, name, Some(ino))?;
                let facts = &mut self.node(ino)?.facts;
                facts.links += 1;
                facts.linkable = false;
            }
            Change::Remove { dir, name, is_dir } => {
                let dir = self.ino(dir)?;
                let ino = self.check_remove(dir, name, is_dir)?;
                self.record_bytes += name.len();
                self.set_name(dir, name, None)?;
                self.node(dir)?.facts.links -= u32::from(is_dir);
                self.lose_name(ino)?;
            }
            Change::Rename { from, name, to, new_name, flags } => {
                let (from, to) = (self.ino(from)?, self.ino(to)?);
                self.rename((from, name), (to, new_name), flags)?;
            }
            Change::SetAttr { node, set } => {
                let ino = self.ino(node)?;
                self.facts(ino)?;
                if let Some(size) = set.size {
                    refuse(size > FILE_BYTES_MAX, FsError::TooLarge)?;
                    self.with_file(at, ino, |file, state, tag, clock| {
                        file.set_size(state, tag, size, clock)
                    })?;
                }
            }
            Change::Xattr { node, name, value, mode } => {
                let ino = self.ino(node)?;
                self.set_xattr(ino, name, value, mode)?;
            }
            Change::Write { node, offset, data } => {
                let ino = self.ino(node)?;
                self.check_file(ino)?;
                if !data.is_empty() {
                    self.with_file(at, ino, |file, state, tag, clock| {
                        file.write(state, tag, (offset, data), clock)
                    })?;
                    self.outcome.bytes_written += data.len() as u64;
                }
            }
            Change::Fallocate { node, mode, offset, len } => {
                let ino = self.ino(node)?;
                self.with_file(at, ino, |file, state, tag, clock| {
                    file.fallocate(state, tag, mode, (offset, len), clock)
                })?;
            }
            Change::SetTag { node, tag } => {
                let ino = self.ino(node)?;
                self.node(ino)?.tag = tag;
            }
        }
        Ok(None)
    }

    fn ino(&self, node: Node) -> FsResult<Ino> {
        match node {
            Node::Ino(ino) => Ok(ino),
            Node::Made(at) => self.outcome.made.get(at).copied().flatten().ok_or(FsError::Stale),
        }
    }

    /// An inode, to be changed.
    fn node(&mut self, ino: Ino) -> FsResult<&mut NodePlan> {
        match self.nodes.entry(ino.0) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                let facts = self.state.facts_of(ino)?;
                let inode = self.state.inode(ino)?;
                let (opens, tag, size) = (inode.opens, inode.tag, inode.size);
                Ok(place.insert(NodePlan { facts, opens, tag, size, xattrs: None }))
            }
        }
    }

    /// Gives a name to an inode, or to none.
    fn set_name(&mut self, dir: Ino, name: &'a [u8], ino: Option<Ino>) -> FsResult<()> {
        let had = self.named(dir, name)?.is_some();
        let bytes = (ENTRY_BYTES + name.len()) as i64;
        let entries = &mut self.node(dir)?.facts.entries;
        match (had, ino.is_some()) {
            (false, true) => {
                *entries += 1;
                self.growth += bytes;
            }
            (true, false) => {
                *entries -= 1;
                self.growth -= bytes;
            }
            _ => {}
        }
        self.names.insert((dir.0, name), ino);
        Ok(())
    }

    /// An inode loses a name; a directory has only one.
    fn lose_name(&mut self, ino: Ino) -> FsResult<()> {
        let facts = &mut self.node(ino)?.facts;
        facts.links = if facts.kind == FileKind::Directory { 0 } else { facts.links.saturating_sub(1) };
        if facts.links == 0 {
            self.unnamed.push(ino);
        }
        Ok(())
    }

    fn add_node(&mut self, kind: FileKind, dir: Ino, opens: u32, tag: Tag) -> Ino {
        let ino = Ino(self.outcome.next_ino);
        self.outcome.next_ino += 1;
        let is_dir = kind == FileKind::Directory;
        let (links, parent) = if is_dir { (2, dir) } else { (1, ino) };
        let facts = Facts { kind, links, linkable: false, entries: 0, parent };
        let xattrs = Some(Xattrs::default());
        self.nodes.insert(ino.0, NodePlan { facts, opens, tag, size: 0, xattrs });
        ino
    }

    fn create(&mut self, dir: Ino, name: &'a [u8], args: &CreateArgs<'a>) -> FsResult<Ino> {
        let bytes = self.check_new(Some((dir, name)), args)?;
        let (kind, _, target) = kind_of(&args.node);
        let ino = self.add_node(kind, dir, u32::from(args.open), args.tag);
        self.set_name(dir, name, Some(ino))?;
        self.node(dir)?.facts.links += u32::from(kind == FileKind::Directory);
        self.growth += (bytes - ENTRY_BYTES - name.len()) as i64;
        self.record_bytes += CREATE_BYTES + name.len() + target.len();
        for &(name, value) in args.xattrs {
            self.record_bytes += RECORD_BYTES + name.len() + value.len();
            if let Some(xattrs) = &mut self.node(ino)?.xattrs {
                xattrs.insert(name.into(), value.into());
            }
        }
        Ok(ino)
    }

    fn rename(
        &mut self,
        (from, name): (Ino, &'a [u8]),
        (to, new_name): (Ino, &'a [u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        let moved = self.check_move((from, name), (to, new_name), flags)?;
        let Some(Move { ino, other, other_is_dir }) = moved else { return Ok(()) };
        self.record_bytes += name.len() + new_name.len();
        let moves_dir = self.facts(ino)?.is_dir();
        if flags.contains(RenameFlags::EXCHANGE) {
            let Some(other) = other else { return Err(FsError::NotFound) };
            self.set_name(from, name, Some(other))?;
            self.set_name(to, new_name, Some(ino))?;
            if moves_dir {
                self.move_dir(ino, from, to)?;
            }
            return if other_is_dir { self.move_dir(other, to, from) } else { Ok(()) };
        }
        self.set_name(from, name, None)?;
        self.set_name(to, new_name, Some(ino))?;
        if moves_dir {
            self.move_dir(ino, from, to)?;
        }
        if let Some(other) = other {
            self.node(to)?.facts.links -= u32::from(other_is_dir);
            self.lose_name(other)?;
            self.outcome.replacing.push(ino);
        }
        if flags.contains(RenameFlags::WHITEOUT) {
            let whiteout = self.add_node(FileKind::CharDevice, from, 0, Tag::default());
            self.set_name(from, name, Some(whiteout))?;
            self.growth += INODE_BYTES as i64;
            self.record_bytes += CREATE_BYTES + RECORD_BYTES + name.len();
        }
        Ok(())
    }

    fn move_dir(&mut self, ino: Ino, old: Ino, new: Ino) -> FsResult<()> {
        self.node(old)?.facts.links -= 1;
        self.node(new)?.facts.links += 1;
        self.node(ino)?.facts.parent = new;
        Ok(())
    }

    fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> FsResult<()> {
        let before = self.state.tree.get(ino);
        let mut has = match (self.node(ino)?.xattrs.take(), before) {
            (Some(has), _) => has,
            (None, Some(inode)) => Xattrs::clone(&inode.xattrs),
            (None, None) => Xattrs::default(),
        };
        let bytes = |value: &[u8]| (XATTR_BYTES + name.len() + value.len()) as i64;
        let old = has.get(name).map_or(0, |value| bytes(value));
        match value {
            Some(value) => {
                let added = check_set(&has, name, value, mode)?;
                self.check_metadata(added)?;
                self.growth += bytes(value) - old;
                self.record_bytes += name.len() + value.len();
                has.insert(name.into(), value.into());
            }
            None => {
                refuse(!has.contains_key(name), FsError::NoAttribute)?;
                self.growth -= old;
                self.record_bytes += name.len();
                has.remove(name);
            }
        }
        self.node(ino)?.xattrs = Some(has);
        Ok(())
    }

    /// Fails unless this is a regular file.
    fn check_file(&mut self, ino: Ino) -> FsResult<()> {
        match self.facts(ino)?.kind {
            FileKind::File => Ok(()),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// Changes a file's data or size, and checks that there is room for what it came to.
    fn with_file(
        &mut self,
        at: usize,
        ino: Ino,
        change: impl FnOnce(&mut FilePlan, &State, Tag, u64) -> FsResult<()>,
    ) -> FsResult<()> {
        self.check_file(ino)?;
        let state = self.state;
        let &mut NodePlan { tag, size, .. } = self.node(ino)?;
        let clock = self.outcome.clock[at];
        let file = self.outcome.files.entry(ino).or_insert_with(|| FilePlan::new(ino, size));
        let before = file.charge();
        change(file, state, tag, clock)?;
        file.last = at;
        let more = file.charge() - before;
        self.charge += more;
        let (used, usable) = self.room(0);
        // What takes nothing more is allowed on a volume that is full.
        refuse(more > 0 && used > usable.saturating_sub(RENAMES_RESERVE_BYTES), FsError::NoSpace)
    }

    /// Checks the step as a whole.
    fn end(mut self) -> FsResult<Outcome> {
        let nodes = &self.nodes;
        let is_gone =
            |ino: &Ino| nodes.get(&ino.0).is_some_and(|node| node.facts.links == 0 && node.opens == 0);
        self.outcome.gone = self.unnamed.iter().copied().filter(is_gone).collect();
        let Outcome { files, gone, replacing, .. } = &mut self.outcome;
        files.retain(|ino, _| !gone.contains(ino));
        replacing.retain(|ino| !gone.contains(ino));
        self.record_bytes += self.outcome.gone.len() * RECORD_BYTES;
        self.record_bytes += self.outcome.files.values().map(FilePlan::record_bytes).sum::<usize>();
        self.outcome.record_bytes = self.record_bytes;
        let is_long = self.record_bytes > crate::layout::frame::TRANSACTION_MAX;
        refuse(is_long, FsError::Invalid("the records of the step do not fit one transaction of 72 KiB"))?;
        Ok(self.outcome)
    }
}

/// Whether a change of attributes has more than the size.
pub(super) fn is_about_attributes(set: &SetAttr) -> bool {
    set.size.is_none() || SetAttr { size: None, ..*set } != SetAttr::default()
}
