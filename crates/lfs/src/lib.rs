//! The log-structured file core on zoned flash.
//!
//! All metadata (inodes, names, maps) is in memory; on the device it is a chain of frames, checkpoints and journal
//! entries, in zones taken from the pool like any other: there is no fixed place and nothing is ever overwritten.
//! File data goes to the open zone that the placement resolver chooses for its tag; an overwrite maps the block anew.
//! A zone in which nothing lives is reset whole; the cleaner ([`gc`]) empties others when free zones get few.
//!
//! - [`layout`]: every durable byte (`docs/formats/lfs.md` draws them);
//! - [`state`]: the metadata in memory, changed only by applying journal records;
//! - [`journal`]: finding frames on a device, replay, salvage;
//! - [`alloc`]: zones, open slots, space accounts, the reserve;
//! - [`gc`]: which zone the cleaner empties, and how fast;
//! - `core`: everything that writes: journal, checkpoints, data zones, write-back, the cleaner;
//! - `ops`: the operations of [`weft_vfs::FileSystem`], on `core`;
//! - [`fsck`]: the offline check; [`salvage`]: what can be read of a damaged volume, on a new one;
//!
//! What is promised is the contract of [`weft_vfs::FileSystem`]. After a power cut a file is a prefix of what was
//! written, with later overwrites of it done or not, block by block: its size in the journal never runs ahead of its
//! data on the device.
//!
//! # Limits
//! Files up to [`FILE_BYTES_MAX`] bytes; names, targets, links and attribute values as in [`weft_vfs`]; attributes of
//! one inode [`XATTRS_BYTES_MAX`] bytes in all; frames 256 KiB; transactions 72 KiB (a step of [`FileSystem::commit`] is
//! one). Inodes are limited by the space that their checkpoint takes.

pub mod alloc;
mod core;
pub mod error;
pub mod fsck;
pub mod gc;
pub mod journal;
pub mod layout;
mod mount;
mod ops;
pub mod options;
mod recount;
pub mod salvage;
pub mod state;
pub mod stats;

pub use error::LfsError;
pub use journal::salvage::Lost;
pub use layout::FILE_BYTES_MAX;
pub use options::{Clock, FormatOptions, MountOptions};
pub use stats::{LfsStats, ZoneCondition, ZoneContent, ZoneView};

use crate::alloc::zone::ZoneUse;
use crate::core::{Shared, State};
use crate::layout::zone_header::ZoneKind;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weft_core::hist::Histogram;
use weft_core::{Ino, Tag};
use weft_sys::SharedMemory;
use weft_vfs::change::Made;
use weft_vfs::{
    Attr, BlockMap, Change, Core, CoreStats, CreateArgs, DeathObserver, DirEntry, FallocateMode, FileSystem,
    FsResult, FsStats, Refused, RenameFlags, SeekTarget, SetAttr, TimeSpec, XattrChange, XattrMode, forward,
};

/// Most bytes that the extended attributes of one inode take, names included.
pub const XATTRS_BYTES_MAX: usize = 70 * 1024;
/// Space that new names may not take, so that a full volume's files can still be removed and replaced.
pub(crate) const NAMES_RESERVE_BYTES: u64 = 64 * 1024;
/// Space that only longer names of what exists may take, so that a full volume's files can be renamed.
pub(crate) const RENAMES_RESERVE_BYTES: u64 = 32 * 1024;

/// A mounted volume.
pub struct Lfs {
    lost: journal::salvage::Lost,
    read_only: bool,
    shared: Arc<Shared>,
    state: Mutex<State>,
    group_commit: core::group_commit::GroupCommit,
    stalls: Histogram,
    commit_interval: Duration,
}

impl Lfs {
    /// The state, for an operation that changes it; a checkpoint that is due is written first.
    fn locked(&self) -> FsResult<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        state.check_writable()?;
        state.maintain()?;
        Ok(state)
    }

    /// Does something during which a full volume takes more, by half of the dead space that it has for its cleaner: for what was
    /// accepted when there was room, which a power cut has taken back.
    pub fn beyond_full<T>(&self, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock();
            state.beyond_full = state.beyond_full_max();
        }
        let done = work();
        self.state.lock().beyond_full = 0;
        done
    }

    /// What [`beyond_full`](Self::beyond_full) can store when the volume is full, in bytes: less where it has stored something before.
    pub fn room_beyond_full(&self) -> u64 {
        let state = self.state.lock();
        let beyond = state.space.used().saturating_sub(state.usable());
        state.beyond_full_max().saturating_sub(beyond)
    }

    /// What the volume counts.
    pub fn stats(&self) -> LfsStats {
        let state = self.state.lock();
        let counts = &state.stats;
        let mut groups = counts.groups.clone();
        for (_, zone) in state.zones.iter().filter(|(_, z)| z.kind == Some(ZoneKind::Data) && z.live > 0) {
            let group = groups.entry((zone.tag.stream.0, zone.tag.group.0)).or_default();
            group.segments_held += 1;
            group.live_bytes += zone.live;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(key, _)| *key);
        let core = CoreStats {
            groups,
            volume_bytes: state.volume_bytes,
            cleaned_segments: counts.gc_zones,
            whole_segment_deaths: counts.whole_zone_deaths,
            checksum_errors: self.shared.checksum_errors.load(Relaxed),
            stalls: self.stalls.summary(),
        };
        LfsStats {
            core,
            gc_bytes: counts.gc_bytes,
            checkpoints: counts.checkpoints,
            resets: counts.resets,
            entries_replayed: counts.entries_replayed,
            entries_dropped: counts.entries_dropped,
        }
    }

    /// Every zone.
    pub fn zones(&self) -> Vec<ZoneView> {
        let state = self.state.lock();
        let view = state.zones.iter().map(|(zone, z)| ZoneView {
            zone,
            state: match z.state {
                ZoneUse::Free => ZoneCondition::Free,
                ZoneUse::Open => ZoneCondition::Open,
                ZoneUse::Parked => ZoneCondition::Parked,
                ZoneUse::Full => ZoneCondition::Full,
                ZoneUse::Dying(_) => ZoneCondition::Dying,
                ZoneUse::Bad => ZoneCondition::Bad,
            },
            kind: match z.kind {
                Some(ZoneKind::Meta) => ZoneContent::Metadata,
                Some(ZoneKind::Data) => ZoneContent::Data,
                None => ZoneContent::Nothing,
            },
            tag: z.tag,
            write_pointer: z.write_pointer,
            live_bytes: z.live,
        });
        view.collect()
    }

    /// The volume's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.state.lock().volume.uuid
    }

    /// The volume's label.
    pub fn label(&self) -> String {
        self.state.lock().volume.label.clone()
    }

    /// CRC32C of each device block that is written (zone x blocks from zone to zone + block).
    pub fn crc_table(&self) -> &[AtomicU32] {
        self.shared.crcs()
    }

    /// The memory of [`Lfs::crc_table`], for readers in other processes.
    pub fn crc_memory(&self) -> &Arc<SharedMemory> {
        &self.shared.crc
    }
}

impl Core for Lfs {
    forward! {
        tick => tick() -> FsResult<()>;
        close => close() -> FsResult<()>;
    }

    fn volume_bytes(&self) -> u64 {
        self.state.lock().volume_bytes
    }

    fn set_death_observer(&self, observer: DeathObserver) {
        self.state.lock().death_observer = Some(observer);
    }

    fn core_stats(&self) -> CoreStats {
        self.stats().core
    }
}

impl FileSystem for Lfs {
    forward! {
        lookup => op_lookup(dir: Ino, name: &[u8]) -> FsResult<Attr>;
        getattr => op_getattr(ino: Ino) -> FsResult<Attr>;
        setattr => op_setattr(ino: Ino, set: &SetAttr) -> FsResult<Attr>;
        link => op_link(ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;
        rename => op_rename(from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> FsResult<()>;
        readlink => op_readlink(ino: Ino) -> FsResult<Vec<u8>>;
        parent => op_parent(dir: Ino) -> FsResult<Ino>;
        readdir => op_readdir(dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> FsResult<()>;
        newest_cookie => op_newest_cookie(dir: Ino) -> FsResult<u64>;
        open => op_open(ino: Ino) -> FsResult<()>;
        release => op_release(ino: Ino);
        note_read => op_note_read(ino: Ino, when: TimeSpec);
        read => op_read(ino: Ino, offset: u64, out: &mut [u8]) -> FsResult<usize>;
        write_back => op_write_back(ino: Ino) -> FsResult<()>;
        write_in_order => op_write_in_order(ino: Ino) -> FsResult<()>;
        fallocate => op_fallocate(ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()>;
        seek => op_seek(ino: Ino, offset: u64, target: SeekTarget) -> FsResult<u64>;
        fsync => op_fsync(ino: Ino) -> FsResult<()>;
        sync => op_sync() -> FsResult<()>;
        getxattr => op_getxattr(ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;
        setxattr => op_setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;
        listxattr => op_listxattr(ino: Ino) -> FsResult<Vec<Vec<u8>>>;
        removexattr => op_removexattr(ino: Ino, name: &[u8]) -> FsResult<()>;
        set_with_xattrs => op_set_with_xattrs(ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> FsResult<Attr>;
        statfs => op_statfs() -> FsResult<FsStats>;
        set_tag => op_set_tag(ino: Ino, tag: Tag) -> FsResult<()>;
        tag => op_tag(ino: Ino) -> FsResult<Tag>;
    }

    fn create(&self, dir: Ino, name: &[u8], args: &CreateArgs<'_>) -> FsResult<Attr> {
        self.op_create(Some((dir, name)), args, false)
    }

    fn create_unnamed(&self, _dir: Ino, args: &CreateArgs<'_>, linkable: bool) -> FsResult<Attr> {
        self.op_create(None, args, linkable)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.op_remove(dir, name, false)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.op_remove(dir, name, true)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.op_write(ino, offset, data, false, None)
    }

    fn write_through(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<()> {
        self.op_write(ino, offset, data, true, None)
    }

    fn write_late(&self, ino: Ino, offset: u64, data: &[u8], through: bool, when: TimeSpec) -> FsResult<()> {
        self.op_write(ino, offset, data, through, Some(when))
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.op_commit(changes, durable)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn erases(&self) -> bool {
        self.shared.dev.erases()
    }

    fn block_map(&self) -> Option<&dyn BlockMap> {
        Some(self)
    }
}
