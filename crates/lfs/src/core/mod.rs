//! The state of a mounted volume, and the code that writes it to the device: the journal, checkpoints, data zones,
//! write-back and the cleaner. These call each other in a circle (a write may clean, cleaning writes, both journal), so
//! they are methods of one [`State`]; what they work on is in `alloc`, `state`, `journal` and `gc`.
//!
//! # Locks
//! One mutex guards [`State`]: everything but what [`Shared`] holds. It is held during device writes of journal frames and of
//! buffered data, never during reads for programs and never during the flush of an `fsync`. The group-commit mutex
//! ([`group_commit`]) is taken only without it. Observers are called with it held.
//!
//! # Writing without the lock
//! A writer of many blocks takes them of a zone with the lock held, writes them without, and maps its file to them with the lock
//! held again ([`write_order`]). Until then the zone counts it among its writers, so it does not die, and the space that the
//! file is about to take is held. The last blocks of a zone are written with the lock held: a zone that takes no more data is
//! closed before anybody opens another one.
//!
//! # Reading without the lock
//! With the lock held, a reader looks up device addresses in the map and pins their zones. It reads without the lock,
//! then unpins the zones. A zone is reset only with the lock held and only while no reader pins it, so the blocks stay
//! readable until the reader is done.

mod checkpoint;
mod clean;
mod erase;
pub(crate) mod group_commit;
mod journal;
pub(crate) mod pack;
mod relocate;
mod write_back;
pub(crate) mod write_order;

use self::clean::Destination;
pub(crate) use self::erase::Secrets;
use self::write_order::{TakenBlocks, Unwritten, ZoneTurns};
use crate::RENAMES_RESERVE_BYTES;
use crate::alloc::reserve::{CLEANER_ZONES, CheckpointSize, Reserve};
use crate::alloc::slot::Slots;
use crate::alloc::space::Space;
use crate::alloc::zone::{ZoneTable, ZoneUse};
use crate::error::device_failed;
use crate::gc::Cleaner;
use crate::journal::writer::Journal;
use crate::layout::footer;
use crate::layout::record::{FileRun, Record};
use crate::layout::zone_header::{Decoded, HEADER_BLOCKS, ZoneHeader, ZoneKind};
use crate::options::Clock;
use crate::state::dirty::WriteBuffer;
use crate::state::tree::{SpaceAccounts, Tree};
use crate::stats::Counts;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Ino, Origin, Tag, TagFlags, ZoneId};
use weft_device::{DeviceError, ZonedDevice, ZonedInfo};
use weft_sys::SharedMemory;
use weft_vfs::{Death, DeathObserver, FsError, FsResult, MapEntry, MapObserver, TimeSpec};

/// What readers and group commit use without the lock.
pub(crate) struct Shared {
    pub dev: Arc<dyn ZonedDevice>,
    pub info: ZonedInfo,
    /// CRC32C of each device block. Written before the map that leads to the block, read after it; the lock or the
    /// observer's own synchronisation orders the two, so relaxed accesses do.
    pub crc: Arc<SharedMemory>,
    /// Number of reads in progress in each zone. A reader increments it with the lock held and decrements it without
    /// (release); a reset checks it with the lock held (acquire).
    pub pins: Box<[AtomicU32]>,
    /// Who writes to each zone next.
    pub turns: Box<[ZoneTurns]>,
    pub observer: OnceLock<Arc<dyn MapObserver>>,
    /// The last frame that was written. Stored (release) after the write returned, with the lock held.
    pub written_seq: AtomicU64,
    /// The last frame that is durable. Only grows.
    pub durable_seq: AtomicU64,
    pub checksum_errors: AtomicU64,
    pub clock: Clock,
}

/// The identity of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub uuid: [u8; 16],
    pub label: String,
    pub formatted_at: TimeSpec,
}

/// Everything that the lock guards.
pub(crate) struct State {
    pub shared: Arc<Shared>,
    pub volume: Volume,
    pub tree: Tree,
    pub zones: ZoneTable,
    pub slots: Slots,
    pub journal: Journal,
    pub reserve: Reserve,
    pub space: Space,
    /// Bytes that programs wrote since the format.
    pub volume_bytes: u64,
    pub buffer: WriteBuffer,
    pub cleaner: Cleaner,
    pub stats: Counts,
    pub death_observer: Option<DeathObserver>,
    /// Where blocks are gathered for one device write.
    pub bounce: Vec<u8>,
    /// Whether what only the journal has is being written back, which must not begin anew meanwhile.
    pub settling: bool,
    /// Bytes that may be stored though the volume is full.
    pub beyond_full: u64,
    /// What is to be erased.
    pub secrets: Secrets,
    /// Why the volume is read-only, if it is.
    pub failed: Option<String>,
}

/// Largest device write, in blocks.
pub(crate) const WRITE_BLOCKS_MAX: u32 = 256;

impl Shared {
    pub(crate) fn device_block(&self, zone: ZoneId, block: u32) -> u64 {
        u64::from(zone.0) * u64::from(self.info.zone_blocks) + u64::from(block)
    }

    pub(crate) fn zone_block(&self, device_block: u64) -> (ZoneId, u32) {
        self.info.place(device_block)
    }

    /// Whether no read is in progress.
    pub(crate) fn is_unread(&self) -> bool {
        self.pins.iter().all(|pin| pin.load(Acquire) == 0)
    }

    /// Ends a zone that is not full, to which nothing more comes. Where flash refuses that, it ends the zone, and what was written
    /// can be read.
    pub(crate) fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        match self.dev.finish(zone) {
            Err(error @ (DeviceError::Media { .. } | DeviceError::ZoneReadOnly(_))) => {
                tracing::warn!(%zone, %error, "the end of a zone cannot be programmed");
                Ok(())
            }
            finished => finished,
        }
    }

    /// CRC32C of each device block.
    #[inline]
    pub(crate) fn crcs(&self) -> &[AtomicU32] {
        self.crc.atomics()
    }

    /// Reads device blocks and checks each against its CRC.
    pub(crate) fn read_blocks(&self, device_block: u64, out: &mut [u8]) -> FsResult<()> {
        let (zone, block) = self.zone_block(device_block);
        self.dev.read(zone, block, out).map_err(device_failed)?;
        let table = &self.crcs()[device_block as usize..];
        for (i, (data, crc)) in out.chunks_exact(BLOCK_BYTES).zip(table).enumerate() {
            if crc32c(data) != crc.load(Relaxed) {
                return Err(FsError::Checksum(format!("zone {zone}, block {}", block + i as u32)));
            }
        }
        Ok(())
    }

    /// Counts and logs a checksum error.
    pub(crate) fn report_checksum(&self, error: &FsError) {
        if let FsError::Checksum(place) = error {
            self.checksum_errors.fetch_add(1, Relaxed);
            tracing::error!(place, "checksum mismatch");
        }
    }
}

/// Keeps the zones' live bytes and the space accounts while a record is applied.
struct ZoneAccounts<'a> {
    zones: &'a mut ZoneTable,
    space: &'a mut Space,
    /// The frame that the record will stand in.
    seq: u64,
}

impl SpaceAccounts for ZoneAccounts<'_> {
    fn mapped(&mut self, _: Ino, run: &FileRun) {
        self.zones.add_live(run);
        self.space.map(&run.run);
    }

    fn unmapped(&mut self, _: Ino, run: &FileRun) {
        self.space.unmap(&run.run);
        if let Some(zone) = self.zones.remove_live(run) {
            self.zones.set_dying(zone, self.seq);
        }
    }

    fn reserved(&mut self, blocks: u64) {
        self.space.reserve(blocks);
    }

    fn released(&mut self, blocks: u64) {
        self.space.release(blocks);
    }
}

impl State {
    /// Applies a record and adds it to the transaction at hand.
    pub(crate) fn log(&mut self, record: &Record<'_>) -> FsResult<()> {
        self.apply(record)?;
        self.journal.push(record);
        Ok(())
    }

    /// Applies a record that the caller adds to the transaction.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> FsResult<()> {
        self.note_secrets(record);
        let mut places =
            ZoneAccounts { zones: &mut self.zones, space: &mut self.space, seq: self.journal.next_seq };
        self.tree.apply(record, &mut places).map_err(|error| {
            // Operations check before they log, so this is a defect; nothing may be built on it.
            self.fail(FsError::Device(format!("metadata is inconsistent: {error}")))
        })
    }

    pub(crate) fn now(&self) -> i64 {
        (self.shared.clock)().0
    }

    /// What a checkpoint has to hold now.
    pub(crate) fn saved(&self) -> CheckpointSize {
        // The zones that it names.
        let secrets = if self.tree.erases { 16 + 4 * u64::from(self.reserve.zones) } else { 0 };
        CheckpointSize { bytes: self.tree.saved_bytes + secrets, runs: self.tree.runs }
    }

    /// Bytes that programs can fill.
    pub(crate) fn usable(&self) -> u64 {
        self.usable_after(0).saturating_sub(RENAMES_RESERVE_BYTES)
    }

    /// Bytes that programs and longer names can fill when metadata has grown by `bytes`.
    pub(crate) fn usable_after(&self, bytes: i64) -> u64 {
        let saved = self.saved();
        let bytes = saved.bytes.saturating_add_signed(bytes);
        self.beyond_full + self.reserve.usable_bytes(CheckpointSize { bytes, ..saved })
    }

    /// Half of the dead space that a full volume has for its cleaner, in bytes.
    pub(crate) fn beyond_full_max(&self) -> u64 {
        u64::from(self.reserve.slack_zones) * self.zone_data_bytes() / 2
    }

    /// Free zones that data may take, those for the cleaner included.
    pub(crate) fn free_for_data(&self) -> u32 {
        let wanted = self.reserve.meta_zones(self.saved());
        self.zones.free_count().saturating_sub(wanted.saturating_sub(self.zones.meta_count()))
    }

    /// Dead space outside the reserves of the journal and the cleaner, in zones.
    fn dead_zones(&self) -> u32 {
        let kept = self.reserve.meta_zones(self.saved()).saturating_add(CLEANER_ZONES);
        let zones = u64::from(self.reserve.zones.saturating_sub(kept));
        (zones * self.zone_data_bytes())
            .saturating_sub(self.space.mapped())
            .checked_div(self.zone_data_bytes())
            .map_or(0, |dead| dead as u32)
    }

    /// Takes a free zone and writes its header.
    pub(crate) fn open_zone(&mut self, kind: ZoneKind, tag: Tag) -> FsResult<ZoneId> {
        loop {
            let Some(zone) = self.zones.take_free() else {
                return Err(
                    self.fail(FsError::Device("no free zone is left for the journal or the cleaner".into()))
                );
            };
            let sequence = self.zones.take_sequence();
            let z = self.zones.get(zone);
            assert_eq!((z.state, z.kind, z.live), (ZoneUse::Free, None, 0), "zone {zone} is not free");
            let info = self.shared.info;
            let header = ZoneHeader {
                uuid: self.volume.uuid,
                kind,
                sequence,
                epoch: self.journal.epoch,
                tag,
                zone,
                zones: info.zones,
                zone_blocks: info.zone_blocks,
                zone_capacity: info.zone_capacity,
            };
            let raw = header.encode();
            debug_assert_eq!(ZoneHeader::decode(&raw[..BLOCK_BYTES]), Decoded::Header(header));
            if let Err(error) = self.shared.dev.write(zone, 0, &raw, &Tag::METADATA) {
                if !self.abandon_zone(zone, &error) {
                    return Err(self.fail(device_failed(error)));
                }
                continue;
            }
            self.zones.set_opened(zone, kind, tag, sequence);
            self.shared.turns[zone.index()].begin();
            tracing::debug!(%zone, ?kind, stream = tag.stream.0, group = tag.group.0, "zone opened");
            return Ok(zone);
        }
    }

    /// After a failed write: when the error concerns this zone alone, ends the zone and returns true.
    pub(crate) fn abandon_zone(&mut self, zone: ZoneId, error: &DeviceError) -> bool {
        let blame = matches!(
            error,
            DeviceError::Media { .. } | DeviceError::ZoneReadOnly(_) | DeviceError::ZoneOffline(_)
        );
        if !blame {
            return false;
        }
        tracing::warn!(%zone, %error, "zone given up");
        self.end_unfilled(zone);
        true
    }

    /// Ends a zone that takes no more, though it is not full; of several writers that find it so, the first one does.
    fn end_unfilled(&mut self, zone: ZoneId) {
        let z = self.zones.get(zone);
        if !matches!(z.state, ZoneUse::Full | ZoneUse::Dying(_)) {
            let written = self.shared.dev.report(zone).map_or(z.write_pointer, |report| report.write_pointer);
            self.slots.forget(zone);
            self.zones.end(zone, written, false, self.journal.seq_of_last_record());
        }
    }

    /// A data zone for this tag, and the blocks that it can still take.
    pub(crate) fn data_zone(&mut self, tag: &Tag) -> FsResult<(ZoneId, u32)> {
        if tag.origin == Origin::Host {
            self.refill_cleaner_zones(1)?;
        }
        let total = self.reserve.zones as usize;
        let slots_now = weft_placement::budget(self.dead_zones() as usize, total, self.slots.open_max());
        self.slots.resize(slots_now, &mut self.zones);
        let slot = self.slots.slot_for(tag);
        if let Some(found) = self.space_in_slot(slot, tag) {
            return Ok(found);
        }
        let zone = match self.find_destination(tag, slot)? {
            Destination::OpenZone(zone) => zone,
            Destination::FreeZone => {
                // Cleaning may have changed the number of slots, and opened a zone for this one.
                let slot = self.slots.slot_for(tag);
                if let Some(found) = self.space_in_slot(slot, tag) {
                    return Ok(found);
                }
                let zone = self.open_zone(ZoneKind::Data, *tag)?;
                if let Some(before) = self.slots.set(slot, zone).filter(|before| self.room(*before) > 0) {
                    self.slots.park(before, &mut self.zones);
                }
                zone
            }
        };
        Ok((zone, self.room(zone)))
    }

    /// The zone of a slot and the blocks of it that data of this tag may take. A slot without a zone takes a partly written one.
    pub(crate) fn space_in_slot(&mut self, slot: usize, tag: &Tag) -> Option<(ZoneId, u32)> {
        // The writer that filled a zone closes it.
        let zone = match self.slots.zone(slot).filter(|zone| self.room(*zone) > 0) {
            Some(zone) => zone,
            None => self.slots.adopt(slot, tag, &mut self.zones)?,
        };
        self.with_space(zone, tag)
    }

    /// Blocks that a data zone can still take.
    pub(crate) fn room(&self, zone: ZoneId) -> u32 {
        self.reserve.data_end.saturating_sub(self.zones.get(zone).write_pointer)
    }

    /// A zone and the blocks of it that data of this tag may take, if any. What the cleaner needs to get through with
    /// its victim is not for programs.
    pub(crate) fn with_space(&self, zone: ZoneId, tag: &Tag) -> Option<(ZoneId, u32)> {
        let mut room = self.room(zone);
        if tag.origin == Origin::Host && self.slots.count() == 1 {
            let open: u32 = self.slots.open_zones().map(|zone| self.room(zone)).sum();
            room = room.min(open.saturating_sub(self.blocks_for_cleaner()));
        }
        (room > 0).then_some((zone, room))
    }

    /// Writes whole blocks to the zone for this tag: as many as one device write and the zone take. Returns the first
    /// device block and the number. When the files are mapped to them, [`end_write`](Self::end_write) has to follow.
    pub(crate) fn write_data(&mut self, tag: &Tag, data: &[u8]) -> FsResult<(u64, u32)> {
        let mut attempts = 0;
        loop {
            let taken = self.take_blocks(tag, data.len() / BLOCK_BYTES)?;
            let written = self.shared.write_taken(&taken, &data[..taken.count as usize * BLOCK_BYTES], tag);
            if self.note_written(&taken, tag, written, &mut attempts)? {
                return Ok((self.shared.device_block(taken.zone, taken.at), taken.count));
            }
        }
    }

    /// Takes the next blocks of the zone for this tag, as many of `blocks` as one device write and the zone take.
    pub(crate) fn take_blocks(&mut self, tag: &Tag, blocks: usize) -> FsResult<TakenBlocks> {
        let (zone, room) = self.data_zone(tag)?;
        let count = room.min(WRITE_BLOCKS_MAX).min(blocks.try_into().unwrap_or(u32::MAX));
        let z = self.zones.get(zone);
        let at = z.write_pointer;
        assert!(
            at >= HEADER_BLOCKS && count > 0 && at + count <= self.reserve.data_end,
            "{count} blocks at block {at} are not within the data of zone {zone}"
        );
        assert_eq!(z.kind, Some(ZoneKind::Data), "zone {zone}");
        debug_assert!(matches!(z.state, ZoneUse::Open | ZoneUse::Parked), "zone {zone} is {:?}", z.state);
        let turn = self.zones.take(zone, count);
        if tag.flags.contains(TagFlags::SECURE_DELETE) {
            self.zones.set_secure(zone);
        }
        Ok(TakenBlocks { zone, at, count, turn, are_last: at + count == self.reserve.data_end })
    }

    /// Notes how the write of taken blocks ended. False when another zone has to take the data.
    pub(crate) fn note_written(
        &mut self,
        taken: &TakenBlocks,
        tag: &Tag,
        written: Result<(), Unwritten>,
        attempts: &mut u32,
    ) -> FsResult<bool> {
        let Err(error) = written else {
            let bytes = u64::from(taken.count) * BLOCK_BYTES as u64;
            self.slots.wrote(tag, bytes);
            let group = self.stats.groups.entry((tag.stream.0, tag.group.0)).or_default();
            if tag.origin == Origin::Gc {
                group.gc_bytes += bytes;
                self.stats.gc_bytes += bytes;
            } else {
                group.bytes_written += bytes;
            }
            return Ok(true);
        };
        match error {
            Unwritten::Refused(error) => {
                *attempts += 1;
                if *attempts > 3 || !self.abandon_zone(taken.zone, &error) {
                    return Err(self.fail(device_failed(error)));
                }
            }
            Unwritten::Behind => {
                self.check_writable()?;
                self.end_unfilled(taken.zone);
            }
        }
        if tag.flags.contains(TagFlags::SECURE_DELETE) {
            self.zones.set_given_up(taken.zone);
        }
        self.zones.leave(taken.zone, self.journal.seq_of_last_record());
        Ok(false)
    }

    /// CRCs of device blocks, as they stand in the table.
    #[inline]
    pub(crate) fn crcs(&self, device_block: u64, count: u32) -> impl Iterator<Item = u32> {
        let first = device_block as usize;
        self.shared.crcs()[first..first + count as usize].iter().map(|crc| crc.load(Relaxed))
    }

    /// A writer is through with a data zone: the records of what it wrote are logged. Ends the zone when it is written up to
    /// its footer.
    pub(crate) fn end_write(&mut self, zone: ZoneId) -> FsResult<()> {
        self.zones.leave(zone, self.journal.seq_of_last_record());
        self.close_if_full(zone)
    }

    /// Ends a data zone when it is written up to its footer.
    pub(crate) fn close_if_full(&mut self, zone: ZoneId) -> FsResult<()> {
        if self.zones.get(zone).write_pointer < self.reserve.data_end
            || !matches!(self.zones.get(zone).state, ZoneUse::Open | ZoneUse::Parked)
        {
            return Ok(());
        }
        let end = self.zones.get(zone).write_pointer;
        let blocks = self.reserve.capacity - end;
        let crcs: Vec<u32> = self.crcs(self.shared.device_block(zone, 0), end).collect();
        let raw = footer::encode(crcs.into_iter(), blocks);
        assert_eq!(end, self.reserve.data_end, "zone {zone} is written into its footer");
        assert_eq!(raw.len(), blocks as usize * BLOCK_BYTES, "the footer of zone {zone}");
        self.slots.forget(zone);
        match self.shared.dev.write(zone, end, &raw, &Tag::METADATA) {
            Ok(()) => {
                self.zones.end(zone, end + blocks, true, self.journal.seq_of_last_record());
                Ok(())
            }
            Err(error) if self.abandon_zone(zone, &error) => Ok(()),
            Err(error) => Err(self.fail(device_failed(error))),
        }
    }

    /// Fails when the zones and the files differ about what is live: a defect, which no checkpoint may make durable.
    pub(crate) fn check_sums(&mut self) -> FsResult<()> {
        let live: u64 = self.zones.iter().map(|(_, z)| z.live).sum();
        let meta = self.zones.iter().filter(|(_, z)| z.kind == Some(ZoneKind::Meta)).count();
        if live == self.space.mapped() && meta == self.zones.meta_count() as usize {
            return Ok(());
        }
        Err(self.fail(FsError::Device(format!(
            "the zones hold {live} live bytes, files map {}; {meta} zones hold metadata, {} are counted",
            self.space.mapped(),
            self.zones.meta_count()
        ))))
    }

    /// Resets the zones whose death is durable and that no reader pins.
    pub(crate) fn reset_dead(&mut self) -> FsResult<()> {
        let durable = self.shared.durable_seq.load(Acquire);
        let pins = &self.shared.pins;
        let (erases, mut erased) = (self.erases(), Vec::new());
        while let Some(zone) = self.zones.take_dead(durable, |zone| pins[zone.index()].load(Acquire) == 0) {
            if self.zones.get(zone).live != 0 {
                // A defect; the data is there as long as the zone is left alone.
                return Err(self.fail(FsError::Device(format!(
                    "zone {zone} is marked dead but has live data; it is not reset"
                ))));
            }
            match self.shared.dev.reset(zone) {
                Ok(()) => {
                    tracing::debug!(%zone, "zone reset");
                    self.stats.resets += 1;
                    let z = self.zones.get(zone);
                    let whole = z.kind == Some(ZoneKind::Data) && !z.cleaned;
                    // What the journal and checkpoints say of inodes may be to be erased, too.
                    if erases && (z.secure || z.kind != Some(ZoneKind::Data)) {
                        erased.push(zone);
                    }
                    self.stats.whole_zone_deaths += u64::from(whole);
                    self.zones.set_free(zone);
                    // A victim that died on its own may be full again before the cleaner looks: its place in the old
                    // summary means nothing in the new one.
                    self.cleaner.forget(zone);
                }
                Err(error @ DeviceError::PowerLost) => return Err(self.fail(device_failed(error))),
                Err(error) => {
                    tracing::warn!(%zone, %error, "zone cannot be reset and is given up");
                    self.zones.set_bad(zone);
                    self.reserve = Reserve::new(&self.shared.info, self.zones.bad_count());
                }
            }
        }
        // Before anybody opens one of them again.
        if erased.is_empty() { Ok(()) } else { self.erase_empty(&erased) }
    }

    /// Reports the new addresses of blocks of a watched file to the map observer.
    pub(crate) fn notify_remapped(&self, ino: Ino, first: u64, end: u64) {
        let Some(inode) = self.tree.get(ino) else { return };
        if !inode.watched {
            return;
        }
        let Some(observer) = self.shared.observer.get() else { return };
        // In parts, so that a large file's truncation needs no large buffer.
        let mut entries = [MapEntry::HOLE; 512];
        let mut at = first;
        while at < end {
            let count = ((end - at) as usize).min(entries.len());
            inode.fill_entries(at, &mut entries[..count]);
            observer.remapped(ino, at, &entries[..count]);
            at += count as u64;
        }
    }

    /// As [`State::notify_remapped`], for ranges of blocks.
    pub(crate) fn notify_ranges(&self, ino: Ino, ranges: &[(u64, u64)]) {
        for (first, end) in ranges {
            self.notify_remapped(ino, *first, *end);
        }
    }

    /// Reports the end of a file's content to the death observer.
    pub(crate) fn notify_death(&self, ino: Ino) {
        let (Some(observer), Some(inode)) = (&self.death_observer, self.tree.get(ino)) else { return };
        if inode.size == 0 || inode.map().is_none() {
            return;
        }
        observer(&Death {
            ino,
            tag: inode.tag,
            size: inode.size,
            born_at_bytes: inode.born_at,
            died_at_bytes: self.volume_bytes,
        });
    }
}
