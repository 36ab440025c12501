//! The [append log](weft_core::append_log) of a volume's image: what clients make durable without the server.
//!
//! A server that ends well has made everything durable where it belongs, and closes the log. Otherwise the next mount stores
//! what the log holds. An entry says what a file has in a range, and nothing changes this range between the entry and the end
//! of its turn but the same bytes; so it does no harm to store an entry twice, or what is there already.

use crate::error::VolumeError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_core::BLOCK_BYTES;
use weft_core::append_log::{LogHead, Turn, entries};
use weft_device::{AppendLogPlace, ZonedModel};
use weft_sys::AlignedBuf;
use weft_sys::file::{DirectFile, try_record_lock};
use weft_vfs::{FileKind, FileSystem, FsError, FsResult, SetAttr, TimeSpec};

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
}

/// The newest head of a log, if any is whole.
fn newest_head(place: &AppendLogPlace<'_>) -> io::Result<Option<LogHead>> {
    let mut newest: Option<LogHead> = None;
    for at in heads_at(place.bytes.start, place.bytes.end - place.bytes.start) {
        let mut block = vec![0; BLOCK_BYTES];
        place.file.read_exact_at(&mut block, at)?;
        let head = LogHead::decode(&block, place.image);
        if head.is_some_and(|head| newest.is_none_or(|known| known.count < head.count)) {
            newest = head;
        }
    }
    Ok(newest)
}

/// Where the two heads are.
fn heads_at(offset: u64, bytes: u64) -> [u64; 2] {
    [offset, offset + bytes - BLOCK_BYTES as u64]
}

impl Pending {
    /// What the log of a device holds; `None` when it holds nothing.
    pub fn of(device: &ZonedModel) -> io::Result<Option<Pending>> {
        let Some(place) = device.append_log() else { return Ok(None) };
        let Some(head) = newest_head(&place)?.filter(|head| head.is_live) else { return Ok(None) };
        let mut bytes = vec![0; (place.bytes.end - place.bytes.start) as usize];
        place.file.read_exact_at(&mut bytes, place.bytes.start)?;
        let has_any = entries(&bytes, &head.turn).next().is_some();
        Ok(has_any.then_some(Pending { bytes, turn: head.turn }))
    }

    /// Stores what the log holds, durably.
    pub fn store(&self, fs: &dyn FileSystem) -> FsResult<()> {
        let (mut stored, mut bytes) = (0u64, 0u64);
        for (append, data) in entries(&self.bytes, &self.turn) {
            let attr = match fs.getattr(append.ino) {
                Ok(attr) if attr.kind == FileKind::File => attr,
                // It was removed since.
                Ok(_) | Err(FsError::NotFound) => continue,
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
            if fs.read(append.ino, append.offset, &mut there)? == data.len() && there == data {
                continue;
            }
            fs.write(append.ino, append.offset, data)?;
            let mtime = Some(TimeSpec(append.mtime_ns.max(attr.mtime.0)));
            fs.setattr(append.ino, &SetAttr { mtime, ..SetAttr::default() })?;
            (stored, bytes) = (stored + 1, bytes + data.len() as u64);
        }
        tracing::info!(entries = stored, bytes, "stored what programs had made durable in the append log");
        fs.sync()
    }
}

impl AppendLog {
    /// The log of a device; `None` where there is none that may be written to: no image in a file, one that is only looked at, or
    /// no direct writes.
    pub fn of(device: &ZonedModel) -> io::Result<Option<AppendLog>> {
        let Some(place) = device.append_log().filter(|place| place.lasting) else { return Ok(None) };
        let Ok(file) = DirectFile::of(place.file) else { return Ok(None) };
        let heads = newest_head(&place)?.map_or(0, |head| head.count);
        let (offset, bytes) = (place.bytes.start, place.bytes.end - place.bytes.start);
        Ok(Some(AppendLog {
            file,
            offset,
            bytes,
            image: place.image,
            heads: AtomicU64::new(heads),
            is_begun: AtomicBool::new(false),
        }))
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

    /// Blocks of the log, those of its heads included.
    pub fn blocks(&self) -> u32 {
        (self.bytes / BLOCK_BYTES as u64) as u32
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

/// Stores what the log of an image holds, if it holds anything; whether it did.
pub(crate) fn store_pending(
    pending: Option<&Pending>,
    fs: &dyn FileSystem,
    name: &str,
) -> Result<bool, VolumeError> {
    let Some(pending) = pending else { return Ok(false) };
    pending.store(fs).map_err(|source| VolumeError::AppendLog { volume: name.to_string(), source })?;
    Ok(true)
}
