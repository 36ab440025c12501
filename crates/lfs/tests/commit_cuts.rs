//! Power cuts, failing commands and a full volume under steps of several changes: each step is there whole or not at all, none is there
//! without those before it, and what a durable one made is there.
//!
//! By default a slice of the campaign runs: every k-th operation. `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::failing::{Failing, Kind};
use rig::steps::{Known, changes, with_nodes};
use rig::{CutRig, check, fresh, options, small};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_conformance::crash::{Rig, takes_new_writes};
use weft_core::Ino;
use weft_lfs::{FormatOptions, Lfs};
use weft_vfs::{Change, CreateArgs, FileKind, FileSystem, FsError, NewNode, Node, Refused, XattrMode};

fn campaign() -> bool {
    std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0")
}

/// A node of the steps' directory.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    kind: FileKind,
    links: u32,
    perm: u32,
    uid: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
}

/// What there is, by path.
type Tree = BTreeMap<Vec<u8>, Seen>;

fn look(fs: &dyn FileSystem, dir: Ino) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(dir, Vec::new())];
    while let Some((ino, path)) = todo.pop() {
        let attr = fs.getattr(ino).unwrap();
        let mut content = Vec::new();
        match attr.kind {
            FileKind::File => {
                content.resize(attr.size as usize, 0);
                let len = fs.read(ino, 0, &mut content).unwrap();
                assert_eq!(len, content.len());
            }
            FileKind::Symlink => content = fs.readlink(ino).unwrap(),
            FileKind::Directory => fs
                .readdir(ino, 0, &mut |entry| {
                    todo.push((entry.ino, [&path[..], b"/", entry.name].concat()));
                    true
                })
                .unwrap(),
            _ => {}
        }
        let names = fs.listxattr(ino).unwrap();
        let xattrs = names.into_iter().map(|name| (name.clone(), fs.getxattr(ino, &name).unwrap()));
        let seen = Seen {
            kind: attr.kind,
            links: attr.links,
            perm: attr.perm,
            uid: attr.uid,
            xattrs: xattrs.collect(),
            content,
        };
        tree.insert(path, seen);
    }
    tree
}

/// What a run has done when it ends.
#[derive(Default)]
struct Run {
    /// What was there behind each step, the first being none; and behind what was then written plainly. Only of a run that looks.
    states: Vec<(Tree, Tree)>,
    /// Steps that returned.
    done: usize,
    /// The last of them that was made durable.
    durable: usize,
    refused: usize,
}

/// Seeded work: steps on one directory, plain writes to its files before them, and other work between.
struct Script {
    seed: u64,
    steps: usize,
    /// Whether other files are written, so that the cleaner works and checkpoints come.
    churns: bool,
}

const GENERATION: &[u8] = b"user.generation";

impl Script {
    /// Runs until an error. Equal scripts do equal things up to there.
    fn run(&self, fs: &dyn FileSystem, looks: bool) -> (Run, Result<(), FsError>) {
        let mut run = Run::default();
        let end = self.run_until_error(fs, looks, &mut run);
        (run, end)
    }

    fn run_until_error(&self, fs: &dyn FileSystem, looks: bool, run: &mut Run) -> Result<(), FsError> {
        let rng = &mut StdRng::seed_from_u64(self.seed);
        let args = CreateArgs::new(NewNode::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, b"steps", &args)?.ino;
        let file = CreateArgs::new(NewNode::File, 0o600);
        let other = fs.create(Ino::ROOT, b"other", &file)?.ino;
        fs.sync()?;
        let mut known = vec![Known { ino: dir, kind: FileKind::Directory }];
        let saw = |run: &mut Run| {
            if looks {
                let tree = look(fs, dir);
                run.states.push((tree.clone(), tree));
            }
        };
        saw(run);
        while run.done < self.steps {
            self.others(fs, rng, other)?;
            // What is buffered before a step is there if the step is.
            let files: Vec<Ino> = known.iter().filter(|k| k.kind == FileKind::File).map(|k| k.ino).collect();
            let mut soiled = Vec::new();
            for _ in 0..rng.random_range(0..3) {
                let Some(ino) = files.get(rng.random_range(0..files.len().max(1))).copied() else { continue };
                let (at, len) = (rng.random_range(0..50_000), rng.random_range(1..20_000));
                let bytes = vec![rng.random::<u8>() | 1; len];
                if fs.getattr(ino).is_ok() && !soiled.contains(&ino) {
                    fs.write(ino, at, &bytes)?;
                    soiled.push(ino);
                }
            }
            if let Some(state) = run.states.last_mut() {
                state.1 = look(fs, dir);
            }
            let generation = (run.done as u32 + 1).to_le_bytes();
            let durable = rng.random_range(0..4) == 0;
            // Changes that can be done: a refused one would end the run.
            loop {
                let seeds: Vec<u64> = (0..rng.random_range(2..10)).map(|_| rng.random()).collect();
                let mut step = vec![Change::Xattr {
                    node: Node::Ino(dir),
                    name: GENERATION,
                    value: Some(&generation),
                    mode: XattrMode::Any,
                }];
                // It changes what was soiled: then that has to be there before it.
                step.extend(soiled.iter().map(|ino| Change::Write {
                    node: Node::Ino(*ino),
                    offset: 100,
                    data: b"secured",
                }));
                let at = step.len();
                step.extend(changes(fs, &seeds, &known).into_iter().map(|change| shifted(change, at)));
                match fs.commit(&step, durable) {
                    Ok(made) => {
                        let there = |ino: &Ino| fs.getattr(*ino).ok();
                        let made = made.into_iter().flatten().filter_map(|ino| there(&ino));
                        known.extend(made.map(|attr| Known { ino: attr.ino, kind: attr.kind }));
                        break;
                    }
                    Err(Refused { error: error @ (FsError::Device(_) | FsError::ReadOnly(_)), .. }) => {
                        return Err(error);
                    }
                    Err(_) => run.refused += 1,
                }
            }
            run.done += 1;
            if durable {
                run.durable = run.done;
            }
            saw(run);
        }
        Ok(())
    }

    fn others(&self, fs: &dyn FileSystem, rng: &mut StdRng, other: Ino) -> Result<(), FsError> {
        if self.churns {
            let ballast = fs.lookup(Ino::ROOT, b"ballast")?;
            for _ in 0..rng.random_range(0..24) {
                let at = rng.random_range(0..ballast.size / 4096) * 4096;
                fs.write_through(ballast.ino, at, &[rng.random(); 4096])?;
            }
        }
        match rng.random_range(0..6) {
            0 => fs.write(other, rng.random_range(0..100_000), &[7; 10_000]),
            1 => fs.fsync(other),
            2 => fs.setxattr(other, b"user.long", &[rng.random(); 20_000], XattrMode::Any),
            _ => Ok(()),
        }
    }
}

/// A change that stands `by` places further behind in its step.
fn shifted(change: Change<'static>, by: usize) -> Change<'static> {
    with_nodes(change, &|node| if let Node::Made(at) = node { Node::Made(at + by) } else { node })
}

/// Whether a file is as it was, with what was written plainly since done or not, block by block.
fn is_between(seen: &Seen, before: &Seen, after: &Seen) -> bool {
    let (len, least, most) = (seen.content.len(), before.content.len(), after.content.len());
    if !(least..=most).contains(&len) || (Seen { content: before.content.clone(), ..seen.clone() }) != *before
    {
        return false;
    }
    let block = |bytes: &[u8], at: usize| {
        let mut block = bytes.get(at..(at + 4096).min(bytes.len())).unwrap_or(&[]).to_vec();
        block.truncate(len - at);
        block.resize((len - at).min(4096), 0);
        block
    };
    (0..len).step_by(4096).all(|at| {
        let this = block(&seen.content, at);
        this == block(&before.content, at) || this == block(&after.content, at)
    })
}

/// Which step is the last that is there. Fails unless it is there whole.
fn judge(fs: &dyn FileSystem, states: &[(Tree, Tree)]) -> Result<usize, String> {
    let Ok(dir) = fs.lookup(Ino::ROOT, b"steps") else { return Ok(0) };
    let generation = fs.getxattr(dir.ino, GENERATION);
    let step = generation.map_or(0, |value| u32::from_le_bytes(value.try_into().unwrap()) as usize);
    let seen = look(fs, dir.ino);
    let (before, after) = &states[step];
    for path in seen.keys().chain(before.keys()) {
        let text = String::from_utf8_lossy(path);
        let (Some(seen), Some(before)) = (seen.get(path), before.get(path)) else {
            return Err(format!(
                "step {step}: {text}: {:?}, not {:?}",
                seen.contains_key(path),
                before.contains_key(path)
            ));
        };
        if seen != before && !is_between(seen, before, &after[path]) {
            let first = seen.content.iter().zip(&before.content).position(|(a, b)| a != b);
            return Err(format!(
                "step {step}: {text} is not as the step left it: {} and {} bytes, the first other one at {first:?}",
                seen.content.len(),
                before.content.len()
            ));
        }
    }
    Ok(step)
}

/// Cuts a script's run at every `every`-th operation.
fn survive(script: &Script, rig: &mut CutRig, every: u64) {
    let every = if campaign() { 1 } else { every };
    let fs = rig.start(u64::MAX);
    let (whole, end) = script.run(&*fs, true);
    end.unwrap();
    let operations = rig.operations();
    drop(fs);
    let (mut cuts, mut lost, mut undone) = (0, 0, 0);
    let mut cut = script.seed % every;
    while cut < operations {
        let fs = rig.start(cut);
        let (run, end) = script.run(&*fs, false);
        assert!(end.is_err(), "cut {cut} of {operations}");
        let fs = rig.recover(fs).unwrap();
        let step = judge(&*fs, &whole.states)
            .unwrap_or_else(|what| panic!("seed {}, cut {cut}: {what}", script.seed));
        assert!(
            (run.durable..=run.done + 1).contains(&step),
            "seed {}, cut {cut}: step {step} is the last, {} were done and {} durable",
            script.seed,
            run.done,
            run.durable
        );
        takes_new_writes(&*fs).unwrap();
        lost += run.done.saturating_sub(step);
        undone += usize::from(step <= run.done);
        cuts += 1;
        cut += every;
    }
    println!(
        "seed {}: {cuts} cuts in {operations} operations, {} steps, {} refused; {lost} not durable lost, {undone} in flight undone, {} KiB cleaned",
        script.seed,
        whole.done,
        whole.refused,
        rig.gc_bytes >> 10
    );
    assert!(lost > 0, "the cuts cost nothing");
}

#[test]
fn a_step_is_there_whole_or_not_at_all_after_a_cut_at_any_operation() {
    for seed in 1..=6 {
        let script = Script { seed, steps: 40, churns: false };
        survive(&script, &mut CutRig::new(small(32 << 20, 1 << 20), seed), 1);
    }
}

#[test]
fn a_step_is_there_whole_or_not_at_all_after_a_cut_while_the_cleaner_works() {
    for seed in 11..=14 {
        let script = Script { seed, steps: 40, churns: true };
        let mut rig = CutRig::new(small(12 << 20, 192 << 10), seed);
        rig.leave_free = Some(3000 << 10);
        survive(&script, &mut rig, 7);
        assert!(rig.gc_bytes > 1 << 20, "the cleaner copied {} bytes", rig.gc_bytes);
    }
}

#[test]
fn a_step_is_there_whole_or_not_at_all_after_a_cut_between_many_checkpoints() {
    for seed in 21..=24 {
        let script = Script { seed, steps: 60, churns: false };
        survive(&script, &mut CutRig::new(small(10 << 20, 192 << 10), seed), 1);
    }
}

/// A volume with some files, for steps on which commands fail.
fn prepared(fs: &dyn FileSystem) -> Ino {
    let script = Script { seed: 5, steps: 6, churns: false };
    let (_, end) = script.run(fs, false);
    end.unwrap();
    fs.sync().unwrap();
    fs.lookup(Ino::ROOT, b"steps").unwrap().ino
}

/// A step over several files of several streams, with a file that takes the place of another.
fn step(fs: &dyn FileSystem, dir: Ino, data: &'static [u8]) -> Vec<Change<'static>> {
    let streams = |stream| weft_core::Tag { stream: weft_core::StreamId(stream), ..Default::default() };
    let args = |stream| CreateArgs { tag: streams(stream), ..CreateArgs::new(NewNode::File, 0o644) };
    let mut step = vec![
        Change::Create { dir: Node::Ino(dir), name: b"new-1", args: args(1) },
        Change::Create { dir: Node::Ino(dir), name: b"new-2", args: args(2) },
        Change::Write { node: Node::Made(0), offset: 0, data },
        Change::Write { node: Node::Made(1), offset: 5000, data },
        Change::Xattr { node: Node::Made(0), name: b"user.a", value: Some(b"b"), mode: XattrMode::Any },
        Change::Rename {
            from: Node::Ino(dir),
            name: b"new-1",
            to: Node::Ino(dir),
            new_name: b"kept",
            flags: weft_vfs::RenameFlags::empty(),
        },
    ];
    let mut files = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        files.extend((entry.kind == FileKind::File).then_some(entry.ino));
        true
    })
    .unwrap();
    for ino in files.into_iter().take(3) {
        step.push(Change::Write { node: Node::Ino(ino), offset: 777, data });
    }
    step
}

#[test]
fn a_step_that_a_command_fails_is_done_or_has_changed_nothing() {
    let data: &'static [u8] = vec![0x5a; 300_000].leak();
    let (mut refused, mut done) = (0, 0);
    for kind in [Kind::Changes, Kind::Writes, Kind::Reads] {
        for stays in [false, true].into_iter().take(if kind == Kind::Reads { 1 } else { 2 }) {
            for first in 0.. {
                let (device, fs) = fresh(&small(32 << 20, 256 << 10));
                prepared(&fs);
                fs.unmount().unwrap();
                let mounted = |fail| {
                    let device = Arc::new(device.reopen(0).unwrap());
                    let failing = Failing::new(device.clone(), kind, fail);
                    let fs = Lfs::mount(failing.clone(), options()).unwrap();
                    let dir = fs.lookup(Ino::ROOT, b"steps").unwrap().ino;
                    let before = look(&fs, dir);
                    (device, failing, fs, dir, before)
                };
                // Those of the mount and of the look do not fail.
                let base = mounted(0..0).1.commands.load(Relaxed);
                let fail = base + first..if stays { u64::MAX } else { base + first + 1 };
                let (device, failing, fs, dir, before) = mounted(fail.clone());
                let step = step(&fs, dir, data);
                let free = fs.statfs().unwrap();
                let told = fs.commit(&step, true);
                if failing.commands.load(Relaxed) <= fail.start {
                    break;
                }
                let after = look(&fs, dir);
                // A volume that has failed opens and ends no zones any more.
                let wrong =
                    fs.recount().into_iter().filter(|what| told.is_ok() || !what.starts_with("slots"));
                assert_eq!(wrong.collect::<Vec<_>>(), [""; 0], "{kind:?} {fail:?}");
                let is_done = after.contains_key(&b"/new-2"[..]);
                match &told {
                    Ok(_) => assert!(is_done),
                    // Only a flush that fails, or a frame, comes behind the step; the volume takes no more changes then.
                    Err(_) if is_done => assert!(fs.sync().is_err()),
                    Err(_) => {
                        assert_eq!(after, before, "{kind:?} {fail:?}");
                        assert_eq!(fs.statfs().unwrap(), free, "{kind:?} {fail:?}");
                    }
                }
                (refused, done) = (refused + u32::from(!is_done), done + u32::from(is_done));
                drop(fs);
                assert!(check(&device).is_clean(), "{kind:?} {fail:?}: {:?}", check(&device).problems);
                let fs = Lfs::mount(device, options()).unwrap();
                let there = look(&fs, dir);
                let is_there = there.contains_key(&b"/new-2"[..]);
                assert!(told.is_err() || is_there, "{kind:?} {fail:?}");
                if is_there && is_done {
                    assert_eq!(there, after, "{kind:?} {fail:?}");
                } else if !is_there {
                    assert_eq!(there, before, "{kind:?} {fail:?}");
                }
            }
        }
    }
    println!("{refused} steps undone, {done} done");
    assert!(refused > 10 && done > 10, "{refused} steps undone, {done} done");
}

#[test]
fn a_step_that_finds_no_space_has_changed_nothing() {
    let mut refused = 0;
    let mut done = 0;
    for seed in 0..8 {
        let (device, fs) = fresh(&small(12 << 20, 192 << 10));
        let rng = &mut StdRng::seed_from_u64(seed);
        let dir = prepared(&fs);
        let args = CreateArgs::new(NewNode::File, 0o600);
        let ballast = fs.create(Ino::ROOT, b"ballast", &args).unwrap().ino;
        let mut end = 0;
        let beyond = fs.room_beyond_full();
        for round in 0..200 {
            // Around the edge: more comes than goes.
            let len = rng.random_range(1..200_000);
            match fs.write_through(ballast, end, &vec![round as u8 | 1; len]) {
                Ok(()) => end += len as u64,
                Err(FsError::NoSpace) => {
                    end = end.saturating_sub(rng.random_range(0..300_000));
                    let set = weft_vfs::SetAttr { size: Some(end), ..weft_vfs::SetAttr::default() };
                    fs.setattr(ballast, &set).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
            if fs.lookup(dir, b"new-2").is_ok() {
                fs.unlink(dir, b"new-2").unwrap();
            }
            let data: &'static [u8] = &[0x77; 400_000];
            let all = step(&fs, dir, &data[..rng.random_range(1..400_000)]);
            // Now and then only overwrites, and some that need no room.
            let step = &all[if rng.random() { 0 } else { 6 }..];
            fs.sync().unwrap();
            let (before, free) = (look(&fs, dir), fs.statfs().unwrap());
            match fs.commit(step, rng.random()) {
                Ok(_) => {
                    done += 1;
                    assert_eq!(
                        fs.room_beyond_full(),
                        beyond,
                        "no step takes more than what the volume gives"
                    );
                }
                Err(Refused { error: FsError::NoSpace, .. }) => {
                    refused += 1;
                    assert_eq!(look(&fs, dir), before);
                    assert_eq!(fs.statfs().unwrap(), free);
                }
                Err(refused) => panic!("seed {seed}, round {round}: {refused:?}"),
            }
            assert_eq!(fs.recount(), [""; 0]);
        }
        let before = look(&fs, dir);
        fs.unmount().unwrap();
        assert!(check(&device).is_clean(), "{:?}", check(&device).problems);
        let fs = Lfs::mount(device, options()).unwrap();
        assert_eq!(look(&fs, dir), before);
    }
    println!("{refused} steps found no space, {done} did");
    assert!(refused > 100 && done > 100, "{refused} steps found no space, {done} did");
}

#[test]
fn a_full_volume_refuses_a_step_that_its_dead_space_cannot_take_and_goes_on() {
    let (mut refused, mut done) = (0, 0);
    for seed in 0..6 {
        let (device, fs) = fresh(&small(12 << 20, 192 << 10));
        let rng = &mut StdRng::seed_from_u64(seed);
        let args = CreateArgs::new(NewNode::File, 0o600);
        let ino = fs.create(Ino::ROOT, b"full", &args).unwrap().ino;
        let mut blocks = fs.statfs().unwrap().free_bytes / 4096 - 8;
        while fs.write_through(ino, 0, &vec![1; blocks as usize * 4096]).is_err() {
            blocks -= 8;
        }
        fs.sync().unwrap();
        let mut stamps = vec![1u8; blocks as usize];
        for round in 2..100u8 {
            let data = vec![round; rng.random_range(1..16) * 4096];
            let count = rng.random_range(1..64);
            let places: Vec<u64> =
                (0..count).map(|_| rng.random_range(0..blocks - data.len() as u64 / 4096)).collect();
            let step: Vec<Change<'_>> = places
                .iter()
                .map(|at| Change::Write { node: Node::Ino(ino), offset: at * 4096, data: &data })
                .collect();
            match fs.commit(&step, rng.random()) {
                Ok(_) => {
                    done += 1;
                    for at in places {
                        stamps[at as usize..at as usize + data.len() / 4096].fill(round);
                    }
                }
                Err(Refused { at, error: FsError::NoSpace }) => {
                    refused += 1;
                    assert_eq!(at, step.len(), "overwriting takes no more room in the end");
                }
                Err(refused) => panic!("seed {seed}, round {round}: {refused:?}"),
            }
            assert_eq!(fs.recount(), [""; 0]);
            // What takes no more room is never refused to a plain write.
            fs.write_through(ino, 0, &[round; 4096]).unwrap();
            stamps[0] = round;
        }
        let mut out = vec![0; blocks as usize * 4096];
        fs.read(ino, 0, &mut out).unwrap();
        assert!(out.chunks(4096).zip(&stamps).all(|(block, stamp)| block.iter().all(|byte| byte == stamp)));
        fs.unmount().unwrap();
        assert!(check(&device).is_clean(), "{:?}", check(&device).problems);
    }
    println!("{refused} steps found no space, {done} did");
    assert!(refused > 50 && done > 50, "{refused} steps found no space, {done} did");
}

#[test]
fn a_file_that_a_step_puts_over_another_has_its_content_after_a_cut() {
    for look in 0..8 {
        let (device, fs) = fresh(&small(16 << 20, 256 << 10));
        let args = CreateArgs::new(NewNode::File, 0o644);
        let old = fs.create(Ino::ROOT, b"old", &args).unwrap().ino;
        fs.write(old, 0, b"old").unwrap();
        fs.sync().unwrap();
        let new = fs.create(Ino::ROOT, b"new", &args).unwrap().ino;
        fs.write(new, 0, &[9; 30_000]).unwrap();
        let dir = Node::Ino(Ino::ROOT);
        let flags = weft_vfs::RenameFlags::empty();
        // The names change twice: what is put over the other is not yet called so before the step.
        let step = [
            Change::Rename { from: dir, name: b"new", to: dir, new_name: b"between", flags },
            Change::Rename { from: dir, name: b"between", to: dir, new_name: b"old", flags },
        ];
        fs.commit(&step, true).unwrap();
        drop(fs);
        let fs = Lfs::mount(Arc::new(device.reopen(look).unwrap()), options()).unwrap();
        let ino = fs.lookup(Ino::ROOT, b"old").unwrap().ino;
        let mut out = vec![0; 40_000];
        assert_eq!(fs.read(ino, 0, &mut out).unwrap(), 30_000);
        assert!(out[..30_000].iter().all(|byte| *byte == 9));
    }
}

#[test]
fn a_step_is_refused_by_a_volume_that_takes_no_changes() {
    let (device, fs) = fresh(&small(16 << 20, 256 << 10));
    let dir = prepared(&fs);
    fs.unmount().unwrap();
    let fs = Lfs::mount(device, weft_lfs::MountOptions { read_only: true, ..options() }).unwrap();
    let step = step(&fs, dir, b"data");
    let refused = fs.commit(&step, false).unwrap_err();
    assert!(
        matches!(refused, Refused { at, error: FsError::ReadOnly(_) } if at == step.len()),
        "{refused:?}"
    );
}

#[test]
fn a_step_whose_records_fit_no_transaction_is_refused_as_a_whole() {
    let (_, fs) = fresh(&small(16 << 20, 256 << 10));
    let value = vec![1; 40_000];
    let args = CreateArgs::new(NewNode::File, 0o644);
    let set = |at| Change::Xattr {
        node: Node::Made(at),
        name: b"user.x",
        value: Some(&value),
        mode: XattrMode::Any,
    };
    let step = [
        Change::Create { dir: Node::Ino(Ino::ROOT), name: b"a", args },
        set(0),
        Change::Create { dir: Node::Ino(Ino::ROOT), name: b"b", args },
        set(2),
    ];
    let refused = fs.commit(&step, false).unwrap_err();
    assert!(matches!(refused, Refused { at: 4, error: FsError::Invalid(_) }), "{refused:?}");
    assert!(fs.lookup(Ino::ROOT, b"a").is_err());
    fs.commit(&step[..2], false).unwrap();
    assert_eq!(fs.recount(), [""; 0]);
}

#[test]
fn the_largest_step_is_done_on_zones_of_any_size() {
    for zone_bytes in [192 << 10, 1 << 20, 16 << 20] {
        let device =
            Arc::new(weft_device::PowerCut::new(&small(64 * zone_bytes.max(1 << 20), zone_bytes)).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let args = CreateArgs::new(NewNode::File, 0o644);
        let names: Vec<String> = (0..16).map(|n| format!("f{n}")).collect();
        let data: Vec<u8> = (0..4u32 << 20).map(|i| (i % 251) as u8).collect();
        let mut step: Vec<Change<'_>> = Vec::new();
        for name in &names {
            let tag = weft_core::Tag { stream: weft_core::StreamId(step.len() as u16), ..Default::default() };
            step.push(Change::Create {
                dir: Node::Ino(Ino::ROOT),
                name: name.as_bytes(),
                args: CreateArgs { tag, ..args },
            });
        }
        for (at, part) in data.chunks(data.len() / 48).enumerate().take(48) {
            step.push(Change::Write { node: Node::Made(at % 16), offset: at as u64 * 200_001, data: part });
        }
        let made = fs.commit(&step, true).unwrap();
        assert_eq!(fs.recount(), [""; 0]);
        let after = Arc::new(device.reopen(3).unwrap());
        assert!(check(&after).is_clean());
        let fs = Lfs::mount(after, options()).unwrap();
        for (at, part) in data.chunks(data.len() / 48).enumerate().take(48) {
            let mut out = vec![0; part.len()];
            let ino = made[at % 16].unwrap();
            assert_eq!(fs.read(ino, at as u64 * 200_001, &mut out).unwrap(), part.len());
            assert!(out == part);
        }
    }
}

#[test]
fn a_file_that_loses_its_name_in_a_step_lives_as_long_as_it_is_open() {
    let (_, fs) = fresh(&small(16 << 20, 256 << 10));
    let args = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o644) };
    let root = Node::Ino(Ino::ROOT);
    let old = fs.create(Ino::ROOT, b"old", &args).unwrap().ino;
    fs.write(old, 0, b"old").unwrap();
    let step = [
        Change::Create { dir: root, name: b"new", args },
        Change::Remove { dir: root, name: b"old", is_dir: false },
        Change::Write { node: Node::Ino(old), offset: 3, data: b" and more" },
        Change::Write { node: Node::Made(0), offset: 0, data: b"new" },
        Change::Remove { dir: root, name: b"new", is_dir: false },
    ];
    let new = fs.commit(&step, true).unwrap()[0].unwrap();
    let read = |ino| {
        let mut out = [0; 32];
        let len = fs.read(ino, 0, &mut out).unwrap();
        out[..len].to_vec()
    };
    assert_eq!((read(old), read(new)), (b"old and more".to_vec(), b"new".to_vec()));
    fs.release(old);
    fs.release(new);
    assert!(matches!(fs.getattr(old), Err(FsError::Stale)) && matches!(fs.getattr(new), Err(FsError::Stale)));
    assert_eq!(fs.recount(), [""; 0]);
}
