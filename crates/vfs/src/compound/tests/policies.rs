//! What a failure leaves under each policy, and what happens when names change under a program.

use super::*;
use crate::change::{CHANGES_MAX, Change, EXPECTED_MAX, Made, Node, Refused};
use crate::compound::overlay::Overlay;
use crate::compound::{Op, Stale};
use crate::{CreateArgs, FsResult, NewNode, Protections, TimeSpec};
use std::cell::Cell;
use weft_core::{Credentials, Tag};

/// Makes `/x` and `/y`, fails in between at `fails`, and reads.
fn halves(mut chain: Chain, fails: impl FnOnce(&mut Chain)) -> Chain {
    let x = chain.create("/x", 0o644, true);
    chain.append(x, "x");
    let read = chain.read(x, 0, 1);
    chain.export(read);
    fails(&mut chain);
    chain.mkdir("/y", 0o755);
    chain
}

#[test]
fn a_failure_leaves_nothing_a_prefix_or_each_change_before_it() {
    let computed = |chain: &mut Chain| chain.expect(1, Compare::Equal, 2);
    // The core refuses this one, and not the interpreter: under `All` and `Prefix` the step does.
    let refused = |chain: &mut Chain| chain.rmdir("/full");
    for fails in [&computed as &dyn Fn(&mut Chain), &refused] {
        for (new, leaves) in
            [(Chain::all as fn() -> Chain, false), (Chain::prefix, true), (Chain::each, true)]
        {
            let fs = MemFs::new();
            let mut chain = Chain::each();
            chain.mkdir("/full", 0o755);
            chain.mkdir("/full/dir", 0o755);
            done(&fs, chain);
            let before = dump(&fs);
            let answer = run_on(&fs, halves(new(), fails));
            let (at, errno) = answer.failed().unwrap();
            assert!(at == 3 && [libc::ECANCELED, libc::ENOTEMPTY].contains(&errno), "{answer:?}");
            assert_eq!(answer.bytes(2), Some(&b"x"[..]), "what was read before is told");
            assert_eq!(answer.outcomes[4], Outcome::Skipped);
            assert_eq!(dump(&fs) == before, !leaves);
            assert_eq!(content(&fs, "/x").is_ok(), leaves);
            assert!(fs.lookup(Ino::ROOT, b"y").is_err());
        }
    }
}

#[test]
fn a_change_that_the_core_refuses_is_what_failed_and_not_what_rests_on_it() {
    // The interpreter takes both for done.
    let renames = |chain: &mut Chain| chain.rename("/empty", "/full");
    let removes = |chain: &mut Chain| chain.rmdir("/full");
    for refused in [&renames as &dyn Fn(&mut Chain), &removes] {
        for (new, leaves) in
            [(Chain::all as fn() -> Chain, false), (Chain::prefix, true), (Chain::each, true)]
        {
            let fs = MemFs::new();
            let mut chain = Chain::each();
            chain.mkdir("/full", 0o755);
            chain.mkdir("/full/dir", 0o755);
            chain.mkdir("/empty", 0o755);
            done(&fs, chain);
            let before = dump(&fs);
            let mut chain = new();
            chain.mkdir("/first", 0o755);
            refused(&mut chain);
            chain.mkdir("/full/dir/below", 0o755);
            let answer = run_on(&fs, chain);
            assert_eq!(answer.failed(), Some((1, libc::ENOTEMPTY)), "{answer:?}");
            assert_eq!(dump(&fs) == before, !leaves);
            // What fails behind changes that can be made is what failed.
            let mut chain = new();
            chain.rename("/empty", "/other");
            chain.expect(1, Compare::Equal, 2);
            assert_eq!(run_on(&fs, chain).failed(), Some((1, libc::ECANCELED)));
            assert_eq!(fs.lookup(Ino::ROOT, b"other").is_ok(), leaves);
        }
    }
}

#[test]
fn files_are_closed_when_a_program_ends_whatever_its_end() {
    for new in [Chain::all, Chain::prefix, Chain::each] {
        for fails in [false, true] {
            let fs = MemFs::new();
            file(&fs, "/a", "a");
            let mut chain = new();
            let a = chain.open("/a", Access::ReadWrite);
            let b = chain.create("/b", 0o644, true);
            chain.append(b, "b");
            chain.expect(u64::from(fails), Compare::Equal, 0);
            chain.close(a);
            assert_eq!(run_on(&fs, chain).failed().is_some(), fails);
            for name in [&b"a"[..], b"b"] {
                let _ = fs.unlink(Ino::ROOT, name);
            }
            assert_eq!(fs.statfs().unwrap().inodes, 1);
        }
    }
}

#[test]
fn a_core_that_cannot_do_several_changes_in_one_step_refuses_and_each_works_without() {
    let fs = MemFs::new();
    // An overlay is a file system that looks and has no step.
    let core = Overlay::new(&fs, true);
    let before = dump(&fs);
    for new in [Chain::all, Chain::prefix] {
        let answer = run(&Local::new(&core), &halves(new(), |_| {}).check().unwrap());
        assert_eq!(answer.failed(), Some((0, libc::EOPNOTSUPP)));
        assert_eq!(dump(&fs), before);
    }
    done(&fs, halves(Chain::each(), |_| {}));
}

/// A host on which somebody replaces `/a` before the step, some times.
struct Meddled<'a> {
    fs: &'a MemFs,
    local: Local<'a>,
    left: Cell<u32>,
    steps: Cell<u32>,
}

impl Host for Meddled<'_> {
    fn files(&self) -> &dyn FileSystem {
        self.fs
    }

    crate::forward! {
        caller => local.caller() -> &Credentials;
        start => local.start() -> Ino;
        umask => local.umask() -> u32;
        near => local.near() -> Option<&dyn Near>;
        mount_point => local.mount_point() -> &[u8];
        protections => local.protections() -> Protections;
        now => local.now() -> TimeSpec;
        tag => local.tag(start: Ino, path: &[u8]) -> Tag;
        turn => local.turn(ops: &[Op], run: &mut dyn FnMut() -> Result<(), Stale>) -> FsResult<()>;
        change => local.change(change: &Change<'_>, durable: bool) -> FsResult<Option<Ino>>;
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.steps.set(self.steps.get() + 1);
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            self.fs.unlink(Ino::ROOT, b"a").unwrap();
            let a = self.fs.create(Ino::ROOT, b"a", &CreateArgs::new(NewNode::File, 0o644)).unwrap().ino;
            self.fs.write(a, 0, format!("new {}", self.left.get()).as_bytes()).unwrap();
        }
        self.local.commit(changes, durable)
    }

    fn sync(&self, ino: Ino) -> FsResult<()> {
        self.local.sync(ino)
    }
}

#[test]
fn a_program_runs_again_when_a_name_led_elsewhere_and_gives_up_at_the_third_time() {
    for (meddles, runs) in [(0, true), (1, true), (2, true), (3, false)] {
        let fs = MemFs::new();
        file(&fs, "/a", "old");
        let mut chain = Chain::all();
        let a = chain.open("/a", Access::Read);
        let read = chain.read(a, 0, 9);
        chain.export(read);
        let copy = chain.create("/copy", 0o644, true);
        chain.append(copy, read);
        let host = Meddled { fs: &fs, local: Local::new(&fs), left: Cell::new(meddles), steps: Cell::new(0) };
        let answer = run(&host, &chain.check().unwrap());
        assert_eq!(host.steps.get(), (meddles + 1).min(3));
        if runs {
            assert_eq!(answer.failed(), None);
            assert_eq!(content(&fs, "/copy").unwrap(), content(&fs, "/a").unwrap());
        } else {
            assert_eq!(answer.failed(), Some((0, libc::ESTALE)));
            assert_eq!(content(&fs, "/copy"), Err(libc::ENOENT));
        }
    }
}

#[test]
fn a_step_has_room_for_what_each_of_its_changes_expects() {
    let fs = MemFs::new();
    let mut chain = Chain::all();
    for at in 0..64 {
        chain.mkdir(format!("/{at}").as_str(), 0o755);
    }
    done(&fs, chain);
    let mut chain = Chain::all();
    for at in 0..64 {
        chain.rmdir(format!("/{at}").as_str());
    }
    done(&fs, chain);
}

#[test]
fn a_step_beyond_its_limits_is_refused_as_a_whole() {
    let fs = MemFs::new();
    let root = Node::Ino(Ino::ROOT);
    let expect = Change::Expect { dir: root, name: b"a", ino: None };
    let remove = Change::Remove { dir: root, name: b"a", is_dir: false };
    for (change, max) in [(expect, EXPECTED_MAX), (remove, CHANGES_MAX)] {
        let refused = fs.commit(&vec![change; max + 1], false).unwrap_err();
        assert_eq!((refused.at, refused.error.errno()), (max + 1, libc::EINVAL));
        let at_most = fs.commit(&vec![change; max], false).map_err(|refused| refused.at);
        assert!(matches!(
            (change, at_most),
            (Change::Expect { .. }, Ok(_)) | (Change::Remove { .. }, Err(0))
        ));
    }
}

#[test]
fn a_sync_makes_the_step_durable_or_syncs_at_once() {
    let fs = MemFs::new();
    file(&fs, "/a", "a");
    let mut chain = Chain::all();
    let a = chain.open("/a", Access::Write);
    chain.sync(a);
    chain.append(a, "b");
    chain.sync(a);
    done(&fs, chain);
    assert_eq!(content(&fs, "/a").unwrap(), "ab");
}
