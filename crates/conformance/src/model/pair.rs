//! A core and the oracle, side by side.

use super::Remount;
use super::op::{DIR_SLOTS, FILE_SLOTS, Flavour, Node, Offset, Op};
use crate::fixture::{BLOCK, bytes, soil};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use weft_core::{Ino, StreamId, Tag};
use weft_vfs::{
    Attr, CreateArgs, FileKind, FileSystem, FsError, FsResult, MemFs, NewNode, RenameFlags, SeekTarget,
    SetAttr, TimeSpec,
};

/// What was different, for a person.
type What = String;

/// Times before this were set; those after it are the clock's.
const SET_TIMES_END: TimeSpec = TimeSpec(1_000 * 1_000_000_000);
/// Bytes of a hole that are read at each of its ends.
const HOLE_PROBE_BYTES: u64 = 64 << 10;

pub(super) struct Pair {
    /// `None` only while it is remounted.
    core: Option<Box<dyn FileSystem>>,
    oracle: MemFs,
    /// The core's number of each of the oracle's inodes.
    inos: BTreeMap<Ino, Ino>,
    /// Open references, by the oracle's number.
    opens: BTreeMap<Ino, u32>,
    /// The oracle's numbers of what the slots hold.
    dirs: [Option<Ino>; DIR_SLOTS as usize],
    files: [Option<Ino>; FILE_SLOTS as usize],
    /// Inodes of the empty core beyond the root.
    inodes_base: u64,
}

/// An inode in both.
#[derive(Clone, Copy)]
struct Both {
    core: Ino,
    oracle: Ino,
}

fn name_bytes(name: u8) -> Vec<u8> {
    match name {
        // One of the longest, one that is no text.
        4 => vec![b'n'; weft_vfs::NAME_MAX],
        5 => vec![0xff, b' ', 1],
        _ => vec![b'a' + name],
    }
}

fn xattr_name(name: u8) -> Vec<u8> {
    format!("user.{name}").into_bytes()
}

fn describe<T: std::fmt::Debug>(result: &FsResult<T>) -> String {
    match result {
        Ok(value) => {
            let text = format!("{value:?}");
            format!("Ok({})", text.get(..200).unwrap_or(&text))
        }
        Err(error) => format!("Err({error:?})"),
    }
}

/// Whether two results are the same, errors by their variant.
fn agree<T: PartialEq + std::fmt::Debug>(
    what: &str,
    core: &FsResult<T>,
    oracle: &FsResult<T>,
) -> Result<(), What> {
    let same = match (core, oracle) {
        (Ok(core), Ok(oracle)) => core == oracle,
        (Err(core), Err(oracle)) => discriminant(core) == discriminant(oracle),
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(format!("{what}: the core gives {}, the oracle {}", describe(core), describe(oracle)))
}

/// Whether the core's error is one that applies, when several do.
fn agree_on_failure<T: PartialEq + std::fmt::Debug>(
    what: &str,
    core: &FsResult<T>,
    oracle: &FsResult<T>,
    others: &[FsError],
) -> Result<(), What> {
    if let (Err(core), Err(_)) = (core, oracle)
        && others.iter().any(|other| discriminant(other) == discriminant(core))
    {
        return Ok(());
    }
    agree(what, core, oracle)
}

impl Pair {
    pub(super) fn new(core: Box<dyn FileSystem>, oracle: MemFs) -> Pair {
        soil(&*core);
        let inodes = core.statfs().map_or(1, |stats| stats.inodes);
        let mut dirs = [None; DIR_SLOTS as usize];
        dirs[0] = Some(Ino::ROOT);
        Pair {
            core: Some(core),
            oracle,
            inos: BTreeMap::from([(Ino::ROOT, Ino::ROOT)]),
            opens: BTreeMap::new(),
            dirs,
            files: [None; FILE_SLOTS as usize],
            inodes_base: inodes.saturating_sub(1),
        }
    }

    fn core(&self) -> &dyn FileSystem {
        self.core.as_deref().expect("the core is away only within remount")
    }

    fn both(&self, oracle: Ino) -> Option<Both> {
        Some(Both { core: *self.inos.get(&oracle)?, oracle })
    }

    /// The inode in a slot; `None` when the slot is empty.
    fn node(&self, node: Node) -> Option<Both> {
        let slot = match node {
            Node::Dir(slot) => self.dirs[(slot % DIR_SLOTS) as usize],
            Node::File(slot) => self.files[(slot % FILE_SLOTS) as usize],
        };
        self.both(slot?)
    }

    /// Puts an inode into a slot of its kind. Slot 0 of the directories stays the root.
    fn put(&mut self, into: u8, oracle: Ino, kind: FileKind) {
        if kind == FileKind::Directory {
            self.dirs[1 + (into % (DIR_SLOTS - 1)) as usize] = Some(oracle);
        } else {
            self.files[(into % FILE_SLOTS) as usize] = Some(oracle);
        }
    }

    /// Compares attributes: times only where they were set, directories' sizes and all blocks not.
    fn compare_attr(&self, what: &str, core: &Attr, oracle: &Attr) -> Result<(), What> {
        let fields = |attr: &Attr| {
            let size = if attr.kind == FileKind::Directory { 0 } else { attr.size };
            let mtime = attr.mtime.min(SET_TIMES_END);
            (attr.kind, attr.perm, attr.links, attr.uid, attr.gid, attr.rdev, size, mtime)
        };
        if fields(core) != fields(oracle) {
            return Err(format!("{what}: the core has {core:?}, the oracle {oracle:?}"));
        }
        match self.inos.get(&oracle.ino) {
            Some(known) if *known == core.ino => Ok(()),
            known => Err(format!("{what}: the core's inode is {}, it was {known:?}", core.ino)),
        }
    }

    /// Notes a new inode of both.
    fn born(&mut self, core: &Attr, oracle: &Attr) -> Result<(), What> {
        if self.inos.values().any(|known| *known == core.ino) {
            return Err(format!("the core gives the number {} to two inodes", core.ino));
        }
        self.inos.insert(oracle.ino, core.ino);
        Ok(())
    }

    /// Forgets inodes that are gone, and makes sure that the core has forgotten them, too.
    fn bury(&mut self) -> Result<(), What> {
        let gone: Vec<Both> = self
            .inos
            .iter()
            .filter(|(oracle, _)| self.oracle.getattr(**oracle).is_err())
            .map(|(oracle, core)| Both { core: *core, oracle: *oracle })
            .collect();
        for both in gone {
            agree(
                "an inode that is gone",
                &self.core().getattr(both.core).map(|_| ()),
                &Err(FsError::Stale),
            )?;
            self.inos.remove(&both.oracle);
            self.opens.remove(&both.oracle);
            for slot in self.dirs.iter_mut().chain(&mut self.files) {
                if *slot == Some(both.oracle) {
                    *slot = None;
                }
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, op: &Op, remount: Remount<'_>) -> Result<(), What> {
        match *op {
            Op::Remount => self.remount(remount)?,
            Op::Sync => agree("sync", &self.core().sync(), &self.oracle.sync())?,
            Op::Create { dir, name, kind, into, open } => self.create(dir, name, kind, into, open)?,
            Op::CreateUnnamed { into, linkable } => self.create_unnamed(into, linkable)?,
            Op::Lookup { dir, name, into } => self.lookup(dir, name, into)?,
            Op::Link { node, dir, name } => self.link(node, dir, name)?,
            Op::Unlink { dir, name } => {
                let (Some(dir), name) = (self.node(dir), name_bytes(name)) else { return Ok(()) };
                agree(
                    "unlink",
                    &self.core().unlink(dir.core, &name),
                    &self.oracle.unlink(dir.oracle, &name),
                )?;
            }
            Op::Rmdir { dir, name } => {
                let (Some(dir), name) = (self.node(dir), name_bytes(name)) else { return Ok(()) };
                agree("rmdir", &self.core().rmdir(dir.core, &name), &self.oracle.rmdir(dir.oracle, &name))?;
            }
            Op::Rename { from, name, to, new_name, no_replace, exchange } => {
                let mut flags = RenameFlags::empty();
                flags.set(RenameFlags::NO_REPLACE, no_replace);
                flags.set(RenameFlags::EXCHANGE, exchange);
                self.rename(from, name, to, new_name, flags)?;
            }
            Op::Readdir { dir, page } => {
                let Some(dir) = self.node(dir) else { return Ok(()) };
                self.compare_listing(dir, usize::from(page))?;
            }
            Op::Readlink { node }
            | Op::Parent { node }
            | Op::Open { node }
            | Op::Release { node }
            | Op::Read { node, .. }
            | Op::Write { node, .. }
            | Op::WriteBack { node }
            | Op::Fsync { node }
            | Op::Truncate { node, .. }
            | Op::Chmod { node, .. }
            | Op::SetMtime { node, .. }
            | Op::Fallocate { node, .. }
            | Op::Seek { node }
            | Op::Setxattr { node, .. }
            | Op::Getxattr { node, .. }
            | Op::Removexattr { node, .. }
            | Op::SetTag { node, .. } => {
                let Some(both) = self.node(node) else { return Ok(()) };
                self.apply_to_inode(op, both)?;
                if self.oracle.getattr(both.oracle).is_ok() {
                    self.compare_inode("afterwards", both)?;
                }
            }
        }
        self.bury()
    }

    fn remount(&mut self, remount: Remount<'_>) -> Result<(), What> {
        agree("sync", &self.core().sync(), &Ok(()))?;
        let core = self.core.take().expect("the core is away only within remount");
        self.core = Some(remount(core));
        // Nobody holds anything open any more.
        for (oracle, opens) in std::mem::take(&mut self.opens) {
            for _ in 0..opens {
                self.oracle.release(oracle);
            }
        }
        self.bury()?;
        self.compare_all()
    }

    fn create(&mut self, dir: Node, name: u8, kind: FileKind, into: u8, open: bool) -> Result<(), What> {
        let Some(dir) = self.node(dir) else { return Ok(()) };
        let node = match kind {
            FileKind::File => NewNode::File,
            FileKind::Directory => NewNode::Directory,
            FileKind::Symlink => NewNode::Symlink(b"some/target"),
            other => NewNode::Special(other, 0x123),
        };
        let args = CreateArgs { uid: 1, gid: 2, open, ..CreateArgs::new(node, 0o640) };
        let name = name_bytes(name);
        let core = self.core().create(dir.core, &name, &args);
        let oracle = self.oracle.create(dir.oracle, &name, &args);
        agree(
            "create",
            &core.as_ref().map(|_| ()).map_err(Clone::clone),
            &oracle.as_ref().map(|_| ()).map_err(Clone::clone),
        )?;
        if let (Ok(core), Ok(oracle)) = (core, oracle) {
            self.born(&core, &oracle)?;
            self.compare_attr("create", &core, &oracle)?;
            self.put(into, oracle.ino, kind);
            if open {
                *self.opens.entry(oracle.ino).or_default() += 1;
            }
        }
        Ok(())
    }

    fn create_unnamed(&mut self, into: u8, linkable: bool) -> Result<(), What> {
        let args = CreateArgs { uid: 3, gid: 4, open: true, ..CreateArgs::new(NewNode::File, 0o600) };
        let core = self
            .core()
            .create_unnamed(Ino::ROOT, &args, linkable)
            .map_err(|error| format!("create_unnamed: {error:?}"))?;
        let oracle = self
            .oracle
            .create_unnamed(Ino::ROOT, &args, linkable)
            .map_err(|error| format!("create_unnamed: {error:?}"))?;
        self.born(&core, &oracle)?;
        self.compare_attr("create_unnamed", &core, &oracle)?;
        self.put(into, oracle.ino, FileKind::File);
        *self.opens.entry(oracle.ino).or_default() += 1;
        Ok(())
    }

    fn lookup(&mut self, dir: Node, name: u8, into: u8) -> Result<(), What> {
        let (Some(dir), name) = (self.node(dir), name_bytes(name)) else { return Ok(()) };
        let core = self.core().lookup(dir.core, &name);
        let oracle = self.oracle.lookup(dir.oracle, &name);
        match (core, oracle) {
            (Ok(core), Ok(oracle)) => {
                self.compare_attr("lookup", &core, &oracle)?;
                self.put(into, oracle.ino, oracle.kind);
                Ok(())
            }
            (core, oracle) => agree("lookup", &core, &oracle),
        }
    }

    fn link(&mut self, node: Node, dir: Node, name: u8) -> Result<(), What> {
        let (Some(node), Some(dir)) = (self.node(node), self.node(dir)) else { return Ok(()) };
        let name = name_bytes(name);
        let before = self.oracle.getattr(node.oracle).map_err(|error| error.to_string())?;
        let oracle = self.oracle.link(node.oracle, dir.oracle, &name);
        let core = self.core().link(node.core, dir.core, &name);
        let refused = if before.kind == FileKind::Directory { &[FsError::NotPermitted][..] } else { &[] };
        match (core, oracle) {
            (Ok(core), Ok(oracle)) => self.compare_attr("link", &core, &oracle),
            (core, oracle) => agree_on_failure("link", &core, &oracle, refused),
        }
    }

    fn rename(
        &mut self,
        from: Node,
        name: u8,
        to: Node,
        new_name: u8,
        flags: RenameFlags,
    ) -> Result<(), What> {
        let (Some(from), Some(to)) = (self.node(from), self.node(to)) else { return Ok(()) };
        let (name, new_name) = (name_bytes(name), name_bytes(new_name));
        let faults = self.rename_faults(from.oracle, &name, to.oracle, &new_name, flags);
        let core = self.core().rename(from.core, &name, to.core, &new_name, flags);
        let oracle = self.oracle.rename(from.oracle, &name, to.oracle, &new_name, flags);
        if faults.is_empty() != oracle.is_ok() {
            return Err(format!("the oracle errs: {faults:?} speak against the rename, it gives {oracle:?}"));
        }
        agree_on_failure("rename", &core, &oracle, &faults)
    }

    /// Everything that speaks against a rename. When it is more than one thing, a core may name any of them.
    fn rename_faults(
        &self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Vec<FsError> {
        let fs = &self.oracle;
        let is_dir = |ino: Ino| fs.getattr(ino).is_ok_and(|attr| attr.kind == FileKind::Directory);
        let mut faults = Vec::new();
        if !is_dir(from) || !is_dir(to) {
            faults.push(FsError::NotDirectory);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let source = fs.lookup(from, name).ok();
        let target = fs.lookup(to, new_name).ok();
        let removed = fs.getattr(to).is_ok_and(|attr| attr.links == 0);
        if source.is_none() || removed || (exchange && target.is_none()) {
            faults.push(FsError::NotFound);
        }
        let Some(source) = source else { return faults };
        let source_is_dir = source.kind == FileKind::Directory;
        if source_is_dir && is_dir(to) && self.is_within(to, source.ino) {
            faults.push(FsError::Invalid(""));
        }
        let Some(target) = target else { return faults };
        let target_is_dir = target.kind == FileKind::Directory;
        let target_is_above = target_is_dir && self.is_within(from, target.ino);
        if flags.contains(RenameFlags::NO_REPLACE) {
            faults.push(FsError::Exists);
        }
        if exchange {
            if target_is_above {
                faults.push(FsError::Invalid(""));
            }
            return faults;
        }
        if source_is_dir && !target_is_dir {
            faults.push(FsError::NotDirectory);
        }
        if !source_is_dir && target_is_dir {
            faults.push(FsError::IsDirectory);
        }
        if target_is_above
            || (source_is_dir && target_is_dir && source.ino != target.ino && !self.is_empty(target.ino))
        {
            faults.push(FsError::NotEmpty);
        }
        faults
    }

    fn is_within(&self, mut dir: Ino, above: Ino) -> bool {
        while dir != above {
            match self.oracle.parent(dir) {
                Ok(parent) if parent != dir => dir = parent,
                _ => return false,
            }
        }
        true
    }

    fn is_empty(&self, dir: Ino) -> bool {
        let mut empty = true;
        let listed = self.oracle.readdir(dir, 0, &mut |_| {
            empty = false;
            false
        });
        listed.is_ok() && empty
    }

    fn position(&self, offset: Offset, node: Both) -> u64 {
        match offset {
            Offset::At(at) => at,
            Offset::End(by) => {
                let size = self.oracle.getattr(node.oracle).map_or(0, |attr| attr.size);
                size.saturating_add_signed(i64::from(by))
            }
        }
    }

    /// Operations on an inode, whatever its name is.
    fn apply_to_inode(&mut self, op: &Op, node: Both) -> Result<(), What> {
        let (core, oracle) = (self.core(), &self.oracle);
        match *op {
            Op::Readlink { .. } => {
                agree("readlink", &core.readlink(node.core), &oracle.readlink(node.oracle))
            }
            Op::Parent { .. } => {
                // A removed directory has no parent to speak of.
                if oracle.getattr(node.oracle).is_ok_and(|attr| attr.links == 0) {
                    return Ok(());
                }
                let wanted = oracle.parent(node.oracle).map(|parent| self.inos[&parent]);
                agree("parent", &core.parent(node.core), &wanted)
            }
            Op::Open { .. } => {
                agree("open", &core.open(node.core), &oracle.open(node.oracle))?;
                *self.opens.entry(node.oracle).or_default() += 1;
                Ok(())
            }
            Op::Release { .. } => {
                let Some(opens) = self.opens.get_mut(&node.oracle).filter(|opens| **opens > 0) else {
                    return Ok(());
                };
                *opens -= 1;
                self.core().release(node.core);
                self.oracle.release(node.oracle);
                Ok(())
            }
            Op::Read { offset, len, .. } => {
                let at = self.position(offset, node);
                agree(
                    "read",
                    &read(core, node.core, at, len as usize),
                    &read(oracle, node.oracle, at, len as usize),
                )
            }
            Op::Write { offset, len, fill, flavour, .. } => {
                let at = self.position(offset, node);
                let data = bytes(u64::from(fill), len as usize);
                let write = |fs: &dyn FileSystem, ino| match flavour {
                    Flavour::Buffered => fs.write(ino, at, &data),
                    Flavour::Through => fs.write_through(ino, at, &data),
                };
                agree("write", &write(core, node.core), &write(oracle, node.oracle))
            }
            Op::WriteBack { .. } => {
                agree("write_back", &core.write_back(node.core), &oracle.write_back(node.oracle))
            }
            Op::Fsync { .. } => agree("fsync", &core.fsync(node.core), &oracle.fsync(node.oracle)),
            Op::Truncate { size, .. } => {
                self.setattr(node, SetAttr { size: Some(self.position(size, node)), ..SetAttr::default() })
            }
            Op::Chmod { perm, .. } => {
                self.setattr(node, SetAttr { perm: Some(u32::from(perm)), ..SetAttr::default() })
            }
            Op::SetMtime { seconds, .. } => {
                let time = TimeSpec(i64::from(seconds) * 1_000_000_001);
                self.setattr(node, SetAttr { mtime: Some(time), ..SetAttr::default() })
            }
            Op::Fallocate { mode, offset, len, .. } => {
                let (offset, len) = (u64::from(offset), u64::from(len));
                let core = core.fallocate(node.core, mode, offset, len);
                let oracle_result = oracle.fallocate(node.oracle, mode, offset, len);
                let is_file = oracle.getattr(node.oracle).is_ok_and(|attr| attr.kind == FileKind::File);
                // On what is no file a bad range is wrong twice.
                let others = if is_file { &[][..] } else { &[FsError::Invalid(""), FsError::IsDirectory] };
                agree_on_failure("fallocate", &core, &oracle_result, others)
            }
            Op::Seek { .. } => self.compare_seek(node),
            Op::Setxattr { name, len, fill, mode, .. } => {
                let (name, value) = (xattr_name(name), bytes(u64::from(fill), len as usize));
                let wanted = oracle.setxattr(node.oracle, &name, &value, mode);
                agree("setxattr", &core.setxattr(node.core, &name, &value, mode), &wanted)
            }
            Op::Getxattr { name, .. } => {
                let name = xattr_name(name);
                agree("getxattr", &core.getxattr(node.core, &name), &oracle.getxattr(node.oracle, &name))
            }
            Op::Removexattr { name, .. } => {
                let name = xattr_name(name);
                agree(
                    "removexattr",
                    &core.removexattr(node.core, &name),
                    &oracle.removexattr(node.oracle, &name),
                )
            }
            Op::SetTag { stream, .. } => {
                let tag = Tag { stream: StreamId(u16::from(stream)), ..Tag::default() };
                agree("set_tag", &core.set_tag(node.core, tag), &oracle.set_tag(node.oracle, tag))?;
                agree("tag", &core.tag(node.core), &oracle.tag(node.oracle))
            }
            ref other => Err(format!("{other:?} is not an operation on an inode")),
        }
    }

    fn setattr(&self, node: Both, set: SetAttr) -> Result<(), What> {
        match (self.core().setattr(node.core, &set), self.oracle.setattr(node.oracle, &set)) {
            (Ok(core), Ok(oracle)) => self.compare_attr("setattr", &core, &oracle),
            (core, oracle) => agree("setattr", &core, &oracle),
        }
    }

    /// The core may report data where there is a hole, never the other way.
    fn compare_seek(&self, node: Both) -> Result<(), What> {
        let (core, oracle) = (self.core(), &self.oracle);
        let Ok(attr) = oracle.getattr(node.oracle) else { return Ok(()) };
        if attr.kind != FileKind::File {
            return Ok(());
        }
        let mut at = 0;
        while let Ok(data) = oracle.seek(node.oracle, at, SeekTarget::Data) {
            let end = oracle.seek(node.oracle, data, SeekTarget::Hole).unwrap_or(attr.size);
            let mut inside = data;
            while inside < end {
                // The oracle counts blocks that were written as zeros as data; a core need not.
                let found = core.seek(node.core, inside, SeekTarget::Data).unwrap_or(attr.size).min(end);
                let skipped = read(oracle, node.oracle, inside, (found - inside) as usize);
                if !skipped.is_ok_and(|skipped| skipped.iter().all(|byte| *byte == 0)) {
                    return Err(format!("seek: the core finds no data at {inside}, but at {found}"));
                }
                if found == end {
                    break;
                }
                inside = match core.seek(node.core, found, SeekTarget::Hole) {
                    Ok(hole) if hole > found => hole,
                    other => return Err(format!("seek: the hole after data at {found} is {other:?}")),
                };
            }
            at = end;
        }
        let past = core.seek(node.core, attr.size, SeekTarget::Hole);
        agree("seek past the end", &past, &Err(FsError::NoData))
    }

    /// Compares attributes and content of an inode.
    fn compare_inode(&self, what: &str, node: Both) -> Result<(), What> {
        let oracle =
            self.oracle.getattr(node.oracle).map_err(|error| format!("{what}: the oracle: {error:?}"))?;
        let core = self.core().getattr(node.core).map_err(|error| format!("{what}: getattr: {error:?}"))?;
        self.compare_attr(what, &core, &oracle)?;
        if oracle.kind == FileKind::File { self.compare_content(what, node, oracle.size) } else { Ok(()) }
    }

    /// Compares everything that the oracle stores, and each hole at both of its ends.
    fn compare_content(&self, what: &str, node: Both, size: u64) -> Result<(), What> {
        let mut at = 0;
        while at < size {
            let data = self.oracle.seek(node.oracle, at, SeekTarget::Data).unwrap_or(size);
            if data - at <= 2 * HOLE_PROBE_BYTES {
                self.compare_range(what, node, at, data)?;
            } else {
                self.compare_range(what, node, at, at + HOLE_PROBE_BYTES)?;
                self.compare_range(what, node, data - HOLE_PROBE_BYTES, data)?;
            }
            let hole = self.oracle.seek(node.oracle, data, SeekTarget::Hole).unwrap_or(size);
            self.compare_range(what, node, data, hole)?;
            at = hole;
        }
        // A read across the end stops there.
        self.compare_range(what, node, size.saturating_sub(1), size + BLOCK)
    }

    fn compare_range(&self, what: &str, node: Both, from: u64, to: u64) -> Result<(), What> {
        let len = (to - from) as usize;
        let core =
            read(self.core(), node.core, from, len).map_err(|error| format!("{what}: read: {error:?}"))?;
        let oracle =
            read(&self.oracle, node.oracle, from, len).map_err(|error| format!("{what}: {error:?}"))?;
        if core.len() != oracle.len() {
            return Err(format!(
                "{what}: {len} bytes at {from} read as {}, not {}",
                core.len(),
                oracle.len()
            ));
        }
        match core.iter().zip(&oracle).position(|(core, oracle)| core != oracle) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{what}: byte {} is {:#04x}, not {:#04x}",
                from + at as u64,
                core[at],
                oracle[at]
            )),
        }
    }

    /// Compares the entries of a directory, read from the core in pages.
    fn compare_listing(&self, dir: Both, page: usize) -> Result<(), What> {
        let core = listing(self.core(), dir.core, page.max(1));
        let oracle = listing(&self.oracle, dir.oracle, usize::MAX).map(|entries| {
            entries
                .into_iter()
                .map(|(name, (ino, kind))| (name, (self.inos[&ino], kind)))
                .collect::<BTreeMap<_, _>>()
        });
        agree("readdir", &core, &oracle)
    }

    /// Compares everything: the tree from the root, extended attributes, tags, and the number of inodes.
    pub(super) fn compare_all(&self) -> Result<(), What> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![(Ino::ROOT, String::from("/"))];
        while let Some((ino, path)) = todo.pop() {
            let Some(both) = self.both(ino) else { return Err(format!("{path}: the pair lost inode {ino}")) };
            if !seen.insert(ino) {
                continue;
            }
            let what = format!("{path} in the whole tree");
            self.compare_inode(&what, both)?;
            self.compare_extras(&what, both)?;
            let kind = self.oracle.getattr(ino).map_err(|error| error.to_string())?.kind;
            if kind == FileKind::Symlink {
                agree(&what, &self.core().readlink(both.core), &self.oracle.readlink(ino))?;
            }
            if kind != FileKind::Directory {
                continue;
            }
            self.compare_listing(both, 3).map_err(|error| format!("{what}: {error}"))?;
            let parent = self.oracle.parent(ino).map(|parent| self.inos[&parent]);
            agree(&what, &self.core().parent(both.core), &parent)?;
            for (name, (child, _)) in
                listing(&self.oracle, ino, usize::MAX).map_err(|error| error.to_string())?
            {
                let found = self.core().lookup(both.core, &name).map(|attr| attr.ino);
                agree(&what, &found, &Ok(self.inos[&child]))?;
                todo.push((child, format!("{path}{}/", String::from_utf8_lossy(&name))));
            }
        }
        // Open files without a name are in no directory.
        for ino in self.inos.keys().filter(|ino| !seen.contains(ino)) {
            let Some(both) = self.both(*ino) else { continue };
            self.compare_inode("an inode without a name", both)?;
            self.compare_extras("an inode without a name", both)?;
        }
        let core = self.core().statfs().map(|stats| stats.inodes.saturating_sub(self.inodes_base));
        agree("inodes in statfs", &core, &self.oracle.statfs().map(|stats| stats.inodes))
    }

    fn compare_extras(&self, what: &str, node: Both) -> Result<(), What> {
        let all = |fs: &dyn FileSystem, ino| -> FsResult<BTreeMap<Vec<u8>, Vec<u8>>> {
            let names = fs.listxattr(ino)?;
            names.into_iter().map(|name| Ok((name.clone(), fs.getxattr(ino, &name)?))).collect()
        };
        agree(what, &all(self.core(), node.core), &all(&self.oracle, node.oracle))?;
        if self.oracle.getattr(node.oracle).is_ok_and(|attr| attr.kind == FileKind::File) {
            agree(what, &self.core().tag(node.core), &self.oracle.tag(node.oracle))?;
        }
        Ok(())
    }
}

fn read(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize) -> FsResult<Vec<u8>> {
    let mut out = vec![0xa5; len];
    let read = fs.read(ino, offset, &mut out)?;
    out.truncate(read);
    Ok(out)
}

/// Entries of a directory, read `page` at a time.
fn listing(fs: &dyn FileSystem, dir: Ino, page: usize) -> FsResult<BTreeMap<Vec<u8>, (Ino, FileKind)>> {
    let mut entries = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let mut read = 0;
        fs.readdir(dir, cookie, &mut |entry| {
            entries.insert(entry.name.to_vec(), (entry.ino, entry.kind));
            cookie = entry.cookie;
            read += 1;
            read < page
        })?;
        if read < page {
            return Ok(entries);
        }
    }
}
