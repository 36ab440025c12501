//! Where the blocks lie: in an image, or in memory that can be cloned without copying.

use crate::DeviceError;
use crate::flushlog::FlushLog;
use crate::image::header::{self, Header, SESSION_OFFSET, Session};
use crate::image::log::{self, Entry};
use crate::image::slot::{Content, TornSlots};
use crate::image::spare::{self, Spare};
use crate::image::table::Table;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::BLOCK_BYTES;
use weft_sys::file::{DirectFile, LockedFile, boot_id, memory_file};

/// Bytes that creation writes at once, and after which it reports progress.
const CREATE_CHUNK_BYTES: usize = 4 << 20;

/// An open image.
#[derive(Debug)]
pub struct Image {
    /// The zone table. Before the file, so that it is unmapped before the lock goes.
    pub table: Table,
    /// The file, locked.
    pub file: LockedFile,
    /// Its path, for errors.
    pub path: PathBuf,
    /// Byte offset of the data area.
    pub base: u64,
    /// Bytes from one zone to the next.
    stride: u64,
    /// The second copy of what stands before the data.
    spare: Spare,
    /// Whether the copy of the records is that of the image as it was closed.
    spare_counts: bool,
    /// How it is being used.
    session: Session,
    /// Whether it can outlive this boot, so that durability has a meaning.
    pub lasting: bool,
    /// What is written to an image that is only looked at: it stays in memory.
    changes: Option<RwLock<Changes>>,
    /// The log of small flushes; none where the file system has no direct writes, or after one failed.
    pub log: Mutex<Option<Box<FlushLog>>>,
}

/// Blocks by their offset in the image.
type Changes = HashMap<u64, Box<[u8]>>;

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// To be changed, by nobody else meanwhile.
    Change,
    /// To be looked at, by others too; what is written is gone when it is closed.
    Look,
}

/// An image and how far what it says may be believed.
pub struct Opened {
    pub image: Image,
    /// What its header says.
    pub header: Header,
    /// Whether the host went down while it was in use: what was not flushed may be lost or half written.
    pub host_crashed: bool,
    /// The flushes of the log that have to be played back, oldest first.
    pub flushed: Vec<Entry>,
    /// Whether a copy of the header page has to be written anew.
    pub header_damaged: bool,
}

impl Image {
    /// Makes a new image; all of it is written, so that later writes change no file-system metadata.
    pub fn create(
        path: &Path,
        header: &Header,
        overwrite: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Image, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        let file = make(path, overwrite)?;
        let filled = fill_with_zeros(&file, header::image_bytes(&header.geometry), progress);
        if let Err(source) = filled {
            // A disk that is full is not left full. What stood there before was given up with `overwrite`.
            let _ = file.set_len(0);
            if !overwrite {
                let _ = std::fs::remove_file(path);
            }
            return Err(io(source));
        }
        Image::fresh(file, path, header, true)
    }

    /// Makes a new image in memory.
    pub fn memory_file(header: &Header) -> Result<Image, DeviceError> {
        let path = PathBuf::from("(memory)");
        let file = memory_file("weft-device", header::image_bytes(&header.geometry))
            .map_err(|source| DeviceError::Io { path: path.clone(), source })?;
        let file = lock(file, &path)?;
        Image::fresh(file, &path, header, false)
    }

    /// Fills the pages of an image whose bytes are all zero; the table's records are left to the caller.
    fn fresh(file: LockedFile, path: &Path, header: &Header, lasting: bool) -> Result<Image, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        let table = Table::map(&file, header.id, header.geometry.zones()).map_err(io)?;
        let session = Session { clean: false, boot: boot_id().unwrap_or_default(), opens: 1 };
        let spare = Spare::of(header);
        for place in [SESSION_OFFSET, spare.session()] {
            file.write_all_at(&session.encode(), place).map_err(io)?;
        }
        let log = lasting.then(|| flush_log(&file, header, session.opens)).flatten();
        Ok(Image {
            log: Mutex::new(log),
            file,
            path: path.to_path_buf(),
            table,
            base: header::data_offset(header.geometry.zones()),
            stride: header.geometry.zone_bytes,
            spare,
            spare_counts: false,
            session,
            lasting,
            changes: None,
        })
    }

    /// Writes the header page, which makes the file an image, and makes everything durable.
    pub fn commit_header(&self, header: &Header) -> Result<(), DeviceError> {
        for place in [self.spare.header(), 0] {
            self.file.write_all_at(&header.encode(), place).map_err(|e| self.io(e))?;
        }
        self.sync()
    }

    /// Opens an image and takes its lock.
    pub fn open(path: &Path, purpose: Use) -> Result<Opened, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        let bad = |what: String| DeviceError::BadImage { path: path.to_path_buf(), what };
        let file = match purpose {
            Use::Change => lock(OpenOptions::new().read(true).write(true).open(path).map_err(io)?, path)?,
            Use::Look => lock_to_look(File::open(path).map_err(io)?, path)?,
        };
        let mut page = vec![0u8; header::PAGE_BYTES];
        let found = read_up_to(&file, &mut page, 0);
        let decoded = match &found {
            Ok(found) => Header::decode(&page[..*found]),
            Err(error) => Err(format!("the header cannot be read: {error}")),
        };
        let header_damaged = decoded.is_err();
        let header = match decoded {
            Ok(header) => header,
            Err(what) => spare::header_of(&file).ok_or_else(|| bad(what))?,
        };
        let spare = Spare::of(&header);
        let mut copy = vec![0u8; header::PAGE_BYTES];
        let copied = file.read_exact_at(&mut copy, spare.header());
        let header_damaged = header_damaged || copied.is_err() || copy != header.encode();
        let length = file.metadata().map_err(io)?.len();
        let wanted = header::image_bytes(&header.geometry);
        let base = header::data_offset(header.geometry.zones());
        if length < wanted && (purpose == Use::Change || length < base) {
            return Err(bad(cut_short(length, wanted)));
        }
        if length < wanted {
            tracing::warn!(image = %path.display(), "{}", cut_short(length, wanted));
        }
        let sessions = [SESSION_OFFSET, spare.session()].map(|place| session_at(&file, place));
        // A crash of the host may have caught the two between: an opening that is in one of them took place.
        let newest = sessions.iter().flatten().max_by_key(|session| (session.opens, !session.clean)).copied();
        let last = newest.ok_or_else(|| bad(NO_SESSION.into()))?;
        let host_crashed = crashed(&last);
        let spare_counts = last.clean && sessions.iter().flatten().all(|session| *session == last);
        let mut flushed = Vec::new();
        if host_crashed {
            let mut bytes = vec![0; log::log_bytes(&header.geometry) as usize];
            let read = file.read_exact_at(&mut bytes, header::log_offset(&header.geometry));
            if purpose == Use::Change {
                read.map_err(io)?;
            }
            flushed = log::entries(&bytes, header.id, last.opens);
        }
        readable(&file, base).map_err(|error| {
            bad(format!(
                "the pages before the data cannot all be read ({error}); copy the image with a tool that goes on behind \
                 errors, such as ddrescue: what is missing is there twice"
            ))
        })?;
        let map = match purpose {
            Use::Change => Table::map,
            Use::Look => Table::map_private,
        };
        let table = map(&file, header.id, header.geometry.zones()).map_err(io)?;
        let session =
            Session { clean: false, boot: boot_id().unwrap_or_default(), opens: last.opens.wrapping_add(1) };
        let stride = header.geometry.zone_bytes;
        let (log, changes) = match purpose {
            Use::Change => (flush_log(&file, &header, session.opens), None),
            Use::Look => (None, Some(RwLock::default())),
        };
        let (path, log, lasting) = (path.to_path_buf(), Mutex::new(log), purpose == Use::Change);
        let image =
            Image { file, path, table, base, stride, spare, spare_counts, session, lasting, log, changes };
        Ok(Opened { image, header, host_crashed, flushed, header_damaged })
    }

    /// Writes down that the image is in use under this boot, and makes everything in it durable. Comes after recovery:
    /// until then another crash has to find the session that the first one left.
    pub fn begin_session(&self) -> Result<(), DeviceError> {
        if self.is_only_looked_at() {
            return Ok(());
        }
        self.write_session(&self.session)?;
        self.sync()
    }

    fn write_session(&self, session: &Session) -> Result<(), DeviceError> {
        for place in [self.spare.session(), SESSION_OFFSET] {
            self.file.write_all_at(&session.encode(), place).map_err(|e| self.io(e))?;
        }
        Ok(())
    }

    /// A zone's record from its second copy, if that is of the image as it was closed.
    pub fn spare_zone(&self, zone: u32) -> Option<Content> {
        let words = self.spare.zone(&self.file, zone).filter(|_| self.spare_counts)?;
        self.table.zone_in(&words, zone).map(|(content, _)| content)
    }

    /// The counters from their second copy, which may be older than the image.
    pub fn spare_counters(&self) -> Option<Content> {
        let words = self.spare.counters(&self.file)?;
        self.table.counters_in(&words).map(|(content, _)| content)
    }

    /// Writes down that everything is durable and the image no longer in use.
    pub fn end_session(&self) -> Result<(), DeviceError> {
        if self.is_only_looked_at() {
            return Ok(());
        }
        // Before any session page says that the copy is that of the table, it has to be.
        self.spare.copy_records(&self.file, self.table.words()).map_err(|e| self.io(e))?;
        if self.lasting {
            self.sync()?;
        }
        self.write_session(&Session { clean: true, ..self.session })
    }

    /// Whether the file is not to be changed.
    pub fn is_only_looked_at(&self) -> bool {
        self.changes.is_some()
    }

    /// Makes data and table durable.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|e| self.io(e))
    }

    /// Makes the table durable, without the data.
    pub fn sync_table(&self) -> Result<(), DeviceError> {
        self.table.sync().map_err(|e| self.io(e))
    }

    /// How a zone's record may be read.
    pub fn torn_slots(host_crashed: bool) -> TornSlots {
        if host_crashed { TornSlots::TakeOther } else { TornSlots::Refuse }
    }

    /// The error of a damaged record.
    pub fn damaged(&self, what: impl std::fmt::Display) -> DeviceError {
        DeviceError::BadImage {
            path: self.path.clone(),
            what: format!(
                "the record of {what} is damaged; 'weft salvage IMAGE NEW' copies what can be read"
            ),
        }
    }

    /// Writes whole blocks of a zone.
    pub fn write(&self, zone: u32, at: u32, data: &[u8]) -> Result<(), DeviceError> {
        let offset = self.offset(zone, at);
        let Some(changes) = &self.changes else {
            return self.file.write_all_at(data, offset).map_err(|e| self.io(e));
        };
        let mut changes = changes.write();
        for (block, at) in data.chunks(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES)) {
            changes.insert(at, block.into());
        }
        Ok(())
    }

    /// Reads whole blocks of a zone.
    pub fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let offset = self.offset(zone, at);
        self.file.read_exact_at(out, offset).map_err(|e| self.io(e))?;
        if let Some(changes) = &self.changes {
            let changes = changes.read();
            for (block, at) in out.chunks_mut(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES)) {
                if let Some(changed) = changes.get(&at) {
                    block.copy_from_slice(changed);
                }
            }
        }
        Ok(())
    }

    fn offset(&self, zone: u32, at: u32) -> u64 {
        self.base + u64::from(zone) * self.stride + u64::from(at) * BLOCK_BYTES as u64
    }

    fn io(&self, source: io::Error) -> DeviceError {
        DeviceError::Io { path: self.path.clone(), source }
    }
}

/// The log of small flushes, where direct writes are possible.
fn flush_log(file: &LockedFile, header: &Header, session: u64) -> Option<Box<FlushLog>> {
    match DirectFile::of(file) {
        Ok(direct) => {
            let (offset, bytes) = (header::log_offset(&header.geometry), log::log_bytes(&header.geometry));
            Some(Box::new(FlushLog::new(direct, header.id, session, offset, bytes)))
        }
        Err(error) => {
            tracing::debug!(%error, "no direct writes here: each flush syncs the whole image");
            None
        }
    }
}

/// Makes a file for an image and takes its lock. With `overwrite` it may exist; it keeps its content until it is locked.
pub fn make(path: &Path, overwrite: bool) -> Result<LockedFile, DeviceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).create_new(!overwrite).truncate(false);
    let file = options.open(path).map_err(|source| DeviceError::Io { path: path.to_path_buf(), source })?;
    lock(file, path)
}

/// Takes the exclusive lock of a file.
pub fn lock(file: File, path: &Path) -> Result<LockedFile, DeviceError> {
    locked(LockedFile::lock(file), path)
}

/// Takes a lock of a file that others who look may share.
pub fn lock_to_look(file: File, path: &Path) -> Result<LockedFile, DeviceError> {
    locked(LockedFile::share(file), path)
}

fn locked(taken: io::Result<Option<LockedFile>>, path: &Path) -> Result<LockedFile, DeviceError> {
    match taken {
        Ok(Some(locked)) => Ok(locked),
        Ok(None) => Err(DeviceError::Busy(path.to_path_buf())),
        Err(source) => Err(DeviceError::Io { path: path.to_path_buf(), source }),
    }
}

/// Makes the file `total` bytes long, all of them zero and on the disk.
fn fill_with_zeros(file: &File, total: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    // Truncation first takes the old magic away: an interrupted creation is never mistaken for an image.
    file.set_len(0)?;
    progress(0, total);
    write_zeros(file, 0, total, &mut |done| progress(done, total))?;
    file.sync_all()
}

/// Writes zeros, so that the range has its room on the disk; calls `progress` with the bytes that are written.
pub fn write_zeros(file: &File, offset: u64, bytes: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let zeros = vec![0u8; (CREATE_CHUNK_BYTES as u64).min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], offset + done)?;
        done += part;
        progress(done);
    }
    Ok(())
}

/// Why an image without a session page is refused.
pub const NO_SESSION: &str =
    "the checksum of the session page does not match: the image is damaged; restore it";

/// Why an image that ends too early is refused.
pub fn cut_short(length: u64, wanted: u64) -> String {
    format!("the file has {length} bytes, and the device needs {wanted}: it was cut short; restore it")
}

/// Reads the start of a file that will be mapped: through the mapping, what the disk does not give would kill the process.
fn readable(file: &File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0u8; CREATE_CHUNK_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(buffer.len() as u64);
        file.read_exact_at(&mut buffer[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// What a session page says; `None` when it cannot be read.
pub fn session_at(file: &File, place: u64) -> Option<Session> {
    let mut page = vec![0u8; header::PAGE_BYTES];
    file.read_exact_at(&mut page, place).ok()?;
    Session::decode(&page)
}

/// Whether the host went down while an image was in use.
pub fn crashed(last: &Session) -> bool {
    !last.clean && boot_id() != Some(last.boot)
}

/// Reads as much as there is, up to the length of `out`.
pub fn read_up_to(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut found = 0;
    while found < out.len() {
        match file.read_at(&mut out[found..], offset + found as u64) {
            Ok(0) => break,
            Ok(n) => found += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Blocks of a chunk, the unit that memory shares between clones.
const CHUNK_BLOCKS: usize = 16;
const CHUNK_BYTES: usize = CHUNK_BLOCKS * BLOCK_BYTES;

type Chunk = Arc<[u8; CHUNK_BYTES]>;

/// The blocks of one zone in memory. A clone shares every chunk until one side writes to it.
#[derive(Clone, Default, Debug)]
pub struct ZoneBlocks {
    chunks: Vec<Option<Chunk>>,
}

impl ZoneBlocks {
    fn write(&mut self, at: u32, mut data: &[u8]) {
        let mut offset = at as usize * BLOCK_BYTES;
        while !data.is_empty() {
            let (chunk, within) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
            let n = data.len().min(CHUNK_BYTES - within);
            if self.chunks.len() <= chunk {
                self.chunks.resize(chunk + 1, None);
            }
            let chunk = self.chunks[chunk].get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(chunk)[within..within + n].copy_from_slice(&data[..n]);
            data = &data[n..];
            offset += n;
        }
    }

    fn read(&self, at: u32, mut out: &mut [u8]) {
        let mut offset = at as usize * BLOCK_BYTES;
        while !out.is_empty() {
            let (chunk, within) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
            let n = out.len().min(CHUNK_BYTES - within);
            let (now, rest) = out.split_at_mut(n);
            match self.chunks.get(chunk) {
                Some(Some(chunk)) => now.copy_from_slice(&chunk[within..within + n]),
                _ => now.fill(0),
            }
            out = rest;
            offset += n;
        }
    }
}

/// Where the blocks lie.
#[derive(Debug)]
pub enum Store {
    /// In an image.
    Image(Image),
    /// In memory, one lock a zone.
    Memory(Box<[RwLock<ZoneBlocks>]>),
}

impl Store {
    /// Memory for so many zones.
    pub fn memory(zones: u32) -> Store {
        Store::Memory((0..zones).map(|_| RwLock::new(ZoneBlocks::default())).collect())
    }

    /// The image, when it is one.
    pub fn image(&self) -> Option<&Image> {
        match self {
            Store::Image(image) => Some(image),
            Store::Memory(_) => None,
        }
    }

    /// Writes whole blocks.
    pub fn write(&self, zone: u32, at: u32, data: &[u8]) -> Result<(), DeviceError> {
        match self {
            Store::Image(image) => image.write(zone, at, data),
            Store::Memory(zones) => {
                zones[zone as usize].write().write(at, data);
                Ok(())
            }
        }
    }

    /// Reads whole blocks.
    pub fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        match self {
            Store::Image(image) => image.read(zone, at, out),
            Store::Memory(zones) => {
                zones[zone as usize].read().read(at, out);
                Ok(())
            }
        }
    }

    /// The blocks of a zone in memory, shared; none when they lie in an image.
    pub fn snapshot(&self, zone: u32) -> ZoneBlocks {
        match self {
            Store::Image(_) => ZoneBlocks::default(),
            Store::Memory(zones) => zones[zone as usize].read().clone(),
        }
    }

    /// Replaces the blocks of a zone in memory.
    pub fn restore(&self, zone: u32, blocks: ZoneBlocks) {
        if let Store::Memory(zones) = self {
            *zones[zone as usize].write() = blocks;
        }
    }

    /// A zone was reset: in memory its blocks go.
    pub fn discard(&self, zone: u32) {
        self.restore(zone, ZoneBlocks::default());
    }
}
