//! The catalog: edge types and homes. Small, and written whole at each checkpoint.

use crate::error::{Error, Result};
use crate::ids::{HomeId, InfoForm, NodeId};
use weft_core::codec::{Reader, Truncated, WriteFields};

/// The most bytes of an edge type's name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The least bytes of an edge type: form, length of the name.
const TYPE_BYTES_MIN: u64 = 5;
/// Bytes of a home: id, root, next number, s-nodes, whether it erases.
const HOME_BYTES: u64 = 19;

/// A registered edge type; its number is its place. One that was deleted has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeEntry {
    pub name: String,
    pub form: InfoForm,
}

/// What is kept of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HomeEntry {
    pub id: HomeId,
    pub root: NodeId,
    pub guests: Guests,
}

/// What is kept of the s-nodes that share a home; nothing where it is not shared.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Guests {
    /// The highest number that was given out.
    pub last: u32,
    /// How many there are.
    pub count: u32,
    /// Some of them was of the class of secure deletion.
    pub erases: bool,
}

#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub types: Vec<TypeEntry>,
    pub homes: Vec<HomeEntry>,
}

impl Catalog {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.types.len() as u32);
        for entry in &self.types {
            out.put_u8(entry.form as u8);
            out.put_string(entry.name.as_bytes());
        }
        out.put_u32(self.homes.len() as u32);
        for HomeEntry { id, root, guests } in &self.homes {
            out.put_u16(id.0);
            out.put_u64(root.0);
            out.put_u32(guests.last);
            out.put_u32(guests.count);
            out.put_u8(u8::from(guests.erases));
        }
        out
    }

    /// Whether a catalog of `bytes` bytes may begin with these.
    pub(crate) fn may_begin(raw: &[u8], bytes: u64) -> bool {
        let mut r = Reader::new(raw);
        let mut read = || -> std::result::Result<bool, Truncated> {
            let types = r.u32()?;
            if u64::from(types) * TYPE_BYTES_MIN > bytes {
                return Ok(false);
            }
            for _ in 0..types {
                if InfoForm::from_u8(r.u8()?).is_none() {
                    return Ok(false);
                }
                let len = r.u32()? as usize;
                if len > NAME_BYTES_MAX || std::str::from_utf8(r.bytes(len)?).is_err() {
                    return Ok(false);
                }
            }
            let homes = u64::from(r.u32()?);
            Ok(homes > 0 && r.position() as u64 + homes * HOME_BYTES == bytes)
        };
        // It goes on in the next block.
        read().unwrap_or(true)
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Catalog> {
        let mut r = Reader::new(raw);
        let mut read = || -> std::result::Result<Option<Catalog>, Truncated> {
            let mut catalog = Catalog::default();
            for _ in 0..r.u32()? {
                let form = InfoForm::from_u8(r.u8()?);
                let name = std::str::from_utf8(r.string()?).ok().map(str::to_owned);
                let (Some(form), Some(name)) = (form, name) else { return Ok(None) };
                catalog.types.push(TypeEntry { name, form });
            }
            for _ in 0..r.u32()? {
                let (id, root) = (HomeId(r.u16()?), NodeId(r.u64()?));
                let guests = Guests { last: r.u32()?, count: r.u32()?, erases: r.u8()? != 0 };
                catalog.homes.push(HomeEntry { id, root, guests });
            }
            Ok((r.remaining() == 0).then_some(catalog))
        };
        match read() {
            Ok(Some(catalog)) => Ok(catalog),
            Ok(None) => Err(Error::damaged("catalog: it cannot be read")),
            Err(error) => Err(Error::damaged(format!("catalog: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_is_known_by_its_beginning_and_other_bytes_are_not_one() {
        for count in [0, 3, 900] {
            let entry = |n| TypeEntry { name: format!("type {n}"), form: InfoForm::Number };
            let homes = vec![HomeEntry { id: HomeId::FIRST, root: NodeId(7), guests: Guests::default() }];
            let catalog = Catalog { types: (0..count).map(entry).collect(), homes };
            let mut raw = catalog.encode();
            let (len, first) = (raw.len() as u64, raw.len().min(4096));
            assert_eq!(Catalog::decode(&raw).unwrap(), catalog);
            assert!(Catalog::may_begin(&raw[..first], len), "{count} types");
            for other in [0, 0xff, b'a'] {
                assert!(!Catalog::may_begin(&vec![other; first], len), "{count} types, {other}");
            }
            raw.push(0);
            assert!(Catalog::decode(&raw).is_err(), "bytes behind its end");
        }
    }
}
