//! Secure deletion: leaves nothing on the device of what inodes with that class have given up.
//!
//! Nothing is overwritten in place, so what is given up lies where it was: in blocks of data zones that no map leads to, in the records of the
//! journal, in checkpoints. An erasure copies what lives out of each data zone in which such a block may be, and writes a checkpoint from
//! a fresh zone on; then all zones before are reset, and the device overwrites them and its logs. It happens with the first `fsync` or
//! `sync` after something was given up, or with a tick.
//!
//! A crash may leave copies that no record tells of. So a checkpoint says from before the first such byte is written that there may be some, and
//! in which zones: those that hold data of the class, and those that are open. After a crash a mount erases these, zones that were opened
//! since, and all free space.

use crate::alloc::reserve::CLEANER_ZONES;
use crate::alloc::zone::{Zone, ZoneUse};
use crate::core::State;
use crate::core::relocate::needed_bytes;
use crate::error::device_failed;
use crate::layout::BLOCK;
use crate::layout::record::Record;
use crate::layout::zone_header::ZoneKind;
use crate::state::inode::Inode;
use std::collections::BTreeSet;
use weft_core::{Ino, Tag, TagFlags, ZoneId, refuse};
use weft_vfs::{FLAGS_XATTR, FsError, FsResult, InodeFlags};

/// Blocks by which the data of a zone may grow when it is packed anew.
const PACKING_BLOCKS: u64 = 32;

/// What is to be erased.
#[derive(Default)]
pub(crate) struct Secrets {
    /// Records so far that gave something up.
    given_up: u64,
    /// Of these, those whose bytes are erased.
    erased: u64,
    /// Files that were overwritten, of which the old bytes are given up when they are stored.
    overwritten: BTreeSet<u64>,
    /// The newest checkpoint says that there may be something to erase.
    pub is_marked: bool,
}

fn is_secure(tag: &Tag) -> bool {
    tag.flags.contains(TagFlags::SECURE_DELETE)
}

impl State {
    /// Whether there are, or were since the volume was mounted, inodes whose bytes are erased.
    pub(crate) fn erases(&self) -> bool {
        self.tree.erases && self.shared.dev.erases()
    }

    pub(crate) fn is_secure(&self, ino: Ino) -> bool {
        self.tree.get(ino).is_some_and(Inode::is_secure)
    }

    /// Sees to it that a mount after a crash erases: before the first inode of the class is made.
    pub(crate) fn expect_secrets(&mut self, tag: &Tag) -> FsResult<()> {
        if !is_secure(tag) || self.secrets.is_marked || !self.shared.dev.erases() {
            return Ok(());
        }
        self.tree.erases = true;
        self.write_checkpoint(false)
    }

    /// As [`expect_secrets`](Self::expect_secrets), before an inode gets this attribute.
    pub(crate) fn expect_flags(&mut self, name: &[u8], value: Option<&[u8]>) -> FsResult<()> {
        let flags = value.filter(|_| name == FLAGS_XATTR).map(InodeFlags::from_value).unwrap_or_default();
        self.expect_secrets(&Tag { flags: flags.of_tag(), ..Tag::default() })
    }

    /// Notes what a record is about to give up, and whose bytes it says are to be erased.
    pub(crate) fn note_secrets(&mut self, record: &Record<'_>) {
        if !self.tree.erases {
            return;
        }
        let gives_up = match *record {
            Record::Unlink { dir, .. } => self.is_secure(dir),
            Record::Rename { from, exchange, .. } => !exchange && self.is_secure(from),
            Record::Free { ino }
            | Record::Truncate { ino, extend: false, .. }
            | Record::Punch { ino, .. }
            | Record::Shift { ino, insert: false, .. } => self.is_secure(ino),
            Record::Xattr { ino, name, .. } => {
                let had = self.tree.get(ino).is_some_and(|inode| inode.xattrs.contains_key(name));
                had && self.is_secure(ino)
            }
            _ => false,
        };
        self.secrets.given_up += u64::from(gives_up);
        let becomes_secure = match *record {
            Record::Xattr { ino, name, value: Some(value), .. } if name == FLAGS_XATTR => {
                InodeFlags::from_value(value).contains(InodeFlags::SECURE_DELETE).then_some(ino)
            }
            Record::SetTag { ino, tag } => is_secure(&tag).then_some(ino),
            _ => None,
        };
        let map = becomes_secure.and_then(|ino| self.tree.get(ino)).and_then(|inode| inode.map());
        for run in map.into_iter().flat_map(|map| map.iter()) {
            let zone = self.zones.zone_of(run.run.address);
            self.zones.set_secure(zone);
        }
    }

    /// Blocks of a zone were written with this tag, and no file is to have them.
    pub(crate) fn give_up_written(&mut self, zone: ZoneId, tag: &Tag) {
        if is_secure(tag) && self.erases() {
            self.zones.set_given_up(zone);
            self.secrets.given_up += 1;
        }
    }

    /// Notes that a file is about to be written from `offset` on.
    pub(crate) fn note_overwrite(&mut self, ino: Ino, offset: u64) {
        if self.tree.erases
            && self.tree.get(ino).is_some_and(|inode| inode.is_secure() && offset < inode.size)
        {
            self.secrets.overwritten.insert(ino.0);
        }
    }

    /// All that a file holds is stored: what it held before is given up.
    pub(crate) fn note_stored(&mut self, ino: Ino) {
        self.secrets.given_up += u64::from(self.secrets.overwritten.remove(&ino.0));
    }

    /// As [`note_stored`](Self::note_stored), of all files.
    pub(crate) fn note_all_stored(&mut self) {
        self.secrets.given_up += u64::from(!self.secrets.overwritten.is_empty());
        self.secrets.overwritten.clear();
    }

    /// Whether an `fsync` has something to erase.
    pub(crate) fn must_erase(&self) -> bool {
        self.secrets.erased < self.secrets.given_up
    }

    /// Whether a `sync` has, or will have, something to erase.
    pub(crate) fn has_secrets(&self) -> bool {
        self.must_erase() || !self.secrets.overwritten.is_empty()
    }

    /// Erases what was given up so far; [`FsError::NoSpace`] where there is no room to copy what lives beside it: then it stays to be
    /// erased. False where a writer, who waits for the lock, is about to map blocks of a zone that is to be
    /// emptied: then nothing has changed.
    pub(crate) fn erase(&mut self) -> FsResult<bool> {
        let given_up = self.secrets.given_up;
        if !self.erases() {
            self.secrets.erased = given_up;
            return Ok(true);
        }
        // What the journal has over a block that is mapped would keep the block.
        self.settling = true;
        let settled = self.settle_journaled();
        self.settling = false;
        settled?;
        let to_empty = |z: &Zone| {
            let is_used = matches!(z.state, ZoneUse::Open | ZoneUse::Parked | ZoneUse::Full);
            is_used && z.kind == Some(ZoneKind::Data) && z.gives_up
        };
        let of = |(zone, z): (ZoneId, &Zone)| to_empty(z).then_some((zone, z.writers));
        let victims: Vec<(ZoneId, u32)> = self.zones.iter().filter_map(of).collect();
        if victims.iter().any(|(_, writers)| *writers > 0) {
            return Ok(false);
        }
        // None of them takes what is copied out of the others.
        for (zone, _) in &victims {
            self.end_early(*zone)?;
        }
        for (zone, _) in &victims {
            self.empty(*zone)?;
        }
        self.commit()?;
        if let Some(zone) = self.journal.zone {
            self.finish_meta(zone)?;
        }
        self.write_checkpoint(false)?;
        self.commit_durably()?;
        self.reset_dead()?;
        // Reads end without the lock that is held here.
        while !self.zones.dying().is_empty() {
            std::thread::yield_now();
            self.reset_dead()?;
        }
        self.erase_empty(&[])?;
        self.secrets.erased = given_up;
        tracing::debug!(zones = victims.len(), "erased");
        Ok(true)
    }

    /// Ends a data zone that takes no more.
    fn end_early(&mut self, zone: ZoneId) -> FsResult<()> {
        let z = self.zones.get(zone);
        if !matches!(z.state, ZoneUse::Open | ZoneUse::Parked) {
            return Ok(());
        }
        let written = z.write_pointer;
        self.slots.forget(zone);
        self.shared.finish(zone).map_err(|e| self.fail(device_failed(e)))?;
        self.zones.end(zone, written, false, self.journal.seq_of_last_record());
        Ok(())
    }

    /// Copies what lives out of a zone that has ended.
    fn empty(&mut self, zone: ZoneId) -> FsResult<()> {
        // Some more than it takes now, where pieces are packed anew.
        let z = self.zones.get(zone);
        let most = (u64::from(z.write_pointer) + PACKING_BLOCKS) * BLOCK;
        let needed = needed_bytes(z, self.reserve.data_blocks()).min(most);
        let open: u64 = self.slots.open_zones().map(|zone| u64::from(self.room(zone))).sum();
        let room = open * BLOCK + u64::from(self.free_for_data()) * self.zone_data_bytes();
        // What is given up stays to be erased.
        refuse(needed > room, FsError::NoSpace)?;
        let mut place = Some((0, 0));
        while let Some(at) = place.filter(|_| self.zones.get(zone).state == ZoneUse::Full) {
            (place, _) = self.relocate_some(zone, at)?;
            if self.free_for_data() < CLEANER_ZONES {
                self.commit_durably()?;
                self.reset_dead()?;
            }
        }
        if self.zones.get(zone).state == ZoneUse::Full {
            tracing::warn!(%zone, "live data of a zone cannot be read: what was deleted securely there stays, too");
        }
        Ok(())
    }

    /// Has the device overwrite what zones that are empty have held, and its logs.
    pub(crate) fn erase_empty(&mut self, zones: &[ZoneId]) -> FsResult<()> {
        self.shared.dev.erase(zones).map_err(|error| self.fail(device_failed(error)))
    }

    /// For a volume that was not closed: erases what a crash may have left. `marked` are the zones that the checkpoint names, of
    /// which the zone openings from `next_sequence` on are not known.
    pub(crate) fn suspect(&mut self, marked: &BTreeSet<ZoneId>, next_sequence: u64) {
        let is_suspect = |(zone, z): &(ZoneId, &Zone)| {
            let may_hold = marked.contains(zone) || z.sequence >= next_sequence || z.state != ZoneUse::Full;
            z.kind == Some(ZoneKind::Data) && may_hold
        };
        let suspects: Vec<ZoneId> = self.zones.iter().filter(is_suspect).map(|(zone, _)| zone).collect();
        suspects.into_iter().for_each(|zone| self.zones.set_given_up(zone));
        self.secrets.given_up += 1;
    }

    /// For a volume that was not closed: erases what is suspect, and all free space. Nobody else has the volume yet.
    pub(crate) fn erase_suspects(&mut self) -> FsResult<()> {
        loop {
            match self.erase() {
                Ok(true) => break,
                Ok(false) => {}
                // The next `fsync` tries again.
                Err(FsError::NoSpace) => {
                    tracing::warn!(
                        "the volume is full: what a crash may have left is erased when there is room"
                    );
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let free = self.zones.iter().filter(|(_, z)| z.state == ZoneUse::Free);
        let free: Vec<ZoneId> = free.map(|(zone, _)| zone).collect();
        self.erase_empty(&free)
    }

    /// The zones that a checkpoint names: after a crash, they may have what no record tells of.
    pub(crate) fn marked_zones(&self) -> Vec<ZoneId> {
        let may_hold = |z: &Zone| z.secure || matches!(z.state, ZoneUse::Open | ZoneUse::Parked);
        let of_data = self.zones.iter().filter(|(_, z)| z.kind == Some(ZoneKind::Data) && may_hold(z));
        of_data.map(|(zone, _)| zone).collect()
    }
}

impl crate::Lfs {
    /// Erases what was given up so far.
    pub(crate) fn erase(&self) -> FsResult<()> {
        loop {
            {
                let mut state = self.locked()?;
                if !state.must_erase() || state.erase()? {
                    return Ok(());
                }
            }
            std::thread::yield_now();
        }
    }
}
