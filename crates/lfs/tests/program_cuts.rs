//! Power cuts under programs of file operations, among plain calls that leave blocks buffered: what is there afterwards was there in memory
//! at one moment, with every program of the policy `all` whole or absent; the check finds nothing wrong, the volume takes new writes.
//!
//! By default a slice of the campaign runs: every k-th device operation of some programs. `WEFT_CAMPAIGN=1` cuts at all operations, and goes
//! on until there were 10,000 cuts, or `WEFT_CUTS` of them. `WEFT_SEED` begins with another seed.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};
use rig::steps::with_nodes;
use rig::{CutRig, small};
use std::collections::BTreeSet;
use weft_conformance::crash::programs::{Commit, Judge, Script};
use weft_conformance::crash::{Rig, Violation, takes_new_writes};
use weft_core::Ino;
use weft_lfs::Lfs;
use weft_vfs::change::{Made, Refused};
use weft_vfs::{Change, FileSystem, FsResult, Node, XattrMode};

/// Programs of a script.
const PROGRAMS: usize = 40;

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// [`FileSystem::commit`].
fn whole(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    fs.commit(changes, durable)
}

/// What cuts came to.
#[derive(Default, Debug)]
struct Tally {
    scripts: u64,
    cuts: u64,
    volumes: u64,
    programs: usize,
    programs_done: usize,
    /// Events that had happened and were lost, over all cuts.
    lost: usize,
    /// Cuts of which the call under way left nothing.
    undone: u64,
    checkpoints: u64,
    cleaned_kib: u64,
}

/// A kind of volume, and what happens on it beside the script.
#[derive(Clone, Copy)]
struct Kind {
    total_bytes: u64,
    zone_bytes: u64,
    /// A file besides leaves so much free.
    leave_free: Option<u64>,
    /// Blocks of it that are written before each act, at most: with little free, the cleaner has to work.
    blocks: u64,
    /// Bytes of an extended attribute that it gets before each act: they fill the journal, so that checkpoints come.
    xattr_bytes: usize,
    /// In the slice: the seeds of scripts, and every which operation is cut.
    seeds: u64,
    every: u64,
}

const ROOMY: Kind = Kind {
    total_bytes: 32 << 20,
    zone_bytes: 1 << 20,
    leave_free: None,
    blocks: 0,
    xattr_bytes: 0,
    seeds: 6,
    every: 3,
};
const CLEANED: Kind = Kind {
    total_bytes: 12 << 20,
    zone_bytes: 192 << 10,
    leave_free: Some(3000 << 10),
    blocks: 5,
    seeds: 2,
    every: 7,
    ..ROOMY
};
const JOURNALED: Kind = Kind { blocks: 3, xattr_bytes: 20_000, ..CLEANED };

impl Kind {
    fn rig(&self, seed: u64) -> CutRig {
        let mut rig = CutRig::new(small(self.total_bytes, self.zone_bytes), seed);
        rig.leave_free = self.leave_free;
        rig
    }

    fn before(&self, fs: &Lfs, seed: u64, act: usize) -> FsResult<()> {
        if self.leave_free.is_none() {
            return Ok(());
        }
        let rng = &mut StdRng::seed_from_u64(seed << 20 | act as u64);
        let ballast = fs.lookup(Ino::ROOT, b"ballast")?;
        for _ in 0..rng.random_range(0..=self.blocks) {
            let at = rng.random_range(0..ballast.size / 4096) * 4096;
            fs.write_through(ballast.ino, at, &[rng.random(); 4096])?;
        }
        match self.xattr_bytes {
            0 => Ok(()),
            len => fs.setxattr(ballast.ino, b"user.long", &vec![rng.random(); len], XattrMode::Any),
        }
    }
}

/// Cuts a script's run at every `every`-th operation, and looks at `looks` volumes that each cut may leave. Ends at the first wrong one.
fn cut(
    kind: &Kind,
    rig: &mut CutRig,
    seed: u64,
    (every, looks): (u64, u64),
    commit: Commit<'_>,
    tally: &mut Tally,
) -> Result<(), Violation> {
    let script = Script::new(seed, PROGRAMS);
    let run = |fs: &Lfs| {
        let mut before = |act| kind.before(fs, seed, act);
        script.run(0, fs, commit, &mut before).unwrap_or_else(|differs| panic!("seed {seed}: {differs}"))
    };
    let fs = rig.start_volume(u64::MAX);
    let judge = Judge::new(&script, &fs)?;
    let progress = run(&fs);
    assert_eq!(progress.acts, script.acts.len(), "seed {seed}: the script ends early");
    judge.check_open(&fs, progress)?;
    assert_eq!(fs.recount(), [""; 0], "seed {seed}");
    let operations = rig.operations();
    let (programs, programs_done) = script.programs();
    tally.scripts += 1;
    tally.programs += programs;
    tally.programs_done += programs_done;
    tally.checkpoints += fs.stats().checkpoints;
    drop(fs);
    let mut at = seed % every;
    while at < operations {
        let fs = rig.start_volume(at);
        let progress = run(&fs);
        drop(fs);
        let device = rig.lost();
        assert!(device.is_cut(), "seed {seed}, cut {at} of {operations}: the script ends before it");
        // Of the script and the cut alone, so that one of them can be seen again.
        rig.seed = seed << 32 | at;
        for look in 0..looks {
            let told = |what: &dyn std::fmt::Display| {
                format!("seed {seed}, cut {at} of {operations}, look {look}, act {}: {what}", progress.acts)
            };
            let (_, fs) = rig.look(&device).unwrap_or_else(|error| panic!("{}", told(&error)));
            let judged = judge.check(&fs, progress).and_then(|found| takes_new_writes(&fs).map(|()| found));
            let found = judged.inspect_err(|violation| println!("{}", told(violation)))?;
            assert_eq!(fs.recount(), [""; 0], "{}", told(&"the recount"));
            tally.lost += found.happened.saturating_sub(found.last);
            tally.undone += u64::from(found.last <= found.happened);
            tally.volumes += 1;
        }
        tally.cuts += 1;
        at += every;
    }
    Ok(())
}

/// Cuts scripts on volumes of a kind: a slice of them, or a third of the campaign.
fn survive(kind: &Kind) -> Tally {
    let mut tally = Tally::default();
    let mut rig = kind.rig(7);
    let (cuts, every, looks) = match campaign() {
        true => (number("WEFT_CUTS").unwrap_or(10_000).div_ceil(3), 1, 3),
        false => (0, kind.every, 2),
    };
    let first = number("WEFT_SEED").unwrap_or(1);
    for seed in first.. {
        let is_done = if campaign() { tally.cuts >= cuts } else { seed - first == kind.seeds };
        if is_done {
            break;
        }
        if let Err(violation) = cut(kind, &mut rig, seed, (every, looks), &whole, &mut tally) {
            panic!("seed {seed}: {violation}");
        }
    }
    tally.cleaned_kib = rig.gc_bytes >> 10;
    println!("{} cuts: {tally:?}", tally.cuts);
    assert!(tally.lost > 0, "the cuts cost nothing");
    assert!(!campaign() || tally.undone < tally.volumes, "nothing under way was ever there");
    tally
}

#[test]
fn a_program_is_there_whole_or_not_at_all_after_a_cut_on_a_roomy_volume() {
    survive(&ROOMY);
}

#[test]
fn a_program_is_there_whole_or_not_at_all_after_a_cut_while_the_cleaner_works() {
    let tally = survive(&CLEANED);
    assert!(tally.cleaned_kib > 1024, "the cleaner copied {} KiB", tally.cleaned_kib);
}

#[test]
fn a_program_is_there_whole_or_not_at_all_after_a_cut_between_many_checkpoints() {
    let tally = survive(&JOURNALED);
    assert!(tally.checkpoints > 3 * tally.scripts, "{} checkpoints", tally.checkpoints);
}

/// By what a core that does steps so is found on the device, and by how many of the scripts.
fn caught(commit: Commit<'_>) -> Vec<Violation> {
    let mut rig = ROOMY.rig(9);
    let tally = &mut Tally::default();
    (1..=12).filter_map(|seed| cut(&ROOMY, &mut rig, seed, (1, 2), commit, tally).err()).collect()
}

/// The step as two: the first half of its changes, and the others.
fn as_two(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    let first = changes.iter().position(|change| !matches!(change, Change::Expect { .. })).unwrap_or(0);
    // The interpreter leaves it to the core to refuse these, which must not come when half is done. Where an expectation comes last, it
    // wants to be refused.
    let is_tried = matches!(changes.last(), Some(Change::Expect { .. }));
    if is_tried || changes.iter().any(|change| matches!(change, Change::Xattr { .. })) {
        return fs.commit(changes, durable);
    }
    let middle = first + (changes.len() - first) / 2;
    let mut made = fs.commit(&changes[..middle], durable)?;
    let moved = |node| match node {
        Node::Made(at) if at < middle => Node::Ino(made[at].unwrap()),
        Node::Made(at) => Node::Made(at - middle),
        node => node,
    };
    let rest: Vec<_> = changes[middle..].iter().map(|change| with_nodes(*change, &moved)).collect();
    let more = fs.commit(&rest, durable)?;
    made.extend(more);
    Ok(made)
}

#[test]
fn a_core_that_does_half_of_a_program_in_one_step_and_the_rest_in_another_is_caught() {
    let caught = caught(&as_two);
    println!("{} scripts: {caught:?}", caught.len());
    assert!(caught.len() > 2, "{caught:?}");
}

/// A step that only writes stays in the buffer when it need not be durable, and later steps do not.
fn late(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    let is_write = |change: &Change<'_>| {
        matches!(change, Change::Write { node: Node::Ino(_), .. } | Change::Expect { .. })
    };
    if durable || !changes.iter().all(is_write) {
        return fs.commit(changes, durable);
    }
    let alone = |(at, change): (usize, &Change<'_>)| change.alone(fs).map_err(|error| Refused { at, error });
    changes.iter().enumerate().map(alone).collect()
}

#[test]
fn a_core_on_which_a_later_program_survives_an_earlier_one_is_caught() {
    let caught = caught(&late);
    println!("{} scripts: {caught:?}", caught.len());
    assert!(caught.len() > 2, "{caught:?}");
}

/// A step without what it does to the data and attributes of its second inode, which is done behind it.
fn without_the_second(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    let about = |change: &Change<'_>| match *change {
        Change::SetAttr { node, .. }
        | Change::Xattr { node, .. }
        | Change::Write { node, .. }
        | Change::Fallocate { node, .. } => Some(node),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    let mut nodes = changes.iter().filter_map(about).filter(|node| seen.insert(format!("{node:?}")));
    let Some(second) = nodes.nth(1) else { return fs.commit(changes, durable) };
    // In the place of what is left out stands what does nothing.
    let nothing = Change::Expect { dir: Node::Ino(Ino::ROOT), name: b"nobody's", ino: None };
    let is_second = |change: &Change<'_>| about(change) == Some(second);
    let step: Vec<_> =
        changes.iter().map(|change| if is_second(change) { nothing } else { *change }).collect();
    let made = fs.commit(&step, durable)?;
    for change in changes.iter().filter(|change| is_second(change)) {
        let node = |node: Node| node.after(&made).map_or(node, Node::Ino);
        // One whose last name the step takes is not seen again.
        let _ = with_nodes(*change, &node).alone(fs);
    }
    Ok(made)
}

#[test]
fn a_core_that_forgets_the_second_inode_of_a_program_is_caught() {
    let caught = caught(&without_the_second);
    println!("{} scripts: {caught:?}", caught.len());
    assert!(caught.len() > 2, "{caught:?}");
}
