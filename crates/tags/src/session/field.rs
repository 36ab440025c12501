//! Encoding of values in the protocol of sessions.

use super::error::{Refusal, SessionError};
use super::{PIECE_BYTES_MAX, SessionEdge, SessionNode};
use crate::ids::{EdgeType, Info, InfoForm, NodeType, Permission};
use crate::snodes::access::Principal;
use crate::snodes::tags::SnodeTags;
use weft_core::codec::{self, Reader, WriteFields};
use weft_core::{DataClass, TagFlags};

/// A value as it goes over a socket.
pub(super) trait Field<'r>: Sized {
    fn put(&self, raw: &mut Vec<u8>);
    /// `None` where the bytes end before the value does, or say what cannot be.
    fn get(r: &mut Reader<'r>) -> Option<Self>;
}

/// Fields of a few numbers each.
macro_rules! fields {
    ($($type:ty: $this:pat => $put:expr, $get:expr;)*) => {$(
        impl<'r> Field<'r> for $type {
            fn put(&self, raw: &mut Vec<u8>) {
                let $this = self;
                $put.put(raw);
            }

            fn get(r: &mut Reader<'r>) -> Option<Self> {
                $get(Field::get(r)?)
            }
        }
    )*};
}

/// Fields that are written as those of records are.
macro_rules! plain {
    ($($type:ty)*) => {$(
        impl<'r> Field<'r> for $type {
            fn put(&self, raw: &mut Vec<u8>) {
                codec::Encode::put(self, raw);
            }

            fn get(r: &mut Reader<'r>) -> Option<Self> {
                codec::Decode::get(r).ok()
            }
        }
    )*};
}

macro_rules! rows {
    ($($name:ident)*) => {
        impl<'r, $($name: Field<'r>),*> Field<'r> for ($($name,)*) {
            #[allow(non_snake_case)]
            fn put(&self, _raw: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.put(_raw);)*
            }

            fn get(_r: &mut Reader<'r>) -> Option<Self> {
                Some(($($name::get(_r)?,)*))
            }
        }
    };
}

plain! { u8 u16 u32 u64 bool Vec<u8> }
rows! {}
rows! { A }
rows! { A B }
rows! { A B C }
rows! { A B C D }
rows! { A B C D E }

fields! {
    usize: it => (*it).min(PIECE_BYTES_MAX) as u32, |raw: u32| Some(raw as usize);
    SessionNode: it => it.0, |raw| Some(SessionNode(raw));
    NodeType: it => it.0, |raw| Some(NodeType(raw));
    EdgeType: it => it.0, |raw| Some(EdgeType(raw));
    InfoForm: it => *it as u8, InfoForm::from_u8;
    Permission: it => *it as u8, |raw: u8| Permission::ALL.into_iter().find(|known| *known as u8 == raw);
    Principal: it => it.to_raw(), |(kind, id)| Principal::from_raw(kind, id);
    SnodeTags: it => ((it.owner, it.group), it.mode, (it.class as u8, it.flags.bits())),
        |((owner, group), mode, (class, flags)): ((u32, u32), u16, (u8, u8))| {
            let (class, flags) = (DataClass::from_u8(class)?, TagFlags::from_bits(flags)?);
            Some(SnodeTags { owner, group, mode, class, flags })
        };
    &'r str: it => it.as_bytes(), |raw| std::str::from_utf8(raw).ok();
    Option<u64>: it => (it.is_some(), it.unwrap_or(0)), |(is_there, it): (bool, u64)| Some(is_there.then_some(it));
    Option<SessionNode>: it => it.map(|it| it.0), |raw: Option<u64>| Some(raw.map(SessionNode));
    SessionEdge: it => (it.etype, it.number, it.to), |(etype, number, to)| Some(SessionEdge { etype, number, to });
    SessionError: it => (it.refusal as u8, it.text.as_str()), |(refusal, text): (u8, &[u8])| {
        let refusal = Refusal::from_u8(refusal).unwrap_or(Refusal::Fault);
        Some(SessionError::new(refusal, String::from_utf8_lossy(text)))
    };
}

impl<'r> Field<'r> for &'r [u8] {
    fn put(&self, raw: &mut Vec<u8>) {
        codec::Encode::put(self, raw);
    }

    fn get(r: &mut Reader<'r>) -> Option<Self> {
        r.string().ok()
    }
}

impl<'r> Field<'r> for Vec<SessionEdge> {
    fn put(&self, raw: &mut Vec<u8>) {
        raw.put_u32(self.len() as u32);
        self.iter().for_each(|edge| edge.put(raw));
    }

    fn get(r: &mut Reader<'r>) -> Option<Self> {
        (0..r.u32().ok()?).map(|_| Field::get(r)).collect()
    }
}

impl<'r> Field<'r> for Info<'r> {
    fn put(&self, raw: &mut Vec<u8>) {
        match *self {
            Info::Number(number) => (InfoForm::Number, number).put(raw),
            Info::Key(key) => (InfoForm::Key, key).put(raw),
        }
    }

    fn get(r: &mut Reader<'r>) -> Option<Self> {
        Some(match InfoForm::get(r)? {
            InfoForm::Number => Info::Number(Field::get(r)?),
            InfoForm::Key => Info::Key(Field::get(r)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::EDGES_MAX;
    use super::super::server::FRAME_BYTES_MAX;
    use super::*;

    fn comes_back<T: for<'r> Field<'r> + PartialEq + std::fmt::Debug>(value: T) {
        let mut raw = Vec::new();
        value.put(&mut raw);
        assert_eq!(T::get(&mut Reader::new(&raw)).as_ref(), Some(&value));
        (0..raw.len()).for_each(|len| assert_eq!(T::get(&mut Reader::new(&raw[..len])), None, "{value:?}"));
    }

    #[test]
    fn values_come_back_and_no_cut_of_them_does() {
        let node = SessionNode(1 << 60);
        comes_back((node, NodeType(9), EdgeType(3)));
        comes_back((InfoForm::Key, true, 7usize));
        comes_back((Principal::Everyone, (Principal::User(5), Principal::Group(6)), Permission::Control));
        comes_back(SnodeTags { owner: 1, group: 2, mode: 0o640, ..SnodeTags::default() });
        comes_back((Some(node), None::<SessionNode>, b"data".to_vec()));
        let edge = SessionEdge { etype: EdgeType(1), number: Some(0), to: node };
        comes_back(vec![edge, SessionEdge { number: None, ..edge }]);
        let mut raw = vec![0];
        vec![edge; EDGES_MAX].put(&mut raw);
        assert!((FRAME_BYTES_MAX - 20..=FRAME_BYTES_MAX).contains(&raw.len()));
        comes_back(SessionError::from(Refusal::Forbidden));
        for info in [Info::Number(7), Info::Key(b"key")] {
            let mut raw = Vec::new();
            info.put(&mut raw);
            assert_eq!(Info::get(&mut Reader::new(&raw)), Some(info));
            (0..raw.len()).for_each(|len| assert_eq!(Info::get(&mut Reader::new(&raw[..len])), None));
        }
    }
}
