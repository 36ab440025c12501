//! Finds every zone header and every frame on a device. Only reads.

use crate::error::LfsError;
use crate::layout::MAJOR;
use crate::layout::frame::{FrameHeader, FrameKind, HEADER_BYTES};
use crate::layout::zone_header::{Decoded, HEADER_BLOCKS, ZoneHeader, ZoneKind};
use std::ops::Range;
use std::sync::mpsc;
use weft_core::checksum::crc32c;
use weft_core::{BLOCK_BYTES, ZoneId};
use weft_device::{ZoneReport, ZoneState, ZonedDevice};

/// A zone as it was found.
#[derive(Clone, Copy, Debug)]
pub struct FoundZone {
    /// What the device says.
    pub report: ZoneReport,
    /// Its header; `None` when it is empty or has none that can be read.
    pub header: Option<ZoneHeader>,
    /// Block of a copy of the header that cannot be read, although the zone is written so far.
    pub bad_header: Option<u32>,
}

impl FoundZone {
    /// Whether there are blocks to be read.
    pub fn is_written(&self) -> bool {
        self.report.write_pointer > 0 && self.report.state != ZoneState::Offline
    }
}

/// A whole frame.
#[derive(Clone, Debug)]
pub struct FoundFrame {
    /// Its header.
    pub header: FrameHeader,
    /// Its zone.
    pub zone: ZoneId,
    /// Its first block.
    pub block: u32,
    /// Its payload where the device has it in none of two places; else it stays there, since all together are as large as all
    /// metadata.
    mended: Option<Vec<u8>>,
}

impl FoundFrame {
    /// Its payload.
    ///
    /// # Errors
    /// [`LfsError::Corrupt`] when it cannot be read again.
    pub fn payload(&self, dev: &dyn ZonedDevice) -> Result<Vec<u8>, LfsError> {
        let mut raw = Vec::new();
        let payload = self.read(dev, &mut raw)?;
        Ok(raw[payload].to_vec())
    }

    /// Reads it into a buffer; where its payload is there.
    fn read(&self, dev: &dyn ZonedDevice, raw: &mut Vec<u8>) -> Result<Range<usize>, LfsError> {
        if let Some(payload) = &self.mended {
            raw.clear();
            raw.extend_from_slice(payload);
            return Ok(0..payload.len());
        }
        let corrupt = || LfsError::Corrupt {
            zone: self.zone,
            block: self.block,
            what: "the frame that begins here was whole, and cannot be read again; try once more".to_string(),
        };
        raw.resize(self.header.blocks() as usize * BLOCK_BYTES, 0);
        dev.read(self.zone, self.block, raw).map_err(|_| corrupt())?;
        let payload = HEADER_BYTES..HEADER_BYTES + self.header.payload_len as usize;
        let is_whole = raw.get(payload.clone()).is_some_and(|raw| crc32c(raw) == self.header.payload_crc);
        if is_whole { Ok(payload) } else { Err(corrupt()) }
    }
}

/// Calls `act` with the payload of each frame, in their order. Another thread reads ahead.
///
/// # Errors
/// What `act` returns, which ends it.
pub fn with_payloads<E: Send>(
    dev: &dyn ZonedDevice,
    frames: &[&FoundFrame],
    mut act: impl FnMut(&FoundFrame, Result<&[u8], LfsError>) -> Result<(), E>,
) -> Result<(), E> {
    let mut act = |frame: &FoundFrame, raw: &[u8], read: Result<Range<usize>, LfsError>| {
        act(frame, read.map(|payload| &raw[payload]))
    };
    if frames.len() < 2 * READ_AHEAD {
        let mut raw = Vec::new();
        return frames.iter().try_for_each(|frame| {
            let read = frame.read(dev, &mut raw);
            act(frame, &raw, read)
        });
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(READ_AHEAD);
        let (returns, returned) = mpsc::channel::<Vec<u8>>();
        scope.spawn(move || {
            frames.iter().try_for_each(|frame| {
                let mut raw = returned.try_recv().unwrap_or_default();
                let read = frame.read(dev, &mut raw);
                // It ends when nobody takes any more.
                sender.send((*frame, raw, read))
            })
        });
        receiver.into_iter().try_for_each(|(frame, raw, read)| {
            let done = act(frame, &raw, read);
            // At the end, nobody takes it back.
            let _ = returns.send(raw);
            done
        })
    })
}

/// Frames that are read before they are used.
const READ_AHEAD: usize = 8;

/// A frame of which only the header can be read.
#[derive(Clone, Copy, Debug)]
pub struct BrokenFrame {
    /// Its header.
    pub header: FrameHeader,
    /// Its zone.
    pub zone: ZoneId,
    /// Its first block.
    pub block: u32,
}

/// Where the frames of a zone end before its write pointer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Break {
    /// The zone.
    pub zone: ZoneId,
    /// First block that is no frame.
    pub block: u32,
    /// Blocks from there to the next frame, or to the write pointer.
    pub blocks: u32,
    /// The header of the frame that begins here and that the write pointer cuts off: what a power cut leaves. A device keeps
    /// whole blocks below its write pointer, so anything else is damage.
    pub cut_off: Option<FrameHeader>,
}

/// What is on a device.
#[derive(Default, Debug)]
pub struct Scan {
    /// Every zone.
    pub zones: Vec<FoundZone>,
    /// Whole frames up to each zone's break, in the order in which they were written.
    pub frames: Vec<FoundFrame>,
    /// Whole frames behind a break. A power cut leaves none.
    pub stray: Vec<FoundFrame>,
    /// Whole frames in zones without a header that can be read. They may be what a program wrote to a file.
    pub headless: Vec<FoundFrame>,
    /// Frames of which only the header can be read.
    pub broken: Vec<BrokenFrame>,
    /// Those of them whose payload two damaged copies have between them.
    pub mended: Vec<FoundFrame>,
    /// The breaks.
    pub breaks: Vec<Break>,
    /// The volume.
    pub uuid: [u8; 16],
}

impl Scan {
    /// Every zone with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (ZoneId, &FoundZone)> {
        (0u32..).map(ZoneId).zip(&self.zones)
    }
}

/// Prints a UUID.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut out = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

/// Reads all headers and frames.
pub fn scan(dev: &dyn ZonedDevice) -> Result<Scan, LfsError> {
    let info = dev.info();
    let mut zones = Vec::with_capacity(info.zones as usize);
    let mut uuid: Option<[u8; 16]> = None;
    let mut raw = vec![0; HEADER_BLOCKS as usize * BLOCK_BYTES];
    for zone in (0..info.zones).map(ZoneId) {
        let mut found = FoundZone { report: dev.report(zone)?, header: None, bad_header: None };
        let copies = if found.is_written() { found.report.write_pointer.min(HEADER_BLOCKS) } else { 0 };
        read_each(dev, zone, &mut raw[..copies as usize * BLOCK_BYTES]);
        for (copy, block) in (0..copies).zip(raw.chunks_exact(BLOCK_BYTES)) {
            match ZoneHeader::decode(block) {
                Decoded::Header(header) => found.header = found.header.or(Some(header)),
                // The copy behind a whole header is of the same version, or damaged.
                Decoded::Unsupported(major) if found.header.is_none() => {
                    return Err(LfsError::UnsupportedVersion { zone, major, supported: MAJOR });
                }
                _ => found.bad_header = found.bad_header.or(Some(copy)),
            }
        }
        if let Some(header) = &found.header {
            let first = *uuid.get_or_insert(header.uuid);
            if first != header.uuid {
                let (found, expected) = (uuid_text(&header.uuid), uuid_text(&first));
                return Err(LfsError::WrongVolume { zone, found, expected });
            }
            if !header.fits(&info) || header.zone != zone {
                let shape = |zone, zones, blocks, capacity| {
                    format!("zone number {zone} of {zones}, {blocks} blocks apart, {capacity} writable")
                };
                return Err(LfsError::WrongShape {
                    zone,
                    found: shape(header.zone.0, header.zones, header.zone_blocks, header.zone_capacity),
                    expected: shape(zone.0, info.zones, info.zone_blocks, info.zone_capacity),
                });
            }
        }
        zones.push(found);
    }
    let Some(uuid) = uuid else { return Err(no_checkpoint(&zones)) };
    // A zone without its header may be one of metadata, too.
    let mut meta: Vec<(u64, ZoneId, u32)> = zones
        .iter()
        .enumerate()
        .filter(|(_, found)| found.is_written() && found.header.is_none_or(|h| h.kind == ZoneKind::Meta))
        .map(|(i, found)| {
            (found.header.map_or(u64::MAX, |h| h.sequence), ZoneId(i as u32), found.report.write_pointer)
        })
        .collect();
    meta.sort_unstable();
    let mut scan = Scan { zones, uuid, ..Scan::default() };
    let volume = volume_number(&uuid);
    let scan_all = |meta: &[(u64, ZoneId, u32)]| {
        let mut found = Frames::default();
        for (_, zone, end) in meta {
            let headless = scan.zones[zone.index()].header.is_none();
            scan_zone(dev, *zone, *end, volume, headless, &mut found);
        }
        found
    };
    let blocks: Vec<u32> = meta.iter().map(|(_, _, blocks)| *blocks).collect();
    let (one, other) = meta.split_at(first_half(&blocks));
    let (mut found, behind) = std::thread::scope(|scope| {
        let behind = (!other.is_empty()).then(|| scope.spawn(|| scan_all(other)));
        (scan_all(one), behind.map(|thread| thread.join()))
    });
    if let Some(behind) = behind {
        found.append(behind.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    }
    let Frames { frames, stray, headless, broken, breaks } = found;
    scan = Scan { frames, stray, headless, broken, breaks, ..scan };
    scan.mended = mend(dev, &scan.broken);
    Ok(scan)
}

/// Blocks in which two copies may differ; each is taken from either.
const DIFFERENT_BLOCKS_MAX: usize = 8;

/// A volume is closed with its checkpoint twice. Where both copies of a part are damaged, but not in the same blocks, each block is
/// whole in one of them, and the CRC of the payload, which both headers have, tells when all are found.
fn mend(dev: &dyn ZonedDevice, broken: &[BrokenFrame]) -> Vec<FoundFrame> {
    let mut mended = Vec::new();
    let parts: Vec<&BrokenFrame> = broken.iter().filter(|f| f.header.kind == FrameKind::Part).collect();
    for (at, one) in parts.iter().enumerate() {
        let same = |other: &&&BrokenFrame| {
            (one.header.payload_len, one.header.payload_crc)
                == (other.header.payload_len, other.header.payload_crc)
        };
        for other in parts.iter().skip(at + 1).filter(same) {
            let Some(payload) =
                join(read_payload(dev, one), read_payload(dev, other), one.header.payload_crc)
            else {
                continue;
            };
            mended.extend([one, other].map(|f| FoundFrame {
                header: f.header,
                zone: f.zone,
                block: f.block,
                mended: Some(payload.clone()),
            }));
        }
    }
    mended
}

/// The payload of a broken frame by the device's blocks; those that cannot be read are zeros.
fn read_payload(dev: &dyn ZonedDevice, frame: &BrokenFrame) -> Vec<Vec<u8>> {
    let end = HEADER_BYTES + frame.header.payload_len as usize;
    (0..frame.header.blocks())
        .map(|i| {
            let mut raw = vec![0; BLOCK_BYTES];
            if dev.read(frame.zone, frame.block + i, &mut raw).is_err() {
                raw.fill(0);
            }
            let first = i as usize * BLOCK_BYTES;
            let from = if i == 0 { HEADER_BYTES } else { 0 };
            raw.get(from..BLOCK_BYTES.min(end.saturating_sub(first))).unwrap_or(&[]).to_vec()
        })
        .collect()
}

/// The payload with this CRC that has each block from one of two copies.
fn join(one: Vec<Vec<u8>>, other: Vec<Vec<u8>>, crc: u32) -> Option<Vec<u8>> {
    let different: Vec<usize> = (0..one.len()).filter(|&i| one.get(i) != other.get(i)).collect();
    if different.len() > DIFFERENT_BLOCKS_MAX {
        return None;
    }
    (0u32..1 << different.len()).find_map(|choice| {
        let mut blocks: Vec<&Vec<u8>> = one.iter().collect();
        for (bit, &i) in different.iter().enumerate() {
            if choice >> bit & 1 == 1 {
                blocks[i] = other.get(i)?;
            }
        }
        let payload: Vec<u8> = blocks.into_iter().flatten().copied().collect();
        (crc32c(&payload) == crc).then_some(payload)
    })
}

/// The error of a device without a checkpoint. One that is written is not taken for a new one.
pub fn no_checkpoint(found: &[FoundZone]) -> LfsError {
    let zones = found.len() as u32;
    match found.iter().filter(|zone| zone.is_written()).count() as u32 {
        0 => LfsError::NotAVolume { zones },
        written => LfsError::NoCheckpoint { zones, written },
    }
}

/// Blocks of metadata from which on two threads look for frames.
const SHARED_FROM_BLOCKS: u64 = (64 << 20) / BLOCK_BYTES as u64;

/// How many of these zones a first thread has to look at, so that a second one has about as much to do with the others.
fn first_half(blocks: &[u32]) -> usize {
    let all: u64 = blocks.iter().copied().map(u64::from).sum();
    if all < SHARED_FROM_BLOCKS {
        return blocks.len();
    }
    let mut before = 0;
    let is_half = |blocks: &u32| {
        before += u64::from(*blocks);
        before >= all / 2
    };
    blocks.iter().position(is_half).map_or(0, |last| last + 1)
}

/// Reads the first blocks of a zone; those that cannot be read are zeros.
fn read_each(dev: &dyn ZonedDevice, zone: ZoneId, out: &mut [u8]) {
    if dev.read(zone, 0, out).is_ok() {
        return;
    }
    for (at, block) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        if dev.read(zone, at as u32, block).is_err() {
            block.fill(0);
        }
    }
}

/// The number by which frames name their volume.
pub fn volume_number(uuid: &[u8; 16]) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&uuid[..8]);
    u64::from_le_bytes(raw)
}

/// What stands in zones, as in [`Scan`].
#[derive(Default)]
struct Frames {
    frames: Vec<FoundFrame>,
    stray: Vec<FoundFrame>,
    headless: Vec<FoundFrame>,
    broken: Vec<BrokenFrame>,
    breaks: Vec<Break>,
}

impl Frames {
    /// Adds what stands in later zones.
    fn append(&mut self, later: Frames) {
        self.frames.extend(later.frames);
        self.stray.extend(later.stray);
        self.headless.extend(later.headless);
        self.broken.extend(later.broken);
        self.breaks.extend(later.breaks);
    }
}

fn scan_zone(dev: &dyn ZonedDevice, zone: ZoneId, end: u32, volume: u64, headless: bool, scan: &mut Frames) {
    let mut raw = Vec::new();
    let mut at = HEADER_BLOCKS;
    // The break of this zone, by its place in the list, and whether it still goes on.
    let mut broken: Option<(usize, bool)> = None;
    while at < end {
        let found = read_frame(dev, zone, at, end, volume, &mut raw);
        let blocks = match &found {
            Found::Frame(frame) => frame.header.blocks(),
            Found::Broken(frame) => frame.header.blocks(),
            _ => 1,
        };
        match found {
            Found::Frame(frame) if headless => scan.headless.push(frame),
            Found::Frame(frame) => {
                let list = if broken.is_some() { &mut scan.stray } else { &mut scan.frames };
                list.push(frame);
                broken = broken.map(|(place, _)| (place, false));
            }
            _ if headless => {}
            found => {
                match broken {
                    None => {
                        broken = Some((scan.breaks.len(), true));
                        let cut_off = if let Found::CutOff(header) = found { Some(header) } else { None };
                        scan.breaks.push(Break { zone, block: at, blocks, cut_off });
                    }
                    Some((place, true)) => scan.breaks[place].blocks += blocks,
                    Some(_) => {}
                }
                if let Found::Broken(frame) = found {
                    scan.broken.push(frame);
                }
            }
        }
        at += blocks;
    }
}

/// What stands at a block.
enum Found {
    Frame(FoundFrame),
    Broken(BrokenFrame),
    CutOff(FrameHeader),
    Nothing,
}

fn read_frame(
    dev: &dyn ZonedDevice,
    zone: ZoneId,
    at: u32,
    end: u32,
    volume: u64,
    raw: &mut Vec<u8>,
) -> Found {
    raw.resize(BLOCK_BYTES, 0);
    if dev.read(zone, at, raw).is_err() {
        return Found::Nothing;
    }
    let Some(header) = FrameHeader::decode(raw).filter(|h| h.volume == volume) else {
        return Found::Nothing;
    };
    let blocks = header.blocks();
    if blocks > end - at {
        return Found::CutOff(header);
    }
    if blocks > 1 {
        raw.resize(blocks as usize * BLOCK_BYTES, 0);
        if dev.read(zone, at + 1, &mut raw[BLOCK_BYTES..]).is_err() {
            return Found::Broken(BrokenFrame { header, zone, block: at });
        }
    }
    match raw.get(HEADER_BYTES..HEADER_BYTES + header.payload_len as usize) {
        Some(payload) if crc32c(payload) == header.payload_crc => {
            Found::Frame(FoundFrame { header, zone, block: at, mended: None })
        }
        _ => Found::Broken(BrokenFrame { header, zone, block: at }),
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use weft_core::Tag;
    use weft_device::{Geometry, ZonedModel};

    const UUID: [u8; 16] = [5; 16];

    fn frame(seq: u64, len: usize) -> Vec<u8> {
        let payload = vec![seq as u8; len];
        let header = FrameHeader {
            kind: FrameKind::Entry,
            clean: false,
            epoch: 1,
            seq,
            flushed_upto: 0,
            volume_bytes: 0,
            payload_len: len as u32,
            payload_crc: crc32c(&payload),
            volume: volume_number(&UUID),
            parts: 0,
        };
        let mut raw = header.encode().to_vec();
        raw.extend(payload);
        raw.resize(raw.len().next_multiple_of(BLOCK_BYTES), 0);
        raw
    }

    /// A device whose zone `i` holds a header and these blocks.
    fn device(zones: &[Vec<u8>]) -> ZonedModel {
        let device = ZonedModel::memory(&Geometry::zn540().with_size(64 << 20)).unwrap();
        let info = device.info();
        for (i, blocks) in zones.iter().enumerate() {
            let zone = ZoneId(i as u32);
            let header = ZoneHeader {
                uuid: UUID,
                kind: ZoneKind::Meta,
                sequence: i as u64 + 1,
                epoch: 1,
                tag: Tag::METADATA,
                zone,
                zones: info.zones,
                zone_blocks: info.zone_blocks,
                zone_capacity: info.zone_capacity,
            };
            device.write(zone, 0, &header.encode(), &Tag::METADATA).unwrap();
            device.write(zone, HEADER_BLOCKS, blocks, &Tag::METADATA).unwrap();
        }
        device
    }

    #[test]
    fn frames_count_up_to_the_first_block_that_is_none_and_those_behind_it_are_stray() {
        let noise = vec![0xcc; BLOCK_BYTES];
        let zones = [
            [frame(1, 10), frame(2, 5000), frame(3, 4000)].concat(),
            [frame(4, 10), noise.clone(), frame(5, 9000), noise.clone(), noise.clone(), frame(6, 1)].concat(),
            // The frame says three blocks, and two are there.
            [frame(7, 10), frame(8, 9000)[..2 * BLOCK_BYTES].to_vec()].concat(),
            frame(9, 20_000)[..BLOCK_BYTES].to_vec(),
        ];
        let device = device(&zones);
        let scan = scan(&device).unwrap();
        let found = |frames: &[FoundFrame]| -> Vec<(u64, u32, u32)> {
            frames.iter().map(|f| (f.header.seq, f.zone.0, f.block)).collect()
        };
        assert_eq!(found(&scan.frames), [(1, 0, 2), (2, 0, 3), (3, 0, 5), (4, 1, 2), (7, 2, 2)]);
        assert_eq!(found(&scan.stray), [(5, 1, 4), (6, 1, 9)]);
        let breaks = scan.breaks.iter().map(|at| (at.zone.0, at.block, at.blocks, at.cut_off.map(|h| h.seq)));
        assert_eq!(breaks.collect::<Vec<_>>(), [(1, 3, 1, None), (2, 3, 2, Some(8)), (3, 2, 1, Some(9))]);
        assert!(
            scan.frames
                .iter()
                .all(|f| f.payload(&device).unwrap()
                    == vec![f.header.seq as u8; f.header.payload_len as usize])
        );
    }

    #[test]
    fn a_second_thread_helps_when_there_is_much_to_look_at() {
        assert_eq!(first_half(&[]), 0);
        assert_eq!(first_half(&[100; 9]), 9);
        assert_eq!(first_half(&[8192; 4]), 2);
        assert_eq!(first_half(&[16_384]), 1);
        assert_eq!(first_half(&[1, 1, 1, 30_000]), 4);
        assert_eq!(first_half(&[30_000, 1, 1, 1]), 1);
    }

    #[test]
    fn a_frame_whose_payload_changed_is_a_break_and_not_one_that_a_power_cut_left() {
        let mut damaged = frame(2, 9000);
        damaged[5000] ^= 1;
        let scan = scan(&device(&[[frame(1, 10), damaged].concat()])).unwrap();
        assert_eq!(scan.frames.len(), 1);
        assert_eq!(scan.breaks, [Break { zone: ZoneId(0), block: 3, blocks: 3, cut_off: None }]);
        let broken: Vec<_> = scan.broken.iter().map(|f| (f.header.seq, f.block)).collect();
        assert_eq!(broken, [(2, 3)]);
    }

    #[test]
    fn a_part_of_a_checkpoint_that_is_damaged_in_other_blocks_of_each_copy_is_put_together() {
        let payload: Vec<u8> = (0..30_000u32).map(|at| (at / 7) as u8).collect();
        let part = |seq| {
            let mut raw = frame(seq, payload.len());
            let header = FrameHeader {
                kind: FrameKind::Part,
                payload_crc: crc32c(&payload),
                ..FrameHeader::decode(&raw).unwrap()
            };
            raw[..HEADER_BYTES].copy_from_slice(&header.encode());
            raw[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            raw
        };
        let damaged = |flips: [&[usize]; 2]| {
            let mut copies = [part(5), part(9)];
            for (copy, at) in copies.iter_mut().zip(flips) {
                at.iter().for_each(|&at| copy[at] ^= 4);
            }
            scan(&device(&copies)).unwrap()
        };
        let found = damaged([&[100, 9000], &[5000, 28_000]]);
        assert!(found.frames.is_empty());
        let mended: Vec<_> = found
            .mended
            .iter()
            .map(|f| (f.header.seq, f.zone.0, f.mended.as_ref() == Some(&payload)))
            .collect();
        assert_eq!(mended, [(5, 0, true), (9, 1, true)]);
        assert!(damaged([&[9000], &[9001]]).mended.is_empty(), "nothing has this block");
        assert!(damaged([&[9000], &[]]).mended.is_empty(), "one copy is whole");
    }
}
