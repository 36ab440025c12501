//! Random programs of a client, among its plain calls, against the same on a file system in memory: the same answers, the same tree.
//!
//! `WEFT_CAMPAIGN=1` makes 100,000 programs, otherwise a slice of them.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Dice, Rig};
use std::collections::BTreeMap;
use weft_client::{Client, FileRef, WireDirent};
use weft_core::Ino;
use weft_vfs::compound::{
    Access, Allocate, Answer, Arith, At, Chain, Checked, Compare, Dir, File, Kind, Local, Num, NumOf, Op,
    Outcome, Value, run,
};
use weft_vfs::{FileKind, FileSystem, MemFs, RenameFlags, TimeSpec, XattrMode};

const NAMES: [&str; 9] = ["/a", "/b", "/c", "/d", "/d/a", "/d/b", "/e", "/e/a", "/d/../a"];

/// What a path is to be.
#[derive(Clone, Copy, PartialEq)]
enum Wants {
    Nothing,
    File,
    Directory,
}

/// Makes random programs, whose names and ranges are few, so that they meet.
struct Maker {
    dice: Dice,
    /// What is at each path before the program.
    kinds: Vec<Option<FileKind>>,
}

impl Maker {
    fn look(&mut self, fs: &MemFs) {
        let kind = |path: &str| {
            let mut names = path[1..].split('/');
            let mut walk = |ino, name: &str| match name {
                ".." => fs.parent(ino),
                name => fs.lookup(ino, name.as_bytes()).map(|attr| attr.ino),
            };
            fs.getattr(names.try_fold(Ino::ROOT, &mut walk).ok()?).ok().map(|attr| attr.kind)
        };
        self.kinds = NAMES.iter().map(|path| kind(path)).collect();
    }

    /// A path that is most likely what is wanted.
    fn path(&mut self, wants: Wants) -> &'static str {
        let mut at = 0;
        for _ in 0..self.dice.roll(12) + 1 {
            at = self.dice.roll(NAMES.len() as u64) as usize;
            let is = match self.kinds[at] {
                None => Wants::Nothing,
                Some(FileKind::File) => Wants::File,
                Some(_) => Wants::Directory,
            };
            if is == wants {
                break;
            }
        }
        NAMES[at]
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [1, 100, 4096, 6000, 20_000][self.dice.roll(5) as usize];
        vec![self.dice.roll(256) as u8; self.dice.roll(len) as usize + 1]
    }

    fn place(&mut self) -> u64 {
        [0, 10, 4096, 8192, 30_000][self.dice.roll(5) as usize]
    }

    fn program(&mut self) -> Chain {
        let mut chain = match self.dice.roll(4) {
            0 => Chain::each(),
            1 => Chain::prefix(),
            _ => Chain::all(),
        };
        if self.dice.roll(8) == 0 {
            chain = chain.durable();
        }
        let (mut files, mut nums): (Vec<File>, Vec<NumOf>) = (Vec::new(), Vec::new());
        for _ in 0..self.dice.roll(7) + 1 {
            let file = (!files.is_empty()).then(|| files[self.dice.roll(files.len() as u64) as usize]);
            if let Some(num) = nums.last()
                && self.dice.roll(10) == 0
            {
                chain.when(*num, Compare::Less, self.dice.roll(20_000));
            }
            match (self.dice.roll(18), file) {
                (0..3, _) if files.len() < 12 => {
                    let access =
                        [Access::ReadWrite, Access::ReadWrite, Access::Read][self.dice.roll(3) as usize];
                    files.push(chain.open(self.path(Wants::File), access));
                }
                (3..5, _) if files.len() < 12 => {
                    let exclusive = self.dice.roll(3) == 0;
                    let wants = if exclusive { Wants::Nothing } else { Wants::File };
                    files.push(chain.create(self.path(wants), 0o640, exclusive));
                }
                (5, _) => chain.mkdir(self.path(Wants::Nothing), 0o750),
                (6 | 7, _) => {
                    let flags = [
                        RenameFlags::empty(),
                        RenameFlags::empty(),
                        RenameFlags::EXCHANGE,
                        RenameFlags::NO_REPLACE,
                    ][self.dice.roll(4) as usize];
                    let wants = if flags == RenameFlags::EXCHANGE { Wants::File } else { Wants::Nothing };
                    let (path, new_path) = (self.path(Wants::File).into(), self.path(wants).into());
                    chain.push(Kind::Rename { dir: Dir::Start, path, to: Dir::Start, new_path, flags });
                }
                (8, _) => chain.unlink(self.path(Wants::File)),
                (9, _) => match self.dice.roll(3) {
                    0 => chain.rmdir(self.path(Wants::Directory)),
                    1 => chain.link(self.path(Wants::File), self.path(Wants::Nothing)),
                    _ => drop(chain.push(Kind::Symlink {
                        // An absolute one leads out of the volume where that is mounted elsewhere than at the root.
                        target: self.path(Wants::File)[1..].into(),
                        dir: Dir::Start,
                        path: self.path(Wants::Nothing).into(),
                    })),
                },
                (10, Some(file)) => {
                    let attr = chain.stat(file);
                    chain.export(attr);
                    nums.push(chain.field(attr, weft_vfs::compound::Field::Size));
                }
                (11, Some(file)) => {
                    let bytes = chain.read(file, self.place(), self.dice.roll(9000));
                    chain.export(bytes);
                    let crc = chain.crc32c(bytes);
                    chain.export(crc);
                    let copy = files[self.dice.roll(files.len() as u64) as usize];
                    chain.write(copy, self.place(), bytes);
                }
                (12, Some(file)) => chain.truncate(file, self.place()),
                (13, Some(file)) => {
                    let mode = [Allocate::Extend, Allocate::KeepSize, Allocate::PunchHole, Allocate::Zero]
                        [self.dice.roll(4) as usize];
                    let (offset, len) = (Num::Lit(self.place()), Num::Lit(self.dice.roll(9000) + 1));
                    chain.push(Kind::Fallocate { file, mode, offset, len });
                }
                (14, Some(file)) => {
                    let name = b"user.x".to_vec();
                    let mode =
                        [XattrMode::Any, XattrMode::Create, XattrMode::Replace][self.dice.roll(3) as usize];
                    chain.push(match self.dice.roll(4) {
                        0 => Kind::RemoveXattr { file, name },
                        _ => Kind::SetXattr { file, name, value: self.bytes()[..1].into(), mode },
                    });
                }
                (15, Some(file)) => chain.sync(file),
                (_, Some(file)) => {
                    let data = self.bytes().into();
                    let at =
                        if self.dice.roll(2) == 0 { At::End } else { At::Offset(Num::Lit(self.place())) };
                    chain.push(Kind::Write { file, at, data });
                }
                (_, None) => match nums.last() {
                    Some(num) => nums.push(chain.arith(*num, Arith::Add, 1)),
                    None => files.push(chain.create(self.path(Wants::File), 0o600, false)),
                },
            }
        }
        chain
    }
}

/// An answer without what may differ: times, blocks and numbers of inodes.
fn comparable(mut answer: Answer) -> Answer {
    for outcome in &mut answer.outcomes {
        if let Outcome::Done(Some(Value::Attr(attr))) = outcome {
            let never = TimeSpec::default();
            (attr.atime, attr.mtime, attr.ctime, attr.btime) = (never, never, never, never);
            (attr.ino, attr.blocks) = (Ino::default(), 0);
            if attr.kind == FileKind::Directory {
                attr.size = 0;
            }
        }
    }
    answer
}

/// What is at each path: kind and permission bits, links, and content.
type Tree = BTreeMap<Vec<u8>, (u32, u32, Vec<u8>)>;

fn tree_of(fs: &MemFs, dir: Ino, path: &[u8], out: &mut Tree) {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.ino));
        true
    })
    .unwrap();
    for (name, ino) in entries {
        let (attr, path) = (fs.getattr(ino).unwrap(), [path, b"/", &name].concat());
        let content = match attr.kind {
            FileKind::File => {
                let mut bytes = vec![0; attr.size as usize];
                fs.read(ino, 0, &mut bytes).unwrap();
                bytes.extend(fs.getxattr(ino, b"user.x").unwrap_or_default());
                bytes
            }
            FileKind::Symlink => fs.readlink(ino).unwrap(),
            _ => fs.getxattr(ino, b"user.x").unwrap_or_default(),
        };
        out.insert(path.clone(), (attr.mode(), attr.links, content));
        if attr.kind == FileKind::Directory {
            tree_of(fs, ino, &path, out);
        }
    }
}

fn xattr(client: &Client, path: &[u8]) -> Vec<u8> {
    let mut value = [0; 16];
    let len =
        client.get_xattr(FileRef::ROOT, path, libc::AT_SYMLINK_NOFOLLOW, b"user.x", &mut value).unwrap_or(0);
    value[..len].to_vec()
}

fn tree_by(client: &Client, path: &[u8], out: &mut Tree) {
    let at = if path.is_empty() { b"/" } else { path };
    let dir = client.open(FileRef::ROOT, at, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let (mut names, mut cookie, mut buffer) = (Vec::new(), 0, vec![0; 64 << 10]);
    loop {
        let len = client.read_dir(dir, cookie, &mut buffer).unwrap();
        let mut rest = &buffer[..len];
        while let Some((entry, name, others)) = WireDirent::split_first(rest) {
            names.push(name.to_vec());
            (cookie, rest) = (entry.cookie, others);
        }
        if len == 0 {
            break;
        }
    }
    client.close(dir).unwrap();
    for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
        let path = [path, b"/", &name].concat();
        let attr = client.stat(FileRef::ROOT, &path, libc::AT_SYMLINK_NOFOLLOW).unwrap();
        let content = match attr.mode & libc::S_IFMT {
            libc::S_IFREG => {
                let file = client.open(FileRef::ROOT, &path, libc::O_RDONLY, 0).unwrap().file;
                let mut bytes = vec![0; attr.size as usize];
                let mut done = 0;
                while done < bytes.len() {
                    done += client.pread(file, &mut bytes[done..], done as u64).unwrap();
                }
                client.close(file).unwrap();
                bytes.extend(xattr(client, &path));
                bytes
            }
            libc::S_IFLNK => {
                let mut target = [0; 256];
                let len = client.readlink(FileRef::ROOT, &path, &mut target).unwrap();
                target[..len].to_vec()
            }
            _ => xattr(client, &path),
        };
        out.insert(path.clone(), (attr.mode, attr.links, content));
        if attr.mode & libc::S_IFMT == libc::S_IFDIR {
            tree_by(client, &path, out);
        }
    }
}

/// A plain call of a client that holds a file open, by ring and area where it may, and the same on the other side.
fn plain_call(client: &Client, fs: &MemFs, maker: &mut Maker) {
    let path = NAMES[maker.dice.roll(3) as usize].as_bytes();
    let Ok(open) = client.open(FileRef::ROOT, path, libc::O_RDWR | libc::O_NOFOLLOW, 0) else { return };
    let ino = fs.lookup(Ino::ROOT, &path[1..]).unwrap().ino;
    for _ in 0..maker.dice.roll(4) {
        let bytes = maker.bytes();
        let size = client.fstat(open.file).unwrap().size;
        let at = if maker.dice.roll(2) == 0 { size } else { maker.dice.roll(size + 1) };
        client.pwrite(open.file, &bytes, at).unwrap();
        fs.write(ino, at, &bytes).unwrap();
    }
    // Kept open now and then, with what its ring holds.
    if maker.dice.roll(3) != 0 {
        client.close(open.file).unwrap();
    }
}

/// A program in short.
fn text(program: &Checked) -> String {
    let op = |op: &Op| format!("{:?}", op.kind).chars().take(160).collect::<String>();
    program.ops.iter().map(op).collect::<Vec<_>>().join("\n")
}

#[test]
fn programs_among_plain_calls_answer_and_leave_what_they_do_in_memory() {
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1000 } else { 12 };
    let (mut done, mut failed) = (0u32, 0u32);
    for seed in 1..=rounds {
        let rig = Rig::new(64 << 20);
        let client = rig.client();
        let fs = MemFs::new();
        let mut maker = Maker { dice: Dice(seed * 77), kinds: Vec::new() };
        for step in 0..100 {
            if maker.dice.roll(2) == 0 {
                plain_call(&client, &fs, &mut maker);
            }
            maker.look(&fs);
            let program = maker.program().check().unwrap();
            let expected = comparable(run(&Local::new(&fs), &program));
            let answer = comparable(client.run_program(FileRef::ROOT, 0, &[], &program).unwrap());
            assert!(
                answer == expected,
                "seed {seed}, step {step}: {}\n{answer:?}\ninstead of\n{expected:?}",
                text(&program)
            );
            if answer.failed().is_some() {
                failed += 1
            } else {
                done += 1
            }
            if step % 10 == 9 {
                let (mut there, mut wanted) = (Tree::new(), Tree::new());
                tree_by(&client, b"", &mut there);
                tree_of(&fs, Ino::ROOT, b"", &mut wanted);
                let differs: Vec<_> = wanted
                    .keys()
                    .chain(there.keys())
                    .filter(|path| wanted.get(*path) != there.get(*path))
                    .collect();
                assert!(
                    differs.is_empty(),
                    "seed {seed}, step {step}: {:?} differ",
                    differs.iter().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>()
                );
            }
        }
    }
    assert!(done > failed / 5 && failed > done / 5, "{done} done, {failed} failed");
}
