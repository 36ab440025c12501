use super::*;
use crate::memfs::State;
use crate::{
    CreateArgs, FallocateMode, FileSystem, MemFs, NewNode, RenameFlags, SetAttr, TimeSpec, XattrMode,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weft_core::Tag;

fn file<'a>(name: &'a [u8]) -> Change<'a> {
    Change::Create { dir: Node::Ino(Ino::ROOT), name, args: CreateArgs::new(NewNode::File, 0o644) }
}

fn whole(fs: &MemFs, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(Ino::ROOT, name).unwrap();
    let mut content = vec![0; attr.size as usize];
    assert_eq!(fs.read(attr.ino, 0, &mut content).unwrap(), content.len());
    content
}

/// All of a state that is not a time.
fn without_times(fs: &MemFs) -> impl PartialEq + std::fmt::Debug {
    let mut state = fs.state.lock().clone();
    for inode in state.inodes.values_mut().map(std::sync::Arc::make_mut) {
        let never = TimeSpec::default();
        (inode.atime, inode.mtime, inode.ctime, inode.btime) = (never, never, never, never);
    }
    all(&state)
}

fn all(state: &State) -> impl PartialEq + std::fmt::Debug + use<> {
    (state.inodes.clone(), state.next_ino, state.used_blocks, state.written_bytes, state.nameless.clone())
}

#[test]
fn a_file_and_its_content_appear_in_one_step() {
    let fs = MemFs::new();
    let made = fs
        .commit(
            &[
                file(b"new"),
                Change::Write { node: Node::Made(0), offset: 0, data: b"content" },
                Change::Rename {
                    from: Node::Ino(Ino::ROOT),
                    name: b"new",
                    to: Node::Ino(Ino::ROOT),
                    new_name: b"config",
                    flags: RenameFlags::empty(),
                },
            ],
            true,
        )
        .unwrap();
    assert_eq!(made, [Some(fs.lookup(Ino::ROOT, b"config").unwrap().ino), None, None]);
    assert_eq!(whole(&fs, b"config"), b"content");
    assert!(matches!(fs.lookup(Ino::ROOT, b"new"), Err(FsError::NotFound)));
}

#[test]
fn a_step_that_is_refused_tells_which_change_and_leaves_everything() {
    let fs = MemFs::new();
    let a = fs.create(Ino::ROOT, b"a", &CreateArgs::new(NewNode::File, 0o600)).unwrap().ino;
    fs.write(a, 0, &[7; 10_000]).unwrap();
    fs.setxattr(a, b"user.x", b"1", XattrMode::Any).unwrap();
    let before = all(&fs.state.lock());
    let refused = fs
        .commit(
            &[
                Change::Write { node: Node::Ino(a), offset: 5, data: b"half" },
                Change::Xattr { node: Node::Ino(a), name: b"user.x", value: None, mode: XattrMode::Any },
                Change::Remove { dir: Node::Ino(Ino::ROOT), name: b"a", is_dir: false },
                file(b"b"),
                file(b"b"),
            ],
            false,
        )
        .unwrap_err();
    assert_eq!(refused.at, 4);
    assert!(matches!(refused.error, FsError::Exists));
    assert!(all(&fs.state.lock()) == before);
}

#[test]
fn what_was_looked_up_must_still_hold() {
    let fs = MemFs::new();
    let dir = Node::Ino(Ino::ROOT);
    let a = fs.create(Ino::ROOT, b"a", &CreateArgs::new(NewNode::File, 0o600)).unwrap().ino;
    let is_held = |name, ino| match fs.commit(&[Change::Expect { dir, name, ino }], false) {
        Ok(_) => true,
        Err(Refused { at: 0, error: FsError::Stale }) => false,
        Err(other) => panic!("{other}"),
    };
    assert!(is_held(b"a", Some(a)) && is_held(b"b", None));
    assert!(!is_held(b"a", None) && !is_held(b"a", Some(Ino::ROOT)) && !is_held(b"b", Some(a)));
    let gone = Change::Expect { dir: Node::Ino(Ino(99)), name: b"a", ino: None };
    assert!(matches!(fs.commit(&[gone], false), Err(Refused { at: 0, error: FsError::Stale })));
}

#[test]
fn a_file_that_loses_its_last_name_can_be_written_to_the_end_of_the_step() {
    let fs = MemFs::with_capacity(4096);
    let a = fs.create(Ino::ROOT, b"a", &CreateArgs::new(NewNode::File, 0o600)).unwrap().ino;
    let remove = Change::Remove { dir: Node::Ino(Ino::ROOT), name: b"a", is_dir: false };
    fs.commit(&[remove, Change::Write { node: Node::Ino(a), offset: 0, data: b"late" }], false).unwrap();
    assert!(matches!(fs.getattr(a), Err(FsError::Stale)));
    assert_eq!(fs.statfs().unwrap().free_bytes, 4096);
}

#[test]
fn space_that_a_step_gives_back_is_free_behind_it() {
    let fs = MemFs::with_capacity(4096);
    let a = fs.create(Ino::ROOT, b"a", &CreateArgs::new(NewNode::File, 0o600)).unwrap().ino;
    fs.write(a, 0, b"old").unwrap();
    let remove = Change::Remove { dir: Node::Ino(Ino::ROOT), name: b"a", is_dir: false };
    let write = Change::Write { node: Node::Made(1), offset: 0, data: b"new" };
    let refused = fs.commit(&[remove, file(b"b"), write], false).unwrap_err();
    assert!(matches!(refused, Refused { at: 2, error: FsError::NoSpace }));
    fs.commit(&[remove], false).unwrap();
    fs.commit(&[file(b"b"), Change::Write { node: Node::Made(0), offset: 0, data: b"new" }], false).unwrap();
}

/// Makes random changes out of few names, inodes and ranges, so that they meet.
struct Random(StdRng);

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"", b"x/y"];
static DATA: [u8; 20_000] = [0xa5; 20_000];

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn name(&mut self) -> &'static [u8] {
        // One in 20 is no name.
        if self.below(20) == 0 { NAMES[self.below(6)] } else { NAMES[self.below(4)] }
    }

    fn node(&mut self, made: &[usize], inodes: u64, dirs: &[Ino]) -> Node {
        match self.below(10) {
            0..3 if !made.is_empty() => Node::Made(made[self.below(made.len())]),
            0..7 => Node::Ino(dirs[self.below(dirs.len())]),
            _ => Node::Ino(Ino(self.0.random_range(1..inodes + 2))),
        }
    }

    fn change(&mut self, made: &[usize], inodes: u64, dirs: &[Ino]) -> Change<'static> {
        let (dir, node) = (self.node(made, inodes, dirs), self.node(made, inodes, dirs));
        let (name, new_name) = (self.name(), self.name());
        let (offset, len) = (self.below(30_000) as u64, self.below(20_000));
        match self.below(22) {
            0..5 => Change::Create { dir, name, args: CreateArgs::new(NewNode::File, 0o644) },
            5..7 => Change::Create { dir, name, args: CreateArgs::new(NewNode::Directory, 0o755) },
            7 => Change::Create { dir, name, args: CreateArgs::new(NewNode::Symlink(b"a"), 0o777) },
            8 => Change::Link { node, dir, name },
            9..11 => Change::Remove { dir, name, is_dir: self.below(3) == 0 },
            11..13 => {
                let flags = [RenameFlags::empty(), RenameFlags::NO_REPLACE, RenameFlags::EXCHANGE];
                let mut flags = flags[self.below(3)];
                if self.below(10) == 0 {
                    flags = RenameFlags::WHITEOUT;
                }
                Change::Rename { from: dir, name, to: node, new_name, flags }
            }
            13 => {
                let size = (self.below(2) == 0).then_some(offset);
                Change::SetAttr { node, set: SetAttr { perm: Some(len as u32), size, ..SetAttr::default() } }
            }
            14 => {
                let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace][self.below(3)];
                Change::Xattr { node, name: b"user.x", value: Some(&DATA[..len]), mode }
            }
            15 => Change::Xattr { node, name: b"user.x", value: None, mode: XattrMode::Any },
            16..19 => Change::Write { node, offset, data: &DATA[..len] },
            19 => {
                let modes = [
                    FallocateMode::Allocate,
                    FallocateMode::KeepSize,
                    FallocateMode::PunchHole,
                    FallocateMode::ZeroRange { keep_size: true },
                    FallocateMode::ZeroRange { keep_size: false },
                ];
                Change::Fallocate { node, mode: modes[self.below(5)], offset, len: len as u64 }
            }
            20 => Change::SetTag { node, tag: Tag { death: offset, ..Tag::default() } },
            _ => {
                Change::Expect { dir, name, ino: (self.below(2) == 0).then(|| dirs[self.below(dirs.len())]) }
            }
        }
    }
}

/// The same by the plain operation.
fn plainly(fs: &MemFs, made: &[Option<Ino>], change: &Change<'_>) -> FsResult<Option<Ino>> {
    let ino = |node| match node {
        Node::Ino(ino) => ino,
        Node::Made(at) => made[at].unwrap(),
    };
    match *change {
        Change::Expect { dir, name, ino: expected } => {
            let found = match fs.lookup(ino(dir), name) {
                Ok(attr) => Some(attr.ino),
                Err(FsError::NotFound) => None,
                Err(_) => return Err(FsError::Stale),
            };
            if found == expected { Ok(()) } else { Err(FsError::Stale) }
        }
        Change::Create { dir, name, args } => {
            return fs.create(ino(dir), name, &args).map(|attr| Some(attr.ino));
        }
        Change::Link { node, dir, name } => fs.link(ino(node), ino(dir), name).map(drop),
        Change::Remove { dir, name, is_dir: true } => fs.rmdir(ino(dir), name),
        Change::Remove { dir, name, is_dir: false } => fs.unlink(ino(dir), name),
        Change::Rename { from, name, to, new_name, flags } => {
            fs.rename(ino(from), name, ino(to), new_name, flags)
        }
        Change::SetAttr { node, set } => fs.setattr(ino(node), &set).map(drop),
        Change::Xattr { node, name, value: Some(value), mode } => fs.setxattr(ino(node), name, value, mode),
        Change::Xattr { node, name, value: None, .. } => fs.removexattr(ino(node), name),
        Change::Write { node, offset, data } => fs.write(ino(node), offset, data),
        Change::Fallocate { node, mode, offset, len } => fs.fallocate(ino(node), mode, offset, len),
        Change::SetTag { node, tag } => fs.set_tag(ino(node), tag),
    }
    .map(|()| None)
}

#[test]
fn a_step_is_its_plain_operations_with_every_inode_held_open_or_nothing() {
    let (mut done, mut refused_at_last) = (0u32, 0u32);
    let seeds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 4_000 } else { 40 };
    for seed in 0..seeds {
        let mut random = Random(StdRng::seed_from_u64(seed));
        let fs = MemFs::with_capacity(200 * 4096);
        for step in 0..150 {
            if random.below(30) == 0 {
                // Some inodes are open besides.
                let ino = Ino(random.below(20) as u64);
                if random.below(2) == 0 { drop(fs.open(ino)) } else { fs.release(ino) }
            }
            let inodes: Vec<Ino> = fs.state.lock().inodes.keys().copied().collect();
            let dirs: Vec<Ino> = inodes.iter().copied().filter(|ino| fs.parent(*ino).is_ok()).collect();
            let plain = fs.copy();
            let mut held = inodes.clone();
            held.iter().for_each(|ino| plain.open(*ino).unwrap());
            // Changes are made one by one with the plain operation; most that it refuses are left out.
            let (mut changes, mut made, mut creates) = (Vec::new(), Vec::new(), Vec::new());
            let mut expected = None;
            for _ in 0..1 + random.below(12) {
                let change = random.change(&creates, inodes.len() as u64, &dirs);
                match plainly(&plain, &made, &change) {
                    Ok(ino) => {
                        if let Some(ino) = ino {
                            plain.open(ino).unwrap();
                            held.push(ino);
                            creates.push(changes.len());
                        }
                        changes.push(change);
                        made.push(ino);
                    }
                    Err(error) if random.below(8) == 0 => {
                        changes.push(change);
                        expected = Some(error);
                        break;
                    }
                    Err(_) => {}
                }
            }
            let place = format!("seed {seed} step {step}: {changes:?}");
            let before = all(&fs.state.lock());
            match (fs.commit(&changes, false), expected) {
                (Ok(told), None) => {
                    held.iter().for_each(|ino| plain.release(*ino));
                    assert_eq!(told, made, "{place}");
                    assert!(without_times(&fs) == without_times(&plain), "{place}");
                    done += 1;
                }
                (Err(refused), Some(error)) => {
                    assert_eq!(refused.at, changes.len() - 1, "{place}");
                    assert_eq!(refused.error.to_string(), error.to_string(), "{place}");
                    assert!(all(&fs.state.lock()) == before, "{place}");
                    refused_at_last += 1;
                }
                (told, expected) => panic!("{place}\n{told:?} instead of {expected:?}"),
            }
        }
    }
    println!("{done} steps done, {refused_at_last} refused");
    assert!(done > 2_000 && refused_at_last > 500, "{done} done, {refused_at_last} refused");
}
