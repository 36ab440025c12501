//! The protocol between client and server: the encoding of requests and replies.

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::RawWrite;
use crate::monitor::{BlockLook, GrantInfo};
use std::string::FromUtf8Error;
use weft_core::codec::{Reader, Truncated, WriteFields};
use weft_core::{Nanos, Tag};
use weft_device::nand::{Done, Unreadable};

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Attach {
        name: String,
    },
    Allocate {
        name: String,
        bytes: u64,
        over_provisioning_permille: u32,
    },
    /// A request that names a grant by bytes that are no text.
    Misnamed {
        name: Vec<u8>,
    },
    Read {
        issued: Nanos,
        read: ReadOne,
    },
    /// The tag is in the answer too.
    ReadTagged {
        issued: Nanos,
        read: ReadOne,
    },
    Program {
        issued: Nanos,
        write: WriteOne,
    },
    Erase {
        issued: Nanos,
        block: GrantBlock,
    },
    Look {
        block: GrantBlock,
    },
    FreeAt {
        block: GrantBlock,
    },
    Sync,
    /// Gives the grant back, so that it is free when the answer comes.
    Detach,
    /// Releases a grant that nobody is attached to.
    Release {
        name: String,
    },
    /// The grants that there are.
    List,
    /// The device's clock.
    Now,
    /// Several at once, each with an answer of its own.
    ReadMany {
        issued: Nanos,
        reads: Vec<ReadOne>,
    },
    ProgramMany {
        issued: Nanos,
        writes: Vec<WriteOne>,
    },
    EraseMany {
        issued: Nanos,
        blocks: Vec<GrantBlock>,
    },
}

/// A page to read: offset, bytes of data, out-of-band bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReadOne {
    pub page: GrantPage,
    pub offset: u32,
    pub data: u32,
    pub oob: u32,
}

/// A page to program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WriteOne {
    pub page: GrantPage,
    pub data: Vec<u8>,
    pub oob: Vec<u8>,
    pub tag: Tag,
}

impl WriteOne {
    pub fn of(write: &RawWrite) -> WriteOne {
        let RawWrite { page, data, oob, tag } = *write;
        WriteOne { page, data: data.to_vec(), oob: oob.to_vec(), tag }
    }

    pub fn as_raw(&self) -> RawWrite<'_> {
        RawWrite { page: self.page, data: &self.data, oob: &self.oob, tag: self.tag }
    }

    fn put(&self, raw: &mut Vec<u8>) {
        put_page(raw, self.page);
        raw.put_string(&self.data);
        raw.put_string(&self.oob);
        raw.extend_from_slice(&self.tag.encode());
    }

    fn read(reader: &mut Reader) -> Result<WriteOne, Truncated> {
        let page = read_page(reader)?;
        let (data, oob) = (reader.string()?.to_vec(), reader.string()?.to_vec());
        let at = reader.position();
        // A tag of another version is refused like a request of another version.
        let tag = Tag::decode(&reader.array()?).ok_or(Truncated { at, wanted: Tag::ENCODED_BYTES })?;
        Ok(WriteOne { page, data, oob, tag })
    }
}

impl ReadOne {
    fn put(&self, raw: &mut Vec<u8>) {
        put_page(raw, self.page);
        [self.offset, self.data, self.oob].into_iter().for_each(|field| raw.put_u32(field));
    }

    fn read(reader: &mut Reader) -> Result<ReadOne, Truncated> {
        let page = read_page(reader)?;
        Ok(ReadOne { page, offset: reader.u32()?, data: reader.u32()?, oob: reader.u32()? })
    }
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        match self {
            Request::Attach { name } => {
                raw.put_u8(1);
                raw.put_string(name.as_bytes());
            }
            Request::Allocate { name, bytes, over_provisioning_permille } => {
                raw.put_u8(2);
                raw.put_string(name.as_bytes());
                raw.put_u64(*bytes);
                raw.put_u32(*over_provisioning_permille);
            }
            Request::Read { issued, read } => {
                raw.put_u8(3);
                raw.put_u64(issued.0);
                read.put(&mut raw);
            }
            Request::ReadTagged { issued, read } => {
                raw.put_u8(16);
                raw.put_u64(issued.0);
                read.put(&mut raw);
            }
            Request::Program { issued, write } => {
                raw.put_u8(17);
                raw.put_u64(issued.0);
                write.put(&mut raw);
            }
            Request::Erase { issued, block } => {
                raw.put_u8(5);
                raw.put_u64(issued.0);
                put_page(&mut raw, block.page(0));
            }
            Request::Look { block } => {
                raw.put_u8(6);
                put_page(&mut raw, block.page(0));
            }
            Request::FreeAt { block } => {
                raw.put_u8(7);
                put_page(&mut raw, block.page(0));
            }
            // As any of those with a name.
            Request::Misnamed { name } => {
                raw.put_u8(1);
                raw.put_string(name);
            }
            Request::Sync => raw.put_u8(8),
            Request::Detach => raw.put_u8(9),
            Request::Release { name } => {
                raw.put_u8(10);
                raw.put_string(name.as_bytes());
            }
            Request::List => raw.put_u8(11),
            Request::Now => raw.put_u8(12),
            Request::ReadMany { issued, reads } => {
                put_many(&mut raw, 13, *issued, reads.len());
                reads.iter().for_each(|read| read.put(&mut raw));
            }
            Request::ProgramMany { issued, writes } => {
                put_many(&mut raw, 18, *issued, writes.len());
                writes.iter().for_each(|write| write.put(&mut raw));
            }
            Request::EraseMany { issued, blocks } => {
                put_many(&mut raw, 15, *issued, blocks.len());
                blocks.iter().for_each(|block| put_page(&mut raw, block.page(0)));
            }
        }
        raw
    }

    /// A request; `None` when it is of no known kind.
    pub fn decode(raw: &[u8]) -> Result<Option<Request>, Truncated> {
        let mut reader = Reader::new(raw);
        let reader = &mut reader;
        let text = |reader: &mut Reader| -> Result<Result<String, Request>, Truncated> {
            let misnamed = |error: FromUtf8Error| Request::Misnamed { name: error.into_bytes() };
            Ok(String::from_utf8(reader.string()?.to_vec()).map_err(misnamed))
        };
        Ok(Some(match reader.u8()? {
            1 => text(reader)?.map_or_else(|misnamed| misnamed, |name| Request::Attach { name }),
            2 => {
                let (name, bytes, over_provisioning_permille) = (text(reader)?, reader.u64()?, reader.u32()?);
                name.map_or_else(
                    |misnamed| misnamed,
                    |name| Request::Allocate { name, bytes, over_provisioning_permille },
                )
            }
            3 => Request::Read { issued: Nanos(reader.u64()?), read: ReadOne::read(reader)? },
            5 => Request::Erase { issued: Nanos(reader.u64()?), block: read_page(reader)?.block },
            6 => Request::Look { block: read_page(reader)?.block },
            7 => Request::FreeAt { block: read_page(reader)?.block },
            8 => Request::Sync,
            9 => Request::Detach,
            10 => text(reader)?.map_or_else(|misnamed| misnamed, |name| Request::Release { name }),
            11 => Request::List,
            12 => Request::Now,
            13 => Request::ReadMany { issued: Nanos(reader.u64()?), reads: many(reader, ReadOne::read)? },
            15 => Request::EraseMany {
                issued: Nanos(reader.u64()?),
                blocks: many(reader, |reader| Ok(read_page(reader)?.block))?,
            },
            // 4 and 14 wrote pages before they had tags.
            16 => Request::ReadTagged { issued: Nanos(reader.u64()?), read: ReadOne::read(reader)? },
            17 => Request::Program { issued: Nanos(reader.u64()?), write: WriteOne::read(reader)? },
            18 => {
                Request::ProgramMany { issued: Nanos(reader.u64()?), writes: many(reader, WriteOne::read)? }
            }
            _ => return Ok(None),
        }))
    }
}

fn put_many(raw: &mut Vec<u8>, kind: u8, issued: Nanos, count: usize) {
    raw.put_u8(kind);
    raw.put_u64(issued.0);
    raw.put_u32(count as u32);
}

fn many<T>(
    reader: &mut Reader,
    one: impl Fn(&mut Reader) -> Result<T, Truncated>,
) -> Result<Vec<T>, Truncated> {
    (0..reader.u32()?).map(|_| one(reader)).collect()
}

fn put_page(raw: &mut Vec<u8>, page: GrantPage) {
    let GrantPage { block: GrantBlock { channel, lun, block }, page } = page;
    [channel, lun, block, page].into_iter().for_each(|field| raw.put_u32(field));
}

fn read_page(reader: &mut Reader) -> Result<GrantPage, Truncated> {
    let block = GrantBlock { channel: reader.u32()?, lun: reader.u32()?, block: reader.u32()? };
    Ok(block.page(reader.u32()?))
}

pub(super) fn put_done(raw: &mut Vec<u8>, done: Done) {
    [done.began, done.moved, done.done].into_iter().for_each(|time| raw.put_u64(time.0));
}

pub(super) fn read_done(reader: &mut Reader) -> Result<Done, Truncated> {
    Ok(Done { began: Nanos(reader.u64()?), moved: Nanos(reader.u64()?), done: Nanos(reader.u64()?) })
}

/// A tag, or that there is none that can be read.
pub(super) fn put_tag(raw: &mut Vec<u8>, tag: Option<Tag>) {
    raw.put_u8(u8::from(tag.is_some()));
    raw.extend_from_slice(&tag.unwrap_or_default().encode());
}

pub(super) fn read_tag(reader: &mut Reader) -> Result<Option<Tag>, Truncated> {
    let (is_known, tag) = (reader.u8()? == 1, Tag::decode(&reader.array()?));
    Ok(tag.filter(|_| is_known))
}

pub(super) fn put_look(raw: &mut Vec<u8>, look: BlockLook) {
    raw.put_u32(look.programmed);
    raw.put_u8(u8::from(look.erase_incomplete));
    raw.put_u8(u8::from(look.retired));
    raw.put_u32(look.erases);
}

pub(super) fn read_look(reader: &mut Reader) -> Result<BlockLook, Truncated> {
    Ok(BlockLook {
        programmed: reader.u32()?,
        erase_incomplete: reader.u8()? == 1,
        retired: reader.u8()? == 1,
        erases: reader.u32()?,
    })
}

pub(super) fn put_geometry(raw: &mut Vec<u8>, geometry: &GrantGeometry) {
    raw.put_u32(geometry.luns_by_channel.len() as u32);
    geometry.luns_by_channel.iter().for_each(|luns| raw.put_u32(*luns));
    let GrantGeometry { blocks_per_lun, planes, pages_per_block, page_bytes, oob_bytes, .. } = *geometry;
    let fields = [blocks_per_lun, planes, pages_per_block, page_bytes, oob_bytes];
    fields.into_iter().for_each(|field| raw.put_u32(field));
    raw.put_u64(geometry.capacity_bytes);
    raw.put_u32(geometry.over_provisioning_permille);
}

pub(super) fn read_geometry(reader: &mut Reader) -> Result<GrantGeometry, Truncated> {
    let luns_by_channel =
        (0..reader.u32()?).map(|_| reader.u32()).collect::<Result<Vec<u32>, Truncated>>()?;
    Ok(GrantGeometry {
        luns_by_channel,
        blocks_per_lun: reader.u32()?,
        planes: reader.u32()?,
        pages_per_block: reader.u32()?,
        page_bytes: reader.u32()?,
        oob_bytes: reader.u32()?,
        capacity_bytes: reader.u64()?,
        over_provisioning_permille: reader.u32()?,
    })
}

pub(super) fn put_grants(raw: &mut Vec<u8>, grants: &[GrantInfo]) {
    raw.put_u32(grants.len() as u32);
    for grant in grants {
        raw.put_string(grant.name.as_bytes());
        raw.put_u64(grant.bytes);
        raw.put_u32(grant.over_provisioning_permille);
        raw.put_u8(u8::from(grant.in_use));
        raw.put_u32(grant.luns.len() as u32);
        grant.luns.iter().for_each(|lun| raw.put_u32(*lun));
    }
}

pub(super) fn read_grants(reader: &mut Reader) -> Result<Vec<GrantInfo>, Truncated> {
    let count = reader.u32()?;
    let grant = |_| {
        let name = String::from_utf8_lossy(reader.string()?).into_owned();
        let (bytes, over_provisioning_permille) = (reader.u64()?, reader.u32()?);
        let in_use = reader.u8()? == 1;
        let luns = (0..reader.u32()?).map(|_| reader.u32()).collect::<Result<Vec<u32>, Truncated>>()?;
        Ok(GrantInfo { name, bytes, over_provisioning_permille, luns, in_use })
    };
    (0..count).map(grant).collect()
}

/// Texts that errors have by reference.
const PARTS: [&str; 4] = ["channel", "LUN", "block", "page"];
const WHATS: [&str; 3] = ["data", "out-of-band bytes", "out-of-band bytes with a tag"];

/// What may be the matter with a page, by number.
const WHYS: [Unreadable; 6] = [
    Unreadable::Bits,
    Unreadable::Torn,
    Unreadable::HalfErased,
    Unreadable::Image,
    Unreadable::AskedFor,
    Unreadable::Moved,
];

/// Errors that levels tell apart go field by field, all others as their text.
pub(super) fn put_error(raw: &mut Vec<u8>, error: &LevelError) {
    let number =
        |texts: &[&str], text: &str| texts.iter().position(|other| *other == text).unwrap_or(0) as u32;
    let at = |raw: &mut Vec<u8>, kind: u8, page: GrantPage, fields: [u32; 3]| {
        raw.put_u8(kind);
        put_page(raw, page);
        fields.into_iter().for_each(|field| raw.put_u32(field));
    };
    match error {
        LevelError::OutsideGrant { address, part, given, limit } => {
            at(raw, 1, *address, [number(&PARTS, part), *given, *limit]);
        }
        LevelError::WrongLength { address, what, given, wanted } => {
            at(raw, 2, *address, [number(&WHATS, what), *given as u32, *wanted as u32]);
        }
        LevelError::OutOfOrder { address, next } => at(raw, 3, *address, [*next, 0, 0]),
        LevelError::AlreadyProgrammed { address } => at(raw, 4, *address, [0; 3]),
        LevelError::NotProgrammed { address, programmed } => at(raw, 5, *address, [*programmed, 0, 0]),
        LevelError::EraseIncomplete { block } => at(raw, 6, block.page(0), [0; 3]),
        LevelError::BlockRetired { block } => at(raw, 7, block.page(0), [0; 3]),
        LevelError::Unreadable { address, why, done } => {
            let why = WHYS.iter().position(|other| other == why).unwrap_or(0) as u32;
            at(raw, 8, *address, [done.0 as u32, (done.0 >> 32) as u32, why]);
        }
        LevelError::PowerLost => at(raw, 9, GrantPage::default(), [0; 3]),
        LevelError::NoFreeLuns { wanted, free } => {
            at(raw, 10, GrantPage::default(), [(*wanted).min(u64::from(u32::MAX)) as u32, *free, 0]);
        }
        LevelError::NoSuchGrant(name) => named(raw, 11, name),
        LevelError::GrantExists(name) => named(raw, 12, name),
        LevelError::GrantInUse(name) => named(raw, 13, name),
        LevelError::HostFull(what) => named(raw, 15, what),
        other => named(raw, 14, &other.to_string()),
    }
}

fn named(raw: &mut Vec<u8>, kind: u8, text: &str) {
    raw.put_u8(kind);
    raw.put_string(text.as_bytes());
}

pub(super) fn read_error(reader: &mut Reader) -> Result<LevelError, Truncated> {
    let kind = reader.u8()?;
    if kind > 10 {
        let text = String::from_utf8_lossy(reader.string()?).into_owned();
        return Ok(match kind {
            11 => LevelError::NoSuchGrant(text),
            12 => LevelError::GrantExists(text),
            13 => LevelError::GrantInUse(text),
            15 => LevelError::HostFull(text),
            _ => LevelError::Remote(text),
        });
    }
    let address = read_page(reader)?;
    let (a, b, c) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let block = address.block;
    Ok(match kind {
        1 => {
            let part = PARTS.get(a as usize).copied().unwrap_or("page");
            LevelError::OutsideGrant { address, part, given: b, limit: c }
        }
        2 => {
            let what = WHATS.get(a as usize).copied().unwrap_or("data");
            LevelError::WrongLength { address, what, given: b as usize, wanted: c as usize }
        }
        3 => LevelError::OutOfOrder { address, next: a },
        4 => LevelError::AlreadyProgrammed { address },
        5 => LevelError::NotProgrammed { address, programmed: a },
        6 => LevelError::EraseIncomplete { block },
        7 => LevelError::BlockRetired { block },
        8 => {
            let done = Nanos(u64::from(b) << 32 | u64::from(a));
            let why = WHYS.get(c as usize).copied().unwrap_or(Unreadable::Bits);
            LevelError::Unreadable { address, why, done }
        }
        9 => LevelError::PowerLost,
        _ => LevelError::NoFreeLuns { wanted: u64::from(a), free: b },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_errors_are_read_back_and_no_cut_of_them_panics() {
        let block = GrantBlock { channel: 1, lun: 2, block: 3 };
        let (page, issued) = (block.page(4), Nanos(1 << 40));
        let read = ReadOne { page, offset: 1, data: 2, oob: 3 };
        let write = WriteOne { page, data: vec![1; 9], oob: vec![2; 3], tag: Tag::METADATA };
        for request in [
            Request::Attach { name: "a".into() },
            Request::Allocate { name: "b".into(), bytes: 7, over_provisioning_permille: 70 },
            Request::Read { issued, read: read.clone() },
            Request::ReadTagged { issued, read: read.clone() },
            Request::Program { issued, write: write.clone() },
            Request::Erase { issued, block },
            Request::Look { block },
            Request::FreeAt { block },
            Request::Sync,
            Request::Misnamed { name: b"a\xff".to_vec() },
            Request::Release { name: "c".into() },
            Request::List,
            Request::Now,
            Request::ReadMany { issued, reads: vec![read; 2] },
            Request::ProgramMany { issued, writes: vec![write; 2] },
            Request::EraseMany { issued, blocks: vec![block; 3] },
        ] {
            let raw = request.encode();
            assert_eq!(Request::decode(&raw), Ok(Some(request)));
            (0..raw.len()).for_each(|at| assert!(Request::decode(&raw[..at]).is_err()));
        }
        for kind in [4, 14, 99] {
            assert_eq!(Request::decode(&[kind]), Ok(None));
        }
        let grant = GrantInfo {
            name: "d".into(),
            bytes: 9,
            over_provisioning_permille: 70,
            luns: vec![3, 1],
            in_use: true,
        };
        let (mut raw, grants) =
            (Vec::new(), [grant.clone(), GrantInfo { luns: vec![2], in_use: false, ..grant }]);
        put_grants(&mut raw, &grants);
        assert_eq!(read_grants(&mut Reader::new(&raw)).unwrap(), grants);
        (0..raw.len()).for_each(|at| assert!(read_grants(&mut Reader::new(&raw[..at])).is_err()));
        for error in [
            LevelError::OutsideGrant { address: page, part: "LUN", given: 5, limit: 2 },
            LevelError::WrongLength { address: page, what: "out-of-band bytes", given: 61, wanted: 60 },
            LevelError::OutOfOrder { address: page, next: 3 },
            LevelError::NotProgrammed { address: page, programmed: 1 },
            LevelError::BlockRetired { block },
            LevelError::Unreadable { address: page, why: Unreadable::Torn, done: Nanos(1 << 40) },
            LevelError::NoFreeLuns { wanted: 3, free: 1 },
            LevelError::GrantInUse("x".into()),
            LevelError::HostFull("y".into()),
            LevelError::LogFull("a test"),
        ] {
            let mut raw = Vec::new();
            put_error(&mut raw, &error);
            assert_eq!(read_error(&mut Reader::new(&raw)).unwrap().to_string(), error.to_string());
            (0..raw.len()).for_each(|at| assert!(read_error(&mut Reader::new(&raw[..at])).is_err()));
        }
    }
}
