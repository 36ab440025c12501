//! Commands of the device that fail, and a volume without space, under programs of file operations among plain calls: a program that is
//! refused has changed nothing, and the volume goes on or says why it does not.
//!
//! By default a slice of the campaign runs: every k-th command or block of four scripts. `WEFT_CAMPAIGN=1` takes all of them, of 40 scripts or
//! of `WEFT_SEEDS`; `WEFT_SEED` begins with another one.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::content::{Tree, dump};
use rig::failing::{Failing, Kind};
use rig::{check, fresh, options, small};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_conformance::crash::programs::{Act, Judge, Progress, Script};
use weft_conformance::crash::takes_new_writes;
use weft_conformance::programs::text;
use weft_core::Ino;
use weft_device::PowerCut;
use weft_lfs::Lfs;
use weft_vfs::compound::{Checked, Kind as Does, Policy};
use weft_vfs::{Change, CreateArgs, FileSystem, FsError, FsStats, NewNode, Refused, SetAttr, change::Made};

const PROGRAMS: usize = 30;

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// The seeds of scripts, and every which fault is tried: all of them, or the slice's.
fn extent(every: usize) -> (std::ops::Range<u64>, usize) {
    let first = number("WEFT_SEED").unwrap_or(1);
    match campaign() {
        true => (first..first + number("WEFT_SEEDS").unwrap_or(40), 1),
        false => (first..first + 4, every),
    }
}

fn whole(fs: &dyn FileSystem, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
    fs.commit(changes, durable)
}

/// All of a volume but the times of reads, which a program that fails has done, and its free space.
type Seen = (Tree, FsStats);

fn seen(fs: &Lfs) -> Seen {
    let mut tree = dump(fs).unwrap();
    for node in tree.values_mut().flatten() {
        node.times[0] = Default::default();
    }
    (tree, fs.statfs().unwrap())
}

/// Runs a script from an act on, to its end or to the first failure. What there was before act `look`.
fn run(script: &Script, first: usize, fs: &Lfs, look: Option<usize>) -> (Progress, Option<Seen>) {
    let mut before = None;
    let progress = script.run(first, fs, &whole, &mut |act| {
        if Some(act) == look {
            before = Some(seen(fs));
        }
        Ok(())
    });
    (progress.unwrap_or_else(|differs| panic!("{differs}")), before)
}

/// What became of acts that failed.
#[derive(Default, Debug)]
struct Tally {
    faults: u64,
    /// The whole script was done all the same.
    absorbed: u64,
    programs_undone: u64,
    programs_done: u64,
    calls_failed: u64,
    /// The volume went on, and the rest of the script was done.
    resumed: u64,
    refused_all: u64,
    /// What a policy leaves stayed.
    parts_left: u64,
}

impl Tally {
    /// Judges a volume on which an act has failed, with what there was before it.
    fn judge(&mut self, judge: &Judge<'_>, script: &Script, fs: &Lfs, progress: Progress, before: &Seen) {
        // A volume that has failed opens and ends no zones any more.
        let wrong: Vec<_> = fs.recount().into_iter().filter(|what| !what.starts_with("slots")).collect();
        assert_eq!(wrong, [""; 0]);
        // A change of content that is made for itself may be done in part when it fails.
        let is_content = |at: usize, program: &Checked| {
            matches!(
                program.ops[at].kind,
                Does::Write { .. } | Does::Truncate { .. } | Does::Fallocate { .. }
            )
        };
        let program = match &script.acts[progress.acts] {
            Act::Program(program)
                if program.policy != Policy::Each
                    || !progress.failed.is_some_and(|at| is_content(at, program)) =>
            {
                program
            }
            _ => {
                self.calls_failed += 1;
                return;
            }
        };
        let is_done = judge.check_open(fs, progress).unwrap_or_else(|violation| {
            panic!("{:?}, durable {}: {violation}\n{}", program.policy, program.durable, text(program))
        });
        if is_done == Some(true) {
            self.programs_done += 1;
            // Only a flush that fails, or a frame, comes behind the step; the volume takes no more changes then.
            assert!(program.policy == Policy::Each || fs.sync().is_err());
            return;
        }
        self.programs_undone += 1;
        if program.policy == Policy::All {
            let now = seen(fs);
            for (path, node) in &before.0 {
                assert_eq!(now.0.get(path), Some(node), "{}", path.escape_ascii());
            }
            assert_eq!(now, *before);
        }
    }

    /// Goes on behind a failure. How far the script came; nothing if a part of an act is there that was never there in memory.
    fn go_on(
        &mut self,
        judge: &Judge<'_>,
        script: &Script,
        fs: &Lfs,
        progress: Progress,
    ) -> Option<Progress> {
        if let Err(violation) = takes_new_writes(fs) {
            let args = CreateArgs::new(NewNode::File, 0o600);
            let told = fs.create(Ino::ROOT, b"one more", &args).unwrap_err();
            assert!(matches!(told, FsError::ReadOnly(_) | FsError::Device(_)), "{violation}, then {told:?}");
            self.refused_all += 1;
            return Some(progress);
        }
        if judge.check_open(fs, script.before(progress.acts)).is_err() {
            self.parts_left += 1;
            let Act::Program(program) = &script.acts[progress.acts] else { return Some(progress) };
            return (program.policy != Policy::Prefix).then_some(progress);
        }
        let (progress, _) = run(script, progress.acts, fs, None);
        assert_eq!(progress.acts, script.acts.len());
        judge.check_open(fs, progress).unwrap();
        self.resumed += 1;
        Some(progress)
    }
}

/// What the device has is right, whatever the volume on it came to.
fn judge_device(judge: &Judge<'_>, device: &Arc<PowerCut>, progress: Option<Progress>) {
    assert!(check(device).is_clean(), "{:?}", check(device).problems);
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    if let Some(progress) = progress {
        judge.check(&fs, progress).unwrap();
    }
    assert_eq!(fs.recount(), [""; 0]);
    takes_new_writes(&fs).unwrap();
    fs.unmount().unwrap();
    assert!(check(device).is_clean(), "{:?}", check(device).problems);
}

#[test]
fn a_program_under_which_a_command_fails_is_done_or_has_changed_nothing() {
    let mut tally = Tally::default();
    let (base, fs) = fresh(&small(12 << 20, 192 << 10));
    fs.unmount().unwrap();
    let mounted = |kind, fail| {
        let device = Arc::new(base.reopen(0).unwrap());
        let failing = Failing::new(device.clone(), kind, fail);
        let fs = Lfs::mount(failing.clone(), options()).unwrap();
        (device, failing, fs)
    };
    let (seeds, every) = extent(3);
    for seed in seeds {
        let script = Script::new(seed, PROGRAMS);
        let judge = Judge::new(&script, &mounted(Kind::Changes, 0..0).2).unwrap();
        for kind in [Kind::Changes, Kind::Writes, Kind::Finishes, Kind::Reads] {
            // Those of the mount do not fail.
            let (_, failing, fs) = mounted(kind, 0..0);
            let mounts = failing.commands.load(Relaxed);
            run(&script, 0, &fs, None);
            let commands = failing.commands.load(Relaxed);
            drop(fs);
            for stays in [false, true].into_iter().take(if kind == Kind::Reads { 1 } else { 2 }) {
                for first in (mounts..commands).step_by(every) {
                    let fail = first..if stays { u64::MAX } else { first + 1 };
                    println!("seed {seed}, {kind:?} {fail:?} of {commands}");
                    tally.faults += 1;
                    let (device, _, fs) = mounted(kind, fail.clone());
                    let (progress, _) = run(&script, 0, &fs, None);
                    if progress.acts == script.acts.len() {
                        tally.absorbed += 1;
                        judge.check_open(&fs, progress).unwrap();
                    } else {
                        drop(fs);
                        // Once more, to see what there was before the act; what is looked at is read, too.
                        let (device_again, _, fs) = mounted(kind, fail);
                        let look = (kind != Kind::Reads).then_some(progress.acts);
                        let (again, before) = run(&script, 0, &fs, look);
                        assert_eq!(again, progress);
                        let before = before.unwrap_or_else(|| seen(&fs));
                        tally.judge(&judge, &script, &fs, progress, &before);
                        let progress = tally.go_on(&judge, &script, &fs, progress);
                        drop(fs);
                        judge_device(&judge, &device_again, progress);
                        continue;
                    }
                    drop(fs);
                    judge_device(&judge, &device, Some(progress));
                }
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.programs_undone > 10 && tally.programs_done > 0, "{tally:?}");
    assert!(tally.refused_all > 10 && tally.absorbed > 3, "{tally:?}");
}

/// A full volume, with the size of the file that fills it.
fn full() -> (Arc<PowerCut>, u64) {
    let (device, fs) = fresh(&small(12 << 20, 192 << 10));
    let ino = fs.create(Ino::ROOT, b"ballast", &CreateArgs::new(NewNode::File, 0o600)).unwrap().ino;
    let mut size = 0;
    for len in [64 << 10, 4096] {
        while fs.write_through(ino, size, &vec![0x5a; len]).is_ok() {
            size += len as u64;
        }
    }
    fs.unmount().unwrap();
    (device, size)
}

#[test]
fn a_program_that_finds_no_space_has_changed_nothing() {
    let mut tally = Tally::default();
    let (base, size) = full();
    let mounted = |free: u64| {
        let device = Arc::new(base.reopen(0).unwrap());
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let ballast = fs.lookup(Ino::ROOT, b"ballast").unwrap().ino;
        fs.setattr(ballast, &SetAttr { size: Some(size - free), ..SetAttr::default() }).unwrap();
        fs.sync().unwrap();
        (device, fs, ballast)
    };
    let (seeds, every) = extent(4);
    for seed in seeds {
        let script = Script::new(seed, PROGRAMS);
        let judge = Judge::new(&script, &mounted(0).1).unwrap();
        let mut without = 0;
        for blocks in (0..).step_by(every) {
            let free = blocks * 4096;
            let (_, fs, _) = mounted(free);
            let (progress, _) = run(&script, 0, &fs, None);
            drop(fs);
            println!("seed {seed}, {blocks} blocks free: act {} of {}", progress.acts, script.acts.len());
            tally.faults += 1;
            let (device, fs, ballast) = mounted(free);
            let (again, before) = run(&script, 0, &fs, Some(progress.acts));
            assert_eq!(again, progress);
            let mut progress = Some(progress);
            let make_room = || {
                let less = SetAttr { size: Some(size - (3 << 20)), ..SetAttr::default() };
                fs.setattr(ballast, &less).unwrap();
            };
            if let Some(before) = before {
                tally.judge(&judge, &script, &fs, again, &before);
                make_room();
                progress = tally.go_on(&judge, &script, &fs, again);
            } else {
                without += 1;
                tally.absorbed += 1;
                judge.check_open(&fs, again).unwrap();
                make_room();
            }
            assert_eq!(fs.recount(), [""; 0]);
            fs.sync().unwrap();
            drop(fs);
            judge_device(&judge, &device, progress);
            if without == 3 {
                break;
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.programs_undone > 5 && tally.resumed > 5 && tally.refused_all == 0, "{tally:?}");
    assert_eq!(tally.programs_done, 0, "{tally:?}");
}
