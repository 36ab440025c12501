//! Archives: any bytes are members that can be read to their end, or an error that says where. The reader is the
//! command's own; headers get their checksums after they are changed, or no change would be looked at.

use super::Target;
use crate::archive::reader::Reader;
use crate::archive::writer::Writer;
use crate::archive::{self, ArchiveError, Content, Member};
use weft_vfs::FileKind;

const BLOCK: usize = archive::BLOCK_BYTES as usize;
/// Members of an archive that are looked at.
const MEMBERS_MAX: usize = 10_000;

/// See the module.
pub struct ArchiveBytes;

fn member(path: &[u8], content: Content, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Member {
    let path = path.to_vec();
    Member { path, content, perm: 0o640, uid: 7, gid: 8, atime_ns: -5, mtime_ns: 1_234_567_890_123, xattrs }
}

fn written(members: &[Member]) -> Vec<u8> {
    let fine = "an archive to be damaged is made";
    let mut writer = Writer::new(Vec::new());
    for member in members {
        writer.begin_member(member).expect(fine);
        if let Content::File { parts, .. } = &member.content {
            for (_, len) in parts {
                writer.data(&vec![b'd'; *len as usize]).expect(fine);
            }
        }
        writer.end_member().expect(fine);
    }
    let mut bytes = writer.finish().expect(fine);
    // The last blocks of zeros are of no use to anybody.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1).next_multiple_of(BLOCK);
    bytes.truncate(end);
    bytes
}

/// Makes the checksum of each block right that has the magic of a header.
fn seal(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| block[257..262] == *b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

/// Reads all there is; members, and how it ended.
fn read(bytes: &[u8]) -> Result<usize, ArchiveError> {
    let mut reader = Reader::new(bytes);
    let mut out = [0; 700];
    for count in 0..MEMBERS_MAX {
        let Some(member) = reader.next()? else { return Ok(count) };
        if let Content::File { size, parts } = &member.content {
            let ends: Vec<u64> = parts.iter().map(|(offset, len)| offset + len).collect();
            assert!(ends.iter().all(|end| end <= size), "a part beyond the file's end: {member:?}");
            let stored: u64 = parts.iter().map(|part| part.1).sum();
            // Every other one is passed over.
            let mut left = if count % 2 == 0 { stored } else { 0 };
            while left > 0 {
                let n = reader.read(&mut out[..(left.min(700)) as usize])?;
                assert!(n > 0, "bytes that never come");
                left -= n as u64;
            }
        }
        assert!(reader.position() <= bytes.len() as u64);
    }
    Ok(MEMBERS_MAX)
}

impl Target for ArchiveBytes {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let file = |size, parts: &[(u64, u64)]| Content::File { size, parts: parts.to_vec() };
        let xattrs = vec![(b"user.a".to_vec(), b"1\n2".to_vec())];
        let all = [
            member(b"d/", Content::Directory, Vec::new()),
            member(b"d/small", file(3, &[(0, 3)]), xattrs),
            member(b"d/sparse", file(1 << 40, &[(4096, 700), (1 << 20, 512)]), Vec::new()),
            member(&[b'n'; 300], Content::Symlink(vec![b't'; 200]), Vec::new()),
            member(b"again", Content::Link(b"d/small".to_vec()), Vec::new()),
            member(b"fifo", Content::Special(FileKind::Fifo, 0), Vec::new()),
            member(b"device", Content::Special(FileKind::BlockDevice, 0x801), Vec::new()),
        ];
        let mut seeds: Vec<Vec<u8>> = all.iter().map(|one| written(std::slice::from_ref(one))).collect();
        seeds.push(written(&all));
        // GNU's own forms: a long name, and a sparse file with a table of its parts.
        for kind in *b"LKSxgD" {
            let mut bytes = written(&all[1..2]);
            let at = bytes.chunks_exact(BLOCK).position(|block| block[156] == b'0').unwrap_or(0) * BLOCK;
            bytes[at + 156] = kind;
            bytes[at + 257..at + 265].copy_from_slice(b"ustar  \0");
            bytes[at + 386..at + 410].copy_from_slice(b"00000000000\x0000000000003\0");
            bytes[at + 483..at + 495].copy_from_slice(b"00000000003\0");
            seal(&mut bytes);
            seeds.push(bytes);
        }
        seeds
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"17 path=a/b/c/d\n",
            b"22 GNU.sparse.major=1\n",
            b"26 GNU.sparse.realsize=99\n",
            b"21 size=4294967296000\n",
            b"30 size=18446744073709551615\n",
            b"24 mtime=-1.9999999999\n",
            b"26 SCHILY.xattr.user.a=b\n",
            b"14 uid=999999\n",
            b"\x80\0\0\0\0\0\0\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"77777777777\0",
            b"ustar  \0",
            b"2\n0\n512\n",
            b"\n",
            b"=",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let mut bytes = input.to_vec();
        if !bytes.len().is_multiple_of(7) {
            seal(&mut bytes);
        }
        if let Err(error) = read(&bytes) {
            assert!(!error.to_string().is_empty());
        }
    }
}
