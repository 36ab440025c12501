//! Random programs of file operations, for those who run them and compare what they leave.
//!
//! Their names are few, and so are the places in files, so that programs meet: one reads what another wrote, puts a file over another's,
//! or fails because a name is taken. About half of them fail at some operation.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weft_core::Ino;
use weft_vfs::compound::{
    Access, Allocate, Answer, Arith, At, Chain, Checked, Compare, Dir, Field, File, Kind, Num, NumOf, Op,
    Outcome, Value,
};
use weft_vfs::{FileKind, FileSystem, RenameFlags, TimeSpec, XattrMode};

/// The paths that programs use.
pub const NAMES: [&str; 9] = ["/a", "/b", "/c", "/d", "/d/a", "/d/b", "/e", "/e/a", "/d/../a"];

/// What a path is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Nothing,
    File,
    Directory,
}

/// Makes random programs.
pub struct Maker {
    rng: StdRng,
    /// What is at each path before the program.
    kinds: Vec<Option<FileKind>>,
}

impl Maker {
    /// The maker of a seed: with equal looks, equal seeds make equal programs.
    pub fn new(seed: u64) -> Maker {
        Maker { rng: StdRng::seed_from_u64(seed), kinds: vec![None; NAMES.len()] }
    }

    /// Looks at what there is, of which the next programs are.
    pub fn look(&mut self, fs: &dyn FileSystem) {
        let kind = |path: &str| fs.getattr(at_path(fs, path)?).ok().map(|attr| attr.kind);
        self.kinds = NAMES.iter().map(|path| kind(path)).collect();
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.rng.random_range(0..sides)
    }

    /// A path that is most likely what is wanted.
    fn path(&mut self, wants: Wants) -> &'static str {
        let mut at = 0;
        for _ in 0..self.roll(12) + 1 {
            at = self.roll(NAMES.len() as u64) as usize;
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

    /// Some bytes, all of them equal.
    pub fn bytes(&mut self) -> Vec<u8> {
        let len = [1, 100, 4096, 6000, 20_000][self.roll(5) as usize];
        vec![self.roll(256) as u8; self.roll(len) as usize + 1]
    }

    /// An offset in a file.
    pub fn place(&mut self) -> u64 {
        [0, 10, 4096, 8192, 30_000][self.roll(5) as usize]
    }

    /// A number that programs decide by. It is counted, as every core has a size of its own for a directory.
    fn size(chain: &mut Chain, file: File) -> NumOf {
        let all = chain.read(file, 0, 60_000);
        chain.len(all)
    }

    /// A program of one to seven operations, and of those that they need.
    pub fn program(&mut self) -> Chain {
        let mut chain = match self.roll(4) {
            0 => Chain::each(),
            1 => Chain::prefix(),
            _ => Chain::all(),
        };
        if self.roll(5) == 0 {
            chain = chain.durable();
        }
        let (mut files, mut nums): (Vec<File>, Vec<NumOf>) = (Vec::new(), Vec::new());
        for _ in 0..self.roll(7) + 1 {
            let file = (!files.is_empty()).then(|| files[self.roll(files.len() as u64) as usize]);
            if let Some(num) = nums.last()
                && self.roll(10) == 0
            {
                chain.when(*num, Compare::Less, self.roll(20_000));
            }
            match (self.roll(22), file) {
                (0..3, _) if files.len() < 12 => {
                    let access = [Access::ReadWrite, Access::ReadWrite, Access::Read][self.roll(3) as usize];
                    files.push(chain.open(self.path(Wants::File), access));
                }
                (3..5, _) if files.len() < 12 => {
                    let exclusive = self.roll(3) == 0;
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
                    ][self.roll(4) as usize];
                    let wants = if flags == RenameFlags::EXCHANGE { Wants::File } else { Wants::Nothing };
                    let (path, new_path) = (self.path(Wants::File).into(), self.path(wants).into());
                    chain.push(Kind::Rename { dir: Dir::Start, path, to: Dir::Start, new_path, flags });
                }
                (8, _) => chain.unlink(self.path(Wants::File)),
                (9, _) => match self.roll(3) {
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
                    let links = chain.field(attr, Field::Links);
                    chain.export(links);
                    nums.push(Self::size(&mut chain, file));
                }
                (11, Some(file)) => {
                    let bytes = chain.read(file, self.place(), self.roll(9000));
                    chain.export(bytes);
                    let crc = chain.crc32c(bytes);
                    chain.export(crc);
                    let copy = files[self.roll(files.len() as u64) as usize];
                    chain.write(copy, self.place(), bytes);
                }
                (12, Some(file)) => chain.truncate(file, self.place()),
                (13, Some(file)) => {
                    let mode = [Allocate::Extend, Allocate::KeepSize, Allocate::PunchHole, Allocate::Zero]
                        [self.roll(4) as usize];
                    let (offset, len) = (Num::Lit(self.place()), Num::Lit(self.roll(9000) + 1));
                    chain.push(Kind::Fallocate { file, mode, offset, len });
                }
                (14, Some(file)) => {
                    let name = b"user.x".to_vec();
                    let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace][self.roll(3) as usize];
                    chain.push(match self.roll(4) {
                        0 => Kind::RemoveXattr { file, name },
                        _ => Kind::SetXattr { file, name, value: self.bytes()[..1].into(), mode },
                    });
                }
                (15, Some(file)) => chain.sync(file),
                (16, Some(file)) => {
                    // A block is read, changed and written back.
                    let (place, at) = (self.place(), self.roll(200));
                    let block = chain.read(file, place, 4096);
                    let patched = chain.patch(block, at, &self.bytes()[..1]);
                    chain.write(file, place, patched);
                }
                (17 | 18, Some(_)) => {
                    // All files that are open get something, which belongs together.
                    for file in &files {
                        let data = self.bytes();
                        chain.append(*file, data);
                    }
                }
                (19, Some(file)) => {
                    let size = Self::size(&mut chain, file);
                    let compare = [Compare::LessOrEqual, Compare::Less][self.roll(2) as usize];
                    chain.expect(size, compare, self.roll(60_000));
                }
                (_, Some(file)) => {
                    let data = self.bytes().into();
                    let at = if self.roll(2) == 0 { At::End } else { At::Offset(Num::Lit(self.place())) };
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

/// The inode that a path leads to, through no symlink.
pub fn at_path(fs: &dyn FileSystem, path: &str) -> Option<Ino> {
    let mut names = path[1..].split('/');
    let walk = |ino, name: &str| match name {
        ".." => fs.parent(ino),
        name => fs.lookup(ino, name.as_bytes()).map(|attr| attr.ino),
    };
    names.try_fold(Ino::ROOT, walk).ok()
}

/// An answer without what may differ: times, blocks and numbers of inodes.
pub fn comparable(mut answer: Answer) -> Answer {
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

/// A program in short.
pub fn text(program: &Checked) -> String {
    let op = |op: &Op| format!("{:?}", op.kind).chars().take(160).collect::<String>();
    program.ops.iter().map(op).collect::<Vec<_>>().join("\n")
}
