//! What a program is made of.

use crate::{FallocateMode, RenameFlags, XattrMode};
use weft_compute::Codec;

/// What [`Kind::Find`] gives when there is nothing to find.
pub const NOT_FOUND: u64 = u64::MAX;

/// The operation of a program at this place, counted from 0; its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ref(pub u8);

/// An open file or directory: the value of a [`Kind::Open`] or [`Kind::Create`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File(pub Ref);

/// Where a path begins that does not begin with a slash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dir {
    /// At the caller's [starting directory](super::Host::start).
    Start,
    /// At an open directory.
    At(File),
}

/// A number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Num {
    /// This one.
    Lit(u64),
    /// The value of an operation.
    Of(Ref),
}

/// Bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// These.
    Lit(Vec<u8>),
    /// The value of an operation.
    Of(Ref),
}

/// One side of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A number.
    Num(Num),
    /// Bytes, which compare as `memcmp` does, a shorter one before a longer one that begins with it.
    Bytes(Bytes),
}

/// How two values compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

/// A comparison of two values of one type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The left one.
    pub left: Operand,
    /// How.
    pub compare: Compare,
    /// The right one.
    pub right: Operand,
}

/// What an opened file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Its attributes, and as the beginning of paths: needs no permission for the file itself (`O_PATH`).
    Path,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// Where a write begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// At this offset, in bytes.
    Offset(Num),
    /// At the end of the file.
    End,
}

/// What [`Kind::Fallocate`] does with its range; see [`FallocateMode`](crate::FallocateMode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Promises space and extends the size.
    Extend,
    /// Promises space and keeps the size.
    KeepSize,
    /// Makes a hole.
    PunchHole,
    /// Makes zeros and extends the size.
    Zero,
    /// Makes zeros and keeps the size.
    ZeroKeepSize,
}

impl From<Allocate> for FallocateMode {
    fn from(allocate: Allocate) -> FallocateMode {
        match allocate {
            Allocate::Extend => FallocateMode::Allocate,
            Allocate::KeepSize => FallocateMode::KeepSize,
            Allocate::PunchHole => FallocateMode::PunchHole,
            Allocate::Zero => FallocateMode::ZeroRange { keep_size: false },
            Allocate::ZeroKeepSize => FallocateMode::ZeroRange { keep_size: true },
        }
    }
}

/// Arithmetic of unsigned 64-bit numbers. What overflows, goes below zero or divides by it fails with `EOVERFLOW`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arith {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, rounded down
    Div,
    /// `%`
    Rem,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
}

/// A number among the attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Bytes.
    Size,
    /// Kind and permission bits as in `st_mode`.
    Mode,
    /// Names.
    Links,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Last change of the data, in nanoseconds since 1970.
    MtimeNs,
    /// Last change of the inode, in nanoseconds since 1970.
    CtimeNs,
}

/// What an operation does. A path is relative to its [`Dir`], or to the root of the volume when it begins with a slash; it leads through
/// symlinks within the volume only. One that holds a NUL byte fails with `EINVAL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Opens a file or a directory: a [`File`]. Fails with `ELOOP` for a symlink at the end when `follow` is false.
    Open {
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
        /// What for.
        access: Access,
        /// Whether a symlink at the end is followed.
        follow: bool,
    },
    /// Makes an empty file and opens it for reading and writing: a [`File`]. Opens the one that exists unless `exclusive`.
    Create {
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
        /// Permission bits (07777), from which the caller's umask is taken.
        perm: u32,
        /// Whether it fails with `EEXIST` when the name is taken.
        exclusive: bool,
    },
    /// Ends the use of a file: no later operation may name it. All files are closed at the end of a program.
    Close {
        /// Which.
        file: File,
    },
    /// Attributes of a file: an attribute value.
    Stat {
        /// Which.
        file: File,
    },
    /// One of a file's attributes: a number.
    Field {
        /// A [`Kind::Stat`].
        attr: Ref,
        /// Which.
        field: Field,
    },
    /// Bytes of a file; fewer than asked for, or none, at its end.
    Read {
        /// Which.
        file: File,
        /// First byte.
        offset: Num,
        /// How many, at most.
        len: Num,
    },
    /// Writes all of `data`: the offset of its first byte.
    Write {
        /// To which.
        file: File,
        /// Where.
        at: At,
        /// What.
        data: Bytes,
    },
    /// Sets a file's size; what a larger one adds reads as zeros.
    Truncate {
        /// Whose.
        file: File,
        /// In bytes.
        size: Num,
    },
    /// Allocates, punches or zeroes a range.
    Fallocate {
        /// Of which.
        file: File,
        /// What.
        mode: Allocate,
        /// First byte.
        offset: Num,
        /// How many.
        len: Num,
    },
    /// Makes a directory.
    Mkdir {
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
        /// Permission bits, from which the caller's umask is taken.
        perm: u32,
    },
    /// Makes a symlink.
    Symlink {
        /// What it holds.
        target: Bytes,
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
    },
    /// Gives a file one more name; a symlink at the end of `path` is not followed.
    Link {
        /// Where the path begins.
        dir: Dir,
        /// To the file.
        path: Bytes,
        /// Where the new path begins.
        to: Dir,
        /// The new one.
        new_path: Bytes,
    },
    /// Moves a name, and replaces what has the new one unless `flags` say otherwise (without `WHITEOUT`).
    Rename {
        /// Where the path begins.
        dir: Dir,
        /// The old one.
        path: Bytes,
        /// Where the new path begins.
        to: Dir,
        /// The new one.
        new_path: Bytes,
        /// How.
        flags: RenameFlags,
    },
    /// Removes a name that is not a directory's.
    Unlink {
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Where the path begins.
        dir: Dir,
        /// Where to.
        path: Bytes,
    },
    /// An extended attribute: bytes.
    GetXattr {
        /// Whose.
        file: File,
        /// In the namespace `user.`.
        name: Vec<u8>,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Whose.
        file: File,
        /// In the namespace `user.`.
        name: Vec<u8>,
        /// To what.
        value: Bytes,
        /// When.
        mode: XattrMode,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Whose.
        file: File,
        /// In the namespace `user.`.
        name: Vec<u8>,
    },
    /// Makes a file's data and all names so far survive a power cut. Under `All` and `Prefix` that is the program's step, when it has
    /// one, which carries all.
    Sync {
        /// Which.
        file: File,
    },
    /// A part of bytes: bytes. Fails with `ERANGE` unless all of it is there.
    Slice {
        /// Of what.
        bytes: Bytes,
        /// First byte.
        from: Num,
        /// How many.
        len: Num,
    },
    /// One behind the other: bytes.
    Concat {
        /// In this order; at most 255.
        parts: Vec<Bytes>,
    },
    /// Number of bytes: a number.
    Len {
        /// Of what.
        bytes: Bytes,
    },
    /// A number in little-endian bytes: bytes. Fails with `EOVERFLOW` when they do not hold it.
    Pack {
        /// Which.
        num: Num,
        /// How many bytes: 1 to 8.
        width: u8,
    },
    /// The number in little-endian bytes: a number. Fails with `ERANGE` unless there are `width`.
    Unpack {
        /// Where.
        bytes: Bytes,
        /// First byte.
        from: Num,
        /// How many bytes: 1 to 8.
        width: u8,
    },
    /// Of two numbers, another one.
    Arith {
        /// How.
        arith: Arith,
        /// The left one.
        left: Num,
        /// The right one.
        right: Num,
    },
    /// Where bytes hold others first: the offset, or [`NOT_FOUND`].
    Find {
        /// In what.
        bytes: Bytes,
        /// What, which is not empty or is found at once.
        what: Bytes,
        /// Where to begin.
        from: Num,
    },
    /// `base` with `with` in place of as many bytes at `at`: bytes. Fails with `ERANGE` unless all of them are there.
    Patch {
        /// What is changed.
        base: Bytes,
        /// Where.
        at: Num,
        /// By what.
        with: Bytes,
    },
    /// CRC32C (Castagnoli) of bytes: a number.
    Crc32c {
        /// Of what.
        bytes: Bytes,
    },
    /// Fails with `EBADMSG` unless the bytes have this CRC32C.
    Verify {
        /// Which.
        bytes: Bytes,
        /// Their CRC32C.
        crc: Num,
    },
    /// Fails with `ECANCELED` unless the comparison holds.
    Expect {
        /// Which.
        guard: Guard,
    },
    /// A file or directory that the caller has open and gives with the program: a [`File`], open for what it is open for there. Fails with
    /// `EBADF` when there is none with this number.
    Given {
        /// Which of those that are given, from 0.
        number: u8,
    },
    /// Bytes that come with each run of the program: bytes. Fails with `EINVAL` when there are none with this number.
    InputBytes {
        /// Which input, from 0.
        number: u8,
    },
    /// A number that comes with each run of the program: a number. Fails with `EINVAL` when there is none with this number.
    InputNum {
        /// Which input, from 0.
        number: u8,
    },
    /// Compresses bytes: bytes.
    Compress {
        /// Which.
        bytes: Bytes,
        /// By what.
        codec: Codec,
        /// One that the codec [has](Codec::has_level); 0 is its usual one.
        level: i32,
    },
    /// Decompresses bytes: bytes. Fails with `EBADMSG` when they are not what the codec makes, with `E2BIG` when the result is longer than
    /// `max`.
    Decompress {
        /// Which.
        bytes: Bytes,
        /// By what.
        codec: Codec,
        /// Bytes of the result, at most.
        max: Num,
    },
    /// What a user's function makes of bytes: bytes. A module has [one function](weft_compute::Module), which sees nothing but its input.
    /// Fails with `ETIME` when that takes more fuel, or longer than the [host](super::Host::goes_on) allows; with `EFAULT` when the
    /// function breaks off; with `ENOMEM` when it needs more memory than functions have; with `ENOEXEC` when the module is none, and with
    /// `E2BIG` when it is too long.
    Call {
        /// The module, in binary form.
        module: Bytes,
        /// What the function gets.
        input: Bytes,
        /// Units of fuel that it may take.
        fuel: Num,
    },
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// When it is done; `None` for always.
    pub when: Option<Guard>,
    /// Whether the answer has its value. A [`File`] cannot be exported.
    pub export: bool,
}

/// What a failure or a power cut leaves of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// All changes or none.
    #[default]
    All,
    /// The changes before the operation that failed, in one step.
    Prefix,
    /// The changes before the operation that failed, each of which was made for itself.
    Each,
}

/// Operations in the order in which they are done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// What a failure leaves.
    pub policy: Policy,
    /// Whether its changes survive a power cut when it returns.
    pub durable: bool,
    /// What it does.
    pub ops: Vec<Op>,
}

impl Program {
    /// Whether a run may end with a flush of the device.
    pub fn flushes(&self) -> bool {
        self.durable || self.ops.iter().any(|op| matches!(op.kind, Kind::Sync { .. }))
    }
}

/// What comes with a run of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input<'a> {
    /// The value of a [`Kind::InputBytes`].
    Bytes(&'a [u8]),
    /// The value of a [`Kind::InputNum`].
    Num(u64),
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// An open file or directory.
    File,
    /// Bytes.
    Bytes,
    /// A number.
    Num,
    /// Attributes.
    Attr,
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Type::File => "a file",
            Type::Bytes => "bytes",
            Type::Num => "a number",
            Type::Attr => "attributes",
        })
    }
}

/// What is used of earlier operations, and the literal bytes.
pub(super) trait Uses {
    /// Calls `each` with each use: the operation and the type that its value must have.
    fn uses(&self, each: &mut dyn FnMut(Ref, Type));

    /// Literal bytes.
    fn literal_bytes(&self) -> usize {
        0
    }
}

impl Uses for File {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        each(self.0, Type::File);
    }
}

impl Uses for Dir {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        if let Dir::At(file) = self {
            file.uses(each);
        }
    }
}

impl Uses for Num {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        if let Num::Of(of) = self {
            each(*of, Type::Num);
        }
    }
}

impl Uses for At {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        if let At::Offset(offset) = self {
            offset.uses(each);
        }
    }
}

impl Uses for Bytes {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        if let Bytes::Of(of) = self {
            each(*of, Type::Bytes);
        }
    }

    fn literal_bytes(&self) -> usize {
        match self {
            Bytes::Lit(bytes) => bytes.len(),
            Bytes::Of(_) => 0,
        }
    }
}

impl Uses for Operand {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        match self {
            Operand::Num(num) => num.uses(each),
            Operand::Bytes(bytes) => bytes.uses(each),
        }
    }

    fn literal_bytes(&self) -> usize {
        match self {
            Operand::Num(_) => 0,
            Operand::Bytes(bytes) => bytes.literal_bytes(),
        }
    }
}

impl Uses for Guard {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        self.left.uses(each);
        self.right.uses(each);
    }

    fn literal_bytes(&self) -> usize {
        self.left.literal_bytes() + self.right.literal_bytes()
    }
}

impl Guard {
    /// Whether both sides are of one type.
    pub(super) fn compares_like(&self) -> bool {
        matches!(
            (&self.left, &self.right),
            (Operand::Num(_), Operand::Num(_)) | (Operand::Bytes(_), Operand::Bytes(_))
        )
    }
}

impl Kind {
    /// The type of its value; `None` when it has none.
    pub fn result(&self) -> Option<Type> {
        Some(match self {
            Kind::Open { .. } | Kind::Create { .. } | Kind::Given { .. } => Type::File,
            Kind::Stat { .. } => Type::Attr,
            Kind::Read { .. }
            | Kind::GetXattr { .. }
            | Kind::Slice { .. }
            | Kind::Concat { .. }
            | Kind::Pack { .. }
            | Kind::Patch { .. }
            | Kind::Compress { .. }
            | Kind::Decompress { .. }
            | Kind::Call { .. }
            | Kind::InputBytes { .. } => Type::Bytes,
            Kind::Field { .. }
            | Kind::Write { .. }
            | Kind::Len { .. }
            | Kind::Unpack { .. }
            | Kind::Arith { .. }
            | Kind::Find { .. }
            | Kind::Crc32c { .. }
            | Kind::InputNum { .. } => Type::Num,
            Kind::Close { .. }
            | Kind::Truncate { .. }
            | Kind::Fallocate { .. }
            | Kind::Mkdir { .. }
            | Kind::Symlink { .. }
            | Kind::Link { .. }
            | Kind::Rename { .. }
            | Kind::Unlink { .. }
            | Kind::Rmdir { .. }
            | Kind::SetXattr { .. }
            | Kind::RemoveXattr { .. }
            | Kind::Sync { .. }
            | Kind::Verify { .. }
            | Kind::Expect { .. } => return None,
        })
    }

    /// Whether it changes the volume.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Kind::Create { .. }
                | Kind::Write { .. }
                | Kind::Truncate { .. }
                | Kind::Fallocate { .. }
                | Kind::Mkdir { .. }
                | Kind::Symlink { .. }
                | Kind::Link { .. }
                | Kind::Rename { .. }
                | Kind::Unlink { .. }
                | Kind::Rmdir { .. }
                | Kind::SetXattr { .. }
                | Kind::RemoveXattr { .. }
        )
    }

    /// Whether it only makes values of others and of what comes with the program, without files and users' functions.
    pub fn only_computes(&self) -> bool {
        matches!(
            self,
            Kind::InputBytes { .. }
                | Kind::InputNum { .. }
                | Kind::Slice { .. }
                | Kind::Concat { .. }
                | Kind::Len { .. }
                | Kind::Pack { .. }
                | Kind::Unpack { .. }
                | Kind::Arith { .. }
                | Kind::Find { .. }
                | Kind::Patch { .. }
                | Kind::Crc32c { .. }
                | Kind::Verify { .. }
                | Kind::Expect { .. }
        ) || self.needs_codec()
    }

    /// Whether it needs a codec.
    pub fn needs_codec(&self) -> bool {
        matches!(self, Kind::Compress { .. } | Kind::Decompress { .. })
    }

    /// Its parts that may use values, in the order of its fields.
    fn parts(&self) -> Vec<&dyn Uses> {
        match self {
            Kind::Open { dir, path, .. }
            | Kind::Create { dir, path, .. }
            | Kind::Mkdir { dir, path, .. }
            | Kind::Unlink { dir, path }
            | Kind::Rmdir { dir, path } => vec![dir, path],
            Kind::Close { file }
            | Kind::Stat { file }
            | Kind::GetXattr { file, .. }
            | Kind::RemoveXattr { file, .. }
            | Kind::Sync { file } => vec![file],
            Kind::Field { .. } | Kind::Given { .. } | Kind::InputBytes { .. } | Kind::InputNum { .. } => {
                vec![]
            }
            Kind::Read { file, offset, len } | Kind::Fallocate { file, offset, len, .. } => {
                vec![file, offset, len]
            }
            Kind::Write { file, at, data } => vec![file, at, data],
            Kind::Truncate { file, size } => vec![file, size],
            Kind::Symlink { target, dir, path } => vec![target, dir, path],
            Kind::Link { dir, path, to, new_path } | Kind::Rename { dir, path, to, new_path, .. } => {
                vec![dir, path, to, new_path]
            }
            Kind::SetXattr { file, value, .. } => vec![file, value],
            Kind::Slice { bytes, from, len } => vec![bytes, from, len],
            Kind::Concat { parts } => parts.iter().map(|part| part as &dyn Uses).collect(),
            Kind::Len { bytes } | Kind::Crc32c { bytes } | Kind::Compress { bytes, .. } => vec![bytes],
            Kind::Decompress { bytes, max, .. } => vec![bytes, max],
            Kind::Call { module, input, fuel } => vec![module, input, fuel],
            Kind::Pack { num, .. } => vec![num],
            Kind::Unpack { bytes, from, .. } => vec![bytes, from],
            Kind::Arith { left, right, .. } => vec![left, right],
            Kind::Find { bytes, what, from } => vec![bytes, what, from],
            Kind::Patch { base, at, with } => vec![base, at, with],
            Kind::Verify { bytes, crc } => vec![bytes, crc],
            Kind::Expect { guard } => vec![guard],
        }
    }
}

impl Uses for Op {
    fn uses(&self, each: &mut dyn FnMut(Ref, Type)) {
        if let Some(guard) = &self.when {
            guard.uses(each);
        }
        if let Kind::Field { attr, .. } = self.kind {
            each(attr, Type::Attr);
        }
        self.kind.parts().into_iter().for_each(|part| part.uses(each));
    }

    fn literal_bytes(&self) -> usize {
        let names = match &self.kind {
            Kind::GetXattr { name, .. } | Kind::SetXattr { name, .. } | Kind::RemoveXattr { name, .. } => {
                name.len()
            }
            _ => 0,
        };
        let parts = self.kind.parts().into_iter().map(Uses::literal_bytes).sum::<usize>();
        self.when.as_ref().map_or(0, Uses::literal_bytes) + parts + names
    }
}
