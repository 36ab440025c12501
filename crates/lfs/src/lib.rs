//! The log-structured file core on zoned flash.
//!
//! All metadata (inodes, names, maps) is in memory; on the device it is a chain of frames, checkpoints and journal
//! entries, in zones taken from the pool like any other: there is no fixed place and nothing is ever overwritten.
//! File data goes to the open zone that the placement resolver chooses for its tag; an overwrite maps the block anew.
//! A zone in which nothing lives is reset whole; the cleaner ([`gc`]) empties others when free zones get few.
//!
//! - [`layout`]: every durable byte (`docs/formats/lfs.md` draws them);
//! - [`state`]: the metadata in memory, changed only by applying journal records;
//! - [`journal`]: frames, checkpoints, replay;
//! - [`alloc`]: zones, open slots, space accounts, the reserve;
//! - [`gc`]: the cleaner;
//! - [`fsck`]: the offline check; [`salvage`]: what can be read of a damaged volume, on a new one;
//! - [`replay`]: a recording of a program, played through the core on a modelled device.
//!
//! What is promised is the contract of [`weft_vfs::FileSystem`]. After a power cut a file is a prefix of what was
//! written, with later overwrites of it done or not, block by block: its size in the journal never runs ahead of its
//! data on the device.
//!
//! # Limits
//! Files up to [`FILE_BYTES_MAX`] bytes; names, targets, links and attribute values as in [`weft_vfs`]; attributes of
//! one inode [`XATTRS_BYTES_MAX`] bytes in all; frames 256 KiB; transactions 72 KiB. Inodes are limited by the space
//! that their checkpoint takes.

pub mod alloc;
mod commit;
mod core;
mod dirty;
pub mod error;
pub mod fsck;
pub mod gc;
pub mod journal;
pub mod layout;
mod mount;
mod ops;
pub mod options;
mod place;
mod recount;
pub mod replay;
pub mod salvage;
pub mod state;
pub mod stats;
mod write_back;

pub use error::LfsError;
pub use journal::salvage::Lost;
pub use options::{Clock, CrcTable, Death, DeathObserver, FormatOptions, HeapCrcTable, MountOptions};
pub use stats::{GroupStats, LfsStats, ZoneView};

use crate::alloc::zone::ZoneUse;
use crate::core::{Ground, State};
use crate::layout::zone_header::ZoneKind;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weft_core::hist::Histogram;
use weft_core::{Ino, Tag};
use weft_vfs::{
    Attr, BlockMap, CreateArgs, DirEntry, FallocateMode, FileSystem, FsResult, FsStats, RenameFlags,
    SeekTarget, SetAttr, TimeSpec, XattrMode,
};

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = (1 << 62) - 4096;
/// Most bytes that the extended attributes of one inode take, names included.
pub const XATTRS_BYTES_MAX: usize = 70 * 1024;
/// Space that new names may not take, so that a full volume's files can still be removed and replaced.
pub(crate) const NAMES_RESERVE_BYTES: u64 = 64 * 1024;

/// A mounted volume.
pub struct Lfs {
    lost: journal::salvage::Lost,
    read_only: bool,
    ground: Arc<Ground>,
    state: Mutex<State>,
    group_commit: commit::GroupCommit,
    stalls: Histogram,
    commit_interval: Duration,
}

impl Lfs {
    /// The state, for an operation that changes it; a checkpoint that is due is written first.
    fn locked(&self) -> FsResult<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        state.alive()?;
        state.maintain()?;
        Ok(state)
    }

    /// What the volume counts.
    pub fn stats(&self) -> LfsStats {
        let state = self.state.lock();
        let counts = &state.stats;
        let mut groups = counts.groups.clone();
        for (_, zone) in state.zones.iter().filter(|(_, z)| z.kind == Some(ZoneKind::Data) && z.live > 0) {
            let group = groups.entry((zone.tag.stream.0, zone.tag.group.0)).or_default();
            group.zones_held += 1;
            group.live_bytes += zone.live;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(key, _)| *key);
        LfsStats {
            groups,
            volume_bytes: state.volume_bytes,
            data_bytes: counts.data_bytes,
            gc_bytes: counts.gc_bytes,
            gc_zones: counts.gc_zones,
            journal_bytes: counts.journal_bytes,
            checkpoint_bytes: counts.checkpoint_bytes,
            checkpoints: counts.checkpoints,
            header_bytes: counts.header_bytes,
            resets: counts.resets,
            whole_zone_deaths: counts.whole_zone_deaths,
            zones_free: state.zones.free_count(),
            zones_open: state.slots.open_count() as u32,
            zones_total: self.ground.info.zones,
            zones_meta: state.zones.meta_count(),
            checksum_errors: self.ground.checksum_errors.load(Relaxed),
            stalls: self.stalls.summary(),
            dirty_bytes: state.dirty_bytes,
            entries_replayed: counts.entries_replayed,
            entries_dropped: counts.entries_dropped,
            shared_flushes: self.group_commit.shared.load(Relaxed),
        }
    }

    /// Every zone.
    pub fn zones(&self) -> Vec<ZoneView> {
        let state = self.state.lock();
        let view = state.zones.iter().map(|(zone, z)| ZoneView {
            zone,
            state: match z.state {
                ZoneUse::Free => "free",
                ZoneUse::Open => "open",
                ZoneUse::Parked => "parked",
                ZoneUse::Full => "full",
                ZoneUse::Dying(_) => "dying",
                ZoneUse::Bad => "bad",
            },
            kind: match z.kind {
                Some(ZoneKind::Meta) => "meta",
                Some(ZoneKind::Data) => "data",
                None => "-",
            },
            tag: z.tag,
            write_pointer: z.write_pointer,
            live_bytes: z.live,
        });
        view.collect()
    }

    /// Bytes that programs wrote since the format: the clock by which lifetimes are told.
    pub fn volume_bytes(&self) -> u64 {
        self.state.lock().volume_bytes
    }

    /// The volume's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.state.lock().volume.uuid
    }

    /// The volume's label.
    pub fn label(&self) -> String {
        self.state.lock().volume.label.clone()
    }

    /// CRC32C of each device block, as [`BlockMap::block_crc`] gives them.
    pub fn crc_table(&self) -> &[AtomicU32] {
        self.ground.crc.slots()
    }

    /// Sets who is told when a file's content goes.
    pub fn set_death_observer(&self, observer: DeathObserver) {
        self.state.lock().death_observer = Some(observer);
    }
}

impl FileSystem for Lfs {
    fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.op_lookup(dir, name)
    }

    fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.op_getattr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.op_setattr(ino, set)
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        self.op_create(Some((dir, name)), args, false)
    }

    fn create_unnamed(&self, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        self.op_create(None, args, linkable)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.op_link(ino, dir, name)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.op_remove(dir, name, false)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.op_remove(dir, name, true)
    }

    fn rename(&self, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()> {
        self.op_rename(from, name, to, new_name, flags)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.op_readlink(ino)
    }

    fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.op_parent(dir)
    }

    fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()> {
        self.op_readdir(dir, cookie, each)
    }

    fn open(&self, ino: Ino) -> FsResult<()> {
        self.op_open(ino)
    }

    fn release(&self, ino: Ino) {
        self.op_release(ino);
    }

    fn note_read(&self, ino: Ino, when: TimeSpec) {
        self.op_note_read(ino, when);
    }

    fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.op_read(ino, offset, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.op_write(ino, offset, data, false)
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.op_write(ino, offset, data, true)
    }

    fn write_back(&self, ino: Ino) -> FsResult<()> {
        self.op_write_back(ino)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        self.op_fallocate(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64> {
        self.op_seek(ino, offset, target)
    }

    fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.op_fsync(ino)
    }

    fn sync(&self) -> FsResult<()> {
        self.op_sync()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.op_getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.op_setxattr(ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.op_listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.op_removexattr(ino, name)
    }

    fn statfs(&self) -> FsResult<FsStats> {
        self.op_statfs()
    }

    fn set_tag(&self, ino: Ino, tag: Tag) -> FsResult<()> {
        self.op_set_tag(ino, tag)
    }

    fn tag(&self, ino: Ino) -> FsResult<Tag> {
        self.op_tag(ino)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        Some(self)
    }
}
