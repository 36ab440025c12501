//! Reads archives: POSIX and GNU forms, with long names, sparse files and extended attributes.

use super::{ArchiveError, BLOCK_BYTES, Content, Member, RECORD_XATTR};
use std::collections::BTreeMap;
use std::io::{self, Read};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};
use weft_vfs::FileKind;

/// Bytes of an extended header or a map that are read into memory.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;
/// What compressed files begin with.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];

/// Keyword and value of the records of extended headers.
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// An archive that is being read.
pub struct Reader<R> {
    input: R,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the current member that are not read yet, and what fills its last block.
    left: u64,
    padding: u64,
    /// Records for all members from here on.
    global: Records,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    pub fn new(input: R) -> Reader<R> {
        Reader { input, at: 0, left: 0, padding: 0, global: Records::new() }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next member; `None` at the end. What of the one before was not read is passed over.
    pub fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        self.pass_over()?;
        let (mut path, mut link, mut records) = (None, None, self.global.clone());
        loop {
            let at = self.at;
            let mut header = Header::new_old();
            match self.fill(header.as_mut_bytes())? {
                // Without the two blocks of zeros: GNU tar takes it for an end as well.
                0 if at > 0 => return Ok(None),
                BLOCK_LEN => {}
                _ if at == 0 => return Err(ArchiveError::Header { at }),
                _ => return Err(ArchiveError::Truncated { at: self.at }),
            }
            if header.as_bytes().iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            check(&header, at)?;
            let number =
                |field, value: io::Result<u64>| value.map_err(|_| ArchiveError::Number { at, field });
            self.set_data(number("size", header.entry_size())?);
            match header.entry_type() {
                EntryType::GNULongName => path = Some(self.text(at)?),
                EntryType::GNULongLink => link = Some(self.text(at)?),
                EntryType::XHeader => read_records(&self.extension(at)?, &mut records, at)?,
                EntryType::XGlobalHeader => {
                    let text = self.extension(at)?;
                    read_records(&text, &mut self.global, at)?;
                    read_records(&text, &mut records, at)?;
                }
                _ => return self.member(&header, at, path, link, &mut records).map(Some),
            }
        }
    }

    /// Reads the member's bytes as they stand in the archive; 0 at their end.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, ArchiveError> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let n = self.fill(&mut out[..wanted])?;
        if n < wanted {
            return Err(ArchiveError::Truncated { at: self.at });
        }
        self.left -= n as u64;
        Ok(n)
    }

    fn member(
        &mut self,
        header: &Header,
        at: u64,
        long_path: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
        records: &mut Records,
    ) -> Result<Member, ArchiveError> {
        let number = |field, value: io::Result<u64>| value.map_err(|_| ArchiveError::Number { at, field });
        let given = |records: &Records, name: &str, field| {
            let text = records.get(name.as_bytes());
            text.map(|text| decimal(text).ok_or(ArchiveError::Number { at, field })).transpose()
        };
        if let Some(size) = given(records, "size", "size")? {
            self.set_data(size);
        }
        let sparse = self.sparse(header, at, records)?;
        let path = [&b"GNU.sparse.name"[..], b"path"].iter().find_map(|&name| records.remove(name));
        let path = path.or(long_path).unwrap_or_else(|| header.path_bytes().into_owned());
        let target = || {
            let recorded = records.get(&b"linkpath"[..]).cloned().or(long_link);
            recorded.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned())
        };
        let device = || {
            let part = |value: io::Result<Option<u32>>| {
                value.map(Option::unwrap_or_default).map_err(|_| ArchiveError::Number { at, field: "device" })
            };
            Ok::<_, ArchiveError>(libc::makedev(part(header.device_major())?, part(header.device_minor())?))
        };
        let content = match header.entry_type() {
            // Before POSIX, a directory was a file whose name ends in a slash.
            EntryType::Regular if path.ends_with(b"/") => Content::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => match sparse {
                Sparse::No => Content::File { size: self.left, parts: vec![(0, self.left)] },
                Sparse::Parts { size, parts } => Content::File { size, parts },
                Sparse::Old => Content::OldSparse,
            },
            EntryType::Link => Content::Link(target()),
            EntryType::Symlink => Content::Symlink(target()),
            EntryType::Directory => Content::Directory,
            EntryType::Fifo => Content::Special(FileKind::Fifo, 0),
            EntryType::Char => Content::Special(FileKind::CharDevice, device()?),
            EntryType::Block => Content::Special(FileKind::BlockDevice, device()?),
            other => Content::Unknown(other.as_byte()),
        };
        let owner = |name, field, value| {
            let id = match given(records, name, field)? {
                Some(id) => id,
                None => number(field, value)?,
            };
            u32::try_from(id).map_err(|_| ArchiveError::Number { at, field })
        };
        let time = |name: &str| {
            let text = records.get(name.as_bytes());
            text.map(|text| nanoseconds(text).ok_or(ArchiveError::Number { at, field: "time" })).transpose()
        };
        let seconds = number("time", header.mtime())?;
        let mtime_ns = match time("mtime")? {
            Some(time) => time,
            None => i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000),
        };
        Ok(Member {
            path,
            content,
            perm: header.mode().map_err(|_| ArchiveError::Number { at, field: "mode" })? & 0o7777,
            uid: owner("uid", "owner", header.uid())?,
            gid: owner("gid", "group", header.gid())?,
            atime_ns: time("atime")?.unwrap_or(mtime_ns),
            mtime_ns,
            xattrs: records
                .iter()
                .filter_map(|(name, value)| {
                    Some((attribute(name.strip_prefix(RECORD_XATTR)?), value.clone()))
                })
                .collect(),
        })
    }

    /// Which parts of a file its data is, when it is not all.
    fn sparse(&mut self, header: &Header, at: u64, records: &Records) -> Result<Sparse, ArchiveError> {
        let damaged = ArchiveError::Sparse { at };
        let (size, parts) = if header.entry_type() == EntryType::GNUSparse {
            let Some(gnu) = header.as_gnu() else { return Err(damaged) };
            let mut parts = Vec::new();
            add_parts(&gnu.sparse, &mut parts, at)?;
            let mut more = gnu.is_extended();
            while more {
                let mut block = GnuExtSparseHeader::new();
                if self.fill(block.as_mut_bytes())? != BLOCK_LEN {
                    return Err(ArchiveError::Truncated { at: self.at });
                }
                add_parts(&block.sparse, &mut parts, at)?;
                more = block.is_extended();
            }
            (gnu.real_size().map_err(|_| ArchiveError::Sparse { at })?, parts)
        } else {
            match records.get(&b"GNU.sparse.major"[..]).map(Vec::as_slice) {
                Some(b"1") => {}
                None if !records.keys().any(|name| name.starts_with(b"GNU.sparse.")) => {
                    return Ok(Sparse::No);
                }
                _ => return Ok(Sparse::Old),
            }
            let size = records.get(&b"GNU.sparse.realsize"[..]).and_then(|text| decimal(text));
            (size.ok_or(damaged)?, self.map_before_data(at)?)
        };
        // Ascending, within the file, and as much as there is data. An empty one tells the end.
        let mut end = 0;
        let mut sum = 0u64;
        for &(offset, len) in &parts {
            let next = offset.checked_add(len).filter(|&next| offset >= end && next <= size);
            end = next.ok_or(ArchiveError::Sparse { at })?;
            sum += len;
        }
        if sum != self.left {
            return Err(ArchiveError::Sparse { at });
        }
        Ok(Sparse::Parts { size, parts: parts.into_iter().filter(|part| part.1 > 0).collect() })
    }

    /// The map that stands before the data of a sparse file: lines with the number of parts, and offset and length of each.
    fn map_before_data(&mut self, at: u64) -> Result<Vec<(u64, u64)>, ArchiveError> {
        let mut block = [0; BLOCK_LEN];
        let mut used = BLOCK_LEN;
        let mut read = 0;
        let mut line = || {
            let mut text = Vec::new();
            loop {
                if used == BLOCK_LEN {
                    read += BLOCK_BYTES;
                    if self.read(&mut block)? != BLOCK_LEN || read > EXTENSION_BYTES_MAX {
                        return Err(ArchiveError::Sparse { at });
                    }
                    used = 0;
                }
                let byte = block[used];
                used += 1;
                match byte {
                    b'\n' => return decimal(&text).ok_or(ArchiveError::Sparse { at }),
                    _ if text.len() < 20 => text.push(byte),
                    _ => return Err(ArchiveError::Sparse { at }),
                }
            }
        };
        let count = line()?;
        (0..count).map(|_| Ok((line()?, line()?))).collect()
    }

    fn set_data(&mut self, bytes: u64) {
        self.left = bytes;
        self.padding = bytes.wrapping_neg() % BLOCK_BYTES;
    }

    fn pass_over(&mut self) -> Result<(), ArchiveError> {
        let bytes = self.left.saturating_add(self.padding);
        let passed = io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())?;
        self.at += passed;
        // The last member's padding may be missing.
        if passed < self.left {
            return Err(ArchiveError::Truncated { at: self.at });
        }
        self.set_data(0);
        Ok(())
    }

    /// A name of GNU's form.
    fn text(&mut self, at: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut text = self.extension(at)?;
        let len = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        text.truncate(len);
        Ok(text)
    }

    fn extension(&mut self, at: u64) -> Result<Vec<u8>, ArchiveError> {
        if self.left > EXTENSION_BYTES_MAX {
            return Err(ArchiveError::TooLong { at, bytes: self.left, most: EXTENSION_BYTES_MAX });
        }
        let mut bytes = vec![0; self.left as usize];
        self.read(&mut bytes)?;
        self.pass_over()?;
        Ok(bytes)
    }

    /// Reads until `out` is full or the archive ends.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize, ArchiveError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.input.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }
}

const BLOCK_LEN: usize = BLOCK_BYTES as usize;

enum Sparse {
    No,
    Parts { size: u64, parts: Vec<(u64, u64)> },
    Old,
}

fn add_parts(table: &[GnuSparseHeader], parts: &mut Vec<(u64, u64)>, at: u64) -> Result<(), ArchiveError> {
    for part in table.iter().filter(|part| !part.is_empty()) {
        let damaged = |_| ArchiveError::Sparse { at };
        parts.push((part.offset().map_err(damaged)?, part.length().map_err(damaged)?));
    }
    Ok(())
}

fn check(header: &Header, at: u64) -> Result<(), ArchiveError> {
    let bytes = header.as_bytes();
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    // The checksum's own eight bytes count as blanks.
    let right = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
    if header.cksum().is_ok_and(|said| said == right) {
        return Ok(());
    }
    match COMPRESSED.iter().find(|(magic, _)| at == 0 && bytes.starts_with(magic)) {
        Some(&(_, program)) => Err(ArchiveError::Compressed { program }),
        None => Err(ArchiveError::Header { at }),
    }
}

/// Reads `LENGTH KEYWORD=VALUE\n` records. An empty value takes a record back.
fn read_records(text: &[u8], records: &mut Records, at: u64) -> Result<(), ArchiveError> {
    let damaged = || ArchiveError::Record { at };
    let mut rest = text;
    while !rest.is_empty() {
        let blank = rest.iter().position(|&byte| byte == b' ').ok_or_else(damaged)?;
        let len = decimal(&rest[..blank]).and_then(|len| usize::try_from(len).ok()).ok_or_else(damaged)?;
        let record =
            rest.get(blank + 1..len).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(damaged)?;
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(damaged)?;
        let (name, value) = (&record[..equals], &record[equals + 1..]);
        // An extended attribute may well be empty.
        if value.is_empty() && !name.starts_with(RECORD_XATTR) {
            records.remove(name);
        } else {
            records.insert(name.to_vec(), value.to_vec());
        }
        rest = &rest[len..];
    }
    Ok(())
}

/// An attribute's name from a keyword, in which GNU tar writes `=` as `%3D` and `%` as `%25`.
fn attribute(keyword: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(keyword.len());
    let mut rest = keyword;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match rest.get(..3) {
            Some(b"%3D") => (b'=', &rest[3..]),
            Some(b"%25") => (b'%', &rest[3..]),
            _ => (first, after),
        };
        name.push(byte);
        rest = after;
    }
    name
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// `[-]SECONDS[.FRACTION]`
fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds = decimal(parts.next()?)?;
    let fraction = parts.next().unwrap_or(b"0");
    let mut digits: Vec<u8> = fraction.iter().copied().take(9).collect();
    digits.resize(9, b'0');
    let sum = i128::from(seconds) * 1_000_000_000 + i128::from(decimal(&digits)?);
    i64::try_from(if negative { -sum } else { sum }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        assert_eq!(nanoseconds(b"12.5"), Some(12_500_000_000));
        assert_eq!(nanoseconds(b"-1.000000001"), Some(-1_000_000_001));
        assert_eq!(nanoseconds(b"7"), Some(7_000_000_000));
        assert_eq!(nanoseconds(b"1.0123456789"), Some(1_012_345_678));
        for none in [&b""[..], b"-", b"x", b"1.x", b"99999999999999999999"] {
            assert_eq!(nanoseconds(none), None, "{none:?}");
        }
    }

    #[test]
    fn records_may_hold_line_feeds_and_are_taken_back_by_empty_ones() {
        let mut records = Records::new();
        read_records(b"9 a=b\nc=\n5 x=\n", &mut records, 0).unwrap();
        assert_eq!(records.get(&b"a"[..]).unwrap(), b"b\nc=");
        read_records(b"5 a=\n", &mut records, 0).unwrap();
        assert!(records.is_empty());
        for damaged in
            [&b"9 a=b"[..], b"a", b"0 a=b\n", b"4 a=b\n", b"7 abcd\n", b"99999999999999999999 a=b\n"]
        {
            assert!(read_records(damaged, &mut records, 0).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn nothing_is_not_an_archive_and_a_cut_one_says_where() {
        assert!(matches!(Reader::new(&b""[..]).next(), Err(ArchiveError::Header { at: 0 })));
        assert!(matches!(
            Reader::new(&b"\x1f\x8b and so on"[..]).next(),
            Err(ArchiveError::Header { at: 0 })
        ));
        let mut gzip = [0; 600];
        gzip[..2].copy_from_slice(b"\x1f\x8b");
        assert!(matches!(Reader::new(&gzip[..]).next(), Err(ArchiveError::Compressed { program: "gzip" })));
    }
}
