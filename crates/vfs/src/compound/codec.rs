//! The encoding of programs and answers, for a transport between processes.
//!
//! ```text
//! program  version u16 | policy u8 | durable u8 | operations u8 | operation ...
//! operation  flags u8 (1 = exported, 2 = guarded) | guard, if guarded | kind u8 | fields of the kind, in the order below
//! answer   version u16 | outcomes u8 | outcome ...
//! ```
//! Integers are little-endian. Bytes stand behind their number (u32), a list behind that of its elements (u8), an alternative behind its
//! number (u8); the tables below are the layout. A number is never given to something else: what is new gets a new one, and what changes
//! its fields, too. A program that is decoded has still to be [checked](super::check).

pub use super::wire::DecodeError;

use super::wire::{Encoded, Wire, get_list, put_list, wire_enum, wire_struct};
use super::{
    Access, Allocate, Answer, Arith, At, Bytes, Checked, Codec, Compare, Dir, Field, File, Guard, Kind, Num,
    Op, Operand, Outcome, Policy, Program, Ref, Value,
};
use crate::{Attr, FileKind, InodeFlags, Marks, RenameFlags, TimeSpec, XattrMode};
use weft_core::Ino;

/// The version of the encoding.
const VERSION: u16 = 1;
/// Flags of an operation.
const EXPORTED: u8 = 1;
const GUARDED: u8 = 2;

impl Checked {
    /// The program in bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

/// A program in bytes, which has at most 255 operations.
pub(super) fn encode(program: &Program) -> Vec<u8> {
    let mut out = Vec::new();
    VERSION.put(&mut out);
    program.policy.put(&mut out);
    program.durable.put(&mut out);
    put_list(&program.ops, &mut out);
    out
}

impl Program {
    /// The program that these bytes are.
    ///
    /// # Errors
    /// They are not the encoding of a program.
    pub fn decode(bytes: &[u8]) -> Result<Program, DecodeError> {
        let mut input = Encoded(bytes);
        check_version(&mut input)?;
        let program = Program {
            policy: Wire::get(&mut input)?,
            durable: Wire::get(&mut input)?,
            ops: get_list(&mut input)?,
        };
        input.end()?;
        Ok(program)
    }
}

impl Answer {
    /// The answer in bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        VERSION.put(&mut out);
        put_list(&self.outcomes, &mut out);
        out
    }

    /// The answer that these bytes are.
    ///
    /// # Errors
    /// They are not the encoding of an answer.
    pub fn decode(bytes: &[u8]) -> Result<Answer, DecodeError> {
        let mut input = Encoded(bytes);
        check_version(&mut input)?;
        let outcomes = get_list(&mut input)?;
        input.end()?;
        Ok(Answer { outcomes })
    }
}

fn check_version(input: &mut Encoded<'_>) -> Result<(), DecodeError> {
    match u16::get(input)? {
        VERSION => Ok(()),
        other => Err(DecodeError::Version(other)),
    }
}

impl Wire for Op {
    fn put(&self, out: &mut Vec<u8>) {
        let exported = if self.export { EXPORTED } else { 0 };
        out.push(exported | if self.when.is_some() { GUARDED } else { 0 });
        if let Some(guard) = &self.when {
            guard.put(out);
        }
        self.kind.put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Op, DecodeError> {
        let flags = u8::get(input)?;
        if flags & !(EXPORTED | GUARDED) != 0 {
            return Err(DecodeError::Unknown(flags.into(), "flags of an operation"));
        }
        let when = if flags & GUARDED != 0 { Some(Guard::get(input)?) } else { None };
        Ok(Op { kind: Kind::get(input)?, when, export: flags & EXPORTED != 0 })
    }
}

wire_enum!(Policy { 0 => All, 1 => Prefix, 2 => Each, });
wire_struct!(Guard { left, compare, right });
wire_enum!(Operand { 0 => Num(num), 1 => Bytes(bytes), });
wire_enum!(Compare { 0 => Equal, 1 => NotEqual, 2 => Less, 3 => LessOrEqual, });
wire_enum!(Num { 0 => Lit(num), 1 => Of(of), });
wire_enum!(Bytes { 0 => Lit(bytes), 1 => Of(of), });
wire_enum!(Dir { 0 => Start, 1 => At(file), });
wire_enum!(At { 0 => Offset(offset), 1 => End, });
wire_enum!(Access { 0 => Path, 1 => Read, 2 => Write, 3 => ReadWrite, });
wire_enum!(Allocate { 0 => Extend, 1 => KeepSize, 2 => PunchHole, 3 => Zero, 4 => ZeroKeepSize, });
wire_enum!(Arith { 0 => Add, 1 => Sub, 2 => Mul, 3 => Div, 4 => Rem, 5 => Min, 6 => Max, });
wire_enum!(Field { 0 => Size, 1 => Mode, 2 => Links, 3 => Uid, 4 => Gid, 5 => MtimeNs, 6 => CtimeNs, });
wire_enum!(Codec { 0 => Lz4, 1 => Lz4Block, 2 => Zstd, });
wire_enum!(XattrMode { 0 => Any, 1 => Create, 2 => Replace, });
wire_enum!(Kind {
    0 => Open { dir, path, access, follow },
    1 => Create { dir, path, perm, exclusive },
    2 => Close { file },
    3 => Stat { file },
    4 => Field { attr, field },
    5 => Read { file, offset, len },
    6 => Write { file, at, data },
    7 => Truncate { file, size },
    8 => Fallocate { file, mode, offset, len },
    9 => Mkdir { dir, path, perm },
    10 => Symlink { target, dir, path },
    11 => Link { dir, path, to, new_path },
    12 => Rename { dir, path, to, new_path, flags },
    13 => Unlink { dir, path },
    14 => Rmdir { dir, path },
    15 => GetXattr { file, name },
    16 => SetXattr { file, name, value, mode },
    17 => RemoveXattr { file, name },
    18 => Sync { file },
    19 => Slice { bytes, from, len },
    20 => Concat { parts },
    21 => Len { bytes },
    22 => Pack { num, width },
    23 => Unpack { bytes, from, width },
    24 => Arith { arith, left, right },
    25 => Find { bytes, what, from },
    26 => Patch { base, at, with },
    27 => Crc32c { bytes },
    28 => Verify { bytes, crc },
    29 => Expect { guard },
    30 => Given { number },
    31 => Compress { bytes, codec, level },
    32 => Decompress { bytes, codec, max },
    33 => Call { module, input, fuel },
    34 => InputBytes { number },
    35 => InputNum { number },
});
wire_enum!(Outcome { 0 => Done(value), 1 => Skipped, 2 => Failed(errno), });
wire_enum!(Value { 0 => Bytes(bytes), 1 => Num(num), 2 => Attr(attr), });
wire_struct!(Attr {
    ino,
    kind,
    perm,
    links,
    uid,
    gid,
    rdev,
    size,
    blocks,
    atime,
    mtime,
    ctime,
    btime,
    marks
});
wire_struct!(Marks { flags, has_acl, has_default_acl });

impl Wire for Ref {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Ref, DecodeError> {
        Ok(Ref(u8::get(input)?))
    }
}

impl Wire for File {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<File, DecodeError> {
        Ok(File(Ref::get(input)?))
    }
}

impl Wire for Vec<Bytes> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Vec<Bytes>, DecodeError> {
        get_list(input)
    }
}

impl Wire for Option<Value> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(input: &mut Encoded<'_>) -> Result<Option<Value>, DecodeError> {
        if bool::get(input)? { Ok(Some(Value::get(input)?)) } else { Ok(None) }
    }
}

impl Wire for Ino {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Ino, DecodeError> {
        Ok(Ino(u64::get(input)?))
    }
}

impl Wire for TimeSpec {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<TimeSpec, DecodeError> {
        Ok(TimeSpec(i64::get(input)?))
    }
}

impl Wire for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<FileKind, DecodeError> {
        let number = u8::get(input)?;
        FileKind::from_u8(number).ok_or(DecodeError::Unknown(number.into(), "FileKind"))
    }
}

impl Wire for RenameFlags {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<RenameFlags, DecodeError> {
        let bits = u32::get(input)?;
        RenameFlags::from_bits(bits).ok_or(DecodeError::Unknown(bits.into(), "RenameFlags"))
    }
}

impl Wire for InodeFlags {
    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<InodeFlags, DecodeError> {
        let bits = u32::get(input)?;
        InodeFlags::from_bits(bits).ok_or(DecodeError::Unknown(bits.into(), "InodeFlags"))
    }
}
