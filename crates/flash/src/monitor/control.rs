//! The master copy of all tables, with its log. One lock guards both.

use super::GrantInfo;
use super::grant::GrantState;
use super::layout::{Layout, LunUse, PhysBlock};
use super::log::DeviceLog;
use super::records::{Change, GrantRow, Records, grant_bytes};
use crate::backend::Backend;
use crate::error::LevelError;
use crate::log::{OnUnreadable, RecordLog};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::nand::{BlockInfo, BlockState, FlashError};

#[derive(Debug)]
pub(super) struct Control {
    pub records: Records,
    log: RecordLog,
    /// By physical LUN and block: whether a grant has it.
    used: Vec<Vec<bool>>,
    /// The tables that commands go through, by grant.
    pub states: BTreeMap<u32, Arc<GrantState>>,
}

impl Control {
    /// A monitor without grants.
    pub fn create(backend: &dyn Backend, layout: &Layout) -> Result<Control, LevelError> {
        let shape = layout.shape;
        let mut media = DeviceLog::new(backend, Nanos(0));
        // What another monitor wrote is outnumbered, not erased.
        let (mut log, _) = RecordLog::recover(&mut media, Layout::log_shape(&shape), OnUnreadable::Ignore)?;
        let records = Records { spares_per_lun: layout.spares_per_lun, ..Records::default() };
        debug_assert!(records.check(layout).is_ok(), "a monitor begins with records that it would refuse");
        log.snapshot(&mut media, &records.encode(&shape))?;
        Ok(Control::assemble(layout, records, log))
    }

    /// The monitor that is on the device.
    pub fn recover(backend: &dyn Backend) -> Result<(Layout, Control), LevelError> {
        let shape = backend.shape();
        let mut media = DeviceLog::new(backend, Nanos(0));
        let (log, found) = RecordLog::recover(&mut media, Layout::log_shape(&shape), OnUnreadable::Refuse)?;
        let missing = || LevelError::NotFormatted("it has no complete record of one".into());
        let found = found.ok_or_else(missing)?;
        let mut records = Records::decode(&found.snapshot, &shape)?;
        for delta in &found.deltas {
            records.apply(Change::decode(delta)?)?;
        }
        let layout = Layout::new(backend, records.spares_per_lun)?;
        records.check(&layout)?;
        let control = Control::assemble(&layout, records, log);
        Ok((layout, control))
    }

    fn assemble(layout: &Layout, records: Records, log: RecordLog) -> Control {
        let mut used =
            vec![vec![false; layout.shape.blocks_per_lun() as usize]; layout.shape.luns() as usize];
        for place in records.grant_luns().flat_map(|(_, row)| &row.places).filter(|place| !place.is_missing())
        {
            used[place.lun as usize][place.block as usize] = true;
        }
        debug_assert_eq!(
            used.iter().flatten().filter(|used| **used).count(),
            records.blocks_in_use(),
            "grants share a block"
        );
        let mut control = Control { records, log, used, states: BTreeMap::new() };
        for (id, row) in &control.records.grants {
            control.states.insert(*id, Arc::new(GrantState::new(*id, row, layout)));
        }
        control
    }

    /// Makes a change and records it. The change is made only if it is recorded.
    pub fn commit(
        &mut self,
        backend: &dyn Backend,
        layout: &Layout,
        change: Change,
        issued: Nanos,
    ) -> Result<Nanos, LevelError> {
        let mut media = DeviceLog::new(backend, issued);
        // No change makes it longer.
        let state_bytes = self.records.snapshot_bytes();
        let before = self.records.apply(change)?;
        debug_assert!(
            self.records.check(layout).is_ok(),
            "{change:?} leads to records that recovery refuses"
        );
        debug_assert_eq!(Change::decode(&change.encode()).ok(), Some(change));
        let snapshot = || {
            let raw = self.records.encode(&layout.shape);
            debug_assert!(raw.len() <= state_bytes, "a snapshot is longer than was reckoned with");
            Ok(raw)
        };
        if let Err(error) = self.log.commit(&mut media, &change.encode(), snapshot, state_bytes) {
            self.records.undo(before);
            return Err(error);
        }
        Ok(media.now)
    }

    /// Refuses a grant with which the records would outgrow the log.
    pub fn check_room(&self, layout: &Layout, name: &str, luns: usize) -> Result<(), LevelError> {
        let more = grant_bytes(name, luns, luns * layout.blocks_granted as usize);
        let (wanted, blocks) = match self.log.check_room(self.records.snapshot_bytes() + more) {
            Ok(()) => return Ok(()),
            Err(room) => room,
        };
        Err(LevelError::BadRequest(format!(
            "with the grant '{name}', the records of the flash monitor take {wanted} blocks, and the device keeps {blocks} for them; give the grant a shorter name than one of {} bytes, or release a grant",
            name.len()
        )))
    }

    /// Records a state as a whole, and makes it the state.
    pub fn replace(
        &mut self,
        backend: &dyn Backend,
        layout: &Layout,
        after: Records,
        issued: Nanos,
    ) -> Result<Nanos, LevelError> {
        debug_assert!(after.check(layout).is_ok(), "a snapshot of records that recovery refuses");
        let mut media = DeviceLog::new(backend, issued);
        let raw = after.encode(&layout.shape);
        debug_assert_eq!(Records::decode(&raw, &layout.shape).as_ref().ok(), Some(&after));
        if !self.log.takes(raw.len()) {
            // Room was kept for the state as it is; the deltas that led to it make room for a larger one.
            self.log.snapshot(&mut media, &self.records.encode(&layout.shape))?;
        }
        self.log.snapshot(&mut media, &raw)?;
        self.records = after;
        Ok(media.now)
    }

    /// Takes a free block of a LUN, of this plane as long as it has one, the one with the fewest erases, and erases it if
    /// it is not clean. `None` when there is none.
    pub fn take(
        &mut self,
        backend: &dyn Backend,
        layout: &Layout,
        lun: u32,
        plane: u32,
        issued: &mut Nanos,
    ) -> Result<Option<PhysBlock>, LevelError> {
        let mut free = self.free_blocks(backend, layout, lun)?;
        free.sort_by_key(|(place, info)| (layout.plane(*place) != plane, info.erases));
        Ok(self.take_of(backend, layout, free, 1, issued)?.pop())
    }

    /// Takes up to so many free blocks of a LUN, as many of each plane as far as they are there, those with the fewest
    /// erases.
    pub fn take_many(
        &mut self,
        backend: &dyn Backend,
        layout: &Layout,
        lun: u32,
        wanted: usize,
        issued: &mut Nanos,
    ) -> Result<Vec<PhysBlock>, LevelError> {
        let mut free = self.free_blocks(backend, layout, lun)?;
        free.sort_by_key(|(_, info)| info.erases);
        let mut of_plane = vec![0; layout.shape.planes as usize];
        free.sort_by_cached_key(|(place, _)| {
            let rank = &mut of_plane[layout.plane(*place) as usize];
            *rank += 1;
            *rank
        });
        self.take_of(backend, layout, free, wanted, issued)
    }

    /// Free blocks of a LUN that are good.
    fn free_blocks(
        &self,
        backend: &dyn Backend,
        layout: &Layout,
        lun: u32,
    ) -> Result<Vec<(PhysBlock, BlockInfo)>, LevelError> {
        let mut free = layout.good_blocks(backend, lun)?;
        free.retain(|(place, _)| !self.used[lun as usize][place.block as usize]);
        Ok(free)
    }

    /// Takes the first of these blocks, up to so many, and erases those that are not clean.
    fn take_of(
        &mut self,
        backend: &dyn Backend,
        layout: &Layout,
        free: Vec<(PhysBlock, BlockInfo)>,
        wanted: usize,
        issued: &mut Nanos,
    ) -> Result<Vec<PhysBlock>, LevelError> {
        let mut taken = Vec::with_capacity(wanted);
        for (place, info) in free {
            if taken.len() == wanted {
                break;
            }
            if info.state != BlockState::Free {
                match backend.erase(*issued, layout.address(place)) {
                    Ok(done) => *issued = done.done,
                    Err(FlashError::EraseFailed { done, .. }) => {
                        *issued = done;
                        continue;
                    }
                    Err(other) => {
                        taken.iter().for_each(|place| self.give_back(*place));
                        return Err(other.into());
                    }
                }
            }
            assert!(place.block >= layout.log_blocks_per_lun, "a block of the log is not given out");
            let was_used = std::mem::replace(&mut self.used[place.lun as usize][place.block as usize], true);
            assert!(!was_used, "a block that is taken was free");
            taken.push(place);
        }
        Ok(taken)
    }

    /// Gives a block back.
    pub fn give_back(&mut self, place: PhysBlock) {
        if !place.is_missing() {
            let was_used = std::mem::replace(&mut self.used[place.lun as usize][place.block as usize], false);
            assert!(was_used, "a block that is given back was taken");
        }
    }

    /// LUNs that no grant has and that have enough good blocks for one.
    pub fn free_luns(&self, backend: &dyn Backend, layout: &Layout) -> Result<Vec<LunUse>, LevelError> {
        let mut taken = vec![false; layout.shape.luns() as usize];
        self.records.grant_luns().for_each(|(_, row)| taken[row.home as usize] = true);
        if let Some(swap) = &self.records.swap {
            taken[swap.from as usize] = true;
            taken[swap.to as usize] = true;
        }
        let mut free = Vec::new();
        for lun in (0..layout.shape.luns()).filter(|lun| !taken[*lun as usize]) {
            let found = layout.use_of(backend, lun)?;
            if found.good >= layout.blocks_granted {
                free.push(found);
            }
        }
        Ok(free)
    }

    pub fn list(&self) -> Vec<GrantInfo> {
        let info = |(id, row): (&u32, &GrantRow)| GrantInfo {
            name: row.name.clone(),
            bytes: row.bytes,
            over_provisioning_permille: row.over_provisioning_permille,
            luns: row.luns.iter().map(|lun| lun.home).collect(),
            in_use: self.states.get(id).is_some_and(|state| state.is_in_use()),
        };
        self.records.grants.iter().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::records::{GrantLun, SwapRow};
    use crate::monitor::{GrantRequest, Monitor, MonitorSetup};
    use crate::raw::RawLevel;
    use weft_device::Geometry;
    use weft_device::nand::{FlashSetup, OpenChannel};

    /// Earlier versions reckoned with 64 bytes for a grant, and wrote deltas until no snapshot fitted any more.
    #[test]
    fn a_log_that_an_earlier_version_filled_with_deltas_opens_and_everything_can_be_read() {
        let geometry = Geometry {
            channels: 4,
            luns_per_channel: 64,
            planes: 1,
            pages_per_block: 3,
            ..Geometry::bbssd()
        };
        let geometry = geometry.with_size(256 * 8 * 3 * 4096);
        let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry)).unwrap());
        let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
        for number in 0..256_u64 {
            let request =
                GrantRequest { name: format!("{number:0255}"), bytes: 1, over_provisioning_permille: 0 };
            let raw = RawLevel::new(monitor.allocate(&request).unwrap());
            let page = crate::GrantBlock { channel: 0, lun: 0, block: 0 }.page(0);
            raw.page_write(Nanos(0), page, &[number as u8; 4096], &[]).unwrap();
        }
        {
            let mut guard = monitor.control.lock();
            let control = &mut *guard;
            let lun = |grant: &u32| GrantLun { grant: *grant, position: 0 };
            let grants: Vec<u32> = control.records.grants.keys().copied().collect();
            let home = |grant: &u32| control.records.grants[grant].luns[0].home;
            let (first, second) = (&grants[0], &grants[1]);
            let (from, to) = (home(first), home(second));
            let swap = SwapRow { first: lun(first), second: Some(lun(second)), from, to };
            let place = control.records.grants[&grants[2]].luns[0].places[0];
            let same = Change::PhysBlock { grant_lun: lun(&grants[2]), block: 0, place };
            control.records.apply(Change::SwapBegins(swap)).unwrap();
            let reckoned = 256 * 5 * super::super::layout::PLACE_BYTES + 64 * 256 + 1024;
            let mut media = DeviceLog::new(&*device, Nanos(0));
            let (records, log) = (&control.records, &mut control.log);
            log.commit(&mut media, &Change::SwapBegins(swap).encode(), || unreachable!(), reckoned).unwrap();
            let full = (0..2000).find_map(|_| {
                log.commit(&mut media, &same.encode(), || Ok(records.encode(&device.shape())), reckoned).err()
            });
            assert!(matches!(full, Some(LevelError::LogFull(_))), "{full:?}");
        }
        drop(monitor);
        for _ in 0..2 {
            let monitor = Monitor::open(device.clone()).unwrap();
            assert_eq!(monitor.grants().len(), 256);
            for number in 0..256_u64 {
                let raw = RawLevel::new(monitor.attach(&format!("{number:0255}")).unwrap());
                let page = crate::GrantBlock { channel: 0, lun: 0, block: 0 }.page(0);
                let mut data = [0; 4096];
                raw.page_read(Nanos(0), page, 0, &mut data, &mut []).unwrap();
                assert_eq!(data, [number as u8; 4096]);
            }
        }
    }
}
