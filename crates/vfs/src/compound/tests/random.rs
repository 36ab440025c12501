//! Random programs: against plain calls, and the policies against each other.

use super::super::compute;
use super::*;
use crate::change::{Change, Made, Refused};
use crate::compound::Stale;
use crate::path::{self, Last, Options, Resolved};
use crate::{
    Attr, CreateArgs, FsError, FsResult, NewNode, Protections, RenameFlags, SetAttr, TimeSpec, XattrMode,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::LazyLock;
use weft_core::checksum::crc32c;
use weft_core::{Credentials, Tag};

/// Makes random programs, whose names, ranges and values are few, so that they meet.
pub(super) struct Random(pub StdRng);

const PATHS: [&str; 17] = [
    "/a",
    "/b",
    "/c",
    "/d",
    "/d/a",
    "/d/e",
    "/d/e/a",
    "/d/../b",
    "/e/a",
    "a",
    "e",
    "b",
    "../c",
    "/a/",
    "/e",
    "/e/../a",
    "/d/e/../a",
];
const CONTENTS: [&str; 5] = ["", "x", "content", "a", "\x02\0\0\0\0\0\0\0e"];
const XATTRS: [&[u8]; 2] = [b"user.a", b"user.b"];

/// Fuel for a call of [`ECHO`].
const FUEL: u64 = 1_000_000;
/// A function that gives back its input.
static ECHO: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let text = "(module (memory (export \"memory\") 1)
        (func (export \"alloc\") (param i32) (result i32)
          (drop (memory.grow (i32.shr_u (i32.add (local.get 0) (i32.const 65535)) (i32.const 16))))
          (i32.const 65536))
        (func (export \"run\") (param i32 i32) (result i64)
          (i64.or (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 32)) (i64.extend_i32_u (local.get 1)))))";
    wat::parse_str(text).unwrap()
});

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    pub(super) fn bytes(&mut self, end: usize) -> Vec<u8> {
        let len = self.below(end);
        (0..len).map(|_| self.0.random()).collect()
    }

    /// An earlier operation with a value of this type, if there is one.
    fn earlier(&mut self, ops: &[Op], wanted: Type) -> Option<Ref> {
        let closed = |at: usize| {
            ops.iter()
                .any(|op| matches!(op.kind, Kind::Close { file: File(Ref(of)) } if usize::from(of) == at))
        };
        let good: Vec<_> =
            (0..ops.len()).filter(|at| ops[*at].kind.result() == Some(wanted) && !closed(*at)).collect();
        (!good.is_empty()).then(|| Ref(self.one(&good) as u8))
    }

    fn file(&mut self, ops: &[Op]) -> Option<File> {
        self.earlier(ops, Type::File).map(File)
    }

    fn num(&mut self, ops: &[Op]) -> Num {
        match self.earlier(ops, Type::Num) {
            Some(at) if self.below(3) == 0 => Num::Of(at),
            _ => Num::Lit(self.one(&[0, 0, 1, 2, 3, 7, 20, 5_000])),
        }
    }

    /// A number that is small, or far too large: a file of some terabytes would take the test long.
    fn place(&mut self, ops: &[Op]) -> Num {
        let is_good = |kind: &Kind| matches!(kind, Kind::Len { .. } | Kind::Write { .. } | Kind::Find { .. });
        match self.num(ops) {
            Num::Of(at) if !is_good(&ops[usize::from(at.0)].kind) => Num::Lit(6),
            num => num,
        }
    }

    fn data(&mut self, ops: &[Op]) -> Bytes {
        match self.earlier(ops, Type::Bytes) {
            Some(at) if self.below(2) == 0 => Bytes::Of(at),
            _ if self.below(8) == 0 => Bytes::Lit(vec![7; 9_000]),
            _ => self.one(&CONTENTS).into(),
        }
    }

    fn path(&mut self, ops: &[Op]) -> Bytes {
        match self.earlier(ops, Type::Bytes) {
            Some(at) if self.below(10) == 0 => Bytes::Of(at),
            _ => self.one(&PATHS).into(),
        }
    }

    fn dir(&mut self, ops: &[Op]) -> Dir {
        match self.file(ops) {
            Some(file) if self.below(4) == 0 => Dir::At(file),
            _ => Dir::Start,
        }
    }

    fn guard(&mut self, ops: &[Op]) -> Guard {
        let compare = self.one(&[Compare::Equal, Compare::NotEqual, Compare::Less, Compare::LessOrEqual]);
        let (left, right) = match self.below(2) {
            0 => (Operand::Num(self.num(ops)), Operand::Num(self.num(ops))),
            _ => (Operand::Bytes(self.data(ops)), Operand::Bytes(self.data(ops))),
        };
        Guard { left, compare, right }
    }

    /// An operation that may follow these.
    fn op(&mut self, ops: &[Op]) -> Op {
        let kind = loop {
            if let Some(kind) = self.kind(ops) {
                break kind;
            }
        };
        let when = (self.below(10) == 0).then(|| self.guard(ops));
        let export = !matches!(kind.result(), None | Some(Type::File)) && self.below(2) == 0;
        Op { kind, when, export }
    }

    fn kind(&mut self, ops: &[Op]) -> Option<Kind> {
        let (dir, path) = (self.dir(ops), self.path(ops));
        Some(match self.below(48) {
            0..4 => {
                let access =
                    [Access::Path, Access::Read, Access::Write, Access::ReadWrite, Access::ReadWrite];
                Kind::Open { dir, path, access: self.one(&access), follow: self.below(4) > 0 }
            }
            4..8 => {
                let perm = self.one(&[0o644, 0o644, 0o666, 0o4777, 0o060]);
                Kind::Create { dir, path, perm, exclusive: self.below(2) == 0 }
            }
            8 => Kind::Close { file: self.file(ops)? },
            9 => Kind::Stat { file: self.file(ops)? },
            10 => {
                let fields = [Field::Size, Field::Mode, Field::Links, Field::Uid, Field::Gid];
                Kind::Field { attr: self.earlier(ops, Type::Attr)?, field: self.one(&fields) }
            }
            11..15 => Kind::Read { file: self.file(ops)?, offset: self.num(ops), len: self.num(ops) },
            15..20 => {
                let at = if self.below(2) == 0 { At::End } else { At::Offset(self.place(ops)) };
                Kind::Write { file: self.file(ops)?, at, data: self.data(ops) }
            }
            20 => Kind::Open { dir, path, access: Access::ReadWrite, follow: true },
            21 => {
                let modes = [
                    Allocate::Extend,
                    Allocate::KeepSize,
                    Allocate::PunchHole,
                    Allocate::Zero,
                    Allocate::ZeroKeepSize,
                ];
                let (offset, len) = (self.place(ops), self.place(ops));
                Kind::Fallocate { file: self.file(ops)?, mode: self.one(&modes), offset, len }
            }
            22..24 => Kind::Mkdir { dir, path, perm: self.one(&[0o755, 0o777, 0o1777, 0o500]) },
            24 => Kind::Symlink { target: self.path(ops), dir, path },
            25 => Kind::Link { dir, path, to: self.dir(ops), new_path: self.path(ops) },
            26..29 => {
                let flags = [RenameFlags::empty(), RenameFlags::NO_REPLACE, RenameFlags::EXCHANGE];
                let (to, new_path) = (self.dir(ops), self.path(ops));
                Kind::Rename { dir, path, to, new_path, flags: self.one(&flags) }
            }
            29 => Kind::Unlink { dir, path },
            30 => Kind::Rmdir { dir, path },
            31 => Kind::GetXattr { file: self.file(ops)?, name: self.one(&XATTRS).to_vec() },
            32 => {
                let mode = self.one(&[XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
                let name = self.one(&XATTRS).to_vec();
                Kind::SetXattr { file: self.file(ops)?, name, value: self.data(ops), mode }
            }
            33 => Kind::RemoveXattr { file: self.file(ops)?, name: self.one(&XATTRS).to_vec() },
            34 => Kind::Sync { file: self.file(ops)? },
            35 => match self.below(3) {
                0 => Kind::Slice { bytes: self.data(ops), from: self.num(ops), len: self.num(ops) },
                1 => Kind::Patch { base: self.data(ops), at: self.num(ops), with: self.data(ops) },
                _ => Kind::Len { bytes: self.data(ops) },
            },
            36 => Kind::Concat { parts: vec![self.data(ops), self.data(ops)] },
            37 => Kind::Pack { num: self.num(ops), width: 1 + self.below(8) as u8 },
            38 => Kind::Unpack { bytes: self.data(ops), from: self.num(ops), width: 1 + self.below(8) as u8 },
            39 => {
                let all =
                    [Arith::Add, Arith::Sub, Arith::Mul, Arith::Div, Arith::Rem, Arith::Min, Arith::Max];
                Kind::Arith { arith: self.one(&all), left: self.num(ops), right: self.num(ops) }
            }
            40 => match self.below(2) {
                0 => Kind::Find { bytes: self.data(ops), what: self.data(ops), from: self.num(ops) },
                _ => Kind::Crc32c { bytes: self.data(ops) },
            },
            41..44 => Kind::Truncate { file: self.file(ops)?, size: self.place(ops) },
            44..46 => self.computes(ops),
            _ => match self.below(2) {
                0 => Kind::Verify { bytes: self.data(ops), crc: self.num(ops) },
                _ => Kind::Expect { guard: self.guard(ops) },
            },
        })
    }

    /// A codec, forth or back, or a call.
    fn computes(&mut self, ops: &[Op]) -> Kind {
        let codec = self.one(&[Codec::Lz4, Codec::Lz4Block, Codec::Zstd]);
        let packed: Vec<_> = (0..ops.len())
            .filter_map(|at| match ops[at].kind {
                Kind::Compress { codec, .. } => Some((Ref(at as u8), codec)),
                _ => None,
            })
            .collect();
        match self.below(4) {
            0 => {
                let fuel = Num::Lit(self.one(&[0, FUEL, FUEL, FUEL]));
                let module = self.one(&[&ECHO[..], &ECHO, &ECHO, b"no module"]);
                Kind::Call { module: module.into(), input: self.data(ops), fuel }
            }
            1 | 2 if !packed.is_empty() => {
                let (of, codec) = self.one(&packed);
                let max = Num::Lit(self.one(&[0, 7, 1 << 20, u64::MAX]));
                Kind::Decompress { bytes: Bytes::Of(of), codec, max }
            }
            1 => Kind::Decompress { bytes: self.data(ops), codec, max: self.num(ops) },
            _ => {
                let level = if codec == Codec::Zstd { self.below(5) as i32 } else { 0 };
                Kind::Compress { bytes: self.data(ops), codec, level }
            }
        }
    }

    /// A program that need not succeed, nor keep to the limits.
    pub(super) fn any_program(&mut self) -> Program {
        let mut ops = Vec::new();
        for _ in 0..self.below(80) {
            ops.push(self.op(&ops));
        }
        let policy = self.one(&[Policy::All, Policy::Prefix, Policy::Each]);
        Program { policy, durable: self.below(2) == 0, ops }
    }

    /// A program of which most operations succeed on `fs`, for this caller.
    fn program(&mut self, fs: &MemFs, caller: &Credentials, len: usize) -> Vec<Op> {
        let mut ops: Vec<Op> = Vec::new();
        let goal = 1 + self.below(len);
        while ops.len() < goal {
            ops.push(self.op(&ops));
            let Ok(program) = check(Program { policy: Policy::Each, durable: false, ops: ops.clone() })
            else {
                ops.pop();
                continue;
            };
            if run(&Local::of(&fs.copy(), caller.clone()), &program).failed().is_some() {
                if self.below(12) == 0 {
                    // What comes behind must not be done.
                    ops.push(self.op(&ops));
                    break;
                }
                ops.pop();
            }
        }
        ops
    }
}

/// The program by plain calls of the file system, one after another, by the superuser.
struct Plain<'a> {
    fs: &'a MemFs,
    values: Vec<Option<Plainly>>,
    skipped: Vec<bool>,
    open: Vec<Ino>,
}

#[derive(Clone, Debug)]
enum Plainly {
    File(Ino, Access),
    Bytes(Vec<u8>),
    Num(u64),
    Attr(Attr),
}

impl Plain<'_> {
    fn run(fs: &MemFs, ops: &[Op]) -> Answer {
        let mut plain = Plain { fs, values: Vec::new(), skipped: Vec::new(), open: Vec::new() };
        let mut outcomes = Vec::new();
        for op in ops {
            let mut skips = false;
            super::super::program::Uses::uses(op, &mut |of, _| skips |= plain.skipped[usize::from(of.0)]);
            let skips = skips || op.when.as_ref().is_some_and(|guard| !plain.holds(guard));
            plain.skipped.push(skips);
            if skips {
                plain.values.push(None);
                outcomes.push(Outcome::Skipped);
                continue;
            }
            match plain.op(&op.kind) {
                Ok(value) => {
                    let exported = value.clone().filter(|_| op.export).map(|value| match value {
                        Plainly::Bytes(bytes) => Value::Bytes(bytes),
                        Plainly::Num(num) => Value::Num(num),
                        Plainly::Attr(attr) => Value::Attr(Box::new(attr)),
                        Plainly::File(..) => panic!("a file is exported"),
                    });
                    plain.values.push(value);
                    outcomes.push(Outcome::Done(exported));
                }
                Err(failure) => {
                    outcomes.push(Outcome::Failed(failure.errno()));
                    break;
                }
            }
        }
        plain.open.iter().for_each(|ino| fs.release(*ino));
        outcomes.resize(ops.len(), Outcome::Skipped);
        Answer { outcomes }
    }

    fn value(&self, at: Ref) -> &Plainly {
        self.values[usize::from(at.0)].as_ref().unwrap()
    }

    fn num(&self, num: &Num) -> u64 {
        match num {
            Num::Lit(num) => *num,
            Num::Of(at) => match self.value(*at) {
                Plainly::Num(num) => *num,
                other => panic!("{other:?}"),
            },
        }
    }

    fn bytes(&self, bytes: &Bytes) -> Vec<u8> {
        match bytes {
            Bytes::Lit(bytes) => bytes.clone(),
            Bytes::Of(at) => match self.value(*at) {
                Plainly::Bytes(bytes) => bytes.clone(),
                other => panic!("{other:?}"),
            },
        }
    }

    fn file(&self, file: &File) -> (Ino, Access) {
        match self.value(file.0) {
            Plainly::File(ino, access) => (*ino, *access),
            other => panic!("{other:?}"),
        }
    }

    fn holds(&self, guard: &Guard) -> bool {
        match (&guard.left, &guard.right) {
            (Operand::Num(left), Operand::Num(right)) => {
                compute::holds(&self.num(left), guard.compare, &self.num(right))
            }
            (Operand::Bytes(left), Operand::Bytes(right)) => {
                compute::holds(&self.bytes(left), guard.compare, &self.bytes(right))
            }
            _ => panic!("{guard:?}"),
        }
    }

    fn walk(&self, dir: &Dir, path: &Bytes, last: Last, creates: bool) -> Result<Resolved, Failure> {
        let start = match dir {
            Dir::Start => Ino::ROOT,
            Dir::At(file) => self.file(file).0,
        };
        let path = self.bytes(path);
        if path.contains(&0) {
            return Err(FsError::Invalid("a path with a NUL byte").into());
        }
        let protections = Protections::default();
        let options =
            Options { last, creates, dots_by_text: false, protections, mount_point: b"", within: None };
        Ok(path::resolve(self.fs, &Credentials::default(), start, &path, options)?)
    }

    fn new_name(&self, dir: &Dir, path: &Bytes, for_dir: bool) -> Result<(Ino, Vec<u8>), Failure> {
        match self.walk(dir, path, Last::Name, false)? {
            Resolved::Missing(place) if place.name.len() > crate::NAME_MAX => {
                Err(FsError::NameTooLong.into())
            }
            Resolved::Missing(place) if place.must_be_dir && !for_dir => Err(FsError::NotFound.into()),
            Resolved::Missing(place) => Ok((place.dir, place.name)),
            _ => Err(FsError::Exists.into()),
        }
    }

    /// A name for the core to look at, which it does without a slash at the end.
    fn name(&self, dir: &Dir, path: &Bytes) -> Result<(Ino, Vec<u8>, bool), Failure> {
        let (Resolved::Found(place, _) | Resolved::Missing(place)) =
            self.walk(dir, path, Last::Name, false)?
        else {
            panic!("a path leads outside");
        };
        if place.name.len() > crate::NAME_MAX {
            return Err(FsError::NameTooLong.into());
        }
        Ok((place.dir, place.name, place.must_be_dir))
    }

    fn opened(&mut self, attr: Attr, access: Access) -> Result<Option<Plainly>, Failure> {
        self.fs.open(attr.ino)?;
        self.open.push(attr.ino);
        Ok(Some(Plainly::File(attr.ino, access)))
    }

    fn writable(&self, file: &File) -> Result<Ino, Failure> {
        let (ino, access) = self.file(file);
        if matches!(access, Access::Write | Access::ReadWrite) { Ok(ino) } else { Err(Failure::NotOpenFor) }
    }

    fn op(&mut self, kind: &Kind) -> Result<Option<Plainly>, Failure> {
        let fs = self.fs;
        Ok(Some(match kind {
            Kind::Open { dir, path, access, follow } => {
                let last = if *follow { Last::Follow } else { Last::Stop };
                let Resolved::Found(_, attr) = self.walk(dir, path, last, false)? else {
                    return Err(FsError::NotFound.into());
                };
                let writes = matches!(access, Access::Write | Access::ReadWrite);
                match attr.kind {
                    FileKind::Symlink if *access != Access::Path => return Err(FsError::Loop.into()),
                    FileKind::Directory if writes => return Err(FsError::IsDirectory.into()),
                    _ => return self.opened(attr, *access),
                }
            }
            Kind::Create { dir, path, perm, exclusive } => {
                let last = if *exclusive { Last::Stop } else { Last::Follow };
                match self.walk(dir, path, last, true)? {
                    Resolved::Found(..) if *exclusive => return Err(FsError::Exists.into()),
                    Resolved::Found(_, attr) if attr.kind == FileKind::Directory => {
                        return Err(FsError::IsDirectory.into());
                    }
                    Resolved::Found(_, attr) => return self.opened(attr, Access::ReadWrite),
                    Resolved::Missing(place) => {
                        let attr =
                            fs.create(place.dir, &place.name, &CreateArgs::new(NewNode::File, *perm))?;
                        return self.opened(attr, Access::ReadWrite);
                    }
                    Resolved::Outside(_) => panic!("a path leads outside"),
                }
            }
            Kind::Close { file } => {
                let (ino, _) = self.file(file);
                let at = self.open.iter().position(|open| *open == ino).unwrap();
                self.open.remove(at);
                fs.release(ino);
                return Ok(None);
            }
            Kind::Stat { file } => Plainly::Attr(fs.getattr(self.file(file).0)?),
            Kind::Field { attr, field } => {
                let Plainly::Attr(attr) = self.value(*attr) else { panic!("{attr:?}") };
                Plainly::Num(match field {
                    Field::Size => attr.size,
                    Field::Mode => attr.mode().into(),
                    Field::Links => attr.links.into(),
                    Field::Uid => attr.uid.into(),
                    Field::Gid => attr.gid.into(),
                    Field::MtimeNs | Field::CtimeNs => panic!("times differ"),
                })
            }
            Kind::Read { file, offset, len } => {
                let (ino, access) = self.file(file);
                if !matches!(access, Access::Read | Access::ReadWrite) {
                    return Err(Failure::NotOpenFor);
                }
                let len = self.num(len).min(fs.getattr(ino)?.size);
                let mut bytes = vec![0; len as usize];
                let read = fs.read(ino, self.num(offset), &mut bytes)?;
                bytes.truncate(read);
                Plainly::Bytes(bytes)
            }
            Kind::Write { file, at, data } => {
                let ino = self.writable(file)?;
                let offset = match at {
                    At::Offset(offset) => self.num(offset),
                    At::End => fs.getattr(ino)?.size,
                };
                fs.write(ino, offset, &self.bytes(data))?;
                Plainly::Num(offset)
            }
            Kind::Truncate { file, size } => {
                let set = SetAttr { size: Some(self.num(size)), ..SetAttr::default() };
                fs.setattr(self.writable(file)?, &set)?;
                return Ok(None);
            }
            Kind::Fallocate { file, mode, offset, len } => {
                fs.fallocate(self.writable(file)?, (*mode).into(), self.num(offset), self.num(len))?;
                return Ok(None);
            }
            Kind::Mkdir { dir, path, perm } => {
                let (dir, name) = self.new_name(dir, path, true)?;
                fs.create(dir, &name, &CreateArgs::new(NewNode::Directory, *perm))?;
                return Ok(None);
            }
            Kind::Symlink { target, dir, path } => {
                let target = self.bytes(target);
                if target.is_empty() {
                    return Err(FsError::NotFound.into());
                }
                if target.contains(&0) {
                    return Err(FsError::Invalid("a target with a NUL byte").into());
                }
                let (dir, name) = self.new_name(dir, path, false)?;
                fs.create(dir, &name, &CreateArgs::new(NewNode::Symlink(&target), 0o777))?;
                return Ok(None);
            }
            Kind::Link { dir, path, to, new_path } => {
                let Resolved::Found(_, attr) = self.walk(dir, path, Last::Stop, false)? else {
                    return Err(FsError::NotFound.into());
                };
                let (dir, name) = self.new_name(to, new_path, false)?;
                fs.link(attr.ino, dir, &name)?;
                return Ok(None);
            }
            Kind::Rename { dir, path, to, new_path, flags } => {
                let (from, name, from_slash) = self.name(dir, path)?;
                let (to, new_name, to_slash) = self.name(to, new_path)?;
                if name.is_empty() || new_name.is_empty() {
                    return Err(Failure::NoName);
                }
                let moved = fs.lookup(from, &name)?;
                let there = fs.lookup(to, &new_name);
                let (is_dir, exchange) =
                    (moved.kind == FileKind::Directory, flags.contains(RenameFlags::EXCHANGE));
                let refuses =
                    there.is_ok() && flags.contains(RenameFlags::NO_REPLACE) || there.is_err() && exchange;
                let swaps_file =
                    exchange && to_slash && there.is_ok_and(|there| there.kind != FileKind::Directory);
                if !refuses && (swaps_file || !is_dir && (from_slash || to_slash && !exchange)) {
                    return Err(FsError::NotDirectory.into());
                }
                fs.rename(from, &name, to, &new_name, *flags)?;
                return Ok(None);
            }
            Kind::Unlink { dir, path } => {
                let (dir, name, slash) = self.name(dir, path)?;
                if name.is_empty() {
                    return Err(FsError::IsDirectory.into());
                }
                if slash && fs.lookup(dir, &name)?.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory.into());
                }
                fs.unlink(dir, &name)?;
                return Ok(None);
            }
            Kind::Rmdir { dir, path } => {
                let (dir, name, _) = self.name(dir, path)?;
                if name.is_empty() {
                    return Err(Failure::NoName);
                }
                fs.rmdir(dir, &name)?;
                return Ok(None);
            }
            Kind::GetXattr { file, name } => {
                self.may_have_xattrs(file, FsError::NoAttribute)?;
                Plainly::Bytes(fs.getxattr(self.file(file).0, name)?)
            }
            Kind::SetXattr { file, name, value, mode } => {
                self.may_have_xattrs(file, FsError::NotPermitted)?;
                fs.setxattr(self.file(file).0, name, &self.bytes(value), *mode)?;
                return Ok(None);
            }
            Kind::RemoveXattr { file, name } => {
                self.may_have_xattrs(file, FsError::NotPermitted)?;
                fs.removexattr(self.file(file).0, name)?;
                return Ok(None);
            }
            Kind::Sync { file } => {
                fs.fsync(self.file(file).0)?;
                return Ok(None);
            }
            Kind::Slice { bytes, from, len } => {
                Plainly::Bytes(compute::slice(&self.bytes(bytes), self.num(from), self.num(len))?.to_vec())
            }
            Kind::Concat { parts } => {
                Plainly::Bytes(parts.iter().flat_map(|part| self.bytes(part)).collect())
            }
            Kind::Len { bytes } => Plainly::Num(self.bytes(bytes).len() as u64),
            Kind::Pack { num, width } => Plainly::Bytes(compute::pack(self.num(num), *width)?),
            Kind::Unpack { bytes, from, width } => {
                Plainly::Num(compute::unpack(&self.bytes(bytes), self.num(from), *width)?)
            }
            Kind::Arith { arith, left, right } => {
                Plainly::Num(compute::arith(*arith, self.num(left), self.num(right))?)
            }
            Kind::Find { bytes, what, from } => {
                let what = self.bytes(what);
                if what.len() > FIND_BYTES_MAX {
                    return Err(Failure::Limit("4 KiB to find"));
                }
                Plainly::Num(compute::find(&self.bytes(bytes), &what, self.num(from)))
            }
            Kind::Patch { base, at, with } => {
                Plainly::Bytes(compute::patch(&self.bytes(base), self.num(at), &self.bytes(with))?)
            }
            Kind::Crc32c { bytes } => Plainly::Num(crc32c(&self.bytes(bytes)).into()),
            Kind::Verify { bytes, crc } => {
                let is_whole = u64::from(crc32c(&self.bytes(bytes))) == self.num(crc);
                return if is_whole { Ok(None) } else { Err(Failure::Crc) };
            }
            Kind::Expect { guard } => return if self.holds(guard) { Ok(None) } else { Err(Failure::Expect) },
            Kind::Given { .. } => return Err(Failure::NotOpenFor),
            Kind::InputBytes { .. } | Kind::InputNum { .. } => return Err(Failure::NoInput),
            Kind::Compress { bytes, codec, level } => {
                Plainly::Bytes(weft_compute::compress(&self.bytes(bytes), *codec, *level, usize::MAX)?)
            }
            Kind::Decompress { bytes, codec, max } => {
                let max = usize::try_from(self.num(max)).unwrap();
                Plainly::Bytes(weft_compute::decompress(&self.bytes(bytes), *codec, max)?)
            }
            Kind::Call { module, input, fuel } => match (self.bytes(module) == *ECHO, self.num(fuel)) {
                (true, FUEL) => Plainly::Bytes(self.bytes(input)),
                (true, fuel) => return Err(weft_compute::Error::Fuel { fuel }.into()),
                (false, _) => return Err(weft_compute::Error::Module("none".into()).into()),
            },
        }))
    }

    fn may_have_xattrs(&self, file: &File, error: FsError) -> FsResult<()> {
        match self.fs.getattr(self.file(file).0)?.kind {
            FileKind::File | FileKind::Directory => Ok(()),
            _ => Err(error),
        }
    }
}

/// An answer without what may differ: times, and the blocks of what was changed.
fn comparable(mut answer: Answer) -> Answer {
    for outcome in &mut answer.outcomes {
        if let Outcome::Done(Some(Value::Attr(attr))) = outcome {
            let never = TimeSpec::default();
            (attr.atime, attr.mtime, attr.ctime, attr.btime, attr.blocks) = (never, never, never, never, 0);
        }
    }
    answer
}

/// Random volumes: few in each test run, many in a campaign.
fn seeds() -> u64 {
    if std::env::var_os("WEFT_CAMPAIGN").is_some() { 1_000 } else { 20 }
}

fn checked(policy: Policy, ops: &[Op]) -> Checked {
    check(Program { policy, durable: false, ops: ops.to_vec() }).unwrap()
}

/// A host that notes how often it was asked for a step.
struct Counted<'a> {
    local: Local<'a>,
    steps: std::cell::Cell<u32>,
}

impl Host for Counted<'_> {
    fn files(&self) -> &dyn FileSystem {
        self.local.files()
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
        sync => local.sync(ino: Ino) -> FsResult<()>;
    }

    fn commit(&self, changes: &[Change<'_>], durable: bool) -> Result<Made, Refused> {
        self.steps.set(self.steps.get() + 1);
        self.local.files().commit(changes, durable)
    }
}

#[test]
fn programs_are_their_plain_calls_and_all_is_all_of_them_or_nothing() {
    let (mut done, mut failed, mut refused_by_core, mut told_of_a_later_one, mut ops_in_all) =
        (0u32, 0u32, 0u32, 0u32, 0);
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let mut fs = MemFs::with_capacity(64 << 20);
        for step in 0..40 {
            let ops = random.program(&fs, &Credentials::default(), 14);
            ops_in_all += ops.len();
            let place = format!("seed {seed} step {step}: {ops:#?}");
            let before = dump(&fs);
            let (plain, each, all, prefix) = (fs.copy(), fs.copy(), fs.copy(), fs.copy());
            let expected = comparable(Plain::run(&plain, &ops));
            let after = dump(&plain);

            let answer = comparable(run(&Local::new(&each), &checked(Policy::Each, &ops)));
            assert_eq!(answer, expected, "{place}");
            assert_eq!(dump(&each), after, "{place}");

            let answer = comparable(run(&Local::new(&prefix), &checked(Policy::Prefix, &ops)));
            assert_eq!(answer, expected, "{place}");
            assert_eq!(dump(&prefix), after, "{place}");

            let host = Counted { local: Local::new(&all), steps: Default::default() };
            let answer = comparable(run(&host, &checked(Policy::All, &ops)));
            assert!(host.steps.get() <= 1, "{place}");
            match (expected.failed(), answer.failed()) {
                (None, None) => {
                    assert_eq!(answer, expected, "{place}");
                    assert_eq!(dump(&all), after, "{place}");
                    done += 1;
                }
                (Some((first, _)), Some((told, _))) => {
                    assert!(told >= first, "{place}");
                    assert_eq!(dump(&all), before, "{place}");
                    failed += 1;
                    refused_by_core += host.steps.get();
                    told_of_a_later_one += u32::from(told > first);
                }
                (expected, told) => panic!("{place}\n{told:?} instead of {expected:?}"),
            }
            fs = plain;
        }
    }
    println!(
        "{} programs, {ops_in_all} operations: {done} done, {failed} failed; the core refused {refused_by_core} steps; \
         {told_of_a_later_one} times All told of a later operation",
        done + failed
    );
    assert!(done > 100 && failed > 50, "{done} done, {failed} failed");
}

#[test]
fn whoever_runs_a_program_its_policies_do_the_same() {
    let callers = [(0, 0), (7, 7), (8, 7)].map(|(uid, gid)| Credentials::new(uid, gid, Vec::new()));
    let (mut done, mut failed, mut forbidden) = (0u32, 0u32, 0u32);
    for seed in 0..seeds() {
        let mut random = Random::new(2_000_000 + seed);
        let mut fs = MemFs::with_capacity(64 << 20);
        let perm = random.one(&[0o777, 0o1777]);
        fs.setattr(Ino::ROOT, &SetAttr { perm: Some(perm), ..SetAttr::default() }).unwrap();
        for step in 0..40 {
            let caller = random.one(&callers);
            let ops = random.program(&fs, &caller, 10);
            let place = format!("seed {seed} step {step} {caller:?}: {ops:#?}");
            let before = dump(&fs);
            let (each, all, prefix) = (fs.copy(), fs.copy(), fs.copy());
            let run_as =
                |fs: &MemFs, policy| comparable(run(&Local::of(fs, caller.clone()), &checked(policy, &ops)));
            let expected = run_as(&each, Policy::Each);
            let after = dump(&each);
            assert_eq!(run_as(&prefix, Policy::Prefix), expected, "{place}");
            assert_eq!(dump(&prefix), after, "{place}");
            let answer = run_as(&all, Policy::All);
            assert_eq!(answer.failed().is_some(), expected.failed().is_some(), "{place}");
            match expected.failed() {
                None => {
                    assert_eq!(answer, expected, "{place}");
                    assert_eq!(dump(&all), after, "{place}");
                    done += 1;
                }
                Some((_, errno)) => {
                    assert_eq!(dump(&all), before, "{place}");
                    failed += 1;
                    forbidden += u32::from([libc::EACCES, libc::EPERM].contains(&errno));
                }
            }
            fs = each;
        }
    }
    println!("{done} done, {failed} failed, {forbidden} of them for want of permission");
    assert!(done > 100 && forbidden > 5, "{done} done, {failed} failed, {forbidden} without permission");
}

#[test]
fn on_a_full_volume_all_leaves_everything_or_nothing() {
    let (mut done, mut full, mut failed) = (0u32, 0u32, 0u32);
    for seed in 0..seeds() {
        let mut random = Random::new(1_000_000 + seed);
        let fs = MemFs::with_capacity(12 * 4096);
        for step in 0..40 {
            let mut ops = random.program(&fs, &Credentials::default(), 10);
            // What comes last takes much of the space, or finds that it is not there.
            let at = Ref(ops.len() as u8);
            let op = |kind| Op { kind, when: None, export: false };
            ops.push(op(Kind::Create { dir: Dir::Start, path: "/z".into(), perm: 0o644, exclusive: false }));
            for _ in 0..random.below(4) {
                let data = vec![7; 9_000].into();
                ops.push(op(Kind::Write { file: File(at), at: At::End, data }));
            }
            if random.below(3) == 0 {
                ops.push(op(Kind::Unlink { dir: Dir::Start, path: "/z".into() }));
            }
            let place = format!("seed {seed} step {step}: {ops:#?}");
            let before = dump(&fs);
            let answer = run(&Local::new(&fs), &checked(Policy::All, &ops));
            match answer.failed() {
                None => done += 1,
                Some((_, errno)) => {
                    assert_eq!(dump(&fs), before, "{place}");
                    failed += 1;
                    full += u32::from(errno == libc::ENOSPC);
                }
            }
        }
    }
    println!("{done} done, {failed} failed, {full} of them for want of space");
    assert!(done > 100 && full > 5, "{done} done, {failed} failed, {full} of them for want of space");
}
