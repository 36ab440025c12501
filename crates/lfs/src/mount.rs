//! Format, mount and unmount.

use crate::alloc::reserve::{CheckpointSize, OPEN_ZONES_MIN, Reserve, ZONE_BLOCKS_MIN, ZONES_MIN};
use crate::alloc::slot::Slots;
use crate::alloc::space::Space;
use crate::alloc::zone::{ZoneTable, ZoneUse};
use crate::core::{Secrets, Shared, State, Volume};
use crate::error::LfsError;
use crate::gc::Cleaner;
use crate::journal::replay::{Patches, Restored, read_footer, restore};
use crate::journal::salvage::{Lost, NOWHERE};
use crate::journal::scan::{Scan, scan, volume_number};
use crate::journal::writer::Journal;
use crate::layout::checkpoint::LABEL_MAX;
use crate::layout::record::COUNT_MOUNTED_MAX;
use crate::layout::zone_header::{HEADER_BLOCKS, ZoneKind};
use crate::options::{FormatOptions, MountOptions};
use crate::state::dirty::WriteBuffer;
use crate::state::inode::Inode;
use crate::state::tree::Tree;
use crate::{Lfs, stats};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::{AtomicU32, AtomicU64};
use weft_core::hist::Histogram;
use weft_core::{Ino, Tag, ZoneId};
use weft_device::{DeviceError, ZoneState, ZonedDevice, ZonedInfo};
use weft_sys::{SharedMemory, paging};
use weft_vfs::{FsError, TimeSpec};

/// More inodes than are made within the longest time that a change is not durable.
const LOST_INODES_MAX: u64 = 1 << 24;
/// Smallest bound of the dirty buffer, in bytes.
const DIRTY_BYTES_MIN: u64 = 1 << 20;

fn check_shape(info: &ZonedInfo) -> Result<(), LfsError> {
    let open_max = info.open_max.min(info.active_max);
    if info.zone_capacity < ZONE_BLOCKS_MIN || info.zones < ZONES_MIN || open_max < OPEN_ZONES_MIN {
        return Err(LfsError::Unfit(format!(
            "it has {} zones of {} blocks and {open_max} open at most; a volume needs {ZONES_MIN} zones of {ZONE_BLOCKS_MIN} \
             blocks and {OPEN_ZONES_MIN} open",
            info.zones, info.zone_capacity
        )));
    }
    Ok(())
}

/// The error of what the system refuses beside the device.
fn system(source: std::io::Error) -> LfsError {
    LfsError::Device(DeviceError::Io { path: PathBuf::from("(memory)"), source })
}

fn shared(dev: Arc<dyn ZonedDevice>, options: &MountOptions) -> Result<Arc<Shared>, LfsError> {
    let info = dev.info();
    check_shape(&info)?;
    let crc = SharedMemory::create("weft-crc", info.blocks() as usize * size_of::<u32>()).map_err(system)?;
    Ok(Arc::new(Shared {
        dev,
        info,
        crc: Arc::new(crc),
        pins: (0..info.zones).map(|_| AtomicU32::new(0)).collect(),
        turns: (0..info.zones).map(|_| Default::default()).collect(),
        observer: Default::default(),
        written_seq: AtomicU64::new(0),
        durable_seq: AtomicU64::new(0),
        checksum_errors: AtomicU64::new(0),
        clock: options.clock.clone(),
    }))
}

fn state(shared: Arc<Shared>, volume: Volume, tree: Tree, zones: ZoneTable, options: MountOptions) -> State {
    let info = shared.info;
    let reserve = Reserve::new(&info, zones.bad_count());
    let volume_id = volume_number(&volume.uuid);
    // One open zone is the journal's.
    let open_max = options.open_zones_max.min(info.open_max).min(info.active_max).max(OPEN_ZONES_MIN) - 1;
    // What is buffered has to fit the journal's records many times over, on a small device too.
    let dirty_bytes_max = options.dirty_bytes_max.min(info.capacity_bytes() / 16).max(DIRTY_BYTES_MIN);
    let parked = zones.iter().filter(|(_, z)| z.state == ZoneUse::Parked).map(|(zone, _)| zone).collect();
    let now = (shared.clock)().0;
    State {
        volume,
        tree,
        slots: Slots::new(options.resolver, open_max as usize, parked),
        journal: Journal::new(1, 1, volume_id, reserve.frame_max, now),
        zones,
        reserve,
        space: Space::default(),
        volume_bytes: 0,
        buffer: WriteBuffer::new(dirty_bytes_max),
        cleaner: Cleaner::default(),
        stats: stats::Counts::default(),
        death_observer: None,
        bounce: Vec::new(),
        settling: false,
        beyond_full: 0,
        secrets: Secrets::default(),
        failed: None,
        shared,
    }
}

impl Lfs {
    /// Makes an empty volume; what the device held is lost.
    ///
    /// # Errors
    /// A device that is too small, a label that is too long, or what the device says.
    pub fn format(dev: Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<(), LfsError> {
        let mount = MountOptions::default();
        let shared = shared(dev, &mount)?;
        let info = shared.info;
        let mut zones = ZoneTable::new(info.zones, info.zone_blocks, 1);
        let mut full = Vec::new();
        for zone in (0..info.zones).map(ZoneId) {
            match shared.dev.report(zone)?.state {
                ZoneState::ReadOnly | ZoneState::Offline => zones.set_bad(zone),
                state => {
                    zones.set_free(zone);
                    full.extend((state != ZoneState::Empty).then_some(zone));
                }
            }
        }
        Lfs::check_format(&info, zones.bad_count(), options)?;
        for zone in full {
            shared.dev.reset(zone)?;
        }
        let uuid = match options.uuid {
            uuid if uuid == [0; 16] => weft_sys::file::random().map_err(system)?,
            uuid => uuid,
        };
        let formatted_at = (shared.clock)();
        let volume = Volume { uuid, label: options.label.clone(), formatted_at };
        let tree = Tree::new(info.blocks(), options.owner, formatted_at.0);
        state(shared, volume, tree, zones, mount).checkpoint(true)?;
        Ok(())
    }

    /// Whether a device of this shape, `bad` of its zones unusable, can be formatted so. Nothing is read or written.
    ///
    /// # Errors
    /// [`LfsError::Unfit`] and [`LfsError::BadOption`].
    pub fn check_format(info: &ZonedInfo, bad: u32, options: &FormatOptions) -> Result<(), LfsError> {
        if options.label.len() > LABEL_MAX {
            return Err(LfsError::BadOption {
                name: "label",
                what: format!("longer than {LABEL_MAX} bytes"),
            });
        }
        check_shape(info)?;
        let tree = Tree::new(info.blocks(), options.owner, 0);
        let saved = CheckpointSize { bytes: tree.saved_bytes, runs: tree.runs };
        if Reserve::new(info, bad).usable_bytes(saved) < u64::from(info.zone_capacity) * crate::layout::BLOCK
        {
            return Err(LfsError::Unfit(format!(
                "its {} zones leave no space for files",
                info.zones.saturating_sub(bad)
            )));
        }
        Ok(())
    }

    /// Mounts a volume: finds the newest checkpoint, replays the journal, and after an unclean end writes a fresh
    /// checkpoint.
    ///
    /// # Errors
    /// See [`LfsError`]; each names the zone and block.
    pub fn mount(dev: Arc<dyn ZonedDevice>, options: MountOptions) -> Result<Lfs, LfsError> {
        if options.open_zones_max < OPEN_ZONES_MIN {
            let what = format!("{}; at least {OPEN_ZONES_MIN} are needed", options.open_zones_max);
            return Err(LfsError::BadOption { name: "open_zones_max", what });
        }
        let _in_order = paging::in_order();
        let shared = shared(dev, &options)?;
        let found = scan(&*shared.dev)?;
        let mut restored = restore(&*shared.dev, &found, shared.crcs(), options.salvage)?;
        if options.salvage {
            restored.mend_names();
        }
        let commit_interval = options.commit_interval;
        let lost = std::mem::take(&mut restored.lost);
        let cost = if lost.is_nothing() { "; nothing is lost by it" } else { "" };
        for damage in &restored.spared {
            let (zone, block) = (damage.zone.0, damage.block);
            tracing::warn!(zone, block, "{}{cost}", damage.what);
        }
        let read_only = options.read_only || options.salvage;
        if !read_only {
            // What was read may be in the device's buffer only, if a process and not the power had failed.
            shared.dev.flush()?;
        }
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        // Both look at every inode.
        let (checked, table) = std::thread::scope(|scope| {
            let checked = scope.spawn(|| if options.salvage { Ok(()) } else { restored.check_names() });
            let table = zone_table(&shared, &found, &restored, access);
            (checked.join(), table)
        });
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (zones, torn) = table?;
        let state = if read_only {
            mount_read_only(shared.clone(), &found, restored, zones, options)?
        } else {
            let mut state = mount_writable(shared.clone(), &found, restored, (zones, torn), options)?;
            state.reset_dead()?;
            state
        };
        Ok(Lfs {
            lost,
            read_only,
            shared,
            state: Mutex::new(state),
            group_commit: Default::default(),
            stalls: Histogram::default(),
            commit_interval,
        })
    }

    /// What is missing of a volume that was mounted to be salvaged.
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Writes everything back, then a checkpoint, so that the next mount has nothing to replay.
    ///
    /// # Errors
    /// What the device says; everything that was durable stays so.
    pub fn unmount(self) -> Result<(), LfsError> {
        Ok(self.close()?)
    }

    /// As [`Lfs::unmount`], for a volume that others still hold: what is changed afterwards is journaled as usual.
    pub fn close(&self) -> weft_vfs::FsResult<()> {
        if self.read_only {
            return Ok(());
        }
        if self.state.lock().has_secrets() {
            self.sync_and_erase_if_room()?;
        }
        let mut state = self.state.lock();
        state.check_writable()?;
        state.write_back_old(i64::MAX, u64::MAX)?;
        if !state.journal.closed || state.journal.changed || !state.buffer.journaled.is_empty() {
            state.checkpoint(true)?;
        }
        state.commit_durably()
    }
}

/// The state of a volume that is mounted read-only. Nothing is written, not even to recover from a power cut.
fn mount_read_only(
    shared: Arc<Shared>,
    found: &Scan,
    mut restored: Restored,
    zones: ZoneTable,
    options: MountOptions,
) -> Result<State, LfsError> {
    let salvaged = options.salvage;
    let mut state = restored_state(shared, found, &mut restored, zones, options);
    state.space = Space::new(state.tree.inodes.values().map(|inode| inode.charged).sum(), 0);
    state.journal.zones = restored.chain;
    state.journal.spare = restored.spare;
    put_patches(&mut state, restored.patches, salvaged)?;
    let why = if salvaged { "it is damaged, and mounted to be read" } else { "it is mounted read-only" };
    state.failed = Some(why.to_string());
    Ok(state)
}

/// The state of a volume as it was found, with its tree.
fn restored_state(
    shared: Arc<Shared>,
    found: &Scan,
    restored: &mut Restored,
    zones: ZoneTable,
    options: MountOptions,
) -> State {
    let (label, formatted_at) = (restored.label.clone(), TimeSpec(restored.formatted_at));
    let volume = Volume { uuid: found.uuid, label, formatted_at };
    let mut state = state(shared, volume, std::mem::take(&mut restored.tree), zones, options);
    state.volume_bytes = restored.volume_bytes;
    state.stats.entries_replayed = restored.entries as u64;
    state.stats.entries_dropped = restored.dropped as u64;
    state
}

/// Makes buffered blocks of what only the journal has.
fn put_patches(state: &mut State, patches: Patches, lenient: bool) -> Result<(), LfsError> {
    for ((ino, block), patches) in patches {
        let ino = Ino(ino);
        match state.make_dirty(ino, block, false) {
            // The block cannot be read, so what would stand over a part of it means nothing: it stays an error to read.
            Err(FsError::Checksum(_) | FsError::Device(_)) if lenient => continue,
            done => done?,
        };
        if let Some(dirty) = state.tree.get_mut(ino).and_then(|inode| inode.dirty.block_mut(block)) {
            for (from, bytes) in patches {
                dirty.data[from as usize..from as usize + bytes.len()].copy_from_slice(&bytes);
            }
            state.buffer.journal_block(dirty);
        }
        state.buffer.journaled.insert(ino.0);
    }
    Ok(())
}

fn mount_writable(
    shared: Arc<Shared>,
    found: &Scan,
    mut restored: Restored,
    (zones, torn): (ZoneTable, Vec<ZoneId>),
    options: MountOptions,
) -> Result<State, LfsError> {
    let mut state = restored_state(shared.clone(), found, &mut restored, zones, options);
    let (mut promised, mut charged) = (0u64, 0u64);
    for inode in state.tree.inodes.values() {
        promised = promised.saturating_add(inode.reserved.blocks().saturating_mul(crate::layout::BLOCK));
        charged = charged.saturating_add(inode.charged);
    }
    state.space = Space::new(charged.saturating_sub(promised), promised);
    state.journal.next_seq = restored.last_seq + 1;
    shared.written_seq.store(restored.last_seq, Release);
    shared.durable_seq.store(restored.last_seq, Release);
    for zone in torn {
        shared.finish(zone)?;
    }
    park_at_most(&mut state)?;
    let mut chain = restored.chain;
    // What is damaged and there twice is written anew, as after a power cut.
    if restored.clean && restored.spared.is_empty() {
        // Frames go on behind the checkpoint, where nothing has been written.
        state.journal.epoch = restored.epoch;
        state.journal.closed = true;
        if let Some(last) = chain.last().copied()
            && state.zones.get(last).write_pointer < state.reserve.capacity
            && found.zones[last.index()].report.state != ZoneState::Full
        {
            state.zones.reopen(last);
            state.journal.zone = Some(last);
            chain.pop();
        }
        state.journal.zones = chain;
        state.journal.spare = restored.spare;
        state.secrets.is_marked = restored.marked.is_some();
        state.check_sums()?;
        return Ok(state);
    }
    tracing::info!(entries = restored.entries, dropped = restored.dropped, "journal replayed");
    // Files that somebody saw and that were lost: their numbers mean no others now.
    state.tree.next_ino = (state.tree.next_ino + LOST_INODES_MAX).min(COUNT_MOUNTED_MAX);
    state.journal.epoch = restored.epoch + 1;
    // An open metadata zone is ended, so that no more than one is ever open.
    chain.extend(restored.spare);
    for zone in &chain {
        if found.zones[zone.index()].report.state.is_active() {
            shared.finish(*zone)?;
        }
    }
    state.journal.zones = chain;
    state.tree.erases |= restored.marked.is_some();
    if state.erases() {
        state.suspect(&restored.marked.unwrap_or_default(), restored.next_sequence);
    }
    state.reset_dead()?;
    put_patches(&mut state, restored.patches, false)?;
    // Nothing may be journaled before this checkpoint is complete: an earlier one's chain is what counts until then.
    state.write_checkpoint(false)?;
    if state.erases() {
        state.erase_suspects()?;
    }
    Ok(state)
}

/// How a volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// The zones as the device and the restored maps have them; also zones that a power cut left within their footer.
fn zone_table(
    shared: &Shared,
    found: &Scan,
    restored: &Restored,
    access: Access,
) -> Result<(ZoneTable, Vec<ZoneId>), LfsError> {
    let info = shared.info;
    let reserve = Reserve::new(&info, 0);
    let mut table = ZoneTable::new(info.zones, info.zone_blocks, restored.next_sequence);
    let mut torn = Vec::new();
    for (zone, f) in found.numbered() {
        if let Some(header) = &f.header {
            table.set_found(zone, Some(header.kind), (header.tag, header.sequence), f.report.write_pointer);
            if table.next_sequence() > COUNT_MOUNTED_MAX {
                let what = format!(
                    "the zone's sequence number, {}, is higher than any volume reaches",
                    header.sequence
                );
                return Err(LfsError::Corrupt { zone, block: 0, what });
            }
        } else {
            let kind = f.is_written().then_some(ZoneKind::Data);
            table.set_found(zone, kind, (Tag::default(), 0), f.report.write_pointer);
        }
    }
    let mut runs: Vec<(Ino, crate::layout::record::FileRun)> = Vec::new();
    for (ino, inode) in restored.tree.inodes.iter() {
        for run in inode.map().into_iter().flat_map(|map| map.iter()) {
            if access == Access::ReadOnly && run.run.address == NOWHERE {
                continue;
            }
            let (zone, block) = shared.zone_block(run.run.device_block());
            let written = found.zones[zone.index()].report.write_pointer;
            if block < HEADER_BLOCKS || u64::from(block) + u64::from(run.run.count) > u64::from(written) {
                let what = format!("inode {ino} maps blocks that are not written ({written} are)");
                return Err(LfsError::Corrupt { zone, block, what });
            }
            if found.zones[zone.index()].header.is_some_and(|header| header.kind == ZoneKind::Meta) {
                let what = format!("inode {ino} maps blocks of a metadata zone");
                return Err(LfsError::Corrupt { zone, block, what });
            }
            runs.push((Ino(ino), run));
        }
    }
    // In the order in which they lie, so that the cleaner reads them in order. Most of them are in order already.
    runs.sort_by_key(|(ino, run)| (run.run.address, *ino));
    for (ino, run) in &runs {
        table.add_live(run);
        table.add_to_summary(*ino, run);
        if restored.tree.get(*ino).is_some_and(Inode::is_secure) {
            table.set_secure(table.zone_of(run.run.address));
        }
    }
    for (zone, f) in found.numbered() {
        let in_chain = restored.chain.contains(&zone) || restored.spare.contains(&zone);
        let live = table.get(zone).live > 0 || in_chain;
        let kind = table.get(zone).kind;
        match f.report.state {
            ZoneState::Offline | ZoneState::ReadOnly => table.set_bad(zone),
            _ if f.report.write_pointer == 0 => {
                if f.report.state.is_active() && access == Access::ReadWrite {
                    shared.dev.reset(zone)?;
                }
                table.set_free(zone);
            }
            // A partly written zone, too: a power cut made void what was written to it, and it is better empty.
            _ if !live => table.set_dying(zone, 0),
            ZoneState::Full => {
                table.set_footer(zone, read_footer(&*shared.dev, zone, f).is_some());
            }
            _ if kind == Some(ZoneKind::Meta) => {}
            _ if f.report.write_pointer >= reserve.data_end => {
                // Ended without its footer: its CRCs stay in checkpoints.
                torn.push(zone);
            }
            _ => table.park(zone),
        }
    }
    Ok((table, torn))
}

/// Ends partly written zones beyond what may be open.
fn park_at_most(state: &mut State) -> Result<(), LfsError> {
    let open: Vec<ZoneId> = state.slots.open_zones().collect();
    for zone in open.into_iter().skip(state.slots.open_max()) {
        state.slots.forget(zone);
        state.shared.finish(zone)?;
        state.zones.end(zone, state.zones.get(zone).write_pointer, false, 0);
    }
    Ok(())
}
