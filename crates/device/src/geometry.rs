//! The shape of a modelled flash device: channels, LUNs, planes, blocks, pages, and the zones laid over them.
//!
//! ```text
//!  zone = n erase-block groups, each on one LUN        group = one erase block in every plane of that LUN
//!
//!            LUN 0      LUN 1      LUN 2   ...         program unit = one page in every plane, programmed at once
//!  unit  0 [ pages ]  1 [ pages ]  2 [ pages ]         units of a zone go round the LUNs of the zone
//!  unit  3 [ pages ]  4 [ pages ]  5 [ pages ]
//! ```
//!
//! A geometry comes from a named preset, is adjusted by size and zone size, and can be overridden field by field in
//! TOML. [`Geometry::validate`] is the one place where it is judged.

use crate::DeviceError;
use crate::timing::{Timing, TimingFile};
use crate::zoned::ZonedInfo;
use serde::{Deserialize, Serialize};
use weft_core::BLOCK_BYTES;
use weft_core::units::{format_size, parse_size};

/// Fewest zones that a device may have.
pub const ZONES_MIN: u64 = 4;
/// Most zones that a device may have.
pub const ZONES_MAX: u64 = 1 << 24;
/// Largest zone, in bytes.
pub const ZONE_BYTES_MAX: u64 = 1 << 40;
/// Zone size of a preset when none is said, in bytes.
pub const ZONE_BYTES_DEFAULT: u64 = 4 << 20;
/// Device size of a preset when none is said, in bytes.
pub const TOTAL_BYTES_DEFAULT: u64 = 1 << 30;
/// Most channels, LUNs per channel, or planes.
const PARALLEL_MAX: u32 = 1 << 10;

/// Most pages of an erase block.
const PAGES_PER_BLOCK_MAX: u32 = 1 << 16;

/// The shape, limits and timing of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Geometry {
    /// Bytes of the device. Rounded down to whole zones; the rest is not used.
    pub total_bytes: u64,
    /// Bytes from the start of one zone to the start of the next.
    pub zone_bytes: u64,
    /// Writable bytes of a zone: a whole number of erase-block groups.
    pub zone_capacity_bytes: u64,
    /// Channels.
    pub channels: u32,
    /// LUNs (dies) on each channel.
    pub luns_per_channel: u32,
    /// Planes of a LUN; a program or an erase works on all of them at once.
    pub planes: u32,
    /// Flash pages of an erase block.
    pub pages_per_block: u32,
    /// Bytes of a flash page, a multiple of the 4 KiB block.
    pub page_bytes: u32,
    /// Zones that may be open at once.
    pub open_max: u32,
    /// Zones that may be active at once.
    pub active_max: u32,
    /// Erases that a block stands; 0 = without limit.
    pub endurance: u32,
    /// How long flash operations take.
    pub timing: Timing,
}

/// Names of the presets, in the order in which help shows them.
pub const PRESETS: [&str; 6] = ["zn540", "tlc", "mlc", "slc", "qlc", "bbssd"];

impl Geometry {
    /// The preset with this name, 1 GiB in zones of 4 MiB.
    pub fn preset(name: &str) -> Result<Geometry, DeviceError> {
        match name {
            "zn540" => Ok(Geometry::zn540()),
            "tlc" => Ok(Geometry::tlc()),
            "mlc" => Ok(Geometry::mlc()),
            "slc" => Ok(Geometry::slc()),
            "qlc" => Ok(Geometry::qlc()),
            "bbssd" => Ok(Geometry::bbssd()),
            _ => Err(bad(format!("no preset is named '{name}'; there are {}", PRESETS.join(", ")))),
        }
    }

    /// Western Digital ZN540, a TLC drive for ZNS: 8 channels of 4 LUNs, pages of 32 KiB, 14 open and 14 active zones.
    ///
    /// Source: NVMeVirt (snu-csl/nvmevirt, `ssd_config.h`, `WD_ZN540`). That configuration programs three pages in one
    /// shot; here the program unit is one page, so that small zones divide evenly. It models no erase time: 3 ms is
    /// that of the TLC table of FEMU (`hw/femu/nand/nand.h`). The zones of the drive are 2 GiB; the preset's are
    /// 4 MiB, since emulated volumes are small.
    pub fn zn540() -> Geometry {
        Geometry {
            luns_per_channel: 4,
            page_bytes: 32 << 10,
            endurance: 3_000,
            timing: Timing {
                page_read_ns: 58_000,
                program_ns: 561_000,
                erase_ns: 3_000_000,
                channel_bytes_per_s: 450_000_000,
                host_bytes_per_s: 3_050_000_000,
                ..Timing::COMMON
            },
            ..Geometry::common()
        }
    }

    /// A TLC device: the mean over the three pages of a cell of FEMU's table (`hw/femu/nand/nand.h`, after SimpleSSD):
    /// read 56.5, 77.5, 106 us; program 0.82, 2.225, 5.734 ms; erase 3 ms; 52.4 us to transfer a 16 KiB page.
    pub fn tlc() -> Geometry {
        Geometry {
            planes: 2,
            page_bytes: 16 << 10,
            endurance: 3_000,
            timing: Timing {
                page_read_ns: 80_000,
                program_ns: 2_926_000,
                erase_ns: 3_000_000,
                channel_bytes_per_s: 312_000_000,
                ..Timing::COMMON
            },
            ..Geometry::common()
        }
    }

    /// An MLC device: the mean over both pages of a cell of FEMU's table (`hw/femu/nand/nand.h`, Micron L95B): read 48
    /// and 64 us; program 0.85 and 2.3 ms; erase 3 ms; 52.4 us to transfer a 16 KiB page.
    pub fn mlc() -> Geometry {
        let tlc = Geometry::tlc();
        let timing = Timing { page_read_ns: 56_000, program_ns: 1_575_000, ..tlc.timing };
        Geometry { endurance: 10_000, timing, ..tlc }
    }

    /// An SLC device, of FEMU's table (`hw/femu/nand/nand.h`): read 40 us, program 800 us, erase 2 ms, 20 us to
    /// transfer a page, here of 8 KiB.
    pub fn slc() -> Geometry {
        let timing = Timing {
            page_read_ns: 40_000,
            program_ns: 800_000,
            erase_ns: 2_000_000,
            channel_bytes_per_s: 409_600_000,
            ..Timing::COMMON
        };
        Geometry { page_bytes: 8 << 10, endurance: 100_000, timing, ..Geometry::tlc() }
    }

    /// A QLC device: FEMU derives QLC (`hw/femu/nand/nand.h`) from its TLC table by factors of 1.05 to 1.6; taken here
    /// are 1.3 for read and 1.6 for program.
    pub fn qlc() -> Geometry {
        let tlc = Geometry::tlc();
        let timing = Timing { page_read_ns: 104_000, program_ns: 4_682_000, ..tlc.timing };
        Geometry { endurance: 1_000, timing, ..tlc }
    }

    /// The default of FEMU's black-box SSD (`hw/femu/femu.c`): 8 channels of 8 LUNs, 256 pages of 4 KiB to a block,
    /// 40 us, 200 us and 2 ms. Its channel transfer takes no time; here the channel has 1.2 GB/s.
    pub fn bbssd() -> Geometry {
        Geometry {
            pages_per_block: 256,
            page_bytes: 4 << 10,
            timing: Timing {
                page_read_ns: 40_000,
                program_ns: 200_000,
                erase_ns: 2_000_000,
                channel_bytes_per_s: 1_200_000_000,
                ..Timing::COMMON
            },
            ..Geometry::common()
        }
    }

    /// What presets have in common.
    fn common() -> Geometry {
        Geometry {
            total_bytes: TOTAL_BYTES_DEFAULT,
            zone_bytes: ZONE_BYTES_DEFAULT,
            zone_capacity_bytes: ZONE_BYTES_DEFAULT,
            channels: 8,
            luns_per_channel: 8,
            planes: 1,
            pages_per_block: 128,
            page_bytes: BLOCK_BYTES as u32,
            open_max: 14,
            active_max: 14,
            endurance: 0,
            timing: Timing::COMMON,
        }
    }

    /// The same device with this many bytes.
    pub fn with_size(self, total_bytes: u64) -> Geometry {
        Geometry { total_bytes, ..self }
    }

    /// The same device with zones of this many bytes, all of them writable. When whole erase blocks do not fill such a
    /// zone, the block gets as many pages fewer as it takes.
    pub fn with_zone_bytes(self, zone_bytes: u64) -> Geometry {
        Geometry { zone_bytes, zone_capacity_bytes: zone_bytes, ..self }.with_blocks_that_fill_a_zone()
    }

    fn with_blocks_that_fill_a_zone(self) -> Geometry {
        // Nothing is validated yet, so the products may be as large as the fields allow.
        let unit = u128::from(self.page_bytes) * u128::from(self.planes);
        if unit == 0 {
            return self;
        }
        let fits =
            |pages: &u32| u128::from(self.zone_capacity_bytes).is_multiple_of(u128::from(*pages) * unit);
        let most = self.pages_per_block.min(PAGES_PER_BLOCK_MAX);
        let pages_per_block = (1..=most).rev().find(fits).unwrap_or(self.pages_per_block);
        Geometry { pages_per_block, ..self }
    }

    /// Reads a geometry from TOML: an optional `preset` (else `zn540`) and any field of it.
    ///
    /// ```
    /// # use weft_device::Geometry;
    /// let geometry = Geometry::from_toml(
    ///     r#"
    ///     preset = "tlc"
    ///     size = "512M"
    ///     zone_size = "8M"
    ///     open_max = 8
    ///     [timing]
    ///     page_read_ns = 60000
    ///     "#,
    /// )?;
    /// assert_eq!(geometry.zones(), 64);
    /// # Ok::<(), weft_device::DeviceError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Geometry, DeviceError> {
        let file: GeometryFile =
            toml::from_str(text).map_err(|e| bad(e.to_string().trim_end().to_string()))?;
        let mut g = Geometry::preset(file.preset.as_deref().unwrap_or("zn540"))?;
        macro_rules! take {
            ($($field:ident),*) => {$( if let Some(v) = file.$field { g.$field = v; } )*};
        }
        take!(channels, luns_per_channel, planes, open_max, active_max, endurance);
        if let Some(size) = file.size {
            g.total_bytes = size.bytes("size")?;
        }
        if let Some(size) = file.page_size {
            g.page_bytes = u32::try_from(size.bytes("page_size")?)
                .map_err(|_| bad("page_size is over 4 GiB; flash pages have 4 KiB to 64 KiB".into()))?;
        }
        if let Some(size) = file.zone_size {
            g.zone_bytes = size.bytes("zone_size")?;
        }
        g.zone_capacity_bytes = match file.zone_capacity {
            Some(size) => size.bytes("zone_capacity")?,
            None => g.zone_bytes,
        };
        g = match file.pages_per_block {
            Some(pages_per_block) => Geometry { pages_per_block, ..g },
            None => g.with_blocks_that_fill_a_zone(),
        };
        file.timing.apply(&mut g.timing);
        g.validate()?;
        Ok(g)
    }

    /// Judges the geometry with its zones; the error names the value and the remedy.
    pub fn validate(&self) -> Result<(), DeviceError> {
        self.validate_flash()?;
        let block = BLOCK_BYTES as u64;
        if self.zone_bytes == 0 || !self.zone_bytes.is_multiple_of(block) || self.zone_bytes > ZONE_BYTES_MAX
        {
            return Err(bad(format!(
                "zone_size is {} bytes; it has to be a multiple of 4096, 1 TiB at most",
                self.zone_bytes
            )));
        }
        if self.zone_capacity_bytes > self.zone_bytes {
            return Err(bad(format!(
                "zone_capacity ({}) is over zone_size ({}); lower it",
                format_size(self.zone_capacity_bytes),
                format_size(self.zone_bytes)
            )));
        }
        if self.zone_capacity_bytes == 0 || !self.zone_capacity_bytes.is_multiple_of(self.group_bytes()) {
            return Err(bad(format!(
                "zone_capacity ({} bytes) is not a whole number of erase-block groups of {} bytes ({} planes x {} \
                 pages x {} bytes); choose a multiple of it, or fewer pages_per_block",
                self.zone_capacity_bytes,
                self.group_bytes(),
                self.planes,
                self.pages_per_block,
                self.page_bytes
            )));
        }
        if self.zones() < ZONES_MIN {
            return Err(bad(format!(
                "{} hold {} zones of {}, and {ZONES_MIN} is the least; give at least {}, or smaller zones",
                format_size(self.total_bytes),
                self.zones(),
                format_size(self.zone_bytes),
                format_size(ZONES_MIN * self.zone_bytes)
            )));
        }
        if self.zones() > ZONES_MAX {
            return Err(bad(format!(
                "{} make {} zones of {}, and {ZONES_MAX} is the most; take larger zones",
                format_size(self.total_bytes),
                self.zones(),
                format_size(self.zone_bytes)
            )));
        }
        if self.open_max == 0 || self.active_max < self.open_max {
            return Err(bad(format!(
                "open_max is {} and active_max {}; it has to be 1 <= open_max <= active_max",
                self.open_max, self.active_max
            )));
        }
        Ok(())
    }

    /// Judges all but the zones: what a presentation without zones needs.
    pub fn validate_flash(&self) -> Result<(), DeviceError> {
        for (name, value) in [
            ("channels", self.channels),
            ("luns_per_channel", self.luns_per_channel),
            ("planes", self.planes),
        ] {
            if !(1..=PARALLEL_MAX).contains(&value) {
                return Err(bad(format!("{name} is {value}; it has to be 1 to {PARALLEL_MAX}")));
            }
        }
        if self.page_bytes == 0
            || !self.page_bytes.is_multiple_of(BLOCK_BYTES as u32)
            || self.page_bytes > 1 << 20
        {
            return Err(bad(format!(
                "page_size is {} bytes; it has to be a multiple of 4096, 1 MiB at most",
                self.page_bytes
            )));
        }
        if !(1..=PAGES_PER_BLOCK_MAX).contains(&self.pages_per_block) {
            return Err(bad(format!(
                "pages_per_block is {}; it has to be 1 to {PAGES_PER_BLOCK_MAX}",
                self.pages_per_block
            )));
        }
        self.timing.validate()
    }

    /// Zones of the device.
    pub fn zones(&self) -> u64 {
        self.total_bytes / self.zone_bytes.max(1)
    }

    /// Bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.page_bytes)
    }

    /// Bytes of a program unit: one page in every plane of a LUN.
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.planes)
    }

    /// Bytes of an erase-block group: one erase block in every plane of a LUN.
    pub fn group_bytes(&self) -> u64 {
        self.block_bytes() * u64::from(self.planes)
    }

    /// Erase-block groups of a zone.
    pub fn groups_per_zone(&self) -> u64 {
        self.zone_capacity_bytes / self.group_bytes().max(1)
    }

    /// Erase blocks of a zone.
    pub fn blocks_per_zone(&self) -> u64 {
        self.groups_per_zone() * u64::from(self.planes)
    }

    /// LUNs of the device.
    pub fn luns(&self) -> u32 {
        self.channels * self.luns_per_channel
    }

    /// Erase blocks of a plane: what the device's bytes have room for, rounded down.
    pub fn blocks_per_plane(&self) -> u64 {
        let row = u128::from(self.group_bytes()) * u128::from(self.luns());
        u128::from(self.total_bytes).checked_div(row).unwrap_or(0) as u64
    }

    /// What the zoned interface shows of it.
    pub fn zoned_info(&self) -> ZonedInfo {
        let block = BLOCK_BYTES as u64;
        ZonedInfo {
            zones: self.zones() as u32,
            zone_blocks: (self.zone_bytes / block) as u32,
            zone_capacity: (self.zone_capacity_bytes / block) as u32,
            open_max: self.open_max,
            active_max: self.active_max,
        }
    }
}

fn bad(what: String) -> DeviceError {
    DeviceError::BadGeometry(what)
}

/// A size in TOML: a number of bytes, or text such as `"4M"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizeField {
    Bytes(u64),
    Text(String),
}

impl SizeField {
    fn bytes(self, field: &str) -> Result<u64, DeviceError> {
        match self {
            SizeField::Bytes(bytes) => Ok(bytes),
            SizeField::Text(text) => parse_size(&text).map_err(|e| bad(format!("{field}: {e}"))),
        }
    }
}

/// What a geometry file may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeometryFile {
    preset: Option<String>,
    size: Option<SizeField>,
    zone_size: Option<SizeField>,
    zone_capacity: Option<SizeField>,
    page_size: Option<SizeField>,
    channels: Option<u32>,
    luns_per_channel: Option<u32>,
    planes: Option<u32>,
    pages_per_block: Option<u32>,
    open_max: Option<u32>,
    active_max: Option<u32>,
    endurance: Option<u32>,
    #[serde(default)]
    timing: TimingFile,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_in_zones_of_1_to_16_mebibytes() {
        for name in PRESETS {
            for zone in [1u64 << 20, 4 << 20, 8 << 20, 16 << 20] {
                let g = Geometry::preset(name).unwrap().with_size(256 << 20).with_zone_bytes(zone);
                g.validate().unwrap_or_else(|e| panic!("{name} in zones of {zone}: {e}"));
                assert_eq!(g.zones(), (256 << 20) / zone);
                assert_eq!(g.zone_capacity_bytes, zone);
            }
        }
    }

    #[test]
    fn a_size_that_does_not_divide_is_rounded_down_to_whole_zones() {
        let g = Geometry::zn540().with_size((64 << 20) + 12345);
        g.validate().unwrap();
        assert_eq!(g.zoned_info().zones, 16);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_value_and_the_remedy() {
        let g = Geometry::zn540;
        let cases = [
            (g().with_size(8 << 20), "at least 16.0 MiB"),
            (g().with_zone_bytes(1000), "multiple of 4096"),
            (g().with_zone_bytes(20 << 10), "erase-block groups of"),
            (Geometry { zone_capacity_bytes: 8 << 20, ..g() }, "over zone_size"),
            (Geometry { open_max: 0, ..g() }, "open_max is 0"),
            (Geometry { active_max: 3, ..g() }, "active_max 3"),
            (Geometry { channels: 0, ..g() }, "channels is 0"),
            (Geometry { page_bytes: 5000, ..g() }, "page_size is 5000"),
            (Geometry { pages_per_block: 0, ..g() }, "pages_per_block is 0"),
            (Geometry { total_bytes: u64::MAX, ..g() }, "larger zones"),
        ];
        for (geometry, says) in cases {
            let error = geometry.validate().unwrap_err().to_string();
            assert!(error.contains(says), "'{error}' does not say '{says}'");
        }
    }

    #[test]
    fn toml_overrides_the_preset_and_unknown_fields_are_refused() {
        let g = Geometry::from_toml("size = '64M'\nzone_size = 1048576\n[timing]\nerase_ns = 7").unwrap();
        assert_eq!((g.zones(), g.timing.erase_ns, g.timing.program_ns), (64, 7, 561_000));
        for huge in
            ["planes = 4294967295", "page_size = 4294967295\nplanes = 4294967295", "channels = 4294967295"]
        {
            assert!(matches!(Geometry::from_toml(huge), Err(DeviceError::BadGeometry(_))), "{huge}");
        }
        assert!(Geometry::from_toml("colour = 'red'").unwrap_err().to_string().contains("colour"));
        assert!(Geometry::from_toml("preset = 'x'").unwrap_err().to_string().contains("zn540, tlc"));
        assert!(Geometry::from_toml("size = 'big'").unwrap_err().to_string().contains("size: 'big'"));
    }
}
