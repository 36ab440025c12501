//! The setup of a device: its geometry, and the options of the open-channel presentation.

use super::address::FlashShape;
use crate::geometry::Geometry;
use crate::timing::NS_MAX;
use crate::{DeviceError, Timing};
use serde::Serialize;

/// Out-of-band bytes of a page when nothing is said: room for what a translation layer keeps of each 4 KiB.
pub const OOB_BYTES_DEFAULT: u32 = 64;
/// Most out-of-band bytes of a page.
const OOB_BYTES_MAX: u32 = 1 << 16;
/// Most erase blocks of a device.
const BLOCKS_MAX: u64 = 1 << 28;

/// What a device in memory keeps of programmed pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Data and out-of-band bytes.
    #[default]
    All,
    /// Out-of-band bytes; data reads as zero. Programs may give empty data.
    Oob,
    /// Nothing; everything reads as zero. Programs may give empty data. For simulations.
    Nothing,
}

/// How long the array works on a page of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PageTimes {
    /// Read, in nanoseconds.
    pub read_ns: u64,
    /// Program, in nanoseconds.
    pub program_ns: u64,
}

/// Two pages of a block that share their cells: a cell stores one bit of each.
///
/// Pages come in groups of `2 x stride`: the first `stride` are LSB pages, the rest are the MSB pages of them. A power
/// cut in the program of an MSB page destroys its LSB page too, although that one was programmed long before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Pairing {
    /// Pages from an LSB page to its MSB page.
    pub stride: u32,
    /// Times of LSB pages.
    pub lsb: PageTimes,
    /// Times of MSB pages.
    pub msb: PageTimes,
}

impl Pairing {
    /// The pages of Micron's L95B, an MLC part, in FEMU's table (`hw/femu/nand/nand.h`): LSB 48 us and 0.85 ms, MSB
    /// 64 us and 2.3 ms; four pages apart.
    pub fn mlc() -> Pairing {
        Pairing {
            stride: 4,
            lsb: PageTimes { read_ns: 48_000, program_ns: 850_000 },
            msb: PageTimes { read_ns: 64_000, program_ns: 2_300_000 },
        }
    }

    /// Pairs of pages that take the same time, that of the geometry.
    pub fn even(stride: u32, timing: &Timing) -> Pairing {
        let times = PageTimes { read_ns: timing.page_read_ns, program_ns: timing.program_ns };
        Pairing { stride, lsb: times, msb: times }
    }

    /// The LSB page of this page; `None` when it is one itself.
    pub fn lsb_of(&self, page: u32) -> Option<u32> {
        (page % (2 * self.stride) >= self.stride).then(|| page - self.stride)
    }

    pub(crate) fn times(&self, page: u32) -> PageTimes {
        if self.lsb_of(page).is_some() { self.msb } else { self.lsb }
    }
}

/// What a device is made from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlashSetup {
    /// Shape, endurance and timing. Its fields about zones do not matter here. The blocks of a plane follow from
    /// `total_bytes`, rounded down.
    pub geometry: Geometry,
    /// Out-of-band bytes of a page.
    pub oob_bytes: u32,
    /// Pages that share cells; `None` when each page has its own.
    pub pairing: Option<Pairing>,
    /// What a device in memory keeps of pages; an image keeps all.
    pub keep: Keep,
}

impl FlashSetup {
    /// This geometry with 64 out-of-band bytes a page, no pairing, and everything kept.
    pub fn new(geometry: Geometry) -> FlashSetup {
        FlashSetup { geometry, oob_bytes: OOB_BYTES_DEFAULT, pairing: None, keep: Keep::All }
    }

    /// The same device, keeping this of its pages.
    pub fn keeping(self, keep: Keep) -> FlashSetup {
        FlashSetup { keep, ..self }
    }

    /// How many of everything the device has.
    pub fn shape(&self) -> FlashShape {
        let g = &self.geometry;
        FlashShape {
            channels: g.channels,
            luns_per_channel: g.luns_per_channel,
            planes: g.planes,
            blocks_per_plane: u32::try_from(g.blocks_per_plane()).unwrap_or(u32::MAX),
            pages_per_block: g.pages_per_block,
            page_bytes: g.page_bytes,
            oob_bytes: self.oob_bytes,
        }
    }

    /// Judges the setup; the error names the value and the remedy.
    pub fn validate(&self) -> Result<(), DeviceError> {
        let bad = |what: String| Err(DeviceError::BadGeometry(what));
        let g = &self.geometry;
        g.validate_flash()?;
        let row = g.group_bytes() * u64::from(g.luns());
        let blocks = g.blocks_per_plane().saturating_mul(u64::from(g.luns()) * u64::from(g.planes));
        if blocks == 0 {
            return bad(format!(
                "{} bytes are less than one erase block in each plane of each LUN ({row} bytes); give at least that",
                g.total_bytes
            ));
        }
        if blocks > BLOCKS_MAX {
            return bad(format!("the device would have {blocks} erase blocks; {BLOCKS_MAX} is the most"));
        }
        if self.oob_bytes > OOB_BYTES_MAX {
            return bad(format!("oob_bytes is {}; {OOB_BYTES_MAX} is the most", self.oob_bytes));
        }
        if let Some(pairing) = self.pairing
            && (pairing.stride == 0 || u64::from(g.pages_per_block) % (2 * u64::from(pairing.stride)) != 0)
        {
            return bad(format!(
                "pairing.stride is {}, and the {} pages of a block are not a multiple of twice that; choose a stride \
                 that divides them",
                pairing.stride, g.pages_per_block
            ));
        }
        for PageTimes { read_ns, program_ns } in self.pairing.iter().flat_map(|pairs| [pairs.lsb, pairs.msb])
        {
            let longest = read_ns.max(program_ns);
            if longest > NS_MAX {
                return bad(format!(
                    "a time of paired pages is {longest} ns; a minute ({NS_MAX}) is the most"
                ));
            }
        }
        Ok(())
    }
}
