//! Quotas: what a tree takes is what an oracle counts, whatever is done, across remounts and power cuts; nothing exceeds a limit but what
//! was accepted before.
//!
//! `WEFT_CASES=N` tries N sequences against the oracle instead of 60, `WEFT_SEED=N` others. `WEFT_CAMPAIGN=1` cuts at all operations.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{Contents, CutRig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_conformance::crash::{Rig, takes_new_writes};
use weft_core::Ino;
use weft_core::random::SplitMix;
use weft_tagfs::{FormatOptions, Layout, MountOptions, TagFs};
use weft_tags::{Info, InfoForm, MemoryStore, NodeType, Options, SnodeId, Store};
use weft_vfs::quota::{Limits, Usage};
use weft_vfs::{
    Change, Core, CreateArgs, FallocateMode, FileKind, FileSystem, FsError, FsResult, NewNode, Node,
    QUOTA_XATTR, RenameFlags, SetAttr, TimeSpec, USAGE_XATTR, XattrMode,
};

const BLOCK: u64 = 4096;
const SUPER: NodeType = NodeType(0x7466_0001);
const QUOTA: NodeType = NodeType(0x7466_0008);

fn fresh() -> Arc<MemoryStore> {
    fresh_as(FormatOptions::default())
}

fn fresh_as(options: FormatOptions) -> Arc<MemoryStore> {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes: 128 << 20, ..options };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    medium
}

fn mount(medium: &Arc<MemoryStore>) -> TagFs {
    let options = MountOptions { cache_bytes: 16 << 20, ..MountOptions::default() };
    TagFs::mount(Box::new(medium.clone()), options).unwrap()
}

#[track_caller]
fn assert_sound(medium: &Arc<MemoryStore>) {
    let report = TagFs::check(Box::new(medium.clone())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn make(fs: &dyn FileSystem, dir: Ino, name: &str, node: NewNode<'_>) -> FsResult<Ino> {
    fs.create(dir, name.as_bytes(), &CreateArgs::new(node, 0o755)).map(|attr| attr.ino)
}

fn limit(fs: &dyn FileSystem, dir: Ino, limits: &str) -> FsResult<()> {
    fs.setxattr(dir, QUOTA_XATTR, limits.as_bytes(), XattrMode::Any)
}

/// A directory of the root with a quota.
fn tree(fs: &dyn FileSystem, name: &str, limits: &str) -> Ino {
    let dir = make(fs, Ino::ROOT, name, NewNode::Directory).unwrap();
    limit(fs, dir, limits).unwrap();
    dir
}

fn usage(fs: &dyn FileSystem, ino: Ino) -> Usage {
    Usage::parse(&fs.getxattr(ino, USAGE_XATTR).unwrap()).unwrap()
}

/// Bytes and inodes of a tree.
fn used(fs: &dyn FileSystem, dir: Ino) -> (u64, u64) {
    let usage = usage(fs, dir);
    (usage.bytes, usage.files)
}

macro_rules! assert_fails {
    ($what:expr, $error:pat) => {
        match $what {
            Err($error) => {}
            other => panic!("{} gives {other:?}", stringify!($what)),
        }
    };
}

#[test]
fn a_tree_takes_no_more_than_its_limits_and_what_goes_makes_room() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "bytes=40K files=3");
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    let below = make(&fs, dir, "below", NewNode::Directory).unwrap();
    let other = make(&fs, below, "other", NewNode::File).unwrap();
    assert_eq!(used(&fs, dir), (0, 3));
    for node in
        [NewNode::File, NewNode::Directory, NewNode::Symlink(b"x"), NewNode::Special(FileKind::Fifo, 0)]
    {
        assert_fails!(make(&fs, below, "more", node), FsError::QuotaExceeded);
    }
    let unnamed = CreateArgs::new(NewNode::File, 0o600);
    assert_fails!(fs.create_unnamed(below, &unnamed, true), FsError::QuotaExceeded);

    fs.write(file, 0, &[1; 20_000]).unwrap();
    assert_eq!(used(&fs, dir), (5 * BLOCK, 3), "what is buffered counts");
    fs.fallocate(other, FallocateMode::KeepSize, 1 << 20, 3 * BLOCK).unwrap();
    assert_fails!(fs.write(other, 0, &[2; 3 * BLOCK as usize]), FsError::QuotaExceeded);
    assert_fails!(fs.fallocate(other, FallocateMode::Allocate, 0, 3 * BLOCK), FsError::QuotaExceeded);
    let write = [Change::Write { node: Node::Ino(other), offset: 0, data: &[2; 3 * BLOCK as usize] }];
    assert!(matches!(fs.commit(&write, false).unwrap_err().error, FsError::QuotaExceeded));
    assert_eq!(fs.getattr(other).unwrap().size, 0, "nothing of it was written");
    fs.write(other, 0, &[2; 2 * BLOCK as usize]).unwrap();
    assert_eq!(used(&fs, dir), (10 * BLOCK, 3));
    assert_fails!(fs.write_late(file, 20_480, &[1], false, TimeSpec::now()), FsError::QuotaExceeded);

    // What is there may be overwritten, holes may come, and promises are kept.
    fs.write(file, 0, &[3; 20_480]).unwrap();
    fs.write(other, 1 << 20, &[3; 3 * BLOCK as usize]).unwrap();
    fs.setattr(file, &SetAttr { size: Some(1 << 30), ..SetAttr::default() }).unwrap();
    fs.setattr(file, &SetAttr { size: Some(BLOCK), ..SetAttr::default() }).unwrap();
    assert_eq!(used(&fs, dir), (6 * BLOCK, 3));
    fs.write(other, 2 * BLOCK, &[4; 4 * BLOCK as usize]).unwrap();
    fs.unlink(below, b"other").unwrap();
    assert_eq!(used(&fs, dir), (BLOCK, 2));
    make(&fs, below, "more", NewNode::File).unwrap();

    // Limits below what there is let nothing come.
    limit(&fs, dir, "bytes=0 files=1").unwrap();
    assert_fails!(fs.write(file, BLOCK, &[1]), FsError::QuotaExceeded);
    assert_fails!(make(&fs, dir, "new", NewNode::File), FsError::QuotaExceeded);
    fs.write(file, 0, &[9; BLOCK as usize]).unwrap();
    limit(&fs, dir, "files=9").unwrap();
    fs.write(file, BLOCK, &[1; 100_000]).unwrap();
    let before = (26 * BLOCK, 3);
    assert_eq!(used(&fs, dir), before);
    assert_eq!(usage(&fs, file).limits, Limits { bytes: None, files: Some(9) }, "all of a tree tell of it");
    fs.unmount().unwrap();
    assert_sound(&medium);
    let fs = mount(&medium);
    assert_eq!(used(&fs, dir), before);
    assert_eq!(fs.quota_room(file).unwrap().map(|room| (room.dir, room.free_bytes)), Some((dir, u64::MAX)));
    limit(&fs, dir, "bytes=27K").unwrap();
    assert_eq!(fs.quota_room(dir).unwrap().unwrap().free_bytes, 0);
    assert_eq!(fs.quota_room(Ino::ROOT).unwrap(), None);
}

#[test]
fn what_was_accepted_before_is_stored_beyond_a_limit() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "bytes=8K");
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    fs.write_accepted(file, 0, &[1; 20_000], true, TimeSpec::now()).unwrap();
    assert_eq!(used(&fs, dir), (5 * BLOCK, 1));
    assert_fails!(fs.write(file, 20_480, &[1]), FsError::QuotaExceeded);
    fs.fsync(file).unwrap();
    drop(fs);
    assert_sound(&medium);
    assert_eq!(used(&mount(&medium), dir), (5 * BLOCK, 1));
}

#[test]
fn a_first_quota_is_set_on_an_empty_directory_outside_of_other_trees() {
    let medium = fresh();
    let fs = mount(&medium);
    let full = make(&fs, Ino::ROOT, "full", NewNode::Directory).unwrap();
    let file = make(&fs, full, "file", NewNode::File).unwrap();
    assert_fails!(limit(&fs, full, "files=1"), FsError::NotEmpty);
    assert_fails!(limit(&fs, file, "files=1"), FsError::NotDirectory);
    for wrong in ["", "none", "bytes=x", "files=1 files=2"] {
        assert_fails!(limit(&fs, full, wrong), FsError::Invalid(_));
    }
    fs.unlink(full, b"file").unwrap();
    assert_fails!(fs.setxattr(full, QUOTA_XATTR, b"files=1", XattrMode::Replace), FsError::NoAttribute);
    assert_fails!(fs.getxattr(full, USAGE_XATTR), FsError::NoAttribute);
    limit(&fs, full, "files=1").unwrap();
    assert_fails!(fs.setxattr(full, QUOTA_XATTR, b"files=2", XattrMode::Create), FsError::Exists);
    assert_eq!(usage(&fs, full).limits.files, Some(1));
    let below = make(&fs, full, "below", NewNode::Directory).unwrap();
    assert_fails!(limit(&fs, below, "files=1"), FsError::Invalid(_));
    assert_eq!(fs.listxattr(full).unwrap(), [QUOTA_XATTR], "what is told is not listed");
    assert_fails!(fs.setxattr(full, USAGE_XATTR, b"bytes=0", XattrMode::Any), FsError::NotPermitted);
    let xattr = Change::Xattr {
        node: Node::Ino(full),
        name: QUOTA_XATTR,
        value: Some(b"files=7"),
        mode: XattrMode::Any,
    };
    assert!(fs.commit(&[xattr], false).is_err());
    let attributes = [(QUOTA_XATTR, &b"files=7"[..])];
    let args = CreateArgs { xattrs: &attributes, ..CreateArgs::new(NewNode::Directory, 0o755) };
    assert!(fs.create(Ino::ROOT, b"with", &args).is_err());
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn the_root_can_have_a_quota_of_all_that_is_on_the_volume() {
    let medium = fresh();
    let fs = mount(&medium);
    limit(&fs, Ino::ROOT, "bytes=1M files=2").unwrap();
    let dir = make(&fs, Ino::ROOT, "dir", NewNode::Directory).unwrap();
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    assert_fails!(make(&fs, dir, "more", NewNode::File), FsError::QuotaExceeded);
    assert_fails!(fs.write(file, 0, &[1; (1 << 20) + 1]), FsError::QuotaExceeded);
    fs.write(file, 0, &[1; 1 << 20]).unwrap();
    fs.unmount().unwrap();
    assert_sound(&medium);
    assert_eq!(used(&mount(&medium), Ino::ROOT), (1 << 20, 2));
}

#[test]
fn an_inode_stays_with_its_quota() {
    let medium = fresh();
    let fs = mount(&medium);
    let (one, two) = (tree(&fs, "one", "files=9"), tree(&fs, "two", "files=9"));
    let below = make(&fs, one, "below", NewNode::Directory).unwrap();
    let file = make(&fs, one, "file", NewNode::File).unwrap();
    make(&fs, two, "file", NewNode::File).unwrap();
    make(&fs, Ino::ROOT, "free", NewNode::File).unwrap();
    let to = |from: Ino, name: &str, to: Ino, new_name: &str, flags: RenameFlags| {
        fs.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags)
    };
    let none = RenameFlags::default();
    assert_fails!(to(one, "file", two, "new", none), FsError::CrossQuota);
    assert_fails!(to(one, "file", two, "file", none), FsError::CrossQuota);
    assert_fails!(to(one, "file", Ino::ROOT, "file", none), FsError::CrossQuota);
    assert_fails!(to(Ino::ROOT, "free", one, "free", none), FsError::CrossQuota);
    assert_fails!(to(one, "below", two, "below", none), FsError::CrossQuota);
    assert_fails!(to(one, "file", two, "file", RenameFlags::EXCHANGE), FsError::CrossQuota);
    assert_fails!(to(Ino::ROOT, "free", one, "file", RenameFlags::EXCHANGE), FsError::CrossQuota);
    assert_fails!(to(Ino::ROOT, "two", one, "two", none), FsError::CrossQuota);
    assert_fails!(fs.link(file, two, b"link"), FsError::CrossQuota);
    assert_fails!(fs.link(file, Ino::ROOT, b"link"), FsError::CrossQuota);
    assert_eq!((used(&fs, one), used(&fs, two)), ((0, 2), (0, 1)));

    to(one, "file", below, "moved", none).unwrap();
    fs.link(file, one, b"link").unwrap();
    to(one, "link", one, "below", RenameFlags::EXCHANGE).unwrap();
    to(below, "moved", one, "gone", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(used(&fs, one), (0, 3), "the whiteout counts");
    // Directories that have a quota move where there is none, and change places.
    let plain = make(&fs, Ino::ROOT, "plain", NewNode::Directory).unwrap();
    to(Ino::ROOT, "two", plain, "two", none).unwrap();
    to(Ino::ROOT, "one", plain, "two", RenameFlags::EXCHANGE).unwrap();
    to(plain, "two", Ino::ROOT, "first", none).unwrap();
    // An empty one goes with what replaces it.
    tree(&fs, "empty", "files=1");
    to(Ino::ROOT, "plain", Ino::ROOT, "empty", none).unwrap();
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn a_file_without_a_name_counts_to_the_directory_in_which_it_was_made() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "bytes=8K");
    let unnamed = |dir| fs.create_unnamed(dir, &CreateArgs::new(NewNode::File, 0o600), true).unwrap().ino;
    let (inside, outside) = (unnamed(dir), unnamed(Ino::ROOT));
    fs.write(outside, 0, &[1; 20_000]).unwrap();
    assert_fails!(fs.write(inside, 0, &[1; 20_000]), FsError::QuotaExceeded);
    fs.write(inside, 0, &[1; 8_000]).unwrap();
    assert_eq!(used(&fs, dir), (2 * BLOCK, 1));
    assert_fails!(fs.link(outside, dir, b"file"), FsError::CrossQuota);
    assert_fails!(fs.link(inside, Ino::ROOT, b"file"), FsError::CrossQuota);
    fs.link(inside, dir, b"file").unwrap();
    fs.release(inside);
    fs.release(outside);
    assert_eq!(used(&fs, dir), (2 * BLOCK, 1));
    fs.unlink(dir, b"file").unwrap();
    assert_eq!(used(&fs, dir), (0, 0));
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn what_is_open_without_a_name_counts_until_it_is_closed_and_outlives_its_tree() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "bytes=8K files=1");
    let open = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o644) };
    let first = fs.create(dir, b"file", &open).unwrap().ino;
    fs.write(first, 0, &[1; 8_192]).unwrap();
    fs.unlink(dir, b"file").unwrap();
    assert_eq!(used(&fs, dir), (8_192, 1));
    assert_fails!(make(&fs, dir, "more", NewNode::File), FsError::QuotaExceeded);
    // It is counted, and so the tree is counted on when its limits are lifted.
    fs.removexattr(dir, QUOTA_XATTR).unwrap();
    assert_eq!(used(&fs, dir), (8_192, 1));
    fs.rmdir(Ino::ROOT, b"q").unwrap();
    fs.write(first, 8_192, &[1; 20_000]).unwrap();
    fs.sync().unwrap();
    assert_sound(&medium);
    fs.release(first);
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn a_lifted_quota_goes_with_what_it_counts() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "bytes=8K files=1");
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    fs.removexattr(dir, QUOTA_XATTR).unwrap();
    assert_fails!(fs.removexattr(dir, QUOTA_XATTR), FsError::NoAttribute);
    fs.write(file, 0, &[1; 100_000]).unwrap();
    make(&fs, dir, "more", NewNode::File).unwrap();
    assert_eq!(used(&fs, dir), (25 * BLOCK, 2), "it counts on");
    limit(&fs, dir, "bytes=8K").unwrap();
    for name in [&b"file"[..], b"more"] {
        fs.unlink(dir, name).unwrap();
    }
    fs.removexattr(dir, QUOTA_XATTR).unwrap();
    assert_fails!(fs.getxattr(dir, USAGE_XATTR), FsError::NoAttribute);
    make(&fs, Ino::ROOT, "free", NewNode::File).unwrap();
    fs.rename(Ino::ROOT, b"free", dir, b"free", RenameFlags::default()).unwrap();
    assert_fails!(limit(&fs, dir, "bytes=8K"), FsError::NotEmpty);
    fs.unmount().unwrap();
    assert_sound(&medium);
}

/// The version of the volume, and whether its store knows quotas.
fn marks(medium: &Arc<MemoryStore>) -> (u8, bool) {
    let store = Store::open(Box::new(medium.clone()), &Options::default()).unwrap();
    let etype = store.edge_type("tagfs.super", InfoForm::Number).unwrap();
    let root = store.root(SnodeId::FIRST).unwrap();
    let node = store.edge(root, etype, Info::Number(0)).unwrap().unwrap();
    let version = store.read_node(node, SUPER).unwrap()[0];
    (version, store.edge_types().iter().any(|etype| etype.name == "tagfs.quota"))
}

#[test]
fn a_quota_that_was_lifted_over_a_file_ends_when_it_is_lifted_again() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "dir", "files=9");
    make(&fs, dir, "file", NewNode::File).unwrap();
    fs.removexattr(dir, QUOTA_XATTR).unwrap();
    assert_fails!(fs.removexattr(dir, QUOTA_XATTR), FsError::NoAttribute);
    fs.unlink(dir, b"file").unwrap();
    fs.removexattr(dir, QUOTA_XATTR).unwrap();
    assert_fails!(fs.removexattr(dir, QUOTA_XATTR), FsError::NoAttribute);
    assert_fails!(fs.getxattr(dir, USAGE_XATTR), FsError::NoAttribute);
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn a_volume_is_of_the_first_version_until_its_first_quota() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = make(&fs, Ino::ROOT, "dir", NewNode::Directory).unwrap();
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    fs.write(file, 0, &[1; 100_000]).unwrap();
    assert_fails!(limit(&fs, dir, "bytes=1M"), FsError::NotEmpty);
    assert_fails!(fs.removexattr(dir, QUOTA_XATTR), FsError::NoAttribute);
    fs.unmount().unwrap();
    assert_eq!(marks(&medium), (1, false));
    let fs = mount(&medium);
    tree(&fs, "q", "files=1");
    fs.unmount().unwrap();
    assert_eq!(marks(&medium), (2, true));
    let fs = mount(&medium);
    fs.rmdir(Ino::ROOT, b"q").unwrap();
    fs.unmount().unwrap();
    assert_sound(&medium);
}

#[test]
fn the_check_finds_counts_that_are_not_so() {
    let medium = fresh();
    let fs = mount(&medium);
    let dir = tree(&fs, "q", "files=9");
    let file = make(&fs, dir, "file", NewNode::File).unwrap();
    fs.write(file, 0, &[1; 100_000]).unwrap();
    fs.unmount().unwrap();
    assert_sound(&medium);
    {
        let store = Store::open(Box::new(medium.clone()), &Options::default()).unwrap();
        let etype = store.edge_type("tagfs.quota", InfoForm::Number).unwrap();
        let root = store.root(SnodeId(dir.0)).unwrap();
        let node = store.edge(root, etype, Info::Number(0)).unwrap().unwrap();
        let mut raw = store.read_node(node, QUOTA).unwrap().to_vec();
        assert_eq!(raw, [25u64, 1].map(u64::to_le_bytes).concat());
        raw[0] = 24;
        let mut tx = store.begin();
        tx.update_node(node, QUOTA, &raw).unwrap();
        tx.commit().unwrap();
        store.close().unwrap();
    }
    let problems = TagFs::check(Box::new(medium.clone())).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains("24 blocks and 1 inodes are said"), "{problems:?}");
}

/// An inode as the oracle knows it.
#[derive(Clone, Default)]
struct Known {
    /// The directory with the quota that it counts to.
    quota: Option<Ino>,
    is_dir: bool,
    /// Blocks with data or a promise, and those of a small file: never more than these.
    blocks: BTreeSet<u64>,
    size: u64,
    names: u64,
    opens: u64,
}

/// Who owns which blocks, and may have how many.
#[derive(Default)]
struct Oracle {
    inodes: BTreeMap<Ino, Known>,
    names: BTreeMap<(Ino, String), Ino>,
    limits: BTreeMap<Ino, Limits>,
}

impl Oracle {
    fn counted(&self, dir: Ino) -> (u64, u64) {
        let of = self.inodes.values().filter(|known| known.quota == Some(dir));
        of.fold((0, 0), |(blocks, inodes), known| (blocks + known.blocks.len() as u64, inodes + 1))
    }

    /// The quota of what is made in a directory.
    fn domain(&self, dir: Ino) -> Option<Ino> {
        if self.limits.contains_key(&dir) { Some(dir) } else { self.inodes[&dir].quota }
    }

    /// Whether so much more fits a quota.
    fn fits(&self, quota: Option<Ino>, blocks: u64, inodes: u64) -> bool {
        // What is left of a tree that has gone has no limits.
        let Some((dir, limits)) = quota.and_then(|dir| Some((dir, self.limits.get(&dir)?))) else {
            return true;
        };
        let used = self.counted(dir);
        let fits = |limit: Option<u64>, used: u64, more: u64| {
            more == 0 || limit.is_none_or(|limit| used + more <= limit)
        };
        fits(limits.bytes.map(|bytes| bytes / BLOCK), used.0, blocks) && fits(limits.files, used.1, inodes)
    }

    fn settle(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|known| known.names + known.opens == 0) {
            self.inodes.remove(&ino);
            self.limits.remove(&ino);
        }
    }

    fn unname(&mut self, dir: Ino, name: &str) {
        if let Some(ino) = self.names.remove(&(dir, name.to_string())) {
            self.inodes.get_mut(&ino).unwrap().names -= 1;
            self.settle(ino);
        }
    }
}

fn range(start: u64, len: u64) -> std::ops::Range<u64> {
    start / BLOCK..(start + len).div_ceil(BLOCK)
}

/// A sequence of random operations.
struct Sequence {
    fs: TagFs,
    medium: Arc<MemoryStore>,
    oracle: Oracle,
    random: SplitMix,
    /// Refused for a quota, and for crossing from one to another.
    refused: (u64, u64),
}

impl Sequence {
    fn new(seed: u64) -> Sequence {
        // Each of the layouts that records can have.
        let layout = if seed.is_multiple_of(2) { Layout::default() } else { Layout::Fine };
        let medium = fresh_as(FormatOptions { layout, ..FormatOptions::default() });
        let fs = mount(&medium);
        let mut oracle = Oracle::default();
        oracle.inodes.insert(Ino::ROOT, Known { is_dir: true, names: 1, ..Known::default() });
        Sequence { fs, medium, oracle, random: SplitMix::new(seed, &[]), refused: (0, 0) }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.random.below(from.len() as u64) as usize).copied()
    }

    fn dir(&mut self) -> Ino {
        let dirs: Vec<Ino> =
            self.oracle.inodes.iter().filter(|(_, known)| known.is_dir).map(|(ino, _)| *ino).collect();
        self.pick(&dirs).unwrap()
    }

    fn file(&mut self) -> Option<Ino> {
        let files: Vec<Ino> =
            self.oracle.inodes.iter().filter(|(_, known)| !known.is_dir).map(|(ino, _)| *ino).collect();
        self.pick(&files)
    }

    fn name(&mut self) -> String {
        format!("n{}", self.random.below(5))
    }

    /// A result is that of the oracle: done, or refused for the quota.
    fn agree<T: std::fmt::Debug>(&mut self, fits: bool, result: FsResult<T>, what: &str) -> Option<T> {
        match result {
            Ok(done) if fits => Some(done),
            Err(FsError::QuotaExceeded) if !fits => {
                self.refused.0 += 1;
                None
            }
            other => panic!("{what} gives {other:?}, and fits: {fits}"),
        }
    }

    fn make(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        if self.oracle.names.contains_key(&(dir, name.clone())) || self.oracle.inodes[&dir].names == 0 {
            return;
        }
        let node = match self.random.below(4) {
            0 => NewNode::Directory,
            1 => NewNode::Symlink(b"target"),
            _ => NewNode::File,
        };
        let (is_dir, is_link) = (node == NewNode::Directory, matches!(node, NewNode::Symlink(_)));
        let quota = self.oracle.domain(dir);
        let fits = self.oracle.fits(quota, 0, 1);
        let made = make(&self.fs, dir, &name, node);
        let Some(ino) = self.agree(fits, made, "create") else { return };
        if is_link {
            self.fs.unlink(dir, name.as_bytes()).unwrap();
            return;
        }
        self.oracle.inodes.insert(ino, Known { quota, is_dir, names: 1, ..Known::default() });
        self.oracle.names.insert((dir, name), ino);
    }

    fn write(&mut self) {
        let Some(ino) = self.file() else { return };
        let far = if self.random.below(4) == 0 { 1 << 21 } else { 1 << 15 };
        let (offset, len) = (self.random.below(far), 1 + self.random.below(30_000));
        let known = &self.oracle.inodes[&ino];
        let blocks: Vec<u64> = range(offset, len).filter(|block| !known.blocks.contains(block)).collect();
        let is_accepted = self.random.below(8) == 0;
        let fits = is_accepted || self.oracle.fits(known.quota, blocks.len() as u64, 0);
        let data = vec![self.random.next() as u8; len as usize];
        let (fs, when) = (&self.fs, TimeSpec::now());
        let written = match self.random.below(3) {
            _ if is_accepted => fs.write_accepted(ino, offset, &data, false, when),
            0 => fs.write_through(ino, offset, &data),
            1 => {
                let change = Change::Write { node: Node::Ino(ino), offset, data: &data };
                fs.commit(&[change], false).map(drop).map_err(|refused| refused.error)
            }
            _ => fs.write(ino, offset, &data),
        };
        if self.agree(fits, written, "write").is_some() {
            let known = self.oracle.inodes.get_mut(&ino).unwrap();
            known.blocks.extend(blocks);
            known.size = known.size.max(offset + len);
        }
    }

    fn resize(&mut self) {
        let Some(ino) = self.file() else { return };
        let size = self.random.below(50_000);
        self.fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        let known = self.oracle.inodes.get_mut(&ino).unwrap();
        if size <= known.size {
            known.blocks.retain(|block| *block < size.div_ceil(BLOCK));
        }
        known.size = size;
    }

    fn allocate(&mut self) {
        let Some(ino) = self.file() else { return };
        let (offset, len) = (self.random.below(1 << 16), 1 + self.random.below(40_000));
        let known = &self.oracle.inodes[&ino];
        let blocks: Vec<u64> = range(offset, len).filter(|block| !known.blocks.contains(block)).collect();
        if self.random.below(3) == 0 {
            self.fs.fallocate(ino, FallocateMode::PunchHole, offset, len).unwrap();
            let (from, to) = (offset.div_ceil(BLOCK), (offset + len) / BLOCK);
            let known = self.oracle.inodes.get_mut(&ino).unwrap();
            known.blocks.retain(|block| !(from..to).contains(block));
            return;
        }
        let fits = self.oracle.fits(known.quota, blocks.len() as u64, 0);
        let allocated = self.fs.fallocate(ino, FallocateMode::KeepSize, offset, len);
        if self.agree(fits, allocated, "fallocate").is_some() {
            self.oracle.inodes.get_mut(&ino).unwrap().blocks.extend(blocks);
        }
    }

    fn remove(&mut self) {
        let names: Vec<(Ino, String)> = self.oracle.names.keys().cloned().collect();
        let Some((dir, name)) = names.get(self.random.below(names.len() as u64) as usize).cloned() else {
            return;
        };
        let ino = self.oracle.names[&(dir, name.clone())];
        let removed = if self.oracle.inodes[&ino].is_dir {
            self.fs.rmdir(dir, name.as_bytes())
        } else {
            self.fs.unlink(dir, name.as_bytes())
        };
        match removed {
            Ok(()) => self.oracle.unname(dir, &name),
            Err(FsError::NotEmpty) => {}
            other => panic!("a removal gives {other:?}"),
        }
    }

    /// Whether an inode may have a name in a directory.
    fn is_same(&self, ino: Ino, dir: Ino) -> bool {
        self.oracle.inodes[&ino].quota == self.oracle.domain(dir)
    }

    fn rename(&mut self) {
        let names: Vec<(Ino, String)> = self.oracle.names.keys().cloned().collect();
        let Some((from, name)) = names.get(self.random.below(names.len() as u64) as usize).cloned() else {
            return;
        };
        let (to, new_name) = (self.dir(), self.name());
        let (ino, other) = (
            self.oracle.names[&(from, name.clone())],
            self.oracle.names.get(&(to, new_name.clone())).copied(),
        );
        let exchanges = self.random.below(3) == 0;
        let flags = if exchanges { RenameFlags::EXCHANGE } else { RenameFlags::default() };
        let is_same = self.is_same(ino, to)
            && other.filter(|_| exchanges).is_none_or(|other| self.is_same(other, from));
        match self.fs.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags) {
            Ok(()) if other == Some(ino) => {}
            Ok(()) => {
                assert!(is_same, "a rename left its quota");
                if let (true, Some(other)) = (exchanges, other) {
                    self.oracle.names.insert((from, name), other);
                } else {
                    self.oracle.unname(to, &new_name);
                    self.oracle.names.remove(&(from, name));
                }
                self.oracle.names.insert((to, new_name), ino);
            }
            Err(FsError::CrossQuota) => {
                assert!(!is_same, "a rename within a quota is refused");
                self.refused.1 += 1;
            }
            Err(FsError::QuotaExceeded) => panic!("a rename adds nothing"),
            Err(_) => {}
        }
    }

    fn link(&mut self) {
        let Some(ino) = self.file() else { return };
        let (dir, name) = (self.dir(), self.name());
        match self.fs.link(ino, dir, name.as_bytes()) {
            Ok(_) => {
                assert!(self.is_same(ino, dir), "a link left its quota");
                self.oracle.inodes.get_mut(&ino).unwrap().names += 1;
                self.oracle.names.insert((dir, name), ino);
            }
            Err(FsError::CrossQuota) => {
                assert!(!self.is_same(ino, dir), "a link within a quota is refused");
                self.refused.1 += 1;
            }
            Err(FsError::QuotaExceeded) => panic!("a link adds nothing"),
            Err(_) => {}
        }
    }

    fn make_unnamed(&mut self) {
        let dir = self.dir();
        let quota = self.oracle.domain(dir);
        let fits = self.oracle.fits(quota, 0, 1);
        let made = self.fs.create_unnamed(dir, &CreateArgs::new(NewNode::File, 0o600), true);
        if let Some(attr) = self.agree(fits, made, "create_unnamed") {
            self.oracle.inodes.insert(attr.ino, Known { quota, opens: 1, ..Known::default() });
        }
    }

    fn open_or_close(&mut self) {
        let Some(ino) = self.file() else { return };
        let known = self.oracle.inodes.get_mut(&ino).unwrap();
        if known.opens > 0 {
            known.opens -= 1;
            self.fs.release(ino);
            self.oracle.settle(ino);
        } else {
            known.opens += 1;
            self.fs.open(ino).unwrap();
        }
    }

    fn set_limits(&mut self) {
        let dir = self.dir();
        let bytes = (self.random.below(3) > 0).then(|| self.random.below(40) * BLOCK);
        let files = (self.random.below(3) == 0 || bytes.is_none()).then(|| self.random.below(10));
        let limits = Limits { bytes, files };
        let known = &self.oracle.inodes[&dir];
        let is_empty = !self.oracle.names.keys().any(|(of, _)| *of == dir);
        let has_one = self.oracle.limits.contains_key(&dir);
        if dir == Ino::ROOT || known.names == 0 {
            return;
        }
        if has_one && self.random.below(4) == 0 {
            match self.fs.removexattr(dir, QUOTA_XATTR) {
                Ok(()) if self.oracle.counted(dir) == (0, 0) => {
                    assert_fails!(self.fs.getxattr(dir, USAGE_XATTR), FsError::NoAttribute);
                    self.oracle.limits.remove(&dir);
                }
                Ok(()) => drop(self.oracle.limits.insert(dir, Limits::default())),
                Err(FsError::NoAttribute) => assert_eq!(self.oracle.limits[&dir], Limits::default()),
                other => panic!("to lift limits gives {other:?}"),
            }
            return;
        }
        match limit(&self.fs, dir, &limits.to_string()) {
            Ok(()) => {
                assert!(has_one || known.quota.is_none() && is_empty);
                self.oracle.limits.insert(dir, limits);
            }
            Err(FsError::Invalid(_)) => assert!(!has_one && known.quota.is_some()),
            Err(FsError::NotEmpty) => assert!(!has_one && known.quota.is_none() && !is_empty),
            other => panic!("limits give {other:?}"),
        }
    }

    fn remount(&mut self) {
        self.fs.sync().unwrap();
        // What has no name ends with the mount, and its blocks with it.
        let open: Vec<Ino> =
            self.oracle.inodes.iter().filter(|(_, known)| known.opens > 0).map(|(ino, _)| *ino).collect();
        let empty = TagFs::mount(Box::new(fresh()), MountOptions::default()).unwrap();
        drop(std::mem::replace(&mut self.fs, empty));
        assert_sound(&self.medium);
        self.fs = mount(&self.medium);
        for ino in open {
            self.oracle.inodes.get_mut(&ino).unwrap().opens = 0;
            self.oracle.settle(ino);
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=8 => self.make(),
            9..=18 => self.write(),
            19..=20 => self.resize(),
            21..=23 => self.allocate(),
            24..=26 => self.remove(),
            27..=30 => self.rename(),
            31..=32 => self.link(),
            33 => self.make_unnamed(),
            34 => self.open_or_close(),
            35..=37 => self.set_limits(),
            38 => self.fs.tick().and_then(|()| self.fs.sync()).unwrap(),
            _ if self.random.below(3) == 0 => self.remount(),
            _ => {}
        }
        for dir in self.oracle.limits.keys() {
            let (blocks, inodes) = self.oracle.counted(*dir);
            assert_eq!(used(&self.fs, *dir), (blocks * BLOCK, inodes), "the tree of directory {dir}");
            assert_eq!(usage(&self.fs, *dir).limits, self.oracle.limits[dir]);
        }
    }
}

#[test]
fn what_trees_take_is_what_an_oracle_counts_across_remounts() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (cases, seed) = (number("WEFT_CASES").unwrap_or(60), number("WEFT_SEED").unwrap_or(1));
    let (mut refused, mut crossed) = (0, 0);
    for case in 0..cases {
        let mut sequence = Sequence::new(seed << 32 | case);
        for step in 0..250 {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sequence.step()));
            stepped.unwrap_or_else(|_| panic!("seed {seed}, case {case}, step {step}"));
        }
        sequence.remount();
        (refused, crossed) = (refused + sequence.refused.0, crossed + sequence.refused.1);
    }
    println!("{cases} sequences: {refused} refused for a limit, {crossed} between quotas");
    assert!(refused > 2 * cases && crossed > 2 * cases, "{refused}, {crossed}");
}

/// A workload in two trees and outside of them, until it ends or the power goes; whether the first quota was durable before.
fn work(fs: &TagFs, seed: u64) -> (bool, FsResult<()>) {
    let mut random = SplitMix::new(seed, &[7]);
    let mut is_durable = false;
    let mut run = || -> FsResult<()> {
        let dirs = [0, 1].map(|n| make(fs, Ino::ROOT, &format!("q{n}"), NewNode::Directory));
        let [one, two] = dirs;
        let dirs = [one?, two?, Ino::ROOT];
        limit(fs, dirs[0], "bytes=400K files=12")?;
        limit(fs, dirs[1], "bytes=2M")?;
        fs.sync()?;
        is_durable = true;
        for round in 0..60 {
            let dir = dirs[random.below(3) as usize];
            let name = format!("f{}", random.below(8));
            let done = match (fs.lookup(dir, name.as_bytes()), random.below(6)) {
                (Err(FsError::NotFound), _) => make(fs, dir, &name, NewNode::File).map(drop),
                (Ok(_), 0) => fs.unlink(dir, name.as_bytes()),
                (Ok(file), 1) => {
                    let size = Some(random.below(200_000));
                    fs.setattr(file.ino, &SetAttr { size, ..SetAttr::default() }).map(drop)
                }
                (Ok(file), 2) => {
                    fs.fallocate(file.ino, FallocateMode::KeepSize, 0, random.below(1 << 18) + 1)
                }
                (Ok(file), _) => {
                    let data = vec![round; random.below(150_000) as usize];
                    fs.write(file.ino, random.below(100_000), &data).and_then(|()| match random.below(3) {
                        0 => fs.fsync(file.ino),
                        _ => Ok(()),
                    })
                }
                (Err(error), _) => Err(error),
            };
            match done {
                Err(FsError::QuotaExceeded) => {}
                done => done?,
            }
            if round % 20 == 19 {
                limit(fs, dirs[0], &format!("bytes={}K", 300 + u32::from(round)))?;
            }
        }
        Ok(())
    };
    let ran = run();
    (is_durable, ran)
}

#[test]
fn what_a_tree_takes_is_exact_after_a_power_cut() {
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0");
    let (seeds, every) = if is_campaign { (1..=10, 1) } else { (1..=4, 2) };
    let mut rig = CutRig::new(Contents::formatted(16 << 20), 7);
    let mut cuts = 0;
    for seed in seeds {
        let fs = rig.start_volume(u64::MAX);
        work(&fs, seed).1.unwrap();
        let operations = rig.operations();
        drop(fs);
        let mut at = seed % every;
        while at < operations {
            let fs = rig.start_volume(at);
            let (is_durable, _) = work(&fs, seed);
            drop(fs);
            let medium = rig.lost();
            assert!(medium.is_cut(), "seed {seed}, cut {at} of {operations}: the workload ends before it");
            for look in 0..2 {
                // The check counts.
                let fs = rig.look(&medium, seed << 32 | at << 4 | look);
                let fs = fs.unwrap_or_else(|error| panic!("seed {seed}, cut {at} of {operations}: {error}"));
                if is_durable {
                    let dir = fs.lookup(Ino::ROOT, b"q0").unwrap().ino;
                    assert!(usage(&fs, dir).limits.bytes.is_some());
                }
                takes_new_writes(&fs).unwrap_or_else(|error| panic!("seed {seed}, cut {at}: {error}"));
            }
            (at, cuts) = (at + every, cuts + 1);
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 30, "{cuts} cuts");
}
