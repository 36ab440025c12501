//! Random legal and illegal operations on the open-channel device, each held against a model of a few lines: the same
//! verdict, the same data, the same state of the block, whatever power cuts and failures come between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{
    BlockAddr, BlockState, Fault, FlashError, FlashSetup, Keep, OpenChannel, PageAddr, PageProgram, Pairing,
    Refusal,
};

const PAGES: u32 = 8;
const ENDURANCE: u32 = 300;

/// Vigna's xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * bound) >> 32
    }
}

/// What a command came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Done,
    Refused(Refusal),
    ProgramFailed,
    EraseFailed,
    Uncorrectable,
}

fn verdict<T>(result: &Result<T, FlashError>) -> Verdict {
    match result {
        Ok(_) => Verdict::Done,
        Err(FlashError::ProgramFailed { .. }) => Verdict::ProgramFailed,
        Err(FlashError::EraseFailed { .. }) => Verdict::EraseFailed,
        Err(FlashError::Uncorrectable { .. }) => Verdict::Uncorrectable,
        Err(error) => Verdict::Refused(error.refusal().unwrap()),
    }
}

#[derive(Clone, Default)]
struct Block {
    /// What each programmed page holds; nothing when it cannot be read.
    pages: Vec<Option<u64>>,
    erases: u32,
    read_only: bool,
    dead: bool,
    half_erased: bool,
}

/// The rules of flash, once more.
struct Model {
    blocks: HashMap<BlockAddr, Block>,
    stride: u32,
}

impl Model {
    fn exists(at: PageAddr) -> bool {
        let b = at.block;
        b.channel < 2 && b.lun < 2 && b.plane < 2 && b.block < 4 && at.page < PAGES
    }

    fn program(&mut self, at: PageAddr, content: u64, fails: bool) -> Verdict {
        if !Model::exists(at) {
            return Verdict::Refused(Refusal::NoSuchAddress);
        }
        let block = self.blocks.entry(at.block).or_default();
        let next = block.pages.len() as u32;
        if block.dead || block.read_only {
            Verdict::Refused(Refusal::BadBlock)
        } else if block.half_erased {
            Verdict::Refused(Refusal::EraseIncomplete)
        } else if at.page < next {
            Verdict::Refused(Refusal::AlreadyProgrammed)
        } else if at.page > next {
            Verdict::Refused(Refusal::OutOfOrder)
        } else if fails {
            block.pages.push(None);
            block.read_only = true;
            Verdict::ProgramFailed
        } else {
            block.pages.push(Some(content));
            Verdict::Done
        }
    }

    fn erase(&mut self, at: BlockAddr, fails: bool) -> Verdict {
        if !Model::exists(at.page(0)) {
            return Verdict::Refused(Refusal::NoSuchAddress);
        }
        let block = self.blocks.entry(at).or_default();
        if block.dead || block.read_only {
            Verdict::Refused(Refusal::BadBlock)
        } else if fails || block.erases == ENDURANCE {
            block.dead = true;
            Verdict::EraseFailed
        } else {
            *block = Block { erases: block.erases + 1, ..Block::default() };
            Verdict::Done
        }
    }

    fn read(&mut self, at: PageAddr) -> (Verdict, u64) {
        if !Model::exists(at) {
            return (Verdict::Refused(Refusal::NoSuchAddress), 0);
        }
        let block = self.blocks.entry(at.block).or_default();
        if block.dead {
            return (Verdict::Refused(Refusal::BadBlock), 0);
        }
        if block.half_erased {
            return (Verdict::Uncorrectable, 0);
        }
        match block.pages.get(at.page as usize) {
            None => (Verdict::Refused(Refusal::NotProgrammed), 0),
            Some(None) => (Verdict::Uncorrectable, 0),
            Some(Some(content)) => (Verdict::Done, *content),
        }
    }

    /// What a torn program does to the page of the lower bit in the same cells.
    fn tear(&mut self, at: PageAddr) {
        let block = self.blocks.entry(at.block).or_default();
        block.pages.push(None);
        if at.page % (2 * self.stride) >= self.stride {
            block.pages[(at.page - self.stride) as usize] = None;
        }
    }

    fn state(&mut self, at: BlockAddr) -> (BlockState, u32, u32) {
        let block = self.blocks.entry(at).or_default();
        let programmed = block.pages.len() as u32;
        let state = if block.dead {
            BlockState::Dead
        } else if block.read_only {
            BlockState::ReadOnly
        } else if block.half_erased {
            BlockState::EraseIncomplete
        } else if programmed == 0 {
            BlockState::Free
        } else if programmed < PAGES {
            BlockState::Open
        } else {
            BlockState::Full
        };
        (state, programmed, block.erases)
    }
}

fn setup() -> FlashSetup {
    let geometry = Geometry {
        channels: 2,
        luns_per_channel: 2,
        planes: 2,
        pages_per_block: PAGES,
        total_bytes: 2 * 2 * 2 * 4 * u64::from(PAGES) * 4096,
        endurance: ENDURANCE,
        ..Geometry::bbssd()
    };
    let pairing = Some(Pairing::even(2, &geometry.timing));
    FlashSetup { pairing, ..FlashSetup::new(geometry) }.keeping(Keep::Oob)
}

/// An address that mostly exists.
fn address(random: &mut Random, model: &mut Model) -> PageAddr {
    let edge = |random: &mut Random, limit: u64| {
        let beyond = u64::from(random.below(200) == 0);
        random.below(limit + beyond) as u32
    };
    let block = BlockAddr {
        channel: edge(random, 2),
        lun: edge(random, 2),
        plane: edge(random, 2),
        block: edge(random, 4),
    };
    // Mostly about the page that is next.
    let page = match random.below(3) {
        0 => edge(random, u64::from(PAGES)),
        _ => model.blocks.get(&block).map_or(0, |block| block.pages.len() as u32),
    };
    block.page(page)
}

/// After power came back: takes over what the device says became of the operation that power met, if that can be.
fn settle(device: &OpenChannel, model: &mut Model, block: BlockAddr, programmed: Option<(u32, u64)>) {
    let info = device.block_info(block).unwrap();
    let (_, pages, erases) = model.state(block);
    match programmed {
        Some((page, content)) if info.programmed == pages + 1 => {
            let torn = device.read(Nanos(0), block.page(page), 0, &mut [], &mut [0; 8]).is_err();
            if torn {
                model.tear(block.page(page));
            } else {
                assert_eq!(model.program(block.page(page), content, false), Verdict::Done);
            }
        }
        None if info.erases == erases + 1 => {
            let half_erased = info.state == BlockState::EraseIncomplete;
            assert_eq!(model.erase(block, false), Verdict::Done);
            model.blocks.entry(block).or_default().half_erased = half_erased;
        }
        _ => {}
    }
}

fn run(operations: u64, seed: u64) -> HashMap<&'static str, u64> {
    let mut random = Random(seed);
    let mut seen: HashMap<&'static str, u64> = HashMap::new();
    let mut done = 0;
    // A device wears out; then the next one comes.
    while done < operations {
        let device = OpenChannel::memory(&setup()).unwrap();
        let mut model = Model { blocks: HashMap::new(), stride: 2 };
        let last = operations.min(done + 40_000);
        while done < last {
            let at = address(&mut random, &mut model);
            let content = done;
            let oob = content.to_le_bytes();
            let cut = random.below(100) == 0;
            let fault = random.below(3_000) == 0;
            let name = match random.below(12) {
                0..6 => {
                    let (_, programmed, _) = model.state(at.block);
                    let legal = Model::exists(at)
                        && matches!(model.state(at.block).0, BlockState::Free | BlockState::Open)
                        && at.page == programmed;
                    let fault = fault && legal;
                    if cut && legal && !fault {
                        device.cut_after(0, random.below(1 << 31));
                        let result = device.program(Nanos(0), at, &[], &oob);
                        assert!(matches!(result, Err(FlashError::PowerLost)));
                        device.power_on();
                        settle(&device, &mut model, at.block, Some((at.page, content)));
                        "cut program"
                    } else {
                        if fault {
                            device.inject(Fault::Program(at)).unwrap();
                        }
                        let result = verdict(&device.program(Nanos(0), at, &[], &oob));
                        assert_eq!(result, model.program(at, content, fault), "step {content}: {at}");
                        "program"
                    }
                }
                6..8 => {
                    let (state, programmed, _) = model.state(at.block);
                    // Mostly full blocks.
                    if programmed < PAGES && random.below(20) > 0 && state != BlockState::EraseIncomplete {
                        continue;
                    }
                    let legal = Model::exists(at.block.page(0))
                        && !state.is_bad()
                        && model.blocks[&at.block].erases < ENDURANCE;
                    if cut && legal {
                        device.cut_after(0, random.below(1 << 31));
                        let result = device.erase(Nanos(0), at.block);
                        assert!(matches!(result, Err(FlashError::PowerLost)));
                        device.power_on();
                        settle(&device, &mut model, at.block, None);
                        "cut erase"
                    } else {
                        let result = verdict(&device.erase(Nanos(0), at.block));
                        assert_eq!(result, model.erase(at.block, false), "step {content}: {at}");
                        "erase"
                    }
                }
                8 => {
                    // Both planes at once: as a whole or not at all.
                    let other = BlockAddr { plane: at.block.plane ^ 1, ..at.block }.page(at.page);
                    if !Model::exists(at) || !Model::exists(other) {
                        continue;
                    }
                    let pages = [at, other].map(|page| PageProgram { page, data: &[], oob: &oob });
                    let result = verdict(&device.program_planes(Nanos(0), &pages));
                    let before =
                        [at, other].map(|at| model.blocks.get(&at.block).cloned().unwrap_or_default());
                    let verdicts = [at, other].map(|at| model.program(at, content, false));
                    let wanted = verdicts.into_iter().find(|v| *v != Verdict::Done).unwrap_or(Verdict::Done);
                    if wanted != Verdict::Done {
                        for (at, before) in [at, other].into_iter().zip(before) {
                            model.blocks.insert(at.block, before);
                        }
                    }
                    assert_eq!(result, wanted, "step {content}: {at} and {other}");
                    "both planes"
                }
                _ => {
                    let mut got = [0; 8];
                    let result = verdict(&device.read(Nanos(0), at, 0, &mut [], &mut got));
                    let (wanted, stored) = model.read(at);
                    assert_eq!(result, wanted, "step {content}: {at}");
                    if wanted == Verdict::Done {
                        assert_eq!(u64::from_le_bytes(got), stored, "step {content}: {at}");
                    }
                    "read"
                }
            };
            *seen.entry(name).or_default() += 1;
            done += 1;
            if Model::exists(at) {
                let info = device.block_info(at.block).unwrap();
                assert_eq!(
                    (info.state, info.programmed, info.erases),
                    model.state(at.block),
                    "step {content}"
                );
            }
        }
        device.verify_identity().unwrap();
        let refused = device.counters().refused;
        for rule in [
            Refusal::NoSuchAddress,
            Refusal::OutOfOrder,
            Refusal::AlreadyProgrammed,
            Refusal::NotProgrammed,
            Refusal::EraseIncomplete,
            Refusal::BadBlock,
        ] {
            *seen.entry("refused").or_default() += refused.get(&rule).copied().unwrap_or(0);
        }
    }
    seen
}

#[test]
fn a_million_operations_get_the_verdicts_of_a_simple_model() {
    let seen = run(1_000_000, 0x5eed);
    println!("{seen:?}");
    for kind in ["program", "cut program", "erase", "cut erase", "both planes", "read", "refused"] {
        assert!(seen[kind] > 300, "{kind}: {seen:?}");
    }
}
