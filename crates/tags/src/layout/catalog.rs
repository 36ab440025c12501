//! The catalog: edge types and s-nodes. Small, and written whole at each checkpoint.

use crate::error::{Error, Result};
use crate::ids::{InfoForm, NodeId, SnodeId};
use weft_core::codec::{Reader, Truncated, WriteFields};

/// The most bytes of an edge type's name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A registered edge type; its number is its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeEntry {
    pub name: String,
    pub form: InfoForm,
}

/// What is kept of an s-node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnodeEntry {
    pub id: SnodeId,
    pub root: NodeId,
}

/// The catalog.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    pub types: Vec<TypeEntry>,
    pub snodes: Vec<SnodeEntry>,
}

impl Catalog {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.types.len() as u32);
        for entry in &self.types {
            out.put_u8(entry.form as u8);
            out.put_string(entry.name.as_bytes());
        }
        out.put_u32(self.snodes.len() as u32);
        for entry in &self.snodes {
            out.put_u16(entry.id.0);
            out.put_u64(entry.root.0);
        }
        out
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
                catalog.snodes.push(SnodeEntry { id: SnodeId(r.u16()?), root: NodeId(r.u64()?) });
            }
            Ok(Some(catalog))
        };
        match read() {
            Ok(Some(catalog)) => Ok(catalog),
            Ok(None) => Err(Error::damaged("catalog: an edge type cannot be read")),
            Err(error) => Err(Error::damaged(format!("catalog: {error}"))),
        }
    }
}
