//! Conventional and FDP drives in an image, after power cuts, ends without notice, crashes of the host, failed reads and grown
//! bad blocks, on random shapes.
//!
//! Each seed makes a drive and sessions: open, with power that may go several times on the way; work; end in one of four
//! ways. A model knows what each block was promised to be. The drive has capacitors: after an opening a block is what was
//! written or trimmed last and acknowledged, or what was under way; after a crash of the host what was flushed, or later. At
//! the end every block takes a write again and the erase identity holds. `WEFT_CAMPAIGN=1` runs 20,000 seeds for each kind of
//! drive, otherwise a slice of them; `WEFT_SEED=n` runs one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/disk.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod disk;
mod support;

use disk::{End, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::Random;
use support::flaky::{Met, random_geometry, seeds};
use weft_core::Nanos;
use weft_device::FaultPlan;
use weft_device::gc::VictimPolicy;
use weft_device::nand::{Fault, FlashError, FlashSetup, PageAddr};
use weft_device::ssd::{Isolation, Ssd, SsdError, SsdSetup};

const T: Nanos = Nanos(0);
const BLOCK: usize = 4096;
const LOST: u64 = u64::MAX;
/// Largest image that is copied.
const COPIED_BYTES_MAX: u64 = 16 << 20;
/// Most steps that the host forgets in a crash.
const FORGOTTEN_STEPS: u64 = 40;
/// Most reads of a page that fail in a session: fewer than the drive tries before it counts the page as lost.
const FAILED_READS_MAX: u32 = 3;

fn content(block: u64, version: u64) -> Vec<u8> {
    let mut data = vec![version as u8; BLOCK];
    data[..8].copy_from_slice(&block.to_le_bytes());
    data[8..16].copy_from_slice(&version.to_le_bytes());
    data[BLOCK - 8..].copy_from_slice(&version.to_le_bytes());
    data
}

fn version_of(block: u64, data: &[u8]) -> u64 {
    if data.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
    assert!(data == content(block, version), "block {block} holds something else");
    version
}

fn is_power_loss(error: &SsdError) -> bool {
    matches!(error, SsdError::Flash(FlashError::PowerLost))
}

/// What is known of a block.
#[derive(Clone, Debug)]
struct Block {
    now: u64,
    /// What it may be after the session.
    after: BTreeSet<u64>,
}

struct Run {
    random: Random,
    path: PathBuf,
    plan: FaultPlan,
    handles: u64,
    blocks: Vec<Block>,
    version: u64,
    trims: bool,
    wounds: u64,
    transient: u64,
    /// By page: reads that were asked to fail since the drive was opened.
    failed_reads: BTreeMap<PageAddr, u32>,
    /// Everything that is acknowledged is kept; not when the host is about to crash.
    promised: bool,
    /// The flash has given out, and a write was refused.
    worn_out: bool,
    met: Met,
}

impl Run {
    fn open(&mut self, mut cuts: u64) -> Ssd {
        loop {
            let (plan, armed) = (self.plan, cuts > 0);
            let (most, seed) = (2 << self.random.below(5), self.random.next());
            let after = self.random.below(most);
            let opened = Ssd::open_prepared(&self.path, |flash| {
                if armed {
                    flash.cut_after(after, seed);
                }
                flash.with_faults(plan)
            });
            match opened {
                Ok(drive) => {
                    drive.with_flash(|flash| flash.power_on());
                    self.failed_reads.clear();
                    return drive;
                }
                Err(error) if is_power_loss(&error) && armed => {
                    self.met.cuts_while_opening += 1;
                    cuts -= 1;
                }
                Err(error) => panic!("not opened: {error}"),
            }
        }
    }

    fn read(&self, drive: &Ssd, block: u64) -> Result<u64, SsdError> {
        let mut data = vec![0xee; BLOCK];
        match drive.read(T, block, 1, &mut data) {
            Ok(_) => Ok(version_of(block, &data)),
            Err(SsdError::Unreadable { .. }) if self.plan.uncorrectable_reads > 0 => Ok(LOST),
            Err(other) => Err(other),
        }
    }

    /// After an opening: each block is what it may be.
    fn verify(&mut self, drive: &Ssd) {
        drive.verify_identity().unwrap();
        for block in 0..self.blocks.len() as u64 {
            let found = self.read(drive, block).unwrap();
            let known = &mut self.blocks[block as usize];
            let was_lost = known.after.contains(&LOST);
            assert!(
                known.after.contains(&found) || (found == LOST && !was_lost),
                "block {block}: {found}, not of {known:?}"
            );
            *known = Block { now: found, after: BTreeSet::from([found]) };
        }
    }

    fn acknowledged(&mut self, blocks: std::ops::Range<u64>, version: u64) {
        for block in blocks {
            let known = &mut self.blocks[block as usize];
            known.now = version;
            if self.promised {
                known.after = BTreeSet::from([version]);
            }
        }
    }

    fn write(&mut self, drive: &Ssd, first: u64, count: u64) -> Result<(), SsdError> {
        self.version += 1;
        let version = self.version;
        let mut data = Vec::new();
        for block in first..first + count {
            self.blocks[block as usize].after.insert(version);
            data.extend(content(block, version));
        }
        let handle = (self.handles > 0).then(|| self.random.below(self.handles) as u16);
        match drive.write(T, first, count, &data, handle) {
            Ok(_) => self.acknowledged(first..first + count, version),
            Err(SsdError::WornOut(_)) if self.met.refusals > 0 => {
                self.worn_out = true;
                // A part of it may be written.
                for block in first..first + count {
                    let (found, before) = (self.read(drive, block)?, self.blocks[block as usize].now);
                    assert!([before, version, LOST].contains(&found), "block {block}: {found}, not {before}");
                    self.acknowledged(block..block + 1, found);
                }
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn trim(&mut self, drive: &Ssd, first: u64, count: u64) -> Result<(), SsdError> {
        for block in first..first + count {
            self.blocks[block as usize].after.insert(0);
        }
        drive.deallocate(T, first, count)?;
        self.acknowledged(first..first + count, 0);
        Ok(())
    }

    fn step(&mut self, drive: &Ssd, cursor: &mut u64) -> Result<(), SsdError> {
        let capacity = self.blocks.len() as u64;
        let block = self.random.below(capacity);
        let most = (capacity - block).min(9);
        let count = 1 + self.random.below(most);
        if self.random.below(1000) < self.transient {
            self.fail_a_read(drive);
        }
        match self.random.below(100) {
            0..50 => self.write(drive, block, 1),
            50..60 => self.write(drive, block, count),
            60..82 => {
                *cursor = (*cursor + 1) % capacity;
                self.write(drive, *cursor, 1)
            }
            82..90 => {
                let (found, known) = (self.read(drive, block)?, self.blocks[block as usize].now);
                assert!(found == known || found == LOST, "block {block}: {found}, not {known}");
                Ok(())
            }
            90..95 if self.trims => self.trim(drive, block, count),
            95 if self.handles > 0 => drive.update_handle(T, self.random.below(self.handles) as u16),
            96 => drive.flush(T).map(drop),
            97..100 if self.wounds > 0 => {
                self.wounds -= 1;
                self.met.refusals += 1;
                self.wound(drive);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// One more of the next reads of some page fails, but never as many as the drive tries.
    fn fail_a_read(&mut self, drive: &Ssd) {
        let logical = self.random.below(self.blocks.len() as u64);
        let Some(page) = drive.page_of(logical).unwrap() else { return };
        let failed = self.failed_reads.entry(page).or_default();
        if *failed < FAILED_READS_MAX {
            *failed += 1;
            drive.with_flash(|flash| flash.inject(Fault::Read(page))).unwrap();
        }
    }

    /// The next program or the next erase of some block fails.
    fn wound(&mut self, drive: &Ssd) {
        let shape = drive.shape();
        let block = shape.block_at(self.random.below(shape.blocks()));
        let program = self.random.below(2) == 0;
        drive.with_flash(|flash| {
            let next = flash.block_info(block).unwrap().programmed;
            let fault = if program && next < shape.pages_per_block {
                Fault::Program(block.page(next))
            } else {
                Fault::Erase(block)
            };
            flash.inject(fault).unwrap();
        });
    }

    /// Works until power goes; true when it went.
    fn work(&mut self, drive: &Ssd, steps: u64) -> bool {
        let mut cursor = self.random.below(self.blocks.len() as u64);
        for _ in 0..steps {
            match self.step(drive, &mut cursor) {
                Ok(()) => {}
                Err(error) if is_power_loss(&error) => return true,
                Err(error) => panic!("refused: {error}"),
            }
        }
        false
    }

    /// The process ends without notice: the file is as it is.
    fn end_without_notice(&self, drive: Ssd) {
        let copy = self.path.with_extension("copy");
        std::fs::copy(&self.path, &copy).unwrap();
        drop(drive);
        std::fs::rename(&copy, &self.path).unwrap();
    }

    /// The host crashes: of what was written since the last sync, some blocks of the file are there and some are not.
    fn crash_the_host(&mut self, drive: Ssd) {
        drive.flush(T).unwrap();
        let disk = Watched::new(&self.path, self.random.next());
        self.promised = false;
        let steps = self.random.below(FORGOTTEN_STEPS);
        let cut = self.work(&drive, steps);
        assert!(!cut);
        self.promised = true;
        disk.end(End::Crashed, || drop(drive));
    }
}

/// A drive of a random shape; `None` when the shape cannot be one.
fn random_setup(random: &mut Random, fdp: bool) -> SsdSetup {
    let handles = match (fdp, random.below(2)) {
        (false, _) => Vec::new(),
        (true, 0) => vec![Isolation::Initially; 1 + random.below(4) as usize],
        (true, _) => {
            let isolation = [Isolation::Persistently, Isolation::Initially];
            (0..1 + random.below(4)).map(|_| isolation[random.below(2) as usize]).collect()
        }
    };
    let fronts = 2 * handles.len().max(1) as u32;
    let spares = random.below(4) as u32;
    let (reserve, data_units) = (1 + random.below(3) as u32, 5 + random.below(8) as u32);
    let (widest, page_blocks) = (random.below(2) == 0, 1 + random.below(2) as u32);
    let (mut width, mut units) = (1, 0);
    let mut geometry = random_geometry(random, |_, luns, planes| {
        width = if widest { luns } else { 1 };
        let rows = luns / width;
        let per_row = (reserve + fronts + 1 + data_units).div_ceil(rows);
        units = rows * per_row;
        planes * (per_row + spares)
    });
    geometry.page_bytes *= page_blocks;
    geometry.total_bytes *= u64::from(page_blocks);
    // As full as a drive can be, or with more room.
    let data_units = units - reserve - fronts - 1 - random.below(3) as u32;
    let over_provisioning = f64::from(units) / f64::from(data_units) - 1.0 + 1e-9;
    SsdSetup {
        victim: VictimPolicy::ALL[random.below(5) as usize],
        own_relocation_unit: fdp || random.below(4) > 0,
        reserve_units: reserve,
        luns_per_unit: Some(width),
        spare_blocks_per_plane: spares,
        handles,
        seed: random.next(),
        ..SsdSetup::conventional(FlashSetup::new(geometry), over_provisioning)
    }
}

fn run(seed: u64, fdp: bool, dir: &Path) -> Met {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.next();
    }
    let path = dir.join(format!("{seed}.img"));
    let setup = random_setup(&mut random, fdp);
    let lasting = if random.below(4) == 0 { 3000 } else { 0 };
    let plan = FaultPlan { seed: random.next(), uncorrectable_reads: lasting, ..FaultPlan::default() };
    let drive = Ssd::create(&path, &setup, plan, false).unwrap();
    let (capacity, (units, unit_blocks)) = (drive.capacity_blocks(), drive.units());
    drop(drive);
    let bytes = std::fs::metadata(&path).unwrap().len();
    let zero = Block { now: 0, after: BTreeSet::from([0]) };
    let (trims, wounds) = (random.below(2) == 0, if random.below(2) == 0 { 3 } else { 0 });
    let transient = [0, 10, 100][random.below(3) as usize];
    let mut run = Run {
        random,
        path,
        plan,
        handles: setup.handles.len() as u64,
        blocks: vec![zero; capacity as usize],
        version: 0,
        trims,
        wounds,
        transient,
        failed_reads: BTreeMap::new(),
        promised: true,
        worn_out: false,
        met: Met::default(),
    };
    // Few long sessions, or many short ones: a cut again and again while the same is under way.
    let short = run.random.below(3) == 0;
    let sessions = if short { 30 } else { 4 + run.random.below(10) };
    for _ in 0..sessions {
        let cuts = run.random.below(4);
        let drive = run.open(cuts);
        assert_eq!(drive.units(), (units, unit_blocks));
        run.verify(&drive);
        match run.random.below(8) {
            0 => drop(run.work(&drive, 40)),
            1 if bytes < COPIED_BYTES_MAX => {
                run.work(&drive, 100);
                run.end_without_notice(drive);
            }
            2 if bytes < COPIED_BYTES_MAX => {
                run.work(&drive, 60);
                run.crash_the_host(drive);
            }
            _ => {
                let most = if short { 8 } else { 4 << run.random.below(7) };
                let (after, seed) = (run.random.below(most), run.random.next());
                drive.with_flash(|flash| flash.cut_after(after, seed));
                run.met.cuts += u64::from(run.work(&drive, 400));
            }
        }
    }
    let drive = run.open(0);
    run.verify(&drive);
    for _ in 0..2 {
        for block in 0..capacity {
            run.write(&drive, block, 1).unwrap_or_else(|error| panic!("refused at the end: {error}"));
        }
    }
    drive.verify_identity().unwrap();
    run.met.failed_blocks = drive.with_flash(|flash| flash.bad_blocks().len()) as u64;
    // What the spares replace wears nothing out.
    assert!(!run.worn_out || run.met.failed_blocks > 0);
    run.met.refusals = u64::from(run.worn_out);
    drop(drive);
    let drive = run.open(0);
    run.verify(&drive);
    drop(drive);
    std::fs::remove_file(&run.path).unwrap();
    run.met
}

fn campaign(fdp: bool) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    seeds(100, 20_000, |seed| run(seed, fdp, dir.path()));
}

#[test]
fn a_conventional_drive_in_an_image_keeps_what_it_acknowledged_and_takes_writes_again() {
    campaign(false);
}

#[test]
fn an_fdp_drive_in_an_image_keeps_what_it_acknowledged_and_takes_writes_again() {
    campaign(true);
}

#[test]
fn cleaning_goes_on_after_cuts_that_used_up_the_free_units() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for seed in [1036, 1049, 1193, 2120, 2375, 3202, 3206, 3598, 3606, 3806] {
        run(seed, true, dir.path());
    }
}

#[test]
fn a_drive_that_has_no_room_for_what_waits_in_its_memory_opens_and_reads_all_the_same() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for seed in [2511, 3530] {
        run(seed, false, dir.path());
    }
}

#[test]
fn a_crash_of_the_host_takes_back_nothing_that_an_erase_that_failed_has_synced() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for seed in [6931, 6999] {
        run(seed, false, dir.path());
    }
}

#[test]
fn a_cell_that_a_crash_of_the_host_left_over_does_not_wait_for_its_place_in_a_later_use_of_the_unit() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    run(19_864, true, dir.path());
}

#[test]
fn a_copy_whose_program_failed_counts_where_the_next_opening_finds_it() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for seed in [9521, 10_458] {
        run(seed, false, dir.path());
    }
}

#[test]
fn a_page_that_fails_fewer_reads_than_the_drive_tries_is_not_lost() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    run(12_653, true, dir.path());
}
