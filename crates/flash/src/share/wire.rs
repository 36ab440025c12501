//! The protocol between client and server: the encoding of requests and replies.

use crate::address::{GrantBlock, GrantGeometry, GrantPage};
use crate::error::LevelError;
use crate::grant::{RawRead, RawWrite};
use crate::monitor::{BlockLook, GrantInfo, LOG_NAME};
use std::string::FromUtf8Error;
use weft_core::codec::{Decode, Encode, Reader, Truncated, put};
use weft_core::{Nanos, Tag, coded};
use weft_device::nand::Unreadable;

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

impl ReadOne {
    pub fn of(read: &RawRead) -> ReadOne {
        let (data, oob) = (read.data.len() as u32, read.oob.len() as u32);
        ReadOne { page: read.page, offset: read.offset, data, oob }
    }
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
}

coded! {
    // A tag of another version is refused like a request of another version.
    WriteOne { page, data, oob, tag }
    ReadOne { page, offset, data, oob }
    GrantBlock { channel, lun, block }
    GrantPage { block, page }
    BlockLook { programmed, erase_incomplete, retired, erases }
    GrantGeometry {
        luns_by_channel,
        blocks_per_lun,
        planes,
        pages_per_block,
        page_bytes,
        oob_bytes,
        capacity_bytes,
        over_provisioning_permille,
    }
    GrantInfo { name, bytes, over_provisioning_permille, in_use, luns }
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        let mut fields = |fields: &[&dyn Encode]| put(&mut raw, fields);
        match self {
            Request::Attach { name } => fields(&[&1u8, name]),
            // As any of those with a name.
            Request::Misnamed { name } => fields(&[&1u8, name]),
            Request::Allocate { name, bytes, over_provisioning_permille } => {
                fields(&[&2u8, name, bytes, over_provisioning_permille]);
            }
            Request::Read { issued, read } => fields(&[&3u8, issued, read]),
            Request::ReadTagged { issued, read } => fields(&[&16u8, issued, read]),
            Request::Program { issued, write } => fields(&[&17u8, issued, write]),
            Request::Erase { issued, block } => fields(&[&5u8, issued, &block.page(0)]),
            Request::Look { block } => fields(&[&6u8, &block.page(0)]),
            Request::FreeAt { block } => fields(&[&7u8, &block.page(0)]),
            Request::Sync => fields(&[&8u8]),
            Request::Detach => fields(&[&9u8]),
            Request::Release { name } => fields(&[&10u8, name]),
            Request::List => fields(&[&11u8]),
            Request::Now => fields(&[&12u8]),
            Request::ReadMany { issued, reads } => fields(&[&13u8, issued, reads]),
            Request::ProgramMany { issued, writes } => fields(&[&18u8, issued, writes]),
            Request::EraseMany { issued, blocks } => {
                let pages: Vec<GrantPage> = blocks.iter().map(|block| block.page(0)).collect();
                fields(&[&15u8, issued, &pages]);
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
            3 => Request::Read { issued: Decode::get(reader)?, read: Decode::get(reader)? },
            5 => Request::Erase { issued: Decode::get(reader)?, block: GrantPage::get(reader)?.block },
            6 => Request::Look { block: GrantPage::get(reader)?.block },
            7 => Request::FreeAt { block: GrantPage::get(reader)?.block },
            8 => Request::Sync,
            9 => Request::Detach,
            10 => text(reader)?.map_or_else(|misnamed| misnamed, |name| Request::Release { name }),
            11 => Request::List,
            12 => Request::Now,
            13 => Request::ReadMany { issued: Decode::get(reader)?, reads: Decode::get(reader)? },
            15 => {
                let (issued, pages) = (Decode::get(reader)?, Vec::<GrantPage>::get(reader)?);
                Request::EraseMany { issued, blocks: pages.iter().map(|page| page.block).collect() }
            }
            // 4 and 14 wrote pages before they had tags.
            16 => Request::ReadTagged { issued: Decode::get(reader)?, read: Decode::get(reader)? },
            17 => Request::Program { issued: Decode::get(reader)?, write: Decode::get(reader)? },
            18 => Request::ProgramMany { issued: Decode::get(reader)?, writes: Decode::get(reader)? },
            _ => return Ok(None),
        }))
    }
}

/// A tag, or that there is none that can be read.
pub(super) fn put_tag(raw: &mut Vec<u8>, tag: Option<Tag>) {
    put(raw, &[&tag.is_some(), &tag.unwrap_or_default()]);
}

pub(super) fn read_tag(reader: &mut Reader) -> Result<Option<Tag>, Truncated> {
    let (is_known, tag) = (reader.u8()? == 1, Tag::decode(&reader.array()?));
    Ok(tag.filter(|_| is_known))
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
        put(raw, &[&kind, &page, &fields]);
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
        // The only log that a server has.
        LevelError::LogFull(_) => named(raw, 16, &error.to_string()),
        other => named(raw, 14, &other.to_string()),
    }
}

fn named(raw: &mut Vec<u8>, kind: u8, text: &str) {
    put(raw, &[&kind, &text.as_bytes()]);
}

pub(super) fn read_error(reader: &mut Reader) -> Result<LevelError, Truncated> {
    let kind = reader.u8()?;
    if kind > 10 {
        let text = String::get(reader)?;
        return Ok(match kind {
            11 => LevelError::NoSuchGrant(text),
            12 => LevelError::GrantExists(text),
            13 => LevelError::GrantInUse(text),
            15 => LevelError::HostFull(text),
            16 => LevelError::LogFull(LOG_NAME),
            _ => LevelError::Remote(text),
        });
    }
    let address = GrantPage::get(reader)?;
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
            (Vec::new(), vec![grant.clone(), GrantInfo { luns: vec![2], in_use: false, ..grant }]);
        grants.put(&mut raw);
        assert_eq!(Vec::get(&mut Reader::new(&raw)), Ok(grants));
        (0..raw.len()).for_each(|at| assert!(Vec::<GrantInfo>::get(&mut Reader::new(&raw[..at])).is_err()));
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
            LevelError::LogFull(LOG_NAME),
        ] {
            let mut raw = Vec::new();
            put_error(&mut raw, &error);
            assert_eq!(read_error(&mut Reader::new(&raw)).unwrap().to_string(), error.to_string());
            (0..raw.len()).for_each(|at| assert!(read_error(&mut Reader::new(&raw[..at])).is_err()));
        }
    }
}
