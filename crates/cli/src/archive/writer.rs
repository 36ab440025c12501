//! Writes archives in the POSIX form, with GNU's records for sparse files and those of `star` for extended attributes.

use super::{BLOCK_BYTES, Content, Member, RECORD_XATTR};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use tar::{EntryType, Header};
use weft_vfs::FileKind;

/// Bytes of a name in a header.
const NAME_BYTES: usize = 100;
/// The largest owner or group that a header's digits hold.
const ID_MAX: u32 = 0o7_777_777;
/// The first size that they do not hold.
const SIZE_END: u64 = 1 << 33;
/// Archives end at a multiple of this many bytes.
const RECORD_BYTES: u64 = 20 * BLOCK_BYTES;
const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// An archive that is being written.
pub struct Writer<W> {
    output: W,
    /// Takes back what was written from a byte on, where that can be.
    cut: Option<fn(&mut W, u64) -> io::Result<()>>,
    /// Bytes written.
    at: u64,
}

impl Writer<BufWriter<File>> {
    /// Begins to write a file of which the archive is all.
    pub fn of_file(output: BufWriter<File>) -> Self {
        let cut = |output: &mut BufWriter<File>, at| {
            output.seek(SeekFrom::Start(at))?;
            output.get_ref().set_len(at)
        };
        Writer { cut: Some(cut), ..Writer::new(output) }
    }
}

impl<W: Write> Writer<W> {
    /// Begins to write; what was written stays written.
    pub fn new(output: W) -> Writer<W> {
        Writer { output, cut: None, at: 0 }
    }

    /// Bytes written so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Whether [`Writer::go_back`] works.
    pub fn can_go_back(&self) -> bool {
        self.cut.is_some()
    }

    /// Takes back what was written from byte `at` on.
    pub fn go_back(&mut self, at: u64) -> io::Result<()> {
        self.at = at;
        self.cut.ok_or(io::ErrorKind::Unsupported)?(&mut self.output, at)
    }

    /// Writes what stands before a member's bytes. Those of its parts have to follow, by [`Writer::data`], and then
    /// [`Writer::end_member`].
    pub fn begin_member(&mut self, member: &Member) -> io::Result<()> {
        let mut records = Vec::new();
        let mut record = |name: &[u8], value: &[u8]| add_record(&mut records, name, value);
        let mut header = Header::new_ustar();
        let mut name = member.path.clone();
        let mut map = Vec::new();
        let (kind, size) = match &member.content {
            Content::File { size, parts } if *parts == [(0, *size)] || (*size == 0 && parts.is_empty()) => {
                (EntryType::Regular, *size)
            }
            Content::File { size, parts } => {
                record(b"GNU.sparse.major", b"1");
                record(b"GNU.sparse.minor", b"0");
                record(b"GNU.sparse.name", &name);
                record(b"GNU.sparse.realsize", size.to_string().as_bytes());
                // Whoever does not know sparse files finds the map and the data under this name.
                let at = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                name.splice(at..at, *b"GNUSparseFile.0/");
                map = sparse_map(*size, parts);
                (EntryType::Regular, map.len() as u64 + parts.iter().map(|part| part.1).sum::<u64>())
            }
            Content::Link(target) => {
                set_link(&mut header, target, &mut record);
                (EntryType::Link, 0)
            }
            Content::Symlink(target) => {
                set_link(&mut header, target, &mut record);
                (EntryType::Symlink, 0)
            }
            Content::Directory => (EntryType::Directory, 0),
            Content::Special(kind, number) => {
                header.set_device_major(libc::major(*number))?;
                header.set_device_minor(libc::minor(*number))?;
                let kind = match kind {
                    FileKind::CharDevice => EntryType::Char,
                    FileKind::BlockDevice => EntryType::Block,
                    _ => EntryType::Fifo,
                };
                (kind, 0)
            }
            Content::Unknown(_) | Content::OldSparse => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "archives hold no files of this kind",
                ));
            }
        };
        if name.len() > NAME_BYTES && map.is_empty() {
            record(b"path", &name);
        }
        if size >= SIZE_END {
            record(b"size", size.to_string().as_bytes());
        }
        for (field, id) in [(&b"uid"[..], member.uid), (b"gid", member.gid)] {
            if id > ID_MAX {
                record(field, id.to_string().as_bytes());
            }
        }
        record(b"mtime", &seconds(member.mtime_ns));
        record(b"atime", &seconds(member.atime_ns));
        for (name, value) in &member.xattrs {
            record(&[RECORD_XATTR, &keyword(name)].concat(), value);
        }

        name.truncate(NAME_BYTES);
        if let Some(old) = header.as_ustar_mut() {
            old.name[..name.len()].copy_from_slice(&name);
        }
        header.set_entry_type(kind);
        header.set_size(if size < SIZE_END { size } else { 0 });
        header.set_mode(member.perm);
        header.set_uid(member.uid.min(ID_MAX).into());
        header.set_gid(member.gid.min(ID_MAX).into());
        header.set_mtime(u64::try_from(member.mtime_ns / 1_000_000_000).unwrap_or(0));
        header.set_cksum();

        self.extension(&records)?;
        self.put(header.as_bytes())?;
        self.put(&map)
    }

    /// Writes bytes of the member's parts.
    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)
    }

    /// Fills the member's last block.
    pub fn end_member(&mut self) -> io::Result<()> {
        let padding = self.at.wrapping_neg() % BLOCK_BYTES;
        self.put(&ZEROS[..padding as usize])
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(&ZEROS)?;
        self.put(&ZEROS)?;
        while !self.at.is_multiple_of(RECORD_BYTES) {
            self.put(&ZEROS)?;
        }
        self.output.flush()?;
        Ok(self.output)
    }

    fn extension(&mut self, records: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_path("PaxHeaders/member")?;
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(records.len() as u64);
        header.set_cksum();
        self.put(header.as_bytes())?;
        self.put(records)?;
        self.end_member()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn set_link(header: &mut Header, target: &[u8], record: &mut impl FnMut(&[u8], &[u8])) {
    if target.len() > NAME_BYTES {
        record(b"linkpath", target);
    }
    let kept = &target[..target.len().min(NAME_BYTES)];
    if let Some(old) = header.as_ustar_mut() {
        old.linkname[..kept.len()].copy_from_slice(kept);
    }
}

/// `LENGTH NAME=VALUE\n`, where the length counts its own digits.
fn add_record(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rest = name.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(format!("{len} ").as_bytes());
    records.extend_from_slice(name);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// An attribute's name without the sign that ends a keyword, as GNU tar writes it.
fn keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => keyword.extend_from_slice(b"%25"),
            b'=' => keyword.extend_from_slice(b"%3D"),
            other => keyword.push(other),
        }
    }
    keyword
}

fn sparse_map(size: u64, parts: &[(u64, u64)]) -> Vec<u8> {
    // GNU tar takes the file's end from an empty part behind all others.
    let end = parts.last().is_none_or(|(offset, len)| offset + len < size).then_some((size, 0));
    let mut text = format!("{}\n", parts.len() + usize::from(end.is_some()));
    for (offset, len) in parts.iter().chain(&end) {
        text += &format!("{offset}\n{len}\n");
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    map
}

fn seconds(nanoseconds: i64) -> Vec<u8> {
    let (sign, magnitude) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    format!("{sign}{}.{:09}", magnitude / 1_000_000_000, magnitude % 1_000_000_000).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::reader::Reader;

    fn member(path: &[u8], content: Content) -> Member {
        Member {
            path: path.to_vec(),
            content,
            perm: 0o6751,
            uid: 12,
            gid: u32::MAX - 1,
            atime_ns: -1_500_000_000,
            mtime_ns: 1_234_567_890_123_456_789,
            xattrs: vec![(b"user.a=%3D".to_vec(), b"x\ny\0".to_vec()), (b"user.none".to_vec(), Vec::new())],
        }
    }

    fn members() -> Vec<(Member, Vec<u8>)> {
        let long = vec![b'n'; 300];
        let mut odd = b"./odd \n\xff ".to_vec();
        odd.extend_from_slice(&long);
        let file = |size: u64, parts: &[(u64, u64)]| Content::File { size, parts: parts.to_vec() };
        let bytes = |n: usize| (0..n).map(|i| i as u8).collect::<Vec<u8>>();
        let many: Vec<(u64, u64)> = (0..500).map(|i| (i * 8192, 10)).collect();
        let nothing = Vec::new;
        vec![
            (member(b"./", Content::Directory), nothing()),
            (member(b"./empty", file(0, &[(0, 0)])), nothing()),
            (member(&odd, file(1025, &[(0, 1025)])), bytes(1025)),
            (member(b"d/sparse", file(1 << 40, &[(4096, 3), (1 << 39, 510)])), bytes(513)),
            (member(b"many", file(500 * 8192, &many)), bytes(5000)),
            (member(b"hole", file(1 << 20, &[])), nothing()),
            (member(b"link", Content::Link(odd.clone())), nothing()),
            (member(b"symlink", Content::Symlink(long)), nothing()),
            (member(b"fifo", Content::Special(FileKind::Fifo, 0)), nothing()),
            (member(b"null", Content::Special(FileKind::CharDevice, libc::makedev(1, 3))), nothing()),
        ]
    }

    fn archive() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (member, data) in members() {
            writer.begin_member(&member).unwrap();
            writer.data(&data).unwrap();
            writer.end_member().unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let archive = archive();
        assert_eq!(archive.len() % 10240, 0);
        let mut reader = Reader::new(&archive[..]);
        for (member, data) in members() {
            assert_eq!(reader.next().unwrap().unwrap(), member);
            let mut read = vec![0; data.len() + 10];
            let n = reader.read(&mut read).unwrap();
            assert_eq!(&read[..n], data);
        }
        assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_is_read_up_to_there() {
        let archive = archive();
        for len in (0..archive.len()).step_by(509) {
            let mut reader = Reader::new(&archive[..len]);
            let read = std::iter::from_fn(|| reader.next().ok().flatten()).count();
            assert!(read <= members().len());
        }
    }

    #[test]
    fn an_archive_that_is_damaged_anywhere_ends_in_an_error_or_other_members() {
        let archive = archive();
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut damaged = archive.clone();
            let random = |below: usize, state: &mut u64| {
                *state =
                    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 33) as usize % below
            };
            let block = random(damaged.len() / 512, &mut state) * 512;
            for _ in 0..=random(3, &mut state) {
                damaged[block + random(512, &mut state)] = random(256, &mut state) as u8;
            }
            // With a checksum that is right again, so that what lies behind it is read.
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(&damaged[block..block + 512]);
            header.set_cksum();
            if random(2, &mut state) == 0 {
                damaged[block..block + 512].copy_from_slice(header.as_bytes());
            }
            let mut reader = Reader::new(&damaged[..]);
            let mut data = [0; 4096];
            while let Ok(Some(_)) = reader.next() {
                if reader.read(&mut data).is_err() {
                    break;
                }
            }
        }
    }
}
