//! The [append log](weft_core::append_log) of a volume's image: what clients make durable without the server.
//!
//! A server that ends well has made everything durable where it belongs, and closes the log. Otherwise the next mount stores
//! what the log holds, in order. An entry says what a file had in a range. Until the end of its turn, nothing that was promised
//! to be durable changes this range but later entries; so it does no harm to store all entries twice, or what is there already.

use crate::error::VolumeError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_core::BLOCK_BYTES;
use weft_core::append_log::{LogHead, Turn, entries};
use weft_device::{AppendLogPlace, ZonedModel};
use weft_lfs::Lfs;
use weft_sys::AlignedBuf;
use weft_sys::file::{DirectFile, try_record_lock};
use weft_vfs::{FileKind, FileSystem, FsError, FsResult, SetAttr, TimeSpec};

/// Blocks of a log below which it is not worth its turns.
const BLOCKS_MIN: u32 = 34;

/// What is in the log of an image when it is opened.
pub(crate) struct Pending {
    /// The log, heads included; empty when nothing in it counts.
    bytes: Vec<u8>,
    turn: Turn,
}

/// The log of an image that is open for writing.
#[derive(Debug)]
pub struct AppendLog {
    file: DirectFile,
    offset: u64,
    bytes: u64,
    image: [u8; 16],
    /// Heads that were written to the image.
    heads: AtomicU64,
    is_begun: AtomicBool,
    /// Entries hold bytes that could not be stored where they belong.
    is_kept: AtomicBool,
    /// Blocks that may be used, those of the first head and, of as many, the last included.
    blocks: u32,
}

/// The newest head of a log, if any is whole.
fn newest_head(place: &AppendLogPlace<'_>) -> Option<LogHead> {
    let mut newest: Option<LogHead> = None;
    for at in heads_at(place.bytes.start, place.bytes.end - place.bytes.start) {
        let mut block = vec![0; BLOCK_BYTES];
        if let Err(error) = place.file.read_exact_at(&mut block, at) {
            tracing::error!(%error, at, "a head of the append log cannot be read");
            continue;
        }
        let head = LogHead::decode(&block, place.image);
        if head.is_some_and(|head| newest.is_none_or(|known| known.count < head.count)) {
            newest = head;
        }
    }
    newest
}

/// Where the two heads are.
fn heads_at(offset: u64, bytes: u64) -> [u64; 2] {
    [offset, offset + bytes - BLOCK_BYTES as u64]
}

impl Pending {
    /// What the log of a device holds; `None` when it was closed. One that was not and holds nothing counts, too: a program of the
    /// server that was killed may be about to write to it.
    pub fn of(device: &ZonedModel) -> Option<Pending> {
        let place = device.append_log()?;
        let head = newest_head(&place).filter(|head| head.is_live)?;
        let mut bytes = vec![0; (place.bytes.end - place.bytes.start) as usize];
        if let Err(error) = place.file.read_exact_at(&mut bytes, place.bytes.start) {
            tracing::error!(%error, "parts of the append log cannot be read");
            for (block, part) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
                let at = place.bytes.start + (block * BLOCK_BYTES) as u64;
                if place.file.read_exact_at(part, at).is_err() {
                    part.fill(0);
                }
            }
        }
        Some(Pending { bytes, turn: head.turn })
    }

    /// Whether it holds anything.
    pub fn has_any(&self) -> bool {
        entries(&self.bytes, &self.turn).next().is_some()
    }

    /// Stores what the log holds, durably.
    pub fn store(&self, fs: &dyn FileSystem) -> FsResult<()> {
        let (mut stored, mut bytes) = (0u64, 0u64);
        for (append, data) in entries(&self.bytes, &self.turn) {
            let attr = match fs.getattr(append.ino) {
                Ok(attr) if attr.kind == FileKind::File => attr,
                // It was removed since.
                Ok(_) | Err(FsError::NotFound | FsError::Stale) => continue,
                Err(error) => return Err(error),
            };
            if append.offset > attr.size {
                tracing::error!(
                    ino = append.ino.0,
                    offset = append.offset,
                    size = attr.size,
                    "bytes that were made durable are missing before others"
                );
                continue;
            }
            let mut there = vec![0; data.len()];
            let set_mtime = || {
                let mtime = Some(TimeSpec(append.mtime_ns.max(attr.mtime.0)));
                fs.setattr(append.ino, &SetAttr { mtime, ..SetAttr::default() })
            };
            match fs.read(append.ino, append.offset, &mut there) {
                Ok(read) if read == data.len() && there == data => {
                    if append.mtime_ns > attr.mtime.0 {
                        set_mtime()?;
                    }
                    continue;
                }
                Ok(_) | Err(FsError::Checksum(_)) => {}
                Err(error) => return Err(error),
            }
            let write = || fs.write(append.ino, append.offset, data);
            let written = match write() {
                // What is buffered takes more room than what is stored.
                Err(FsError::NoSpace) => fs.sync().and_then(|()| write()),
                written => written,
            };
            match written {
                Ok(()) => {}
                // It is damaged where they would go, as reading it will tell.
                Err(FsError::Checksum(why)) => {
                    tracing::error!(
                        ino = append.ino.0,
                        why,
                        "a damaged file loses bytes that were written to it"
                    );
                    continue;
                }
                Err(error) => return Err(error),
            }
            // The time of a write is later than that of the one before; where the client did not know it, this one's stays.
            if append.mtime_ns != 0 {
                set_mtime()?;
            }
            (stored, bytes) = (stored + 1, bytes + data.len() as u64);
        }
        if stored > 0 {
            tracing::info!(
                entries = stored,
                bytes,
                "stored what programs had made durable in the append log"
            );
        }
        fs.sync()
    }
}

impl AppendLog {
    /// The log of a device; `None` where there is none that may be written to: no image in a file, one that is only looked at, or
    /// no direct writes.
    pub fn of(device: &ZonedModel) -> Option<AppendLog> {
        let place = device.append_log().filter(|place| place.lasting)?;
        let file = DirectFile::of(place.file).ok()?;
        let heads = newest_head(&place).map_or(0, |head| head.count);
        let (offset, bytes) = (place.bytes.start, place.bytes.end - place.bytes.start);
        Some(AppendLog {
            file,
            offset,
            bytes,
            image: place.image,
            heads: AtomicU64::new(heads),
            is_begun: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            blocks: (bytes / BLOCK_BYTES as u64) as u32,
        })
    }

    /// The same with no more entries than a full volume has room for at the next mount.
    pub(crate) fn within(self, bytes: u64) -> Option<AppendLog> {
        let blocks = u64::from(self.blocks).min(bytes / BLOCK_BYTES as u64) as u32;
        (blocks >= BLOCKS_MIN).then_some(AppendLog { blocks, ..self })
    }

    /// Keeps later servers from using the log as long as this opening of it lives, here or in a client; false when that of an
    /// earlier server does.
    pub fn claim(&self) -> io::Result<bool> {
        try_record_lock(self.file.file())
    }

    /// The image's id.
    pub fn image(&self) -> [u8; 16] {
        self.image
    }

    /// Where the log begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Blocks of the log that may be used, those of two heads included.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Entries hold the only copy of accepted bytes: they count until the next mount has stored them.
    pub fn keep(&self) {
        self.is_kept.store(true, Relaxed);
    }

    /// Whether they do.
    pub fn holds_the_only_copy(&self) -> bool {
        self.is_kept.load(Relaxed)
    }

    /// The descriptor by which clients write to it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.file().as_fd()
    }

    /// Only entries of this turn count from now on, durably.
    pub fn begin(&self, turn: Turn) -> io::Result<()> {
        self.is_begun.store(true, Relaxed);
        self.write_heads(turn, true)
    }

    /// Whether a turn has begun, so that there may be entries.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Relaxed)
    }

    /// No entry counts any more in the log of a device that nobody serves. Without direct writes, which only clients need.
    pub(crate) fn close_of(device: &ZonedModel) -> io::Result<()> {
        let Some(place) = device.append_log().filter(|place| place.lasting) else { return Ok(()) };
        let count = newest_head(&place).map_or(0, |head| head.count) + 1;
        let turn = Turn { image: place.image, session: 0, number: 0 };
        let block = LogHead { turn, count, is_live: false }.encode();
        let heads = heads_at(place.bytes.start, place.bytes.end - place.bytes.start);
        heads.into_iter().try_for_each(|at| place.file.write_all_at(&block, at))?;
        place.file.sync_data()
    }

    /// No entry counts any more.
    pub fn close(&self) -> io::Result<()> {
        self.write_heads(Turn { image: self.image, session: 0, number: 0 }, false)
    }

    fn write_heads(&self, turn: Turn, is_live: bool) -> io::Result<()> {
        let head = LogHead { turn, count: self.heads.fetch_add(1, Relaxed) + 1, is_live };
        let block = head.encode();
        debug_assert_eq!(LogHead::decode(&block, self.image), Some(head));
        let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
        buffer.copy_from_slice(&block);
        heads_at(self.offset, self.bytes).into_iter().try_for_each(|at| self.file.write_durably(&buffer, at))
    }
}

/// Stores what the log of an image holds.
pub(crate) fn store_pending(pending: &Pending, lfs: &Lfs, name: &str) -> Result<(), VolumeError> {
    if !pending.has_any() {
        return Ok(());
    }
    // What was freed before these bytes were accepted may not have been durable.
    let stored = lfs.beyond_full(|| pending.store(lfs));
    stored.map_err(|source| VolumeError::AppendLog { volume: name.to_string(), source })
}
