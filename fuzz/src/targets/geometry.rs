//! Geometries: any text is a geometry of which a device can be made, or an error.

use super::Target;
use weft_device::{Geometry, ZonedDevice, ZonedModel};

/// Zones of the largest device that is made.
const ZONES_MAX: u64 = 4096;

/// See the module.
pub struct GeometryText;

impl Target for GeometryText {
    fn name(&self) -> &'static str {
        "geometry"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        [
            "preset = \"tlc\"\nsize = \"512M\"\nzone_size = \"8M\"\nopen_max = 8\n[timing]\npage_read_ns = 60000\n",
            "size = \"64M\"\nzone_size = \"1M\"\nzone_capacity = \"768K\"\npages_per_block = 64\nplanes = 2\n",
            "preset = \"slc\"\nchannels = 1\nluns_per_channel = 1\npage_size = \"4K\"\nactive_max = 4\nendurance = 3\n",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"preset = \"",
            b"zn540",
            b"bbssd",
            b"mlc",
            b"size = ",
            b"zone_size = ",
            b"zone_capacity = ",
            b"page_size = ",
            b"pages_per_block = ",
            b"planes = ",
            b"channels = ",
            b"luns_per_channel = ",
            b"open_max = ",
            b"active_max = ",
            b"endurance = ",
            b"[timing]\n",
            b"program_ns = ",
            b"erase_ns = ",
            b"channel_bytes_per_s = ",
            b"\"16E\"",
            b"\"4K\"",
            b"0",
            b"4294967295",
            b"9223372036854775807",
            b"\n",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let geometry = match Geometry::from_toml(text) {
            Ok(geometry) => geometry,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let info = geometry.zoned_info();
        assert!(u64::from(info.zones) == geometry.zones() && info.zone_capacity <= info.zone_blocks);
        assert!(info.zones > 0 && info.zone_capacity > 0 && info.open_max <= info.active_max);
        if geometry.zones() > ZONES_MAX {
            return;
        }
        let Ok(device) = ZonedModel::memory(&geometry) else { return };
        let block = [7; weft_core::BLOCK_BYTES];
        for zone in [0, info.zones - 1].map(weft_core::ZoneId) {
            let tag = weft_core::Tag::default();
            if device.append(zone, &block, &tag).is_ok() {
                let mut read = [0; weft_core::BLOCK_BYTES];
                assert!(device.read(zone, 0, &mut read).is_ok() && read == block);
                assert!(device.finish(zone).is_ok() && device.reset(zone).is_ok());
            }
        }
        assert!(device.verify_identity().is_ok());
    }
}
