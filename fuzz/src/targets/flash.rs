//! An open-channel image with a monitor and three grants, one at each level: damaged or forged. Each step of opening gives
//! what was asked for or an error; what was opened takes commands; and of an image without forgeries no page is read as
//! another page's data.

use super::Target;
use super::flash_file::{FlashFile, SESSION_AT, setup};
use super::volume_file::folder;
use crate::script::Script;
use std::sync::Arc;
use weft_core::{Nanos, Tag, TagFlags};
use weft_device::gc::VictimPolicy;
use weft_device::nand::OpenChannel;
use weft_flash::function::Mapping;
use weft_flash::monitor::LevelPolicy;
use weft_flash::{
    FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
/// Logical pages of the two ranges of the policy level: one by page, one by block, and a gap between them.
const RANGES: [(u64, u64, RangeMapping); 2] = [(0, 40, RangeMapping::Page), (64, 24, RangeMapping::Block)];

/// See the module.
pub struct FlashImages {
    dir: tempfile::TempDir,
    /// An image at several moments of its life, open and closed.
    moments: Vec<Vec<u8>>,
}

fn expect<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn policy_setup() -> PolicySetup {
    PolicySetup { stripe: 1, streams: 1, checkpoint_pages: 48 }
}

/// Data that says whose it is.
fn data_of(page: u64, round: u8) -> Vec<u8> {
    let mut data = vec![round; PAGE];
    data[..8].copy_from_slice(&page.to_le_bytes());
    data
}

/// The tag that a page of the policy level has when it is written.
fn tag_of(page: u64) -> Tag {
    Tag { owner: page as u32, flags: TagFlags::SECURE_DELETE, ..Tag::default() }
}

impl FlashImages {
    /// Makes the image.
    pub fn new() -> FlashImages {
        let dir = folder();
        let path = dir.path().join("base");
        let device = Arc::new(expect("create", OpenChannel::create(&path, &setup(), false)));
        let monitor = expect("format", Monitor::format(device.clone(), MonitorSetup::default()));
        let grant = |name: &str, luns: u64| {
            let bytes = luns * monitor.lun_bytes();
            let request = GrantRequest { name: name.into(), bytes, over_provisioning_permille: 0 };
            expect("allocate", monitor.allocate(&request))
        };
        let mut moments = Vec::new();
        let mut keep = || moments.push(std::fs::read(&path).unwrap_or_default());
        let (raw, function) = (RawLevel::new(grant("raw", 1)), grant("function", 1));
        let function = expect("function", FunctionLevel::open(function));
        let policy = expect("policy", PolicyLevel::create(grant("policy", 2), policy_setup()));
        for (start, pages, mapping) in RANGES {
            let gc = VictimPolicy::Greedy;
            let range = RangePolicy { start, pages, mapping, gc, over_provisioning_permille: 300 };
            expect("range", policy.ftl_ioctl(&range));
        }
        for round in 0..3u8 {
            for number in 0..6 {
                let block = GrantBlock { channel: 0, lun: 0, block: number };
                let _ = raw.block_erase(T, block);
                for page in 0..4 {
                    let data = data_of(u64::from(page), round);
                    expect("raw", raw.page_write(T, block.page(page), &data, &[round; 16]));
                }
                let mapping = if number % 2 == 0 { Mapping::Block } else { Mapping::Page };
                let mapped = expect("mapper", function.address_mapper(T, 0, mapping, u64::from(number)));
                for page in 0..5 {
                    let data = data_of(u64::from(page), round);
                    expect("function", function.flash_write(T, mapped.block, page, &data));
                }
                if number > 2 {
                    expect("trim", function.flash_trim(mapped.block));
                }
            }
            for (start, pages, _) in RANGES {
                for page in (start..start + pages).filter(|page| round != 1 || page % 3 == 0) {
                    expect("write", policy.ftl_write(T, page, &data_of(page, round), tag_of(page)));
                }
            }
            expect("trim", policy.trim(T, 3, 2));
            expect("flush", policy.flush(T));
            if round == 1 {
                let often = LevelPolicy { max_over_mean: 1.0, gap_erases_min: 0, swaps_max: 1 };
                expect("leveling", monitor.level_wear(often, T));
            }
            keep();
        }
        drop((raw, function, policy, monitor, device));
        keep();
        FlashImages { dir, moments }
    }

    /// Damages it; true when there are forgeries: contents with right checksums.
    fn damage(&self, file: &mut FlashFile, script: &mut Script<'_>) -> bool {
        let (blocks, pages) = (file.blocks(), file.shape.pages_per_block as usize);
        match script.below(16) {
            0 => {
                let at = script.below(file.bytes.len());
                file.bytes[at] ^= 1 << (script.byte() & 7);
            }
            1 => {
                // A field of the header.
                let at = 8 + script.below(148);
                let value = script.number().to_le_bytes();
                let len = script.of(&[1, 4, 8]);
                file.put(at, &value[..len]);
                file.seal_header();
                return true;
            }
            2 => {
                let at = SESSION_AT + script.below(60);
                let bytes = script.bytes(16);
                file.put(at, &bytes);
                file.seal_session();
            }
            3 | 4 => {
                let (block, word, value) = (script.below(blocks + 1), script.below(5), script.number());
                let value = if script.byte() & 1 == 0 { value } else { value << 32 | script.number() & 0xff };
                file.set_word(block, word, value);
                return true;
            }
            5 => {
                // Which slot counts.
                let at = file.record_at(script.below(blocks + 1));
                let bytes = script.bytes(8);
                file.put(at, &bytes);
                return true;
            }
            6 => file.crash_host(),
            7 => {
                let at = file.page_at(script.below(blocks), script.below(pages)) + script.below(4200);
                let bytes = script.bytes(16);
                file.put(at, &bytes);
            }
            8 => {
                // A page of another place or another moment.
                let (from, to) = (script.below(blocks * pages), script.below(blocks * pages));
                let from = file.page_at(from / pages, from % pages);
                let moment = &self.moments[script.below(self.moments.len())];
                let page = moment[from..from + file.content_bytes()].to_vec();
                file.put(file.page_at(to / pages, to % pages), &page);
                if script.byte() & 1 == 0 {
                    file.seal_page(to / pages, to % pages);
                    return true;
                }
            }
            9..13 => {
                // A record of a log: the monitor's or the policy level's.
                let parts: Vec<(usize, usize)> = (0..blocks * pages)
                    .map(|at| (at / pages, at % pages))
                    .filter(|(block, page)| file.log_part(*block, *page).is_some())
                    .collect();
                if parts.is_empty() {
                    return false;
                }
                let (block, page) = parts[script.below(parts.len())];
                let Some((at, bytes)) = file.log_part(block, page) else { return false };
                for _ in 0..1 + script.below(3) {
                    let place = at + 8 + script.below(bytes - 8);
                    let value = script.number().to_le_bytes();
                    let len = script.of(&[1, 4, 8]);
                    file.put(place, &value[..len]);
                }
                file.seal_log_part(block, page);
                return true;
            }
            13 | 14 => {
                // What a level wrote beside a page.
                let (block, page) = (script.below(blocks), script.below(pages));
                let at = file.note_at(block, page) + script.below(36);
                let value = script.number().to_le_bytes();
                let len = script.of(&[1, 4, 8]);
                file.put(at, &value[..len]);
                file.seal_note(block, page);
                return true;
            }
            _ => {
                let len = script.below(file.bytes.len() + 1);
                // Most of them whole, or nothing else is ever looked at.
                if script.below(4) == 0 {
                    file.bytes.truncate(len.max(65_536));
                    return true;
                }
            }
        }
        false
    }
}

impl Target for FlashImages {
    fn name(&self) -> &'static str {
        "flash"
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
        let mut file = FlashFile::new(&self.dir.path().join("damaged"), &self.moments[moment]);
        let mut forged = false;
        for _ in 0..6 {
            // What was cut short is not cut further.
            if script.is_over() || file.bytes.len() < self.moments[moment].len() {
                break;
            }
            forged |= self.damage(&mut file, &mut script);
        }
        file.write();
        for _ in 0..2 {
            let device = match OpenChannel::open(&file.path) {
                Ok(device) => Arc::new(device),
                Err(error) => return assert!(!error.to_string().is_empty()),
            };
            if device.shape() != file.shape {
                // Of another device the levels are none, but it is a device.
                return use_device(&device);
            }
            if let Ok(monitor) = told(Monitor::open(device.clone())) {
                use_levels(&monitor, forged);
                let often = LevelPolicy { max_over_mean: 1.0, gap_erases_min: 0, swaps_max: 1 };
                let _ = told(monitor.level_wear(often, T));
            }
            use_device(&device);
        }
    }
}

/// A result whose error, if it is one, says something.
fn told<T>(result: Result<T, LevelError>) -> Result<T, LevelError> {
    result.inspect_err(|error| assert!(!error.to_string().is_empty()))
}

fn use_device(device: &OpenChannel) {
    let shape = device.shape();
    let mut data = vec![0; shape.page_bytes as usize];
    let mut oob = vec![0; shape.oob_bytes as usize];
    let _ = device.verify_identity();
    let luns = shape.luns().min(8);
    for lun in (0..luns).map(|lun| shape.lun_at(lun)) {
        for block in (0..shape.blocks_per_plane).step_by(shape.blocks_per_plane.div_ceil(8) as usize) {
            let block = lun.block(0, block);
            let info = expect("block", device.block_info(block));
            assert!(info.programmed <= shape.pages_per_block, "{info:?}");
            let _ = device.read(T, block.page(0), 0, &mut data, &mut oob);
            let _ = device.program(T, block.page(info.programmed), &data, &oob);
            if block.block % 3 == 0 {
                let _ = device.erase(T, block);
            }
        }
    }
    let _ = device.verify_identity();
    let _ = device.sync();
}

fn use_levels(monitor: &Arc<Monitor>, forged: bool) {
    let _ = told(monitor.wear());
    if let Ok(grant) = told(monitor.attach("raw")) {
        use_raw(&RawLevel::new(grant));
    }
    if let Ok(level) = told(monitor.attach("function").and_then(FunctionLevel::open)) {
        use_function(&level, forged);
    }
    if let Ok(level) =
        told(monitor.attach("policy").and_then(|grant| PolicyLevel::open(grant, policy_setup())))
    {
        use_policy(&level, forged);
    }
}

fn use_raw(raw: &RawLevel) {
    let geometry = raw.geometry().clone();
    let mut data = vec![0; PAGE];
    for (channel, lun) in geometry.lun_list() {
        for block in (0..geometry.blocks_per_lun).map(|block| GrantBlock { channel, lun, block }) {
            let Ok(look) = told(raw.look(block)) else { continue };
            let _ = told(raw.page_read(T, block.page(0), 0, &mut data, &mut [0; 16]));
            let _ = told(raw.tag_of(T, block.page(0)));
            let _ = told(raw.page_write(T, block.page(look.programmed), &data, &[]));
            if block.block % 5 == 0 {
                let _ = told(raw.block_erase(T, block));
            }
        }
    }
}

fn use_function(level: &FunctionLevel, forged: bool) {
    let mut data = vec![0; PAGE];
    for found in level.mapped_blocks() {
        for page in 0..found.written {
            let read = told(level.flash_read(T, found.block, page, 0, &mut data));
            if read.is_ok() && !forged {
                assert_eq!(&data[..8], u64::from(page).to_le_bytes(), "{found:?}: page {page} is another's");
            }
        }
        // The image is opened twice: the second open checks what is written now.
        let next = data_of(u64::from(found.written), 9);
        let _ = told(level.flash_write(T, found.block, found.written, &next));
        if found.label % 2 == 0 {
            let _ = told(level.flash_trim(found.block));
        }
    }
    if let Ok(mapped) = told(level.address_mapper(T, 0, Mapping::Block, 1)) {
        let _ = told(level.flash_write(T, mapped.block, 0, &data_of(0, 9)));
    }
    let _ = told(level.wear_leveler(T, 1, 2));
    let _ = told(level.flush(T));
    let (mapped, free, retired) = level.census();
    assert_eq!(mapped + free + retired, level.geometry().blocks(), "a block is lost");
}

fn use_policy(level: &PolicyLevel, forged: bool) {
    let mut data = vec![0; PAGE];
    let ranges = level.ranges();
    for (policy, _) in &ranges {
        let end = policy.start.saturating_add(policy.pages.min(64));
        for page in policy.start..end {
            let read = told(level.ftl_read(T, page, &mut data));
            let tag = told(level.tag_of(T, page));
            if let (Ok(tag), false) = (tag, forged) {
                assert!(tag == tag_of(page) || tag == Tag::default(), "page {page} has the tag {tag:?}");
            }
            if read.is_ok() && !forged {
                let whose = data[..8] == page.to_le_bytes() || data.iter().all(|byte| *byte == 0);
                assert!(whose, "page {page} is another's");
            }
        }
        for page in (policy.start..end).step_by(2) {
            let written = told(level.ftl_write(T, page, &data_of(page, 9), tag_of(page)));
            if written.is_ok() {
                expect("read after a write", level.ftl_read(T, page, &mut data));
                assert_eq!(data, data_of(page, 9), "page {page} is not what was written");
            }
        }
        let _ = told(level.trim(T, policy.start, policy.pages.min(9)));
    }
    let _ = told(level.flush(T));
    let _ = told(level.checkpoint(T));
    let verified = told(level.verify());
    assert!(forged || verified.is_ok(), "{verified:?}");
}
