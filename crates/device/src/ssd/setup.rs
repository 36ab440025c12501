//! The setup of a drive.

use super::error::SsdError;
use crate::gc::{MapperSetup, VictimPolicy};
use crate::nand::FlashSetup;
use serde::{Deserialize, Serialize};
use weft_core::BLOCK_BYTES;
use weft_core::codec::{Decode, Reader, Truncated, put};

/// Reclaim units that a drive has at least when their size is not said.
const UNITS_WANTED: u64 = 256;
/// Most placement handles.
const HANDLES_MAX: usize = 128;

/// What may share a reclaim unit with data of a placement handle after the drive has moved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Data of other initially isolated handles: what the drive moves is mixed.
    #[default]
    Initially,
    /// Nothing but data of the same handle.
    Persistently,
}

/// What a drive is made from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SsdSetup {
    /// The flash. A page has a whole number of 4 KiB blocks.
    pub flash: FlashSetup,
    /// Over-provisioning: (flash - capacity) / capacity, such as 0.07. The flash is that of all reclaim units; factory
    /// bad blocks and spares are not in it.
    pub over_provisioning: f64,
    /// How the drive chooses what it cleans.
    pub victim: VictimPolicy,
    /// Whether what a conventional drive moves gets open units of its own; else it shares those of new data.
    pub own_relocation_unit: bool,
    /// Free reclaim units below which the drive cleans.
    pub reserve_units: u32,
    /// LUNs of a reclaim unit, a divisor of all LUNs. `None` = as many as leave 256 reclaim units.
    pub luns_per_unit: Option<u32>,
    /// Erase blocks of each plane that are kept to replace bad ones.
    pub spare_blocks_per_plane: u32,
    /// Placement handles, each with its isolation; empty for a conventional drive.
    pub handles: Vec<Isolation>,
    /// What random choices are drawn from.
    pub seed: u64,
}

impl SsdSetup {
    /// A conventional drive: greedy cleaning, moved data apart from new data, two units in reserve, no spare blocks.
    pub fn conventional(flash: FlashSetup, over_provisioning: f64) -> SsdSetup {
        SsdSetup {
            flash,
            over_provisioning,
            victim: VictimPolicy::Greedy,
            own_relocation_unit: true,
            reserve_units: 2,
            luns_per_unit: None,
            spare_blocks_per_plane: 0,
            handles: Vec::new(),
            seed: 0,
        }
    }

    /// An FDP drive with so many placement handles, all initially isolated.
    pub fn fdp(flash: FlashSetup, over_provisioning: f64, handles: u16) -> SsdSetup {
        let handles = vec![Isolation::Initially; usize::from(handles)];
        SsdSetup { handles, ..SsdSetup::conventional(flash, over_provisioning) }
    }

    /// LUNs of a reclaim unit.
    pub fn unit_luns(&self) -> u32 {
        let shape = self.flash.shape();
        let luns = shape.luns();
        let units = |width: u32| u64::from(luns / width) * u64::from(shape.blocks_per_plane);
        self.luns_per_unit.unwrap_or_else(|| {
            (1..=luns)
                .rev()
                .find(|width| luns.is_multiple_of(*width) && units(*width) >= UNITS_WANTED)
                .unwrap_or(1)
        })
    }

    /// Write fronts: for each the front that its data is moved to. Fronts of new data come first.
    pub(super) fn fronts(&self) -> Vec<usize> {
        if self.handles.is_empty() {
            return if self.own_relocation_unit { vec![1, 1] } else { vec![0] };
        }
        let first = self.handles.len();
        let mut shared = None;
        let mut next = first;
        let mut fronts = Vec::new();
        for isolation in &self.handles {
            let known = shared.filter(|_| *isolation == Isolation::Initially);
            let target = known.unwrap_or(next);
            next = next.max(target + 1);
            if *isolation == Isolation::Initially {
                shared = Some(target);
            }
            fronts.push(target);
        }
        fronts.extend(first..next);
        fronts
    }

    /// The page map of a drive with so many reclaim units.
    pub(super) fn mapper(&self, units: u32) -> Result<MapperSetup, SsdError> {
        let bad = |what: String| Err(SsdError::BadSetup(what));
        if !(0.0..=10.0).contains(&self.over_provisioning) {
            return bad(format!("over_provisioning is {}; it has to be 0 to 10", self.over_provisioning));
        }
        if self.handles.len() > HANDLES_MAX {
            return bad(format!("{} placement handles; {HANDLES_MAX} is the most", self.handles.len()));
        }
        let shape = self.flash.shape();
        let slots = u64::from(self.unit_luns())
            * u64::from(shape.planes)
            * u64::from(shape.pages_per_block)
            * (u64::from(shape.page_bytes) / BLOCK_BYTES as u64);
        let all = slots * u64::from(units);
        let Ok(slots_per_block) = u32::try_from(slots) else {
            return bad(format!("a reclaim unit of {slots} blocks is too large; give luns_per_unit"));
        };
        if all >= u64::from(u32::MAX) {
            return bad(format!(
                "{all} blocks of 4 KiB are more than the map has room for; make the drive smaller"
            ));
        }
        let pages = (all as f64 / (1.0 + self.over_provisioning)) as u32;
        let (reserve_blocks, victim, seed) = (self.reserve_units, self.victim, self.seed);
        let relocation = self.fronts();
        let setup =
            MapperSetup { blocks: units, slots_per_block, pages, reserve_blocks, victim, relocation, seed };
        setup.validate::<crate::nand::FlashError>()?;
        Ok(setup)
    }
}

/// Version of the encoding.
const ENCODING_VERSION: u32 = 1;

impl SsdSetup {
    /// Everything but the flash, as an image keeps it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let victim = VictimPolicy::ALL.iter().position(|policy| *policy == self.victim);
        let values = [
            ENCODING_VERSION,
            if self.handles.is_empty() { 1 } else { 2 },
            victim.unwrap_or(0) as u32,
            u32::from(self.own_relocation_unit),
            self.reserve_units,
            self.unit_luns(),
            self.spare_blocks_per_plane,
            self.handles.len() as u32,
        ];
        put(&mut bytes, &[&values, &self.over_provisioning.to_bits(), &self.seed]);
        bytes.extend(self.handles.iter().map(|isolation| u8::from(*isolation == Isolation::Persistently)));
        bytes
    }

    /// Reads what [`encode`](SsdSetup::encode) wrote; the error names the value.
    pub(super) fn decode(bytes: &[u8], flash: FlashSetup) -> Result<SsdSetup, String> {
        let mut r = Reader::new(bytes);
        let mut fields = || Ok::<_, Truncated>((<[u32; 8]>::get(&mut r)?, r.u64()?, r.u64()?));
        let ([version, kind, victim, own, reserve_units, luns_per_unit, spares, handles], op, seed) =
            fields().map_err(|_| "what the drive was made from is cut short".to_string())?;
        if version != ENCODING_VERSION {
            return Err(format!("the drive has version {version}; this program reads {ENCODING_VERSION}"));
        }
        let (kinds, handles) = ([handles == 0, handles > 0], handles as usize);
        if kind == 0 || kinds.get(kind as usize - 1) != Some(&true) || handles > HANDLES_MAX {
            return Err(format!("a drive of kind {kind} with {handles} placement handles cannot be"));
        }
        let isolation = r.bytes(handles).map_err(|_| "the list of handles is cut short".to_string())?;
        let Some(victim) = VictimPolicy::ALL.get(victim as usize).copied() else {
            return Err(format!("victim policy {victim} is not known"));
        };
        Ok(SsdSetup {
            flash,
            over_provisioning: f64::from_bits(op),
            victim,
            own_relocation_unit: own == 1,
            reserve_units,
            luns_per_unit: Some(luns_per_unit),
            spare_blocks_per_plane: spares,
            handles: isolation
                .iter()
                .map(|byte| if *byte == 1 { Isolation::Persistently } else { Isolation::Initially })
                .collect(),
            seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;

    #[test]
    fn handles_that_are_initially_isolated_share_one_front_of_moved_data() {
        use Isolation::{Initially, Persistently};
        let flash = FlashSetup::new(Geometry::bbssd());
        let fronts = |handles: &[Isolation]| {
            SsdSetup { handles: handles.to_vec(), ..SsdSetup::conventional(flash.clone(), 0.1) }.fronts()
        };
        assert_eq!(fronts(&[]), [1, 1]);
        assert_eq!(fronts(&[Initially, Initially]), [2, 2, 2]);
        assert_eq!(fronts(&[Persistently, Initially, Persistently, Initially]), [4, 5, 6, 5, 4, 5, 6]);
        let shared = SsdSetup { own_relocation_unit: false, ..SsdSetup::conventional(flash, 0.1) };
        assert_eq!(shared.fronts(), [0]);
    }

    #[test]
    fn what_a_drive_was_made_from_survives_encoding() {
        use Isolation::{Initially, Persistently};
        let flash = FlashSetup::new(Geometry::bbssd());
        for handles in [vec![], vec![Persistently, Initially, Persistently]] {
            let setup = SsdSetup {
                handles,
                victim: VictimPolicy::Lru,
                luns_per_unit: Some(8),
                seed: 9,
                ..SsdSetup::conventional(flash.clone(), 0.125)
            };
            let bytes = setup.encode();
            assert_eq!(SsdSetup::decode(&bytes, flash.clone()), Ok(setup));
            for cut in 0..bytes.len() {
                assert!(SsdSetup::decode(&bytes[..cut], flash.clone()).is_err());
            }
            let mut other = bytes;
            other[4] ^= 3;
            assert!(SsdSetup::decode(&other, flash.clone()).unwrap_err().contains("kind"));
        }
    }

    #[test]
    fn reclaim_units_are_as_wide_as_leaves_256_of_them() {
        let flash = |size| FlashSetup::new(Geometry::bbssd().with_size(size));
        // 64 LUNs of blocks of 1 MiB.
        assert_eq!(SsdSetup::conventional(flash(16 << 30), 0.1).unit_luns(), 64);
        assert_eq!(SsdSetup::conventional(flash(1 << 30), 0.1).unit_luns(), 4);
        assert_eq!(SsdSetup::conventional(flash(64 << 20), 0.1).unit_luns(), 1);
    }
}
