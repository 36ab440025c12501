//! Random legal and illegal commands of the raw level against the simplest model of a grant: the same verdicts, and the
//! same data. `WEFT_CAMPAIGN=1` runs a million, otherwise 50,000.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use support::{Random, campaign, device};
use weft_core::Nanos;
use weft_flash::{GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel};

const PAGES: u32 = 8;
const OOB: usize = 60;

/// What a command comes to.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Done,
    Outside(&'static str),
    WrongLength,
    OutOfOrder(u32),
    AlreadyProgrammed,
    NotProgrammed(u32),
}

fn verdict<T>(result: Result<T, LevelError>) -> Verdict {
    match result {
        Ok(_) => Verdict::Done,
        Err(LevelError::OutsideGrant { part, .. }) => Verdict::Outside(part),
        Err(LevelError::WrongLength { .. }) => Verdict::WrongLength,
        Err(LevelError::OutOfOrder { next, .. }) => Verdict::OutOfOrder(next),
        Err(LevelError::AlreadyProgrammed { .. }) => Verdict::AlreadyProgrammed,
        Err(LevelError::NotProgrammed { programmed, .. }) => Verdict::NotProgrammed(programmed),
        Err(other) => panic!("{other}"),
    }
}

/// By channel and LUN and block: what each page holds.
struct Model {
    luns_by_channel: Vec<u32>,
    blocks_per_lun: u32,
    blocks: std::collections::HashMap<GrantBlock, Vec<(u8, u8)>>,
}

impl Model {
    fn outside(&self, block: GrantBlock, page: u32) -> Option<&'static str> {
        match self.luns_by_channel.get(block.channel as usize) {
            None => Some("channel"),
            Some(luns) if block.lun >= *luns => Some("LUN"),
            _ if block.block >= self.blocks_per_lun => Some("block"),
            _ if page >= PAGES => Some("page"),
            _ => None,
        }
    }

    fn held(&mut self, block: GrantBlock) -> &mut Vec<(u8, u8)> {
        self.blocks.entry(block).or_default()
    }
}

#[test]
fn a_simple_model_comes_to_the_same_verdicts_and_the_same_data() {
    let device = Arc::new(device(3, 2, 10, PAGES));
    let monitor = Monitor::format(device.clone(), MonitorSetup::default()).unwrap();
    let lun = monitor.lun_bytes();
    let neighbour = GrantRequest { name: "b".into(), bytes: lun, over_provisioning_permille: 0 };
    let _neighbour = monitor.allocate(&neighbour).unwrap();
    let request = GrantRequest { name: "a".into(), bytes: 4 * lun, over_provisioning_permille: 0 };
    let raw = RawLevel::new(monitor.allocate(&request).unwrap());
    let geometry = raw.geometry().clone();
    assert_eq!(geometry.oob_bytes as usize, OOB);
    let mut model = Model {
        luns_by_channel: geometry.luns_by_channel.clone(),
        blocks_per_lun: geometry.blocks_per_lun,
        blocks: std::collections::HashMap::new(),
    };
    let mut random = Random(5);
    let mut seen = std::collections::HashMap::new();
    for step in 0..if campaign() { 1_000_000 } else { 50_000 } {
        let mut below = |bound: u32| random.below(u64::from(bound)) as u32;
        let block =
            GrantBlock { channel: below(4), lun: below(3), block: below(geometry.blocks_per_lun + 1) };
        let command = below(10);
        let near = model.outside(block, 0).is_none();
        let next = if near { model.held(block).len() as u32 } else { 0 };
        // Mostly the page that is next, so that blocks fill up.
        let page = if below(3) > 0 { next } else { below(PAGES + 1) };
        let outside = model.outside(block, page).map(Verdict::Outside);
        let value = below(256) as u8;
        let (found, wanted) = match command {
            0..6 => {
                let data_bytes = if below(30) == 0 { 4000 } else { 4096 };
                let oob_bytes = if below(30) == 0 { OOB + 1 } else { below(OOB as u32 + 1) as usize };
                let found = verdict(raw.page_write(
                    Nanos(0),
                    block.page(page),
                    &vec![value; data_bytes],
                    &vec![value ^ 1; oob_bytes],
                ));
                let wanted = outside.unwrap_or(match () {
                    () if oob_bytes > OOB || data_bytes != 4096 => Verdict::WrongLength,
                    () if page < next => Verdict::AlreadyProgrammed,
                    () if page > next => Verdict::OutOfOrder(next),
                    () => Verdict::Done,
                });
                if wanted == Verdict::Done {
                    model.held(block).push((value, if oob_bytes > 0 { value ^ 1 } else { 0 }));
                }
                (found, wanted)
            }
            6..9 => {
                let offset = below(4097);
                let bytes = below(4097 - offset.min(4096) + 2) as usize;
                let (mut data, mut oob) = (vec![0; bytes], vec![0; below(OOB as u32 + 2) as usize]);
                let found = verdict(raw.page_read(Nanos(0), block.page(page), offset, &mut data, &mut oob));
                let long = offset as usize + bytes > 4096 || oob.len() > OOB;
                let wanted = outside.unwrap_or(match () {
                    () if long => Verdict::WrongLength,
                    () if page >= next => Verdict::NotProgrammed(next),
                    () => Verdict::Done,
                });
                if wanted == Verdict::Done {
                    let (value, first) = model.held(block)[page as usize];
                    assert!(data.iter().all(|byte| *byte == value), "step {step}");
                    assert!(oob.first().is_none_or(|byte| *byte == first), "step {step}");
                }
                (found, wanted)
            }
            _ => {
                let wanted = model.outside(block, 0).map_or(Verdict::Done, Verdict::Outside);
                if wanted == Verdict::Done {
                    model.held(block).clear();
                }
                (verdict(raw.block_erase(Nanos(0), block)), wanted)
            }
        };
        assert_eq!(found, wanted, "step {step}: command {command} at {} ", block.page(page));
        *seen.entry(std::mem::discriminant(&wanted)).or_insert(0u64) += 1;
    }
    assert!(seen.len() == 6 && seen.values().all(|count| *count > 100), "{seen:?}");
    device.verify_identity().unwrap();
}
