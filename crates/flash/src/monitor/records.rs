//! The records in the monitor's log: the master copy of grants and their blocks, and the changes to it.

use super::layout::{Layout, PhysBlock};
use crate::error::LevelError;
use std::collections::BTreeMap;
use weft_core::codec::{Decode, Encode, Reader, Truncated, put};
use weft_core::coded;
use weft_device::nand::FlashShape;

const VERSION: u32 = 3;
/// The oldest version that is read: it has no place that is nowhere.
const VERSION_MIN: u32 = 1;
const NO_GRANT: u32 = u32::MAX;

/// A LUN of a grant: where its blocks are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LunRow {
    /// The channel of the grant.
    pub channel: u32,
    /// The physical LUN that it lies on, or lay on before a swap that is under way.
    pub home: u32,
    /// By block.
    pub places: Vec<PhysBlock>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GrantRow {
    pub name: String,
    pub bytes: u64,
    pub over_provisioning_permille: u32,
    /// By position, round the channels.
    pub luns: Vec<LunRow>,
}

/// A LUN of a grant by the grant's number and its position there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct GrantLun {
    pub grant: u32,
    pub position: u32,
}

/// A swap under way: what `first` has on LUN `from` and what `second` has on LUN `to` change places. Without a second,
/// LUN `to` is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SwapRow {
    pub first: GrantLun,
    pub second: Option<GrantLun>,
    pub from: u32,
    pub to: u32,
}

impl SwapRow {
    /// What is left of the swap when a grant goes: the other one still moves, into room that is free now.
    fn without(self, grant: u32) -> Option<SwapRow> {
        let second = self.second.filter(|grant_lun| grant_lun.grant != grant);
        if self.first.grant != grant {
            return Some(SwapRow { second, ..self });
        }
        second.map(|first| SwapRow { first, second: None, from: self.to, to: self.from })
    }
}

/// All that lasts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Records {
    pub spares_per_lun: u32,
    pub next_grant: u32,
    pub grants: BTreeMap<u32, GrantRow>,
    pub swap: Option<SwapRow>,
}

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// A block has another place.
    PhysBlock { grant_lun: GrantLun, block: u32, place: PhysBlock },
    /// A swap begins.
    SwapBegins(SwapRow),
    /// One block of the swap: the new places.
    Swapped { block: u32, first: PhysBlock, second: Option<PhysBlock> },
    /// The swap is over.
    SwapEnds,
}

/// What was before a change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Undo {
    swap: Option<SwapRow>,
    places: Vec<(GrantLun, u32, PhysBlock)>,
    homes: Vec<(GrantLun, u32)>,
}

/// Bytes of a snapshot beside the grants: version, shape, spares, next grant, number of grants, and a swap.
const FIXED_BYTES: usize = 4 + 7 * 4 + 4 + 4 + 4 + 1 + 24;

/// Bytes of a grant in a snapshot, with so many LUNs and blocks altogether.
pub(super) fn grant_bytes(name: &str, luns: usize, blocks: usize) -> usize {
    4 + 4 + name.len() + 8 + 4 + 4 + luns * 12 + blocks * super::layout::PLACE_BYTES
}

impl Records {
    /// Bytes of a snapshot, with a swap under way.
    pub fn snapshot_bytes(&self) -> usize {
        let grant = |row: &GrantRow| {
            grant_bytes(&row.name, row.luns.len(), row.luns.iter().map(|lun| lun.places.len()).sum())
        };
        FIXED_BYTES + self.grants.values().map(grant).sum::<usize>()
    }

    /// Makes a change, and returns what takes it back.
    pub fn apply(&mut self, change: Change) -> Result<Undo, LevelError> {
        let mut undo = Undo { swap: self.swap, ..Undo::default() };
        match change {
            Change::PhysBlock { grant_lun, block, place } => self.put(&mut undo, grant_lun, block, place)?,
            Change::SwapBegins(swap) => {
                if self.swap.is_some() {
                    return Err(damaged("a swap of LUNs began while another was under way"));
                }
                self.swap = Some(swap);
            }
            Change::Swapped { block, first, second } => {
                let swap = self.swap.ok_or_else(|| damaged("a block was swapped outside a swap"))?;
                self.put(&mut undo, swap.first, block, first)?;
                if let (Some(grant_lun), Some(place)) = (swap.second, second) {
                    self.put(&mut undo, grant_lun, block, place)?;
                }
            }
            Change::SwapEnds => {
                let swap = self.swap.ok_or_else(|| damaged("a swap ended that had not begun"))?;
                let grant_luns = [(Some(swap.first), swap.to), (swap.second, swap.from)];
                for (grant_lun, home) in
                    grant_luns.into_iter().filter_map(|(grant_lun, home)| Some((grant_lun?, home)))
                {
                    let before = std::mem::replace(&mut self.lun_mut(grant_lun)?.home, home);
                    undo.homes.push((grant_lun, before));
                }
                self.swap = None;
            }
        }
        Ok(undo)
    }

    /// Takes a change back.
    pub fn undo(&mut self, undo: Undo) {
        self.swap = undo.swap;
        for (grant_lun, block, place) in undo.places {
            if let Ok(at) = self.place_mut(grant_lun, block) {
                *at = place;
            }
        }
        for (grant_lun, home) in undo.homes {
            if let Ok(lun) = self.lun_mut(grant_lun) {
                lun.home = home;
            }
        }
    }

    fn put(
        &mut self,
        undo: &mut Undo,
        grant_lun: GrantLun,
        block: u32,
        place: PhysBlock,
    ) -> Result<(), LevelError> {
        let before = std::mem::replace(self.place_mut(grant_lun, block)?, place);
        undo.places.push((grant_lun, block, before));
        Ok(())
    }

    /// Takes a grant out, and out of the swap that is under way.
    pub fn remove(&mut self, grant: u32) -> Option<GrantRow> {
        self.swap = self.swap.and_then(|swap| swap.without(grant));
        self.grants.remove(&grant)
    }

    fn lun_mut(&mut self, grant_lun: GrantLun) -> Result<&mut LunRow, LevelError> {
        let row = self
            .grants
            .get_mut(&grant_lun.grant)
            .and_then(|grant| grant.luns.get_mut(grant_lun.position as usize));
        row.ok_or_else(|| damaged("a record names a LUN that no grant has"))
    }

    fn place_mut(&mut self, grant_lun: GrantLun, block: u32) -> Result<&mut PhysBlock, LevelError> {
        let place = self.lun_mut(grant_lun)?.places.get_mut(block as usize);
        place.ok_or_else(|| damaged("a record names a block that no grant has"))
    }

    /// Blocks of flash that grants have.
    pub fn blocks_in_use(&self) -> usize {
        self.grant_luns().flat_map(|(_, row)| &row.places).filter(|place| !place.is_missing()).count()
    }

    /// Every LUN of every grant.
    pub fn grant_luns(&self) -> impl Iterator<Item = (GrantLun, &LunRow)> {
        self.grants.iter().flat_map(|(grant, row)| {
            let grant_lun = |position| GrantLun { grant: *grant, position: position as u32 };
            row.luns.iter().enumerate().map(move |(position, lun)| (grant_lun(position), lun))
        })
    }

    /// The snapshot: see `docs/formats/flash-levels.md`.
    pub fn encode(&self, shape: &FlashShape) -> Vec<u8> {
        let mut raw = Vec::new();
        let Records { spares_per_lun, next_grant, grants, swap } = self;
        put(&mut raw, &[&VERSION, &shape_fields(shape), spares_per_lun, next_grant, &(grants.len() as u32)]);
        grants.iter().for_each(|(id, grant)| put(&mut raw, &[id, grant]));
        put(&mut raw, &[&swap.is_some()]);
        swap.iter().for_each(|swap| swap.put(&mut raw));
        raw
    }

    /// What a snapshot says; to be judged by [`check`](Records::check) after the changes that follow it.
    pub fn decode(raw: &[u8], shape: &FlashShape) -> Result<Records, LevelError> {
        let mut reader = Reader::new(raw);
        let version = reader.u32().map_err(truncated)?;
        let unknown = |of, oldest| LevelError::UnknownVersion { of, found: version, oldest, newest: VERSION };
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(unknown("the flash monitor's record", VERSION_MIN));
        }
        // Older ones number the blocks of a LUN plane after plane.
        if version < 3 && shape.planes > 1 {
            return Err(unknown("the flash monitor's record, on a device with several planes,", 3));
        }
        let records = decode_fields(&mut reader, shape).map_err(truncated)?;
        records.ok_or_else(|| damaged("the monitor was made for a device of another shape"))
    }

    /// Refuses records that a monitor of this layout does not write: whatever names LUNs and blocks afterwards relies on
    /// them.
    pub fn check(&self, layout: &Layout) -> Result<(), LevelError> {
        let shape = &layout.shape;
        let mut used = vec![false; shape.blocks() as usize];
        let mut homes = vec![None; shape.luns() as usize];
        if self.next_grant == NO_GRANT || self.grants.keys().any(|id| *id >= self.next_grant) {
            return Err(damaged("the monitor's records have grants whose numbers are still to be given"));
        }
        if self.grants.values().any(|grant| grant.luns.is_empty()) {
            return Err(damaged("the monitor's records have a grant without LUNs"));
        }
        for (grant_lun, row) in self.grant_luns() {
            let fits = row.channel < shape.channels && row.places.len() == layout.blocks_granted as usize;
            match homes.get_mut(row.home as usize) {
                Some(home @ None) if fits => *home = Some(grant_lun),
                _ => return Err(damaged("the monitor's records name a LUN twice, or one that is not there")),
            }
            for place in &row.places {
                let blocks = layout.log_blocks_per_lun..shape.blocks_per_lun();
                let within = place.lun < shape.luns() && blocks.contains(&place.block);
                if place.is_missing() && place.lun < shape.luns() {
                    continue;
                }
                let number = place.lun as usize * shape.blocks_per_lun() as usize + place.block as usize;
                if !within || std::mem::replace(&mut used[number], true) {
                    return Err(damaged(
                        "the monitor's records name a block twice, or one that is not there",
                    ));
                }
            }
        }
        let Some(swap) = &self.swap else { return Ok(()) };
        let home = |lun: u32| homes.get(lun as usize).copied();
        if swap.from == swap.to
            || home(swap.from) != Some(Some(swap.first))
            || home(swap.to) != Some(swap.second)
        {
            return Err(damaged("a swap of LUNs names others than those that it exchanges"));
        }
        Ok(())
    }
}

fn decode_fields(reader: &mut Reader, shape: &FlashShape) -> Result<Option<Records>, Truncated> {
    for field in shape_fields(shape) {
        if reader.u32()? != field {
            return Ok(None);
        }
    }
    let mut records =
        Records { spares_per_lun: reader.u32()?, next_grant: reader.u32()?, ..Records::default() };
    for _ in 0..reader.u32()? {
        records.grants.insert(reader.u32()?, GrantRow::get(reader)?);
    }
    if bool::get(reader)? {
        records.swap = Some(SwapRow::get(reader)?);
    }
    Ok(Some(records))
}

impl Change {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        match self {
            Change::PhysBlock { grant_lun, block, place } => put(&mut raw, &[&1u8, grant_lun, block, place]),
            Change::SwapBegins(swap) => put(&mut raw, &[&2u8, swap]),
            Change::Swapped { block, first, second } => {
                put(&mut raw, &[&3u8, block, first, &second.is_some(), &second.unwrap_or_default()]);
            }
            Change::SwapEnds => put(&mut raw, &[&4u8]),
        }
        raw
    }

    pub fn decode(raw: &[u8]) -> Result<Change, LevelError> {
        let reader = &mut Reader::new(raw);
        let mut fields = || {
            Ok(match reader.u8()? {
                1 => {
                    let (grant_lun, block) = (GrantLun::get(reader)?, reader.u32()?);
                    let place = PhysBlock::get(reader)?;
                    grant_lun.known().map(|grant_lun| Change::PhysBlock { grant_lun, block, place })
                }
                2 => Some(Change::SwapBegins(SwapRow::get(reader)?)),
                3 => {
                    let (block, first) = (reader.u32()?, PhysBlock::get(reader)?);
                    let given = bool::get(reader)?;
                    let second = Some(PhysBlock::get(reader)?).filter(|_| given);
                    Some(Change::Swapped { block, first, second })
                }
                4 => Some(Change::SwapEnds),
                _ => None,
            })
        };
        let change = fields().map_err(truncated)?;
        change.ok_or_else(|| damaged("the monitor's log has a change of an unknown kind"))
    }
}

fn shape_fields(shape: &FlashShape) -> [u32; 7] {
    let FlashShape {
        channels,
        luns_per_channel,
        planes,
        blocks_per_plane,
        pages_per_block,
        page_bytes,
        oob_bytes,
    } = *shape;
    [channels, luns_per_channel, planes, blocks_per_plane, pages_per_block, page_bytes, oob_bytes]
}

coded! {
    PhysBlock { lun, block }
    GrantLun { grant, position }
    LunRow { channel, home, places }
    GrantRow { name, bytes, over_provisioning_permille, luns }
}

impl GrantLun {
    /// Where a record says that there is none.
    const NONE: GrantLun = GrantLun { grant: NO_GRANT, position: 0 };

    fn known(self) -> Option<GrantLun> {
        Some(self).filter(|grant_lun| grant_lun.grant != NO_GRANT)
    }
}

impl Encode for SwapRow {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, &[&self.first, &self.second.unwrap_or(GrantLun::NONE), &self.from, &self.to]);
    }
}

impl Decode<'_> for SwapRow {
    fn get(reader: &mut Reader<'_>) -> Result<SwapRow, Truncated> {
        let (first, second) = (GrantLun::get(reader)?, GrantLun::get(reader)?.known());
        Ok(SwapRow { first, second, from: reader.u32()?, to: reader.u32()? })
    }
}

fn truncated(error: Truncated) -> LevelError {
    LevelError::Damaged(format!("a record of the flash monitor: {error}"))
}

pub(super) fn damaged(what: &str) -> LevelError {
    LevelError::Damaged(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: FlashShape = FlashShape {
        channels: 2,
        luns_per_channel: 2,
        planes: 1,
        blocks_per_plane: 8,
        pages_per_block: 4,
        page_bytes: 4096,
        oob_bytes: 64,
    };

    /// Two LUNs of one grant that are being exchanged.
    fn exchange() -> Records {
        let lun = |home| LunRow {
            channel: 1,
            home,
            places: (2..6).map(|block| PhysBlock { lun: home, block }).collect(),
        };
        let row = GrantRow {
            name: "cache".into(),
            bytes: 9,
            over_provisioning_permille: 70,
            luns: vec![lun(0), lun(3)],
        };
        let grant_lun = GrantLun { grant: 4, position: 1 };
        let swap =
            SwapRow { first: grant_lun, second: Some(GrantLun { position: 0, ..grant_lun }), from: 3, to: 0 };
        Records { spares_per_lun: 2, next_grant: 5, grants: BTreeMap::from([(4, row)]), swap: Some(swap) }
    }

    #[test]
    fn records_that_no_monitor_writes_are_refused() {
        let layout = Layout { shape: SHAPE, log_blocks_per_lun: 2, spares_per_lun: 2, blocks_granted: 4 };
        exchange().check(&layout).unwrap();
        let changed = |change: fn(&mut Records)| {
            let mut records = exchange();
            change(&mut records);
            records.check(&layout)
        };
        for (what, change) in [
            ("a number that is still to be given", (|r| r.next_grant = 4) as fn(&mut Records)),
            ("the number that is no grant's", |r| r.next_grant = NO_GRANT),
            ("a grant without LUNs", |r| r.grants.get_mut(&4).unwrap().luns.clear()),
            ("a channel that is not there", |r| r.grants.get_mut(&4).unwrap().luns[0].channel = 2),
            ("a LUN with too few blocks", |r| r.grants.get_mut(&4).unwrap().luns[0].places.truncate(3)),
            ("a LUN that is not there", |r| r.grants.get_mut(&4).unwrap().luns[0].home = 4),
            ("one LUN twice", |r| r.grants.get_mut(&4).unwrap().luns[0].home = 3),
            ("a block of the log", |r| r.grants.get_mut(&4).unwrap().luns[0].places[0].block = 1),
            ("a block that is not there", |r| r.grants.get_mut(&4).unwrap().luns[0].places[0].block = 8),
            ("one block twice", |r| r.grants.get_mut(&4).unwrap().luns[0].places[0].block = 3),
            ("a swap of a LUN with itself", |r| {
                let swap = r.swap.as_mut().unwrap();
                (swap.to, swap.second) = (swap.from, Some(swap.first));
            }),
            ("a swap of another LUN", |r| r.swap.as_mut().unwrap().from = 1),
            ("a swap with a LUN that is said to be free", |r| r.swap.as_mut().unwrap().second = None),
        ] {
            assert!(matches!(changed(change), Err(LevelError::Damaged(_))), "{what}");
        }
    }

    #[test]
    fn a_swap_never_begins_over_another() {
        let mut records = exchange();
        let swap = records.swap.unwrap();
        assert!(matches!(records.apply(Change::SwapBegins(swap)), Err(LevelError::Damaged(_))));
    }

    #[test]
    fn records_that_number_blocks_plane_after_plane_are_read_of_devices_with_one_plane() {
        for (planes, read) in [(1, true), (2, false)] {
            let shape = FlashShape { planes, ..SHAPE };
            let mut raw = exchange().encode(&shape);
            raw[..4].copy_from_slice(&2_u32.to_le_bytes());
            let records = Records::decode(&raw, &shape);
            assert_eq!(records.is_ok(), read);
            assert!(read || matches!(records, Err(LevelError::UnknownVersion { found: 2, oldest: 3, .. })));
        }
    }

    #[test]
    fn records_and_changes_are_read_back_and_no_cut_of_them_panics() {
        let records = exchange();
        let (grant_lun, swap) = (GrantLun { grant: 4, position: 1 }, records.swap.unwrap());
        let raw = records.encode(&SHAPE);
        assert_eq!(raw.len(), records.snapshot_bytes());
        assert_eq!(Records::decode(&raw, &SHAPE).unwrap(), records);
        (0..raw.len()).for_each(|at| assert!(Records::decode(&raw[..at], &SHAPE).is_err()));
        let place = PhysBlock { lun: 1, block: 2 };
        for change in [
            Change::PhysBlock { grant_lun, block: 1, place },
            Change::SwapBegins(swap),
            Change::Swapped { block: 1, first: place, second: None },
            Change::SwapEnds,
        ] {
            let raw = change.encode();
            assert_eq!(Change::decode(&raw).unwrap(), change);
            (0..raw.len()).for_each(|at| assert!(Change::decode(&raw[..at]).is_err()));
        }
    }
}
