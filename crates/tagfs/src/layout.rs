//! What lies in the nodes: the bytes of each, and the names of the edges between them.
//!
//! ```text
//! root of an s-node --record--> what the i-node is; a symlink's target; the first block of a small file
//!                   --attribute, n--> field n of that, on a volume that has them apart
//!                   --xattrs--> its extended attributes
//!                   --data, i--> chunk i of a file: 256 blocks; of a small file, piece i
//!                   --entry, "name"--> an entry of a directory
//! first s-node      --orphan, ino--> the root of an i-node without a name
//!                   --super--> what the volume is
//! root of a directory --quota--> what is counted of its tree, if it has a quota
//! ```
//!
//! `docs/formats/tagfs.md` describes every byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::codec::{Reader, WriteFields};
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_tags::{EdgeType, InfoForm, NodeType, Store};
use weft_vfs::memfs::{FILE_SIZE_MAX, XATTR_NAME_MAX};
use weft_vfs::names::{check_name, check_node};
use weft_vfs::{FileKind, NewNode, TimeSpec, XATTR_VALUE_MAX};

/// The version of the format of a volume without [features](Super::features).
pub(crate) const VERSION: u32 = 1;
/// The version of the format of one with features.
pub(crate) const VERSION_OF_FEATURES: u32 = 2;
/// A feature: the fields of records lie in nodes of their own.
pub(crate) const APART: u32 = 1;
/// A feature: a directory has had a quota.
pub(crate) const QUOTAS: u32 = 2;
/// The features that are known.
pub(crate) const FEATURES: u32 = APART | QUOTAS;
/// The type of the node that says what the volume is.
pub(crate) const SUPER: NodeType = NodeType(0x7466_0001);
/// The type of the nodes that say what an i-node is.
pub(crate) const RECORD: NodeType = NodeType(0x7466_0002);
/// The type of the nodes of extended attributes.
pub(crate) const XATTRS: NodeType = NodeType(0x7466_0003);
/// The type of the nodes of file data.
pub(crate) const CHUNK: NodeType = NodeType(0x7466_0004);
/// The type of the nodes of a small file's data.
pub(crate) const PIECE: NodeType = NodeType(0x7466_0006);
/// The type of the nodes of single fields of what an i-node is.
pub(crate) const ATTRIBUTE: NodeType = NodeType(0x7466_0007);
/// The edges to fields of records.
pub(crate) const ATTRIBUTE_EDGES: &str = "tagfs.attribute";
/// The type of the nodes of what is counted of a tree with a quota.
pub(crate) const QUOTA: NodeType = NodeType(0x7466_0008);
/// The type of the entries of directories.
pub(crate) const ENTRY: NodeType = NodeType(NodeType::KEYED | 0x7466_0005);

/// The name of the type of edges to counts of quotas. A volume without quotas does not have it.
pub(crate) const QUOTA_EDGE: &str = "tagfs.quota";
/// The name of the B+tree in which the entries of all directories stand in the order of their cookies.
pub(crate) const LISTING: &str = "tagfs.listing";
/// Longest label of a volume, in bytes.
pub(crate) const LABEL_MAX: usize = 255;

/// Blocks of a chunk.
pub(crate) const CHUNK_BLOCKS: u64 = 256;
/// Chunks of a file are numbered below this: twice what the largest file has, since promises may lie behind its end.
pub(crate) const CHUNKS_MAX: u64 = 1 << 44;
/// Largest number of anything that is counted on a volume. With it, sums of a few such numbers do not overflow.
const COUNT_MAX: u64 = 1 << 62;
/// Bytes of a chunk's head: a slot for each block.
pub(crate) const HEAD_BYTES: usize = 2 * CHUNK_BLOCKS as usize;
/// Where a chunk's first slot begins: with the node's own header of 8 bytes before it, at the second page.
pub(crate) const SLOTS_AT: usize = BLOCK_BYTES - 8;
/// The slot of a block that has its space and no data.
pub(crate) const PROMISED: u16 = u16::MAX;
/// The most bytes of a file that lie in its record: with that, the record fits one page.
pub(crate) const INLINE_BYTES_MAX: usize = 3_968;

/// Bytes of a tag in a record.
const TAG_BYTES: usize = 20;
/// The number of the field behind all numbers of a record: a symlink's target, or the first block of a small file.
const CONTENT_FIELD: u64 = 16;

const LINKABLE: u8 = 1;
const INLINE: u8 = 2;
const HAS_XATTRS: u8 = 4;
const PACKED: u8 = 8;
const HAS_QUOTA: u8 = 16;

/// Bytes of a piece: with that, its node fills a page of those that the store writes many at a time.
pub(crate) const PIECE_BYTES: usize = BLOCK_BYTES - 8;
/// The most bytes of a file that lie in pieces.
pub(crate) const PACKED_BYTES_MAX: u64 = 64 << 10;

/// The types of edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeTypes {
    pub superblock: EdgeType,
    pub record: EdgeType,
    pub xattrs: EdgeType,
    pub data: EdgeType,
    pub entry: EdgeType,
    pub orphan: EdgeType,
}

impl EdgeTypes {
    /// Those of a store, registered if they are new.
    pub(crate) fn of(store: &Store) -> weft_tags::Result<EdgeTypes> {
        let number = |name| store.edge_type(name, InfoForm::Number);
        Ok(EdgeTypes {
            superblock: number("tagfs.super")?,
            record: number("tagfs.record")?,
            xattrs: number("tagfs.xattrs")?,
            data: number("tagfs.data")?,
            orphan: number("tagfs.orphan")?,
            entry: store.edge_type("tagfs.entry", InfoForm::Key)?,
        })
    }
}

/// What the volume is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Super {
    pub uuid: [u8; 16],
    /// Bytes that the medium has, or may grow to.
    pub capacity: u64,
    /// Blocks with space and without data, in all files.
    pub promised: u64,
    /// Bytes that programs have written.
    pub volume_bytes: u64,
    pub label: Vec<u8>,
    /// What is other than on a plain volume.
    pub features: u32,
}

impl Super {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.label.len());
        out.put_u32(if self.features == 0 { VERSION } else { VERSION_OF_FEATURES });
        out.extend_from_slice(&self.uuid);
        out.put_u64(self.capacity);
        out.put_u64(self.promised);
        out.put_u64(self.volume_bytes);
        out.put_string(&self.label);
        if self.features != 0 {
            out.put_u32(self.features);
        }
        out
    }

    /// The version, and the rest if that is known; `None` when the bytes are no such node.
    pub(crate) fn decode(raw: &[u8]) -> Option<(u32, Super)> {
        let mut r = Reader::new(raw);
        let version = r.u32().ok()?;
        if ![VERSION, VERSION_OF_FEATURES].contains(&version) {
            return Some((version, Super::default()));
        }
        let (uuid, capacity) = (r.array().ok()?, r.u64().ok()?);
        let (promised, volume_bytes) = (r.u64().ok()?, r.u64().ok()?);
        let label = r.string().ok().filter(|label| label.len() <= LABEL_MAX)?.to_vec();
        let features = if version == VERSION { 0 } else { r.u32().ok()? };
        let holds = capacity <= COUNT_MAX && promised <= COUNT_MAX && volume_bytes <= COUNT_MAX;
        holds.then_some((version, Super { uuid, capacity, promised, volume_bytes, label, features }))
    }
}

/// What an i-node is, but for its owner, group and mode: those are the tags of its s-node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub links: u32,
    /// Made without a name and not given one yet: the one case in which an i-node without a name may get one.
    pub linkable: bool,
    pub has_xattrs: bool,
    pub atime: TimeSpec,
    pub mtime: TimeSpec,
    pub ctime: TimeSpec,
    pub btime: TimeSpec,
    pub tag: Tag,
    /// The directory whose quota it counts to. One that has a quota names itself, and is not counted.
    pub quota: Option<Ino>,
    pub form: Form,
}

/// What there is of an i-node by its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    File(FileForm),
    Directory(DirectoryForm),
    Symlink(Vec<u8>),
    Special(FileKind, u64),
}

/// A regular file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileForm {
    pub size: u64,
    /// Blocks that have data or a promise.
    pub blocks: u64,
    /// Chunks there are.
    pub chunks: u64,
    /// Of these, blocks without data.
    pub promised: u64,
    /// The byte clock when the content began.
    pub born: u64,
    /// The bytes of the only block with data, the first, without the zeros at its end.
    pub inline: Option<Arc<[u8]>>,
    /// Bytes from the beginning on that lie in pieces: all there are, where they do.
    pub packed: u64,
}

impl FileForm {
    /// Blocks that lie in the record or in pieces.
    pub(crate) fn small_blocks(&self) -> u64 {
        if self.inline.is_some() { 1 } else { self.packed.div_ceil(BLOCK_BYTES as u64) }
    }

    /// Whether a file can be so, as far as its record tells.
    fn is_possible(&self) -> bool {
        let FileForm { size, blocks, chunks, promised, born, inline, packed } = self;
        let inline_bytes = inline.as_ref().map_or(0, |inline| inline.len());
        *size <= FILE_SIZE_MAX
            && *chunks <= CHUNKS_MAX
            && *blocks <= CHUNKS_MAX * CHUNK_BLOCKS
            && promised <= blocks
            && *born <= COUNT_MAX
            && inline_bytes <= INLINE_BYTES_MAX
            && *packed <= PACKED_BYTES_MAX
            && (inline.is_none() || *packed == 0)
    }
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryForm {
    pub parent: Ino,
    pub next_cookie: u64,
    pub entries: u64,
}

impl Record {
    pub(crate) fn kind(&self) -> FileKind {
        match self.form {
            Form::File(_) => FileKind::File,
            Form::Directory(_) => FileKind::Directory,
            Form::Symlink(_) => FileKind::Symlink,
            Form::Special(kind, _) => kind,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let is_inline = matches!(&self.form, Form::File(FileForm { inline: Some(_), .. }));
        let is_packed = matches!(&self.form, Form::File(file) if file.packed > 0);
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out.put_u8(self.kind() as u8);
        let flags = bit(self.linkable, LINKABLE) | bit(self.has_xattrs, HAS_XATTRS);
        let has_quota = bit(self.quota.is_some(), HAS_QUOTA);
        out.put_u8(flags | bit(is_inline, INLINE) | bit(is_packed, PACKED) | has_quota);
        out.put_u16(0);
        out.put_u32(self.links);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            out.put_i64(time.0);
        }
        out.extend_from_slice(&self.tag.encode());
        if let Some(dir) = self.quota {
            out.put_u64(dir.0);
        }
        match &self.form {
            Form::File(file) => {
                for number in [file.size, file.blocks, file.chunks, file.promised, file.born] {
                    out.put_u64(number);
                }
                out.extend_from_slice(file.inline.as_deref().unwrap_or_default());
            }
            Form::Directory(directory) => {
                for number in [directory.parent.0, directory.next_cookie, directory.entries] {
                    out.put_u64(number);
                }
            }
            Form::Symlink(target) => out.extend_from_slice(target),
            Form::Special(_, rdev) => out.put_u64(*rdev),
        }
        out
    }

    /// Reads what [`Record::encode`] wrote; `None` when it did not: then what is said of sizes and counts cannot be so.
    pub(crate) fn decode(raw: &[u8]) -> Option<Record> {
        let mut r = Reader::new(raw);
        let kind = FileKind::from_u8(r.u8().ok()?)?;
        let (flags, _, links) = (r.u8().ok()?, r.u16().ok()?, r.u32().ok()?);
        let mut time = || r.i64().ok().map(TimeSpec);
        let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
        let tag = Tag::decode(&r.array().ok()?)?;
        let quota = if flags & HAS_QUOTA != 0 { Some(Ino(r.u64().ok()?)) } else { None };
        let form = match kind {
            FileKind::File => {
                let (size, blocks, chunks) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
                let (promised, born) = (r.u64().ok()?, r.u64().ok()?);
                let rest = r.bytes(r.remaining()).ok()?;
                let packed = if flags & PACKED != 0 { size } else { 0 };
                let inline: Option<Arc<[u8]>> = (flags & INLINE != 0).then(|| rest.into());
                let file = FileForm { size, blocks, chunks, promised, born, inline, packed };
                Form::File(Some(file).filter(FileForm::is_possible)?)
            }
            FileKind::Directory => {
                let (parent, next_cookie, entries) = (Ino(r.u64().ok()?), r.u64().ok()?, r.u64().ok()?);
                let holds = (1..=COUNT_MAX).contains(&next_cookie) && entries < next_cookie;
                Form::Directory(holds.then_some(DirectoryForm { parent, next_cookie, entries })?)
            }
            FileKind::Symlink => {
                let target = r.bytes(r.remaining()).ok()?;
                check_node(&NewNode::Symlink(target)).ok()?;
                Form::Symlink(target.to_vec())
            }
            kind => Form::Special(kind, r.u64().ok()?),
        };
        let (linkable, has_xattrs) = (flags & LINKABLE != 0, flags & HAS_XATTRS != 0);
        Some(Record { links, linkable, has_xattrs, atime, mtime, ctime, btime, tag, quota, form })
    }
}

/// What is counted of a tree that has a quota, without the directory that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Blocks that have data or a promise.
    pub blocks: u64,
    /// Inodes of all kinds, those without a name included.
    pub inodes: u64,
}

impl Counts {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        out.put_u64(self.blocks);
        out.put_u64(self.inodes);
        out
    }

    /// Reads what [`Counts::encode`] wrote; `None` when the bytes are no counts.
    pub(crate) fn decode(raw: &[u8]) -> Option<Counts> {
        let mut r = Reader::new(raw);
        let (blocks, inodes) = (r.u64().ok()?, r.u64().ok()?);
        (blocks <= COUNT_MAX && inodes <= COUNT_MAX).then_some(Counts { blocks, inodes })
    }
}

/// The fields of an encoded record, each with its number: kind with flags, links, four times, tag, the quota if it has one, the numbers of its form, and what
/// is left of it, if that is something.
pub(crate) fn fields(raw: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let numbers = match raw.first().copied().and_then(FileKind::from_u8) {
        Some(FileKind::File) => 5,
        Some(FileKind::Directory) => 3,
        Some(FileKind::Symlink) | None => 0,
        Some(_) => 1,
    };
    let numbers = numbers + usize::from(raw.get(1).is_some_and(|flags| flags & HAS_QUOTA != 0));
    let lens = [4, 4, 8, 8, 8, 8, TAG_BYTES].into_iter().chain(std::iter::repeat_n(8, numbers));
    let rest = (CONTENT_FIELD, usize::MAX);
    let mut left = raw;
    (0..).zip(lens).chain([rest]).filter_map(move |(number, len)| {
        let (field, behind) = left.split_at(len.min(left.len()));
        left = behind;
        (!field.is_empty()).then_some((number, field))
    })
}

/// An entry of a directory, without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub cookie: u64,
    pub ino: Ino,
    pub kind: FileKind,
}

impl Entry {
    pub(crate) fn encode(&self, name: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(19 + name.len());
        // The store finds the node by the key that its data begins with. A name has at most 255 bytes.
        out.put_u16(name.len() as u16);
        out.extend_from_slice(name);
        out.put_u64(self.cookie);
        out.put_u64(self.ino.0);
        out.put_u8(self.kind as u8);
        out
    }

    /// The name and the entry; `None` when the bytes are none.
    pub(crate) fn decode(raw: &[u8]) -> Option<(&[u8], Entry)> {
        let mut r = Reader::new(raw);
        let len = usize::from(r.u16().ok()?);
        let name = r.bytes(len).ok()?;
        check_name(name).ok()?;
        let (cookie, ino) = (r.u64().ok()?, Ino(r.u64().ok()?));
        Some((name, Entry { cookie, ino, kind: FileKind::from_u8(r.u8().ok()?)? }))
    }
}

/// The key of an entry in the listing of all directories: those of one stand together, in the order of their cookies.
pub(crate) fn listing_key(dir: Ino, cookie: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&dir.0.to_be_bytes());
    key[8..].copy_from_slice(&cookie.to_be_bytes());
    key
}

/// Extended attributes.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn encode_xattrs(xattrs: &Xattrs) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in xattrs {
        out.put_string(name);
        out.put_string(value);
    }
    out
}

pub(crate) fn decode_xattrs(raw: &[u8]) -> Option<Xattrs> {
    let (mut r, mut xattrs) = (Reader::new(raw), Xattrs::new());
    while r.remaining() > 0 {
        let (name, value) = (r.string().ok()?, r.string().ok()?);
        let holds = (1..=XATTR_NAME_MAX).contains(&name.len()) && value.len() <= XATTR_VALUE_MAX;
        xattrs.insert(holds.then_some(name)?.to_vec(), value.to_vec());
    }
    Some(xattrs)
}

/// Where in a chunk's node the slot of this number begins; slots are numbered from 1.
pub(crate) fn slot_at(slot: u16) -> u64 {
    SLOTS_AT as u64 + (u64::from(slot) - 1) * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use weft_core::{DataClass, StreamId};

    fn record(form: Form) -> Record {
        Record {
            links: 3,
            linkable: true,
            has_xattrs: false,
            atime: TimeSpec(-1),
            mtime: TimeSpec(i64::MAX),
            ctime: TimeSpec(3),
            btime: TimeSpec(4),
            tag: Tag { stream: StreamId(7), class: DataClass::Log, ..Tag::default() },
            quota: None,
            form,
        }
    }

    fn has_content(form: &Form) -> bool {
        match form {
            Form::File(file) => file.inline.as_ref().is_some_and(|inline| !inline.is_empty()),
            Form::Symlink(_) => true,
            Form::Directory(_) | Form::Special(..) => false,
        }
    }

    #[test]
    fn a_record_of_every_kind_comes_back_and_half_of_one_does_not() {
        let file = FileForm {
            size: u64::MAX >> 1,
            blocks: 2,
            chunks: 1,
            promised: 1,
            born: 9,
            inline: None,
            packed: 0,
        };
        let directory = DirectoryForm { parent: Ino(5), next_cookie: 8, entries: 3 };
        for form in [
            Form::File(file.clone()),
            Form::File(FileForm { inline: Some([].into()), ..file.clone() }),
            Form::File(FileForm { inline: Some([1, 2, 3].into()), ..file.clone() }),
            Form::File(FileForm { size: 50_000, packed: 50_000, ..file }),
            Form::Directory(directory),
            Form::Symlink(b"../there".to_vec()),
            Form::Special(FileKind::CharDevice, 0x0103),
        ] {
            for quota in [None, Some(Ino(1 << 40))] {
                let record = Record { quota, ..record(form.clone()) };
                let raw = record.encode();
                let apart: Vec<(u64, &[u8])> = fields(&raw).collect();
                assert_eq!(apart.iter().flat_map(|(_, field)| *field).copied().collect::<Vec<u8>>(), raw);
                assert!(apart.is_sorted_by_key(|(number, _)| *number), "{apart:?}");
                assert_eq!(apart[7..].iter().any(|(number, _)| *number == CONTENT_FIELD), has_content(&form));
                assert_eq!(Record::decode(&raw).unwrap(), record);
                assert_eq!(Record::decode(&raw[..40]), None);
            }
        }
        assert_eq!(Record::decode(&[99; 100]), None);
    }

    #[test]
    fn what_a_record_cannot_say_is_refused() {
        let file = FileForm { size: 9_000, blocks: 3, chunks: 1, promised: 1, ..FileForm::default() };
        for wrong in [
            FileForm { size: 1 << 63, ..file.clone() },
            FileForm { chunks: u64::MAX, ..file.clone() },
            FileForm { blocks: u64::MAX, ..file.clone() },
            FileForm { promised: 4, ..file.clone() },
            FileForm { size: PACKED_BYTES_MAX + 1, packed: PACKED_BYTES_MAX + 1, ..file.clone() },
            FileForm { inline: Some([1; INLINE_BYTES_MAX + 1].into()), ..file.clone() },
            FileForm { inline: Some([1].into()), packed: 9_000, ..file },
        ] {
            assert_eq!(Record::decode(&record(Form::File(wrong.clone())).encode()), None, "{wrong:?}");
        }
        for (next_cookie, entries) in [(0, 0), (5, 5), (u64::MAX, 1)] {
            let wrong = DirectoryForm { parent: Ino(1), next_cookie, entries };
            assert_eq!(Record::decode(&record(Form::Directory(wrong)).encode()), None, "{wrong:?}");
        }
        for target in [vec![], vec![b'a'; 4096]] {
            assert_eq!(Record::decode(&record(Form::Symlink(target)).encode()), None);
        }
        let entry = Entry { cookie: 1, ino: Ino(2), kind: FileKind::File };
        for name in [&b""[..], b".", b"a/b", &[b'a'; 256]] {
            assert_eq!(Entry::decode(&entry.encode(name)), None);
        }
        let superblock = Super { capacity: u64::MAX, ..Super::default() };
        assert_eq!(Super::decode(&superblock.encode()), None);
    }

    #[test]
    fn the_largest_inline_file_and_its_record_fit_a_page_of_the_store() {
        let inline = Some([1; INLINE_BYTES_MAX].into());
        let record =
            Record { quota: Some(Ino(1)), ..record(Form::File(FileForm { inline, ..FileForm::default() })) };
        assert!(record.encode().len() <= BLOCK_BYTES - 8);
    }

    #[test]
    fn entries_of_a_directory_stand_in_the_order_of_their_cookies() {
        let entry = Entry { cookie: 1 << 40, ino: Ino(77), kind: FileKind::Fifo };
        assert_eq!(Entry::decode(&entry.encode(b"name")), Some((&b"name"[..], entry)));
        assert_eq!(Entry::decode(&entry.encode(b"name")[..10]), None);
        let keys = [(1, 1), (1, 2), (1, 256), (1, u64::MAX), (2, 1), (256, 0)];
        assert!(keys.map(|(dir, cookie)| listing_key(Ino(dir), cookie)).is_sorted());
    }

    #[test]
    fn attributes_and_the_superblock_come_back() {
        let xattrs =
            Xattrs::from([(b"user.a".to_vec(), vec![0; XATTR_VALUE_MAX]), (b"user.b".to_vec(), Vec::new())]);
        assert_eq!(decode_xattrs(&encode_xattrs(&xattrs)).unwrap(), xattrs);
        assert!(decode_xattrs(&encode_xattrs(&xattrs)[..100]).is_none());
        let superblock = Super {
            uuid: [3; 16],
            capacity: 1 << 40,
            promised: 5,
            volume_bytes: 9,
            label: b"label".to_vec(),
            features: 0,
        };
        let raw = superblock.encode();
        assert_eq!(Super::decode(&raw).unwrap(), (VERSION, superblock.clone()));
        let fine = Super { features: APART, ..superblock.clone() };
        assert_eq!(Super::decode(&fine.encode()).unwrap(), (VERSION_OF_FEATURES, fine));
        let newer = Super { features: 1 << 31, ..superblock };
        assert_eq!(Super::decode(&newer.encode()).unwrap(), (VERSION_OF_FEATURES, newer));
        let counts = Counts { blocks: 7, inodes: 9 };
        assert_eq!(Counts::decode(&counts.encode()), Some(counts));
        assert_eq!(Counts::decode(&counts.encode()[..15]), None);
        assert_eq!(Counts::decode(&Counts { blocks: u64::MAX, ..counts }.encode()), None);
        assert_eq!(Super::decode(&[9, 0, 0, 0]).unwrap().0, 9);
        assert!(Super::decode(&raw[..20]).is_none());
    }
}
