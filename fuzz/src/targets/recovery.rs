//! Recovery: a volume whose blocks are damaged, old, swapped, cut off or forged is refused with an error or mounted; what is
//! mounted can be walked, read, written, closed, checked and mounted again.
//!
//! Three kinds of damage, and what is asked beyond that. *Forged* blocks have right checksums, so anything may stand in them.
//! Of *worn* ones the checksums are as they were: what is read is what was written into that file at that place, or zeros of a
//! hole. *Pricks* hit blocks of files' data, of a volume that was closed: it mounts, and every file without a pricked
//! block reads as before.

use super::Target;
use super::volume_file::{ImageFile, folder, geometry};
use crate::script::Script;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, Ino, Tag};
use weft_device::ZonedModel;
use weft_lfs::layout::frame::{FrameHeader, FrameKind, HEADER_BYTES};
use weft_lfs::{FormatOptions, Lfs, MountOptions, fsck};
use weft_vfs::{CreateArgs, FileKind, FileSystem, MapEntry, NewNode, RenameFlags, SetAttr, XattrMode};

/// See the module.
pub struct Recovery {
    dir: tempfile::TempDir,
    /// A volume at several moments: in use, and closed.
    moments: Vec<Vec<u8>>,
    /// Of each moment, where frames lie: zone, block, header.
    frames: Vec<Vec<(usize, usize, FrameHeader)>>,
    /// What marks the content of each file, by its inode.
    labels: Vec<(Ino, u8)>,
    /// The files of the closed volume.
    files: Vec<Stored>,
}

/// A file of the closed volume.
struct Stored {
    ino: Ino,
    content: Vec<u8>,
    /// Blocks of the device that it is in, counted from the first of the first zone.
    blocks: Vec<u64>,
}

/// What is done to a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    Forged,
    Worn,
    Pricks,
}

const BEHIND_A_HOLE: &[u8; 16] = b"behind a hole   ";

/// Content that tells of each 16 bytes to which file they belong, and where.
fn stamps(label: u8, bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = (0..bytes.div_ceil(16)).flat_map(|at| stamp(label, at as u64)).collect();
    out.truncate(bytes);
    out
}

fn stamp(label: u8, at: u64) -> [u8; 16] {
    (u128::from(label) << 120 | 0x77_6566_7400 << 64 | u128::from(at + 1)).to_be_bytes()
}

/// Panics unless these bytes of a file are what was written there once, before or after its range was collapsed, or a hole.
fn assert_written(label: u8, content: &[u8]) {
    for (at, piece) in (0u64..).zip(content.chunks(16)) {
        let moved = at + 4096 / 16;
        let known = [[0; 16], stamp(label, at), stamp(label, moved), *BEHIND_A_HOLE];
        let is_cut = piece.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let fits =
            known.iter().any(|known| known[..piece.len()] == *piece || known[..is_cut] == piece[..is_cut]);
        assert!(fits, "file {label} has at {} what was never written there: {piece:02x?}", at * 16);
    }
}

fn read_whole(fs: &Lfs, ino: Ino) -> weft_vfs::FsResult<Vec<u8>> {
    let mut out = vec![0; fs.getattr(ino)?.size.min(1 << 20) as usize];
    let len = fs.read(ino, 0, &mut out)?;
    out.truncate(len);
    Ok(out)
}

fn options(salvage: bool) -> MountOptions {
    MountOptions { dirty_bytes_max: 1 << 20, salvage, ..MountOptions::default() }
}

fn args(node: NewNode<'_>) -> CreateArgs<'_> {
    CreateArgs { node, perm: 0o755, uid: 1, gid: 2, tag: Tag::default(), open: false, xattrs: &[] }
}

/// Names, files of several sizes, holes, attributes: something of every record.
fn fill(fs: &Lfs, round: u8, labels: &mut Vec<(Ino, u8)>) -> weft_vfs::FsResult<()> {
    let name = |n: u8| format!("{round}-{n}").into_bytes();
    let dir = fs.create(Ino::ROOT, &name(100), &args(NewNode::Directory))?.ino;
    for n in 0..8u8 {
        let ino = fs.create(dir, &name(n), &args(NewNode::File))?.ino;
        let len = [0, 10, 4096, 5000, 20_000, 100, 60_000, 3][usize::from(n)];
        let label = 1 + round * 16 + n;
        labels.push((ino, label));
        fs.write(ino, 0, &stamps(label, len))?;
        if n % 2 == 0 {
            fs.fsync(ino)?;
        }
        fs.setxattr(ino, b"user.n", &[n; 30], XattrMode::Any)?;
    }
    let file = fs.lookup(dir, &name(6))?.ino;
    fs.write(file, 200_000, BEHIND_A_HOLE)?;
    fs.fallocate(file, weft_vfs::FallocateMode::PunchHole, 8192, 8192)?;
    fs.fallocate(file, weft_vfs::FallocateMode::CollapseRange, 16_384, 4096)?;
    fs.setattr(file, &SetAttr { size: Some(150_000), perm: Some(0o4711), ..SetAttr::default() })?;
    fs.create(dir, b"link", &args(NewNode::Symlink(b"../somewhere")))?;
    fs.create(dir, b"pipe", &args(NewNode::Special(FileKind::Fifo, 0)))?;
    fs.link(file, Ino::ROOT, &name(50))?;
    fs.rename(dir, &name(1), Ino::ROOT, &name(51), RenameFlags::empty())?;
    fs.rename(dir, &name(2), dir, &name(3), RenameFlags::EXCHANGE)?;
    fs.unlink(dir, &name(4))?;
    fs.sync()
}

fn stored(fs: &Lfs, ino: Ino) -> Option<Stored> {
    let content = read_whole(fs, ino).ok()?;
    let mut entries = vec![MapEntry::HOLE; content.len().div_ceil(BLOCK_BYTES)];
    fs.block_map()?.watch(ino, 0, &mut entries).ok()?;
    let places = entries.iter().filter_map(|entry| entry.location());
    let blocks = places.map(|(address, _)| address / BLOCK_BYTES as u64).collect();
    Some(Stored { ino, content, blocks })
}

fn found_frames(bytes: &[u8]) -> Vec<(usize, usize, FrameHeader)> {
    let mut file = ImageFile::new(Path::new(""), bytes);
    let mut frames = Vec::new();
    for zone in 0..file.zones() {
        for block in 0..file.write_pointer(zone) {
            if let Some(header) = FrameHeader::decode(file.block(zone, block)) {
                frames.push((zone, block, header));
            }
        }
    }
    frames
}

impl Recovery {
    /// Makes the volume.
    pub fn new() -> Recovery {
        let dir = folder();
        let path = dir.path().join("base");
        let (mut moments, mut labels) = (Vec::new(), Vec::new());
        let fine = "the volume to be damaged is made";
        let device = Arc::new(ZonedModel::create(&path, &geometry(), false, &mut |_, _| {}).expect(fine));
        Lfs::format(device.clone(), &FormatOptions { uuid: [7; 16], ..FormatOptions::default() })
            .expect(fine);
        let fs = Lfs::mount(device.clone(), options(false)).expect(fine);
        for round in 0..3 {
            fill(&fs, round, &mut labels).expect(fine);
            moments.push(std::fs::read(&path).expect(fine));
        }
        fs.unmount().expect(fine);
        drop(device);
        moments.push(std::fs::read(&path).expect(fine));
        let closed = Arc::new(ZonedModel::open_to_look(&path).expect(fine));
        let fs = Lfs::mount(closed, options(false)).expect(fine);
        let files = labels.iter().filter_map(|(ino, _)| stored(&fs, *ino)).collect();
        let frames: Vec<_> = moments.iter().map(|bytes| found_frames(bytes)).collect();
        assert!(frames.iter().all(|frames| frames.len() >= 2), "a volume has a checkpoint");
        Recovery { dir, moments, frames, labels, files }
    }

    fn damage(&self, moment: usize, kind: Damage, file: &mut ImageFile, script: &mut Script<'_>) {
        // Zones that are in use.
        let used: Vec<usize> = (0..file.zones()).filter(|&zone| file.write_pointer(zone) > 0).collect();
        if used.is_empty() {
            return;
        }
        let place = |script: &mut Script<'_>| {
            let zone = script.of(&used);
            (zone, script.below(file.write_pointer(zone)))
        };
        let (zone, block) = place(script);
        let (zone2, block2) = place(script);
        let at = script.below(BLOCK_BYTES);
        let kinds = if kind == Damage::Worn { 10 } else { 18 };
        match script.below(kinds) {
            0 => file.block(zone, block)[at] ^= 1 << (script.byte() & 7),
            1 => {
                let bytes = script.bytes(64);
                let at = file.block_at(zone, block) + at.min(BLOCK_BYTES - 64);
                file.put(at, &bytes);
            }
            2 => file.block(zone, block).fill(script.byte()),
            // Torn: the rest was never written, or is older.
            3 => file.block(zone, block)[at..].fill(0),
            4 => {
                let old = script.below(self.moments.len());
                let from = file.block_at(zone, block);
                let rest = self.moments[old][from + at..from + BLOCK_BYTES].to_vec();
                file.put(from + at, &rest);
            }
            5 => {
                let (a, b) = (file.block(zone, block).to_vec(), file.block(zone2, block2).to_vec());
                file.block(zone, block).copy_from_slice(&b);
                file.block(zone2, block2).copy_from_slice(&a);
            }
            6 => {
                let other = file.block(zone2, block2).to_vec();
                file.block(zone, block).copy_from_slice(&other);
            }
            7 => {
                // A zone as it was at another moment, with or without its record.
                let old = script.below(self.moments.len());
                let (from, to) = (file.block_at(zone, 0), file.block_at(zone + 1, 0));
                let blocks = self.moments[old][from..to].to_vec();
                file.put(from, &blocks);
                if script.byte() & 1 == 0 {
                    let at = file.record_at(zone);
                    let record = self.moments[old][at..at + 256].to_vec();
                    file.put(at, &record);
                }
            }
            8 => self.cut(file, zone, script),
            // The host went down with it.
            9 => file.crash_host(),
            10 => {
                let fields = [8, 12, 16, 32, 40, 48, 68, 72, 76, 80];
                let field = script.of(&fields) + script.below(4);
                let value = script.number().to_le_bytes();
                let len = script.of(&[1, 2, 4, 8]);
                let header = file.block(zone, 0);
                header[field..field + len].copy_from_slice(&value[..len]);
                let sum = crc32c(&header[..BLOCK_BYTES - 4]);
                header[BLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
            }
            _ => self.forge(moment, file, script),
        }
    }

    /// Another byte in a block of somebody's data; the block.
    fn prick(&self, file: &mut ImageFile, script: &mut Script<'_>) -> u64 {
        let inside: Vec<&Stored> = self.files.iter().filter(|file| !file.blocks.is_empty()).collect();
        let hit = script.of(&inside);
        let block = script.of(&hit.blocks);
        let zone_blocks = file.zone_blocks() as u64;
        let at = script.below(BLOCK_BYTES);
        file.block((block / zone_blocks) as usize, (block % zone_blocks) as usize)[at] ^=
            1 << (script.byte() & 7);
        block
    }

    /// What is in the volume is what was written into it.
    fn assert_content(&self, fs: &Lfs) {
        for (ino, label) in &self.labels {
            if let Ok(content) = read_whole(fs, *ino) {
                assert_written(*label, &content);
            }
        }
    }

    /// Every file without a pricked block is what it was, and the others are, or cannot be read.
    fn assert_rest_is_intact(&self, fs: &Lfs, pricked: &[u64]) {
        for file in &self.files {
            match read_whole(fs, file.ino) {
                Ok(content) => assert!(content == file.content, "{:?} reads otherwise", file.ino),
                Err(error) => {
                    let hit = file.blocks.iter().any(|block| pricked.contains(block));
                    assert!(hit, "{:?} is intact, and {error}", file.ino);
                }
            }
        }
    }

    /// The end of a zone is gone.
    fn cut(&self, file: &mut ImageFile, zone: usize, script: &mut Script<'_>) {
        let blocks = script.below(file.write_pointer(zone) + 1) as u64;
        let state = script.of(&[1, 2, 3, 4, 13, 14, 15]);
        let state = if blocks == 0 && script.byte() & 7 != 0 { 1 } else { state };
        file.set_zone(zone, state, blocks);
    }

    /// A frame with another payload or header, and the checksums that belong to it.
    fn forge(&self, moment: usize, file: &mut ImageFile, script: &mut Script<'_>) {
        let (zone, block, _) = script.of(&self.frames[moment]);
        let Some(mut header) = FrameHeader::decode(file.block(zone, block)) else { return };
        let room = header.blocks() as usize * BLOCK_BYTES - HEADER_BYTES;
        let from = file.block_at(zone, block) + HEADER_BYTES;
        let mut payload = file.bytes[from..from + header.payload_len as usize].to_vec();
        match script.below(6) {
            0 => payload = forged_records(header.kind, script),
            1 => {
                payload.truncate(script.below(payload.len() + 1));
                payload.extend(forged_records(header.kind, script));
            }
            2 | 3 => {
                for _ in 0..=script.below(4) {
                    let at = script.below(payload.len().max(1));
                    let bytes = script.number().to_le_bytes();
                    let len = script.of(&[1, 2, 4, 8]).min(payload.len().saturating_sub(at));
                    payload[at..at + len].copy_from_slice(&bytes[..len]);
                }
            }
            4 => match script.below(7) {
                0 => header.epoch = script.number(),
                1 => header.seq = script.number(),
                2 => header.flushed_upto = script.number(),
                3 => header.volume_bytes = script.number(),
                4 => header.parts = script.number() as u32,
                5 => header.clean ^= true,
                _ => header.kind = script.of(&[FrameKind::Entry, FrameKind::Part, FrameKind::End]),
            },
            _ => {
                let from = script.below(payload.len() + 1);
                let to = from + script.below(payload.len() - from + 1).min(600);
                let piece = payload[from..to].to_vec();
                payload.extend(piece);
            }
        }
        payload.truncate(room);
        header.payload_len = payload.len() as u32;
        header.payload_crc = crc32c(&payload);
        file.put(from, &payload);
        file.put(from - HEADER_BYTES, &header.encode());
    }
}

/// A field of a record (`docs/formats/lfs.md`).
#[derive(Clone, Copy)]
enum Field {
    U8,
    U32,
    Ino,
    Number,
    Time,
    Name,
    Value,
    Tag,
    Node,
    Runs,
    RunsAndSums,
    Sums,
}

use Field::{Ino as I, Name, Node, Number, Runs, RunsAndSums, Sums, Tag as T, Time, U8, U32, Value};

const JOURNAL: [&[Field]; 13] = [
    &[I, Name, Node],
    &[I, I, Name, Time],
    &[I, Name, Time],
    &[I, I, Name, Name, U8, Time],
    &[I],
    &[I, U32, U32, U32, Time, Time, Time],
    &[I, Number, U8, Time],
    &[I, U8, Number, Time, RunsAndSums],
    &[I, Number, Number, Time, Value],
    &[I, Number, Number, Time],
    &[I, Number, Number, U8, Number, Time],
    &[I, Name, U8, Value, Time],
    &[I, T],
];

const CHECKPOINT: [&[Field]; 7] = [
    &[Value, Time, Number, Number],
    &[Node, U32, Number, Time, Time, Time, I, Number],
    &[I, Runs],
    &[I, Name, Value],
    &[I, Number, I, Name],
    &[U32, U32, Sums],
    &[I, Number, Value],
];

fn forged_records(kind: FrameKind, script: &mut Script<'_>) -> Vec<u8> {
    let kinds: &[&[Field]] = if kind == FrameKind::Entry { &JOURNAL } else { &CHECKPOINT };
    let mut out = Vec::new();
    for _ in 0..=script.below(6) {
        let kind = script.below(kinds.len());
        out.push(kind as u8 + 1);
        for field in kinds[kind] {
            put_field(&mut out, *field, script);
        }
    }
    out
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn put_field(out: &mut Vec<u8>, field: Field, script: &mut Script<'_>) {
    // Mostly numbers of inodes that there are.
    let ino = |script: &mut Script<'_>| match script.byte() {
        small @ 0..240 => u64::from(small % 48),
        _ => script.number(),
    };
    match field {
        Field::U8 => out.push(if script.byte() < 240 { script.byte() & 1 } else { script.byte() }),
        Field::U32 => out.extend((script.number() as u32).to_le_bytes()),
        Field::Ino => out.extend(ino(script).to_le_bytes()),
        Field::Number => out.extend(script.number().to_le_bytes()),
        Field::Time => out.extend((script.number() as i64).to_le_bytes()),
        Field::Name => {
            let names: [&[u8]; 8] = [b"0-0", b"0-1", b"0-100", b"1-100", b"link", b"new", b"", b".."];
            let name = script.of(&names);
            put_string(out, name);
        }
        Field::Value => {
            let bytes = script.bytes(40);
            put_string(out, &bytes);
        }
        Field::Tag => out.extend((0..20).map(|_| script.byte() & 3)),
        Field::Node => {
            out.extend(ino(script).to_le_bytes());
            out.push(1 + script.byte() % 8);
            for _ in 0..3 {
                put_field(out, Field::U32, script);
            }
            put_field(out, Field::Number, script);
            put_field(out, Field::Tag, script);
            put_field(out, Field::Time, script);
            put_field(out, Field::Number, script);
            put_field(out, Field::Value, script);
        }
        Field::Runs => drop(put_runs(out, script)),
        Field::RunsAndSums => {
            let sums = put_runs(out, script);
            out.extend((0..sums.min(4096) * 4).map(|_| script.byte()));
        }
        Field::Sums => {
            let count = script.below(8);
            out.extend((count as u32).to_le_bytes());
            out.extend((0..count * 4).map(|_| script.byte()));
        }
    }
}

/// Puts some runs; returns the blocks in all of them.
fn put_runs(out: &mut Vec<u8>, script: &mut Script<'_>) -> usize {
    let count = script.below(4);
    out.extend((count as u32).to_le_bytes());
    let mut blocks = 0usize;
    for _ in 0..count {
        out.extend(script.number().to_le_bytes());
        let zone_bytes = geometry().zone_bytes;
        let address = match script.byte() {
            0..200 => script.below(24) as u64 * zone_bytes + script.below(64) as u64 * BLOCK_BYTES as u64,
            _ => script.number(),
        };
        out.extend(address.to_le_bytes());
        let many = if script.byte() < 230 { script.below(5) as u32 } else { script.number() as u32 };
        out.extend(many.to_le_bytes());
        let len = if script.byte() < 200 { BLOCK_BYTES as u32 } else { script.number() as u32 };
        out.extend(len.to_le_bytes());
        blocks = blocks.saturating_add(many as usize);
    }
    blocks
}

/// Walks all there is, reads it and changes some. Errors are well; what never ends is not.
fn use_it(fs: &Lfs) {
    let mut dirs = vec![Ino::ROOT];
    let mut seen = HashSet::from([Ino::ROOT]);
    let mut out = vec![0; 70_000];
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        let mut entries = Vec::new();
        let _ = fs.readdir(dir, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            entries.len() < 10_000
        });
        let _ = fs.parent(dir);
        for (name, ino, kind) in entries {
            let _ = fs.lookup(dir, &name);
            if !seen.insert(ino) {
                continue;
            }
            match kind {
                FileKind::Directory => dirs.push(ino),
                FileKind::Symlink => drop(fs.readlink(ino)),
                _ => files.push((dir, name, ino)),
            }
        }
    }
    for (n, (dir, name, ino)) in files.iter().enumerate() {
        let Ok(attr) = fs.getattr(*ino) else { continue };
        for at in [0, attr.size.saturating_sub(out.len() as u64 / 2)] {
            let _ = fs.read(*ino, at, &mut out);
        }
        let _ = fs.seek(*ino, 0, weft_vfs::SeekTarget::Hole);
        let _ = fs.listxattr(*ino).map(|names| names.iter().for_each(|name| drop(fs.getxattr(*ino, name))));
        match n % 4 {
            0 => drop(fs.unlink(*dir, name)),
            1 => drop(fs.write(*ino, attr.size.min(1 << 30) / 2, b"overwritten")),
            2 => drop(
                fs.setattr(*ino, &SetAttr { size: Some(attr.size.min(1 << 30) / 3), ..SetAttr::default() }),
            ),
            _ => drop(fs.rename(*dir, name, Ino::ROOT, b"moved", RenameFlags::empty())),
        }
    }
    if let Ok(attr) = fs.create(Ino::ROOT, b"after", &args(NewNode::File)) {
        let _ = fs.write(attr.ino, 0, &[9; 9000]);
        let _ = fs.fsync(attr.ino);
    }
    let _ = fs.statfs();
    let _ = fs.stats();
    let _ = fs.tick();
}

impl Target for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = vec![vec![], vec![3], vec![2, 1]];
        for kind in 0..18 {
            for ways in [0, 1, 4] {
                seeds.push(vec![1, ways, 2, 3, 1, 2, 40, 0, kind, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            }
        }
        seeds.extend((0..24).map(|file| vec![0, 6, file, file, 3, 1, 2, file + 1, 0, 3, 7]));
        seeds
    }

    fn run(&mut self, input: &[u8]) {
        let mut script = Script(input);
        let moment = script.below(self.moments.len());
        let ways = script.byte();
        let salvage = ways & 1 == 1;
        let kind = [Damage::Forged, Damage::Forged, Damage::Worn, Damage::Pricks][usize::from(ways >> 1 & 3)];
        let moment = if kind == Damage::Pricks { self.moments.len() - 1 } else { moment };
        let mut file = ImageFile::new(&self.dir.path().join("damaged"), &self.moments[moment]);
        let mut pricked = Vec::new();
        for _ in 0..6 {
            if script.is_over() {
                break;
            }
            match kind {
                Damage::Pricks => pricked.push(self.prick(&mut file, &mut script)),
                _ => self.damage(moment, kind, &mut file, &mut script),
            }
        }
        file.write();
        let device = match ZonedModel::open(&file.path) {
            Ok(device) => Arc::new(device),
            Err(error) => {
                assert!(kind == Damage::Forged || kind == Damage::Worn, "only data was pricked, and {error}");
                return assert!(!error.to_string().is_empty());
            }
        };
        let could_be_checked = match fsck::check(device.clone()) {
            Ok(report) => {
                report.problems.iter().for_each(|problem| assert!(!problem.to_string().is_empty()));
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        };
        let fs = match Lfs::mount(device.clone(), options(salvage)) {
            Ok(fs) => fs,
            Err(error) => {
                assert!(kind != Damage::Pricks, "only data was pricked, and {error}");
                return assert!(!error.to_string().is_empty());
            }
        };
        match kind {
            Damage::Forged => {}
            Damage::Worn => self.assert_content(&fs),
            Damage::Pricks => self.assert_rest_is_intact(&fs, &pricked),
        }
        use_it(&fs);
        // Of files that were changed, their content is another one.
        let kept = if kind == Damage::Forged { Vec::new() } else { contents(&fs) };
        if fs.unmount().is_err() {
            // Something in it could not be read or stored; it said so.
            return;
        }
        // A salvage writes nothing: what could not be checked before cannot be checked now.
        if let Err(error) = fsck::check(device.clone()) {
            assert!(salvage && !could_be_checked, "closed, and then {error}");
        }
        let fs =
            // What was only read is as damaged as before.
            Lfs::mount(device, options(salvage)).unwrap_or_else(|error| panic!("closed, and then {error}"));
        for (ino, content) in kept {
            let now =
                read_whole(&fs, ino).unwrap_or_else(|error| panic!("{ino:?} was read, and then {error}"));
            assert!(now == content, "{ino:?} is another since the volume was closed");
        }
        use_it(&fs);
    }
}

/// All files that can be read.
fn contents(fs: &Lfs) -> Vec<(Ino, Vec<u8>)> {
    (1..100).map(Ino).filter_map(|ino| Some((ino, read_whole(fs, ino).ok()?))).collect()
}
