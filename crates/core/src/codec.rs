//! Bounded little-endian reading and writing of records.
//!
//! A [`Reader`] never reads past its bytes and never panics: every parser of something that came from a disk or a
//! socket is built on it.
//!
//! A record, or a page that is filled up with zeros, ends with a seal: the CRC32C of all before it.

use crate::checksum::{crc32c, crc32c_append};
use crate::{Ino, Nanos, Tag, ZoneId};

/// The bytes ended before the field did, or a length field promises more than there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record ends at byte {at}, {wanted} more bytes were expected")]
pub struct Truncated {
    /// Offset at which the field starts.
    pub at: usize,
    /// Bytes that the field needs.
    pub wanted: usize,
}

/// Reads fields from a byte slice, front to back.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! read_int {
    ($($name:ident: $int:ty),*) => {$(
        #[doc = concat!("The next little-endian `", stringify!($int), "`.")]
        pub fn $name(&mut self) -> Result<$int, Truncated> {
            self.array().map(<$int>::from_le_bytes)
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Offset of the next field.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let rest = &self.bytes[self.at..];
        let out = rest.get(..len).ok_or(Truncated { at: self.at, wanted: len })?;
        self.at += len;
        Ok(out)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    read_int!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64);

    /// The next byte string: a `u32` length, then the bytes.
    pub fn string(&mut self) -> Result<&'a [u8], Truncated> {
        let len = self.u32()? as usize;
        self.bytes(len)
    }
}

macro_rules! write_int {
    ($($name:ident: $int:ty),*) => {
        /// Appends fields to a byte vector.
        pub trait WriteFields {
            $(#[doc = concat!("Appends a little-endian `", stringify!($int), "`.")]
            fn $name(&mut self, v: $int);)*
            /// Appends a `u32` length and the bytes.
            fn put_string(&mut self, v: &[u8]);
        }

        impl WriteFields for Vec<u8> {
            $(#[inline]
            fn $name(&mut self, v: $int) {
                self.extend_from_slice(&v.to_le_bytes());
            })*

            fn put_string(&mut self, v: &[u8]) {
                // A record is bounded far below 4 GiB by every writer; a longer string would be a bug of the writer.
                debug_assert!(u32::try_from(v.len()).is_ok());
                self.put_u32(v.len() as u32);
                self.extend_from_slice(v);
            }
        }
    };
}

write_int!(put_u8: u8, put_u16: u16, put_u32: u32, put_u64: u64, put_i64: i64);

/// A field of a record. Its type says how it is written, so it is part of the format.
pub trait Encode {
    /// Appends the bytes that stand for it.
    fn put(&self, out: &mut Vec<u8>);

    /// Appends many, one after the other.
    fn put_all(all: &[Self], out: &mut Vec<u8>)
    where
        Self: Sized,
    {
        all.iter().for_each(|each| each.put(out));
    }
}

/// A field that is read as it was written.
pub trait Decode<'a>: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// [`Truncated`], also for bytes that no writer makes.
    fn get(reader: &mut Reader<'a>) -> Result<Self, Truncated>;

    /// Reads so many.
    ///
    /// # Errors
    /// As [`Decode::get`], for any of them.
    fn get_all(reader: &mut Reader<'a>, count: u32) -> Result<Vec<Self>, Truncated> {
        (0..count).map(|_| Self::get(reader)).collect()
    }
}

/// Appends fields, one after the other.
pub fn put(out: &mut Vec<u8>, fields: &[&dyn Encode]) {
    fields.iter().for_each(|field| field.put(out));
}

impl Encode for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(*self);
    }

    fn put_all(all: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(all);
    }
}

impl Decode<'_> for u8 {
    fn get(reader: &mut Reader<'_>) -> Result<u8, Truncated> {
        reader.u8()
    }

    fn get_all(reader: &mut Reader<'_>, count: u32) -> Result<Vec<u8>, Truncated> {
        reader.bytes(count as usize).map(<[u8]>::to_vec)
    }
}

/// A list: how many there are, and each. Of bytes it is a byte string.
impl<T: Encode> Encode for &[T] {
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(u32::try_from(self.len()).is_ok());
        out.put_u32(self.len() as u32);
        T::put_all(self, out);
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_slice().put(out);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn get(reader: &mut Reader<'a>) -> Result<Vec<T>, Truncated> {
        let count = reader.u32()?;
        T::get_all(reader, count)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        T::put_all(self, out);
    }
}

impl<'a, T: Decode<'a> + Copy + Default, const N: usize> Decode<'a> for [T; N] {
    fn get(reader: &mut Reader<'a>) -> Result<[T; N], Truncated> {
        let mut out = [T::default(); N];
        for each in &mut out {
            *each = T::get(reader)?;
        }
        Ok(out)
    }
}

/// A text; what is no UTF-8 is read as marks of replacement.
impl Encode for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }
}

impl Decode<'_> for String {
    fn get(reader: &mut Reader<'_>) -> Result<String, Truncated> {
        Ok(String::from_utf8_lossy(reader.string()?).into_owned())
    }
}

macro_rules! plain {
    ($($type:ty: |$this:ident, $out:ident| $put:expr, |$reader:ident| $get:expr;)*) => {$(
        impl Encode for $type {
            fn put(&self, $out: &mut Vec<u8>) {
                let $this = self;
                $put
            }
        }

        impl<'a> Decode<'a> for $type {
            fn get($reader: &mut Reader<'a>) -> Result<Self, Truncated> {
                $get
            }
        }
    )*};
}

plain! {
    u16: |v, out| out.put_u16(*v), |r| r.u16();
    u32: |v, out| out.put_u32(*v), |r| r.u32();
    u64: |v, out| out.put_u64(*v), |r| r.u64();
    i64: |v, out| out.put_i64(*v), |r| r.i64();
    bool: |v, out| out.put_u8(u8::from(*v)), |r| Ok(r.u8()? == 1);
    Nanos: |v, out| out.put_u64(v.0), |r| Ok(Nanos(r.u64()?));
    Ino: |v, out| out.put_u64(v.0), |r| Ok(Ino(r.u64()?));
    ZoneId: |v, out| out.put_u32(v.0), |r| Ok(ZoneId(r.u32()?));
    // A tag of another version is nothing that can be read.
    Tag: |v, out| out.extend_from_slice(&v.encode()), |r| {
        let at = r.position();
        Tag::decode(&r.array()?).ok_or(Truncated { at, wanted: Tag::ENCODED_BYTES })
    };
}

/// Writes and reads structures by their fields, in the order that is named here.
#[macro_export]
macro_rules! coded {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::codec::Encode for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Encode::put(&self.$field, out);)*
            }
        }

        impl<'a> $crate::codec::Decode<'a> for $type {
            fn get(
                reader: &mut $crate::codec::Reader<'a>,
            ) -> Result<Self, $crate::codec::Truncated> {
                Ok($type { $($field: $crate::codec::Decode::get(reader)?),* })
            }
        }
    )*};
}

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 4;

/// Seals a record.
pub fn seal(record: &mut Vec<u8>) {
    seal_for(record, &[]);
}

/// Seals a record for its place, which is not written: elsewhere the seal does not hold.
pub fn seal_for(record: &mut Vec<u8>, place: &[u8]) {
    let crc = crc32c_append(crc32c(record), place);
    record.put_u32(crc);
}

/// Fills a record up to a page of so many bytes, and seals it.
pub fn seal_page(mut record: Vec<u8>, bytes: usize) -> Vec<u8> {
    debug_assert!(record.len() + SEAL_BYTES <= bytes);
    record.resize(bytes - SEAL_BYTES, 0);
    seal(&mut record);
    record
}

/// What stands before the seal of a record; `None` when the seal does not hold.
pub fn unseal(record: &[u8]) -> Option<&[u8]> {
    unseal_for(record, &[])
}

/// The same of a record that was sealed for its place.
pub fn unseal_for<'a>(record: &'a [u8], place: &[u8]) -> Option<&'a [u8]> {
    let (content, seal) = record.split_last_chunk()?;
    (crc32c_append(crc32c(content), place).to_le_bytes() == *seal).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_the_bytes_and_the_place_that_it_was_made_for() {
        let page = seal_page(b"abc".to_vec(), 16);
        assert_eq!(unseal(&page), Some(&b"abc\0\0\0\0\0\0\0\0\0"[..]));
        for at in 0..page.len() {
            let mut changed = page.clone();
            changed[at] ^= 1;
            assert_eq!(unseal(&changed), None, "byte {at}");
        }
        assert_eq!(unseal(&page[..3]), None);
        let mut here = b"abc".to_vec();
        seal_for(&mut here, b"here");
        assert_eq!(unseal_for(&here, b"here"), Some(&b"abc"[..]));
        assert_eq!((unseal_for(&here, b"there"), unseal(&here)), (None, None));
    }

    #[test]
    fn fields_come_back_in_order_and_the_end_is_an_error() {
        let mut raw = Vec::new();
        raw.put_u16(7);
        raw.put_string(b"abc");
        raw.put_u64(u64::MAX);
        let mut r = Reader::new(&raw);
        assert_eq!(r.u16(), Ok(7));
        assert_eq!(r.string(), Ok(&b"abc"[..]));
        assert_eq!(r.u64(), Ok(u64::MAX));
        assert_eq!(r.u8(), Err(Truncated { at: raw.len(), wanted: 1 }));
    }

    #[derive(PartialEq, Debug)]
    struct Row {
        name: String,
        numbers: Vec<u32>,
        bytes: Vec<u8>,
        is_last: bool,
    }

    crate::coded! { Row { name, numbers, bytes, is_last } }

    #[test]
    fn structures_are_read_as_they_were_written_and_no_cut_of_them_is_read() {
        let row = || Row { name: "a".into(), numbers: vec![1, 2], bytes: vec![3; 5], is_last: true };
        let mut raw = Vec::new();
        vec![row(), row()].put(&mut raw);
        assert_eq!(raw.len(), 4 + 2 * (4 + 1 + 4 + 8 + 4 + 5 + 1));
        assert_eq!(Vec::get(&mut Reader::new(&raw)), Ok(vec![row(), row()]));
        (0..raw.len()).for_each(|at| assert!(Vec::<Row>::get(&mut Reader::new(&raw[..at])).is_err()));
        let mut as_before = Vec::new();
        as_before.put_string(&[3; 5]);
        let mut string = Vec::new();
        (&[3u8; 5][..]).put(&mut string);
        assert_eq!(string, as_before);
    }
}
