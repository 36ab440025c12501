//! What a damaged volume still tells: the records that can be read, and none of what they no longer mean.
//!
//! Three things can be lost. A *part of both copies* of a checkpoint: what the other parts say is taken, and inodes of
//! which only maps or entries are left are made up. A *journal entry*: those behind it are applied as far as they fit.
//! And with either the knowledge that a *place was given to other data*: a map that is too old leads to blocks that are
//! whole and another file's. A block is believed only where nothing can have been written since the map was: its zone
//! has not been opened since the checkpoint, or the record that mapped it has the checksum of what stands there.
//! Anything else is mapped to [`NOWHERE`], which never reads.

use super::replay::{Expected, Loader, Patches, Restored};
use super::scan::Scan;
use crate::error::ApplyError;
use crate::layout::BLOCK;
use crate::layout::checkpoint::Item;
use crate::layout::record::{FileRun, NewInode, Record, Run};
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use crate::state::tree::Tree;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Ino, ZoneId};
use weft_device::ZonedDevice;
use weft_vfs::FileKind;

/// Device address of blocks that are lost: the first header of the first zone, which is no file's. Its checksum is made
/// one that never matches.
pub const NOWHERE: u64 = 0;

/// The checksum of each block of a file as the last record that mapped it has it.
pub type Recorded = FxHashMap<(u64, u64), u32>;

/// What was lost.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Lost {
    /// Whether parts of both copies of the checkpoint cannot be read.
    pub checkpoint: bool,
    /// Journal frames that are known to have been there.
    pub frames: u64,
    /// Records behind them that do not fit what is left.
    pub records: u64,
    /// Names whose inode is lost: directory and name.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Inodes of which only blocks or entries are left: owner, mode and times are made up.
    pub made_up: BTreeSet<u64>,
    /// Inodes that were changed after a lost frame: they may have parts of different times.
    pub mixed: BTreeSet<u64>,
    /// Inodes of which parts of the map or extended attributes are lost. What is not mapped of them cannot be told from
    /// holes.
    pub partial: BTreeSet<u64>,
    /// Blocks whose place holds other data now, of each inode.
    pub blocks: BTreeMap<u64, u64>,
    /// Inodes that no name led to; they are in `lost+found`.
    pub orphans: Vec<Ino>,
    /// Sequence of zone openings from which on a zone was opened after the checkpoint.
    pub(super) base_sequence: u64,
}

impl Lost {
    /// Whether nothing is known to be lost.
    pub fn is_nothing(&self) -> bool {
        *self == Lost { base_sequence: self.base_sequence, ..Lost::default() }
    }

    /// Whether what a file does not map may be something else than a hole.
    pub fn is_doubtful(&self, ino: Ino) -> bool {
        self.partial.contains(&ino.0) || self.mixed.contains(&ino.0)
    }

    /// Notes a record that does not fit.
    pub(super) fn note(&mut self, record: &Record<'_>, error: &ApplyError) {
        tracing::debug!(%error, "a record behind a lost frame");
        self.records += 1;
        self.note_mixed(record);
    }

    /// Applies a record whose directory or inode was in a lost frame: the inode is an orphan then, and of one that is
    /// only written to, what it was before is lost. False when nothing is left to apply it to.
    pub(super) fn adopt(&mut self, tree: &mut Tree, record: &Record<'_>) -> bool {
        match record {
            Record::Create { node, .. } => {
                let nameless = Record::Create { dir: Ino(0), name: b"", node: *node };
                let made = tree.apply(&nameless, &mut ()).is_ok();
                if let Some(inode) = tree.get_mut(node.ino).filter(|_| made) {
                    inode.links = if node.kind == FileKind::Directory { 2 } else { 1 };
                }
                made
            }
            Record::Extents { ino, .. } | Record::Inline { ino, .. }
                if ino.0 != 0 && tree.get(*ino).is_none() =>
            {
                make_up(tree, *ino, FileKind::File);
                self.made_up.insert(ino.0);
                self.partial.insert(ino.0);
                tree.apply(record, &mut ()).is_ok()
            }
            _ => false,
        }
    }

    /// Notes that a record behind a lost frame changed an inode.
    pub(super) fn note_mixed(&mut self, record: &Record<'_>) {
        match record {
            Record::Truncate { ino, .. }
            | Record::Extents { ino, relocated: false, .. }
            | Record::Inline { ino, .. }
            | Record::Punch { ino, .. }
            | Record::Shift { ino, .. } => drop(self.mixed.insert(ino.0)),
            // Whatever it was before, it is whole from here on.
            Record::Create { node, .. } => drop(self.mixed.remove(&node.ino.0)),
            Record::Free { ino } => {
                self.mixed.remove(&ino.0);
                self.made_up.remove(&ino.0);
                self.partial.remove(&ino.0);
            }
            _ => {}
        }
    }
}

/// Loads items whose inode was not there yet; makes up those that are lost.
pub(super) fn adopt(items: Vec<Item<'_>>, loader: &mut Loader<'_>, lost: &mut Lost) {
    for item in items {
        let made_up = match &item {
            Item::Runs { ino, runs } => {
                let size = runs.iter().map(|run| {
                    run.block.saturating_mul(BLOCK)
                        + u64::from(run.run.count - 1) * BLOCK
                        + u64::from(run.run.len)
                });
                Some((*ino, FileKind::File, size.max().unwrap_or(0)))
            }
            Item::Block { ino, block, bytes } => {
                Some((*ino, FileKind::File, block.saturating_mul(BLOCK) + bytes.len() as u64))
            }
            Item::Entry { dir, .. } => Some((*dir, FileKind::Directory, 0)),
            _ => None,
        };
        if let Some((ino, kind, size)) = made_up.filter(|(ino, ..)| ino.0 != 0) {
            if loader.tree.get(ino).is_none() {
                make_up(loader.tree, ino, kind);
                lost.made_up.insert(ino.0);
            }
            if let Some(inode) = loader.tree.get_mut(ino).filter(|_| lost.made_up.contains(&ino.0)) {
                inode.disk_size = inode.disk_size.max(size.min(crate::layout::FILE_BYTES_MAX));
            }
        }
        let name = match &item {
            Item::Entry { dir, name, .. } => Some((*dir, name.to_vec())),
            _ => None,
        };
        match (loader.load(&item), name) {
            (Err(ApplyError::NoInode(_)), Some(name)) => lost.names.push(name),
            // The other copy had it.
            (Err(ApplyError::Exists(_)) | Ok(()), _) => {}
            (Err(_), _) => lost.records += 1,
        }
    }
}

/// Notes inodes of which not everything is there.
pub(super) fn note_partial(expected: &[Expected], tree: &Tree, patches: &Patches, lost: &mut Lost) {
    for of in expected {
        let Some(inode) = tree.get(of.ino) else { continue };
        let runs = inode.map().map_or(0, |map| map.len() as u64);
        let blocks = patches.range((of.ino.0, 0)..=(of.ino.0, u64::MAX)).count() as u64;
        let there = (runs, inode.xattrs.len() as u64, blocks);
        if there != (of.runs, u64::from(of.xattrs), u64::from(of.blocks)) {
            lost.partial.insert(of.ino.0);
        }
    }
    lost.partial.extend(&lost.made_up);
}

fn make_up(tree: &mut Tree, ino: Ino, kind: FileKind) {
    let perm = if kind == FileKind::Directory { 0o700 } else { 0o600 };
    let links = if kind == FileKind::Directory { 2 } else { 1 };
    tree.add_inode(&NewInode::bare(ino, kind, perm), Ino::ROOT).links = links;
}

/// Makes the root directory, which is lost.
pub(super) fn make_root(tree: &mut Tree) {
    make_up(tree, Ino::ROOT, FileKind::Directory);
}

/// Maps blocks whose place may hold other data now to [`NOWHERE`].
pub(super) fn hide_reused(
    dev: &dyn ZonedDevice,
    scan: &Scan,
    state: &mut Restored,
    recorded: &Recorded,
    crcs: &[AtomicU32],
) {
    let info = dev.info();
    let since = state.lost.base_sequence;
    let holds = |ino: u64, file_block: u64, device_block: u64| {
        let (zone, at) = info.place(device_block);
        let Some(found) = scan.zones.get(zone.index()) else { return false };
        let kept = match found.header {
            Some(header) => header.kind == ZoneKind::Data && header.sequence < since,
            None => false,
        };
        let proven = || {
            let crc = crcs.get(device_block as usize).map(|slot| slot.load(Relaxed));
            crc.is_some() && recorded.get(&(ino, file_block)).copied() == crc
        };
        at >= HEADER_BLOCKS && at < found.report.write_pointer && (kept || proven())
    };
    let mut hidden: Vec<(Ino, FileRun)> = Vec::new();
    for (ino, inode) in state.tree.inodes.iter() {
        for run in inode.map().into_iter().flat_map(|map| map.iter()) {
            for i in 0..u64::from(run.run.count) {
                if !holds(ino, run.block + i, run.run.device_block() + i) {
                    let nowhere = Run { address: NOWHERE, count: 1, len: run.run.len };
                    hidden.push((Ino(ino), FileRun { block: run.block + i, run: nowhere }));
                }
            }
        }
    }
    if hidden.is_empty() {
        return;
    }
    for (ino, run) in hidden {
        *state.lost.blocks.entry(ino.0).or_default() += 1;
        let record = Record::Extents {
            ino,
            relocated: true,
            size: 0,
            mtime: 0,
            runs: vec![run].into(),
            crcs: (&[][..]).into(),
        };
        // The inode has a map, so this cannot fail.
        let _ = state.tree.apply(&record, &mut ());
    }
    let mut raw = vec![0; BLOCK_BYTES];
    let read = dev.read(ZoneId(0), 0, &mut raw);
    if let Some(slot) = crcs.first() {
        slot.store(!read.map_or(0, |()| crc32c(&raw)), Relaxed);
    }
}
