//! The device image's own records: header, session, zone table, counters, flush log. Opening gives a device or an error,
//! and a device takes commands and can be opened again.

use super::Target;
use super::volume_file::{ImageFile, RECORD_BYTES, SESSION_AT, ZONES_AT, folder, geometry};
use crate::script::Script;
use weft_core::{BLOCK_BYTES, Tag, ZoneId};
use weft_device::{DeviceError, ZonedDevice, ZonedModel};

/// See the module.
pub struct ImageRecords {
    dir: tempfile::TempDir,
    /// An image at several moments of its life: open and closed.
    moments: Vec<Vec<u8>>,
}

fn expect<T>(what: &str, result: Result<T, DeviceError>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

impl ImageRecords {
    /// Makes the image.
    pub fn new() -> ImageRecords {
        let dir = folder();
        let path = dir.path().join("base");
        let device = expect("create", ZonedModel::create(&path, &geometry(), false, &mut |_, _| {}));
        let mut moments = Vec::new();
        let mut keep = || moments.push(std::fs::read(&path).unwrap_or_default());
        let block = |byte: u8| [byte; BLOCK_BYTES];
        for round in 0..3u8 {
            for zone in 0..10u32 {
                for at in 0..=zone as u8 {
                    let tag = Tag::default();
                    let _ =
                        device.append(ZoneId((zone + u32::from(round) * 3) % 20), &block(at ^ round), &tag);
                }
                if zone % 3 == 0 {
                    expect("flush", device.flush());
                }
            }
            let _ = device.finish(ZoneId(u32::from(round)));
            let _ = device.reset(ZoneId(u32::from(round) + 5));
            keep();
        }
        drop(device);
        keep();
        ImageRecords { dir, moments }
    }

    fn damage(&self, file: &mut ImageFile, script: &mut Script<'_>) {
        let zones = file.zones();
        match script.below(16) {
            0 => {
                let at = script.below(file.base());
                file.bytes[at] ^= 1 << (script.byte() & 7);
            }
            1 => {
                let at = script.below(file.base());
                let bytes = script.bytes(32);
                file.put(at, &bytes);
            }
            2 | 3 => {
                // A field of the header.
                let at = 8 + script.below(140);
                let value = script.number().to_le_bytes();
                let len = script.of(&[1, 4, 8]);
                file.put(at, &value[..len]);
                file.seal_header();
            }
            4 => {
                let at = SESSION_AT + script.below(60);
                let bytes = script.bytes(16);
                file.put(at, &bytes);
                file.seal_session();
            }
            5..9 => {
                let (zone, word, value) = (script.below(zones + 1), script.below(14), script.number());
                // Words 0 to 3 are two halves.
                let value = if word < 4 && script.byte() & 1 == 0 {
                    value << 32 | script.number() & 0xffff
                } else {
                    value
                };
                file.set_word(zone, word, value);
                if zone < zones && script.byte() & 3 != 0 {
                    file.settle(zone);
                }
            }
            9 => {
                // Which slot counts.
                let at = file.record_at(script.below(zones + 1));
                let bytes = script.bytes(8);
                file.put(at, &bytes);
            }
            10 => {
                let (a, b) = (script.below(zones), script.below(zones));
                let (from, to) = (file.record_at(a), file.record_at(b));
                let record = file.bytes[from..from + RECORD_BYTES].to_vec();
                file.put(to, &record);
                if script.byte() & 1 == 0 {
                    file.seal_record(b);
                }
            }
            11 => {
                // Records of another moment, all or one.
                let moment = script.below(self.moments.len());
                let (from, len) = match script.below(2) {
                    0 => (ZONES_AT, zones * RECORD_BYTES),
                    _ => (file.record_at(script.below(zones)), RECORD_BYTES),
                };
                let old = self.moments[moment][from..from + len].to_vec();
                file.put(from, &old);
            }
            12 => file.crash_host(),
            13 => {
                file.crash_host();
                file.log_entry(script);
            }
            14 => {
                let at = file.log_at() + script.below(16 * BLOCK_BYTES);
                let bytes = script.bytes(64);
                file.put(at, &bytes);
            }
            _ => {
                let len = script.below(file.bytes.len() + 1);
                // Most of them whole, or nothing else is ever looked at.
                if script.below(4) == 0 {
                    file.bytes.truncate(len.max(16_384));
                    file.bytes.resize(len.max(16_384) + script.below(3) * 4096, 0);
                }
            }
        }
    }
}

impl Target for ImageRecords {
    fn name(&self) -> &'static str {
        "image"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds: Vec<Vec<u8>> =
            (0..16).map(|kind| vec![0, kind, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3]).collect();
        seeds.push(vec![3]);
        seeds
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let moment = script.below(self.moments.len());
        let mut file = ImageFile::new(&self.dir.path().join("damaged"), &self.moments[moment]);
        for _ in 0..8 {
            // What was cut short is not cut further.
            if script.is_over() || file.bytes.len() < self.moments[moment].len() {
                break;
            }
            self.damage(&mut file, &mut script);
        }
        file.write();
        let device = match ZonedModel::open(&file.path) {
            Ok(device) => device,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        use_it(&device);
        drop(device);
        // It was closed in order.
        let device = expect("opened again", ZonedModel::open_to_look(&file.path));
        use_it(&device);
    }
}

/// Every command on every zone. Refusals are well; contradictions are not.
fn use_it(device: &ZonedModel) {
    let info = device.info();
    let mut block = vec![0; BLOCK_BYTES];
    let _ = device.verify_identity();
    for zone in (0..info.zones).map(ZoneId) {
        let report = expect("report", device.report(zone));
        assert!(report.write_pointer <= info.zone_capacity, "{zone}: {report:?}");
        if report.write_pointer > 0 {
            for at in [0, report.write_pointer - 1] {
                let _ = device.read(zone, at, &mut block);
            }
        }
        assert!(device.read(zone, info.zone_capacity, &mut block).is_err());
        if zone.0 % 3 == 0 {
            let _ = device.append(zone, &block, &Tag::default());
        } else if zone.0 % 3 == 1 {
            let _ = device.reset(zone).is_ok() && device.write(zone, 0, &block, &Tag::default()).is_ok();
        }
    }
    expect("flush", device.flush());
    let _ = device.counters();
}
