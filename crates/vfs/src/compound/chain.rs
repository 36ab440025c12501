//! Programs that read like what they do.

use super::{
    Access, Arith, At, Bytes, CheckError, Checked, Codec, Compare, Dir, Field, File, Guard, Kind, Num, Op,
    Operand, Policy, Program, Ref, check,
};
use crate::{RenameFlags, XattrMode};

/// Builds a [`Program`], operation by operation. What an operation gives is a typed value, which later ones take.
///
/// Swap a configuration atomically and durably:
/// ```
/// use weft_vfs::MemFs;
/// use weft_vfs::compound::{Chain, Local, run};
///
/// let fs = MemFs::new();
/// let mut chain = Chain::all();
/// let new = chain.create("/config.new", 0o644, true);
/// chain.append(new, "verbose = true\n");
/// chain.rename("/config.new", "/config");
/// let swap = chain.durable().check()?;
/// assert_eq!(run(&Local::new(&fs), &swap).failed(), None);
/// # Ok::<(), weft_vfs::compound::CheckError>(())
/// ```
/// Replace a manifest if it is still the one that was read (compare and swap):
/// ```
/// # use weft_vfs::MemFs;
/// # use weft_vfs::compound::{Access, Chain, Compare, Local, Value, run};
/// # let fs = MemFs::new();
/// # let mut chain = Chain::all();
/// # let file = chain.create("/MANIFEST", 0o644, true);
/// # chain.append(file, "version 8");
/// # assert_eq!(run(&Local::new(&fs), &chain.check()?).failed(), None);
/// let mut chain = Chain::all();
/// let manifest = chain.open("/MANIFEST", Access::ReadWrite);
/// let found = chain.read(manifest, 0, 4096);
/// chain.export(found);
/// chain.expect(found, Compare::Equal, "version 7");
/// chain.write(manifest, 0, "version 8");
/// let answer = run(&Local::new(&fs), &chain.durable().check()?);
/// // Somebody else was faster. The answer says what is there, and nothing was written.
/// assert_eq!(answer.failed().map(|(at, _)| at), Some(2));
/// assert_eq!(answer.bytes(1), Some(&b"version 8"[..]));
/// # Ok::<(), weft_vfs::compound::CheckError>(())
/// ```
/// Read a block whose checksum lies behind it, and get no byte of a damaged one:
/// ```
/// # use weft_vfs::MemFs;
/// # use weft_vfs::compound::{Access, Chain, Local, run};
/// # let fs = MemFs::new();
/// let mut chain = Chain::all();
/// let table = chain.create("/table", 0o644, true);
/// let crc = chain.crc32c("a block");
/// let trailer = chain.pack(crc, 4);
/// let block = chain.concat(["a block".into(), trailer.into()]);
/// chain.append(table, block);
/// # assert_eq!(run(&Local::new(&fs), &chain.check()?).failed(), None);
///
/// let mut chain = Chain::all();
/// let table = chain.open("/table", Access::Read);
/// let whole = chain.read(table, 0, 11);
/// let block = chain.slice(whole, 0, 7);
/// let crc = chain.unpack(whole, 7, 4);
/// chain.verify(block, crc);
/// chain.export(block);
/// let answer = run(&Local::new(&fs), &chain.check()?);
/// assert_eq!(answer.failed(), None);
/// assert_eq!(answer.bytes(block.place()), Some(&b"a block"[..]));
/// # Ok::<(), weft_vfs::compound::CheckError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chain {
    program: Program,
    when: Option<Guard>,
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(Ref);

        impl From<$name> for Ref {
            fn from(value: $name) -> Ref {
                value.0
            }
        }

        impl $name {
            /// The place of its operation in the program, and in the answer.
            pub fn place(self) -> usize {
                self.0.0.into()
            }
        })*
    };
}
values! {
    /// Bytes that an operation gives.
    BytesOf;
    /// A number that an operation gives.
    NumOf;
    /// Attributes that an operation gives.
    AttrOf;
}

impl From<BytesOf> for Bytes {
    fn from(value: BytesOf) -> Bytes {
        Bytes::Of(value.0)
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes::Lit(text.into())
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        Bytes::Lit(bytes.into())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Lit(bytes)
    }
}

impl From<NumOf> for Num {
    fn from(value: NumOf) -> Num {
        Num::Of(value.0)
    }
}

impl From<u64> for Num {
    fn from(num: u64) -> Num {
        Num::Lit(num)
    }
}

macro_rules! operands {
    ($($from:ty => $variant:ident;)*) => {
        $(impl From<$from> for Operand {
            fn from(value: $from) -> Operand {
                Operand::$variant(value.into())
            }
        })*
    };
}
operands! {
    BytesOf => Bytes;
    &str => Bytes;
    &[u8] => Bytes;
    Vec<u8> => Bytes;
    NumOf => Num;
    u64 => Num;
}

impl Chain {
    /// A program of which all changes are made or none.
    pub fn all() -> Chain {
        Chain::of(Policy::All)
    }

    /// A program of which a failure leaves what came before it, in one step.
    pub fn prefix() -> Chain {
        Chain::of(Policy::Prefix)
    }

    /// A program whose changes are made one at a time.
    pub fn each() -> Chain {
        Chain::of(Policy::Each)
    }

    fn of(policy: Policy) -> Chain {
        Chain { program: Program { policy, durable: false, ops: Vec::new() }, when: None }
    }

    /// The changes survive a power cut when the program has run.
    pub fn durable(mut self) -> Chain {
        self.program.durable = true;
        self
    }

    /// The program, checked.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self) -> Result<Checked, CheckError> {
        check(self.program)
    }

    /// The next operation is done only when this holds; it, and all that use its value, are skipped otherwise.
    pub fn when(
        &mut self,
        left: impl Into<Operand>,
        compare: Compare,
        right: impl Into<Operand>,
    ) -> &mut Chain {
        self.when = Some(Guard { left: left.into(), compare, right: right.into() });
        self
    }

    /// Adds an operation for which there is no method here.
    pub fn push(&mut self, kind: Kind) -> Ref {
        // A program that is too long is refused by its check; its references need not be right.
        let at = Ref(self.program.ops.len().min(255) as u8);
        self.program.ops.push(Op { kind, when: self.when.take(), export: false });
        at
    }

    /// The answer has this value.
    pub fn export(&mut self, value: impl Into<Ref>) {
        if let Some(op) = self.program.ops.get_mut(usize::from(value.into().0)) {
            op.export = true;
        }
    }

    /// Opens a file or directory.
    pub fn open(&mut self, path: impl Into<Bytes>, access: Access) -> File {
        File(self.push(Kind::Open { dir: Dir::Start, path: path.into(), access, follow: true }))
    }

    /// Opens a file or directory below an open one.
    pub fn open_at(&mut self, dir: File, path: impl Into<Bytes>, access: Access) -> File {
        File(self.push(Kind::Open { dir: Dir::At(dir), path: path.into(), access, follow: true }))
    }

    /// A file that the caller has open and gives with the program.
    pub fn given(&mut self, number: u8) -> File {
        File(self.push(Kind::Given { number }))
    }

    /// Bytes that come with each run.
    pub fn input_bytes(&mut self, number: u8) -> BytesOf {
        BytesOf(self.push(Kind::InputBytes { number }))
    }

    /// A number that comes with each run.
    pub fn input_num(&mut self, number: u8) -> NumOf {
        NumOf(self.push(Kind::InputNum { number }))
    }

    /// Makes a file and opens it.
    pub fn create(&mut self, path: impl Into<Bytes>, perm: u32, exclusive: bool) -> File {
        File(self.push(Kind::Create { dir: Dir::Start, path: path.into(), perm, exclusive }))
    }

    /// Ends the use of a file.
    pub fn close(&mut self, file: File) {
        self.push(Kind::Close { file });
    }

    /// Attributes of a file.
    pub fn stat(&mut self, file: File) -> AttrOf {
        AttrOf(self.push(Kind::Stat { file }))
    }

    /// One of the attributes.
    pub fn field(&mut self, attr: AttrOf, field: Field) -> NumOf {
        NumOf(self.push(Kind::Field { attr: attr.0, field }))
    }

    /// Bytes of a file.
    pub fn read(&mut self, file: File, offset: impl Into<Num>, len: impl Into<Num>) -> BytesOf {
        BytesOf(self.push(Kind::Read { file, offset: offset.into(), len: len.into() }))
    }

    /// Writes at an offset.
    pub fn write(&mut self, file: File, offset: impl Into<Num>, data: impl Into<Bytes>) -> NumOf {
        NumOf(self.push(Kind::Write { file, at: At::Offset(offset.into()), data: data.into() }))
    }

    /// Writes at the end; the value is where that was.
    pub fn append(&mut self, file: File, data: impl Into<Bytes>) -> NumOf {
        NumOf(self.push(Kind::Write { file, at: At::End, data: data.into() }))
    }

    /// Sets a file's size.
    pub fn truncate(&mut self, file: File, size: impl Into<Num>) {
        self.push(Kind::Truncate { file, size: size.into() });
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, path: impl Into<Bytes>, perm: u32) {
        self.push(Kind::Mkdir { dir: Dir::Start, path: path.into(), perm });
    }

    /// Moves a name, and replaces what has the new one.
    pub fn rename(&mut self, path: impl Into<Bytes>, new_path: impl Into<Bytes>) {
        let (path, new_path) = (path.into(), new_path.into());
        let flags = RenameFlags::empty();
        self.push(Kind::Rename { dir: Dir::Start, path, to: Dir::Start, new_path, flags });
    }

    /// Gives a file one more name.
    pub fn link(&mut self, path: impl Into<Bytes>, new_path: impl Into<Bytes>) {
        let (path, new_path) = (path.into(), new_path.into());
        self.push(Kind::Link { dir: Dir::Start, path, to: Dir::Start, new_path });
    }

    /// Removes a name.
    pub fn unlink(&mut self, path: impl Into<Bytes>) {
        self.push(Kind::Unlink { dir: Dir::Start, path: path.into() });
    }

    /// Removes a directory.
    pub fn rmdir(&mut self, path: impl Into<Bytes>) {
        self.push(Kind::Rmdir { dir: Dir::Start, path: path.into() });
    }

    /// An extended attribute.
    pub fn get_xattr(&mut self, file: File, name: &str) -> BytesOf {
        BytesOf(self.push(Kind::GetXattr { file, name: name.into() }))
    }

    /// Sets an extended attribute, whether or not it exists.
    pub fn set_xattr(&mut self, file: File, name: &str, value: impl Into<Bytes>) {
        self.push(Kind::SetXattr { file, name: name.into(), value: value.into(), mode: XattrMode::Any });
    }

    /// Makes a file survive a power cut.
    pub fn sync(&mut self, file: File) {
        self.push(Kind::Sync { file });
    }

    /// A part of bytes.
    pub fn slice(&mut self, bytes: impl Into<Bytes>, from: impl Into<Num>, len: impl Into<Num>) -> BytesOf {
        BytesOf(self.push(Kind::Slice { bytes: bytes.into(), from: from.into(), len: len.into() }))
    }

    /// One behind the other.
    pub fn concat(&mut self, parts: impl IntoIterator<Item = Bytes>) -> BytesOf {
        BytesOf(self.push(Kind::Concat { parts: parts.into_iter().collect() }))
    }

    /// Number of bytes.
    pub fn len(&mut self, bytes: impl Into<Bytes>) -> NumOf {
        NumOf(self.push(Kind::Len { bytes: bytes.into() }))
    }

    /// A number in `width` little-endian bytes.
    pub fn pack(&mut self, num: impl Into<Num>, width: u8) -> BytesOf {
        BytesOf(self.push(Kind::Pack { num: num.into(), width }))
    }

    /// The number in `width` little-endian bytes.
    pub fn unpack(&mut self, bytes: impl Into<Bytes>, from: impl Into<Num>, width: u8) -> NumOf {
        NumOf(self.push(Kind::Unpack { bytes: bytes.into(), from: from.into(), width }))
    }

    /// Arithmetic.
    pub fn arith(&mut self, left: impl Into<Num>, arith: Arith, right: impl Into<Num>) -> NumOf {
        NumOf(self.push(Kind::Arith { arith, left: left.into(), right: right.into() }))
    }

    /// Where bytes hold others first, or [`NOT_FOUND`](super::NOT_FOUND).
    pub fn find(&mut self, bytes: impl Into<Bytes>, what: impl Into<Bytes>, from: impl Into<Num>) -> NumOf {
        NumOf(self.push(Kind::Find { bytes: bytes.into(), what: what.into(), from: from.into() }))
    }

    /// Bytes with others in their place.
    pub fn patch(&mut self, base: impl Into<Bytes>, at: impl Into<Num>, with: impl Into<Bytes>) -> BytesOf {
        BytesOf(self.push(Kind::Patch { base: base.into(), at: at.into(), with: with.into() }))
    }

    /// CRC32C of bytes.
    pub fn crc32c(&mut self, bytes: impl Into<Bytes>) -> NumOf {
        NumOf(self.push(Kind::Crc32c { bytes: bytes.into() }))
    }

    /// Compresses bytes, with level 0 in the codec's usual way.
    pub fn compress(&mut self, bytes: impl Into<Bytes>, codec: Codec, level: i32) -> BytesOf {
        BytesOf(self.push(Kind::Compress { bytes: bytes.into(), codec, level }))
    }

    /// Decompresses bytes to at most `max` bytes.
    pub fn decompress(&mut self, bytes: impl Into<Bytes>, codec: Codec, max: impl Into<Num>) -> BytesOf {
        BytesOf(self.push(Kind::Decompress { bytes: bytes.into(), codec, max: max.into() }))
    }

    /// What the function of a module makes of the input, for at most `fuel` units.
    pub fn call(
        &mut self,
        module: impl Into<Bytes>,
        input: impl Into<Bytes>,
        fuel: impl Into<Num>,
    ) -> BytesOf {
        BytesOf(self.push(Kind::Call { module: module.into(), input: input.into(), fuel: fuel.into() }))
    }

    /// Ends the program unless the bytes have this CRC32C.
    pub fn verify(&mut self, bytes: impl Into<Bytes>, crc: impl Into<Num>) {
        self.push(Kind::Verify { bytes: bytes.into(), crc: crc.into() });
    }

    /// Ends the program unless this holds.
    pub fn expect(&mut self, left: impl Into<Operand>, compare: Compare, right: impl Into<Operand>) {
        let guard = Guard { left: left.into(), compare, right: right.into() };
        self.push(Kind::Expect { guard });
    }
}
