//! Bounded little-endian reading and writing of records.
//!
//! A [`Reader`] never reads past its bytes and never panics: every parser of something that came from a disk or a
//! socket is built on it.
//!
//! A record, or a page that is filled up with zeros, ends with a seal: the CRC32C of all before it.

use crate::checksum::{crc32c, crc32c_append};

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

/// Appends fields to a byte vector.
pub trait WriteFields {
    /// Appends `v`.
    fn put_u8(&mut self, v: u8);
    /// Appends `v`, little-endian.
    fn put_u16(&mut self, v: u16);
    /// Appends `v`, little-endian.
    fn put_u32(&mut self, v: u32);
    /// Appends `v`, little-endian.
    fn put_u64(&mut self, v: u64);
    /// Appends `v`, little-endian.
    fn put_i64(&mut self, v: i64);
    /// Appends a `u32` length and the bytes.
    fn put_string(&mut self, v: &[u8]);
}

impl WriteFields for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    #[inline]
    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_i64(&mut self, v: i64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn put_string(&mut self, v: &[u8]) {
        // A record is bounded far below 4 GiB by every writer; a longer string would be a bug of the writer.
        debug_assert!(u32::try_from(v.len()).is_ok());
        self.put_u32(v.len() as u32);
        self.extend_from_slice(v);
    }
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
}
