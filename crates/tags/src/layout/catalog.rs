//! The catalog: edge types and homes. Small, and written whole at each checkpoint.

use crate::error::{Error, Result};
use crate::ids::{EdgeType, HomeId, InfoForm, NodeId};
use std::collections::HashMap;
use std::sync::Arc;
use weft_core::codec::{Reader, Truncated, put};

/// The most bytes of an edge type's name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The least bytes of an edge type: form, length of the name.
const TYPE_BYTES_MIN: u64 = 5;
/// Bytes of a home: id, root, next number, s-nodes, whether it erases.
const HOME_BYTES: u64 = 19;

/// A registered edge type; its number is its place. One that was deleted has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeEntry {
    pub name: Arc<str>,
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
    /// Clients choose names, so their hashes are keyed. Of types with one name, as damage may leave them, it has the first.
    by_name: HashMap<Arc<str>, EdgeType>,
    pub homes: Vec<HomeEntry>,
}

impl Catalog {
    /// A catalog without edge types.
    pub(crate) fn of(homes: Vec<HomeEntry>) -> Catalog {
        Catalog { homes, ..Catalog::default() }
    }

    /// The edge type of this name.
    pub(crate) fn find_type(&self, name: &str) -> Option<EdgeType> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn add_type(&mut self, name: &str, form: InfoForm) -> EdgeType {
        let (name, etype) = (Arc::<str>::from(name), EdgeType(self.types.len() as u32));
        if !name.is_empty() {
            self.by_name.entry(name.clone()).or_insert(etype);
        }
        self.types.push(TypeEntry { name, form });
        etype
    }

    /// Takes the name of a type away; `None` where there is no such type.
    pub(crate) fn end_type(&mut self, etype: EdgeType) -> Option<()> {
        let name = std::mem::take(&mut self.types.get_mut(etype.0 as usize)?.name);
        if self.find_type(&name) == Some(etype) {
            self.by_name.remove(&name);
        }
        Some(())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, &[&(self.types.len() as u32)]);
        for TypeEntry { name, form } in &self.types {
            put(&mut out, &[&(*form as u8), &name.as_bytes()]);
        }
        put(&mut out, &[&(self.homes.len() as u32)]);
        for HomeEntry { id, root, guests: Guests { last, count, erases } } in &self.homes {
            put(&mut out, &[&id.0, &root.0, last, count, erases]);
        }
        out
    }

    /// Whether a catalog of `bytes` bytes may begin with these.
    pub(crate) fn may_begin(raw: &[u8], bytes: u64) -> bool {
        // One that is cut short goes on in the next block.
        Catalog::read(raw, bytes).map_or(true, |catalog| catalog.is_some())
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Catalog> {
        match Catalog::read(raw, raw.len() as u64) {
            Ok(Some(catalog)) => Ok(catalog),
            Ok(None) => Err(Error::damaged("catalog: it cannot be read")),
            Err(error) => Err(Error::damaged(format!("catalog: {error}"))),
        }
    }

    /// A catalog of `bytes` bytes, of which `raw` are the first; `None` where they are not those of one.
    fn read(raw: &[u8], bytes: u64) -> std::result::Result<Option<Catalog>, Truncated> {
        let (mut r, mut catalog) = (Reader::new(raw), Catalog::default());
        let types = r.u32()?;
        if u64::from(types) * TYPE_BYTES_MIN > bytes {
            return Ok(None);
        }
        for _ in 0..types {
            let Some(form) = InfoForm::from_u8(r.u8()?) else { return Ok(None) };
            let len = r.u32()? as usize;
            if len > NAME_BYTES_MAX {
                return Ok(None);
            }
            let Ok(name) = std::str::from_utf8(r.bytes(len)?) else { return Ok(None) };
            catalog.add_type(name, form);
        }
        let homes = u64::from(r.u32()?);
        if homes == 0 || r.position() as u64 + homes * HOME_BYTES != bytes {
            return Ok(None);
        }
        for _ in 0..homes {
            let (id, root) = (HomeId(r.u16()?), NodeId(r.u64()?));
            let guests = Guests { last: r.u32()?, count: r.u32()?, erases: r.u8()? != 0 };
            catalog.homes.push(HomeEntry { id, root, guests });
        }
        Ok(Some(catalog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_name_until_it_has_none() {
        let mut catalog = Catalog::default();
        let [a, b, again] = ["a", "b", "a"].map(|name| catalog.add_type(name, InfoForm::Key));
        assert_eq!(["a", "b", ""].map(|name| catalog.find_type(name)), [Some(a), Some(b), None]);
        // As damage may leave it: the first one is found.
        assert_eq!(catalog.end_type(again), Some(()));
        assert_eq!(catalog.find_type("a"), Some(a));
        assert_eq!([a, EdgeType(3)].map(|etype| catalog.end_type(etype)), [Some(()), None]);
        assert_eq!(["a", "b", ""].map(|name| catalog.find_type(name)), [None, Some(b), None]);
        assert_eq!(catalog.add_type("a", InfoForm::Number), EdgeType(3));
        assert_eq!(catalog.find_type("a"), Some(EdgeType(3)));
    }

    #[test]
    fn a_catalog_is_known_by_its_beginning_and_other_bytes_are_not_one() {
        for count in [0, 3, 900] {
            let homes = vec![HomeEntry { id: HomeId::FIRST, root: NodeId(7), guests: Guests::default() }];
            let mut catalog = Catalog::of(homes);
            (0..count).for_each(|n| _ = catalog.add_type(&format!("type {n}"), InfoForm::Number));
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
