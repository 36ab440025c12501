//! Where the blocks lie: in an image, or in memory that can be cloned without copying.

use crate::DeviceError;
use crate::flushlog::FlushLog;
use crate::image::frame::{Frame, LastUse, NO_SESSION};
use crate::image::header::{self, Header};
use crate::image::log::{self, Entry};
use crate::image::slot::TornSlots;
use crate::image::spare::{self, Spare};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::random::SplitMix;
use weft_core::units::format_size;
use weft_core::{BLOCK_BYTES, ZoneId};
use weft_sys::file::{
    DirectFile, LockedFile, allocate, drop_cached, free_bytes, is_record_locked, memory_file,
    overwrites_in_place, random, read_would_wait, will_read,
};

/// Bytes that creation writes at once, and after which it reports progress.
const CREATE_CHUNK_BYTES: usize = 4 << 20;

/// Bytes that an erasure looks at and overwrites at once.
const ERASE_CHUNK_BYTES: usize = 64 << 10;

/// An open image.
#[derive(Debug)]
pub struct Image {
    /// The zone table, the file, and how it is being used.
    pub frame: Frame,
    /// Its path, for errors.
    pub path: PathBuf,
    /// Its id.
    pub id: [u8; 16],
    /// Byte offset of the data area.
    pub base: u64,
    /// Bytes from one zone to the next.
    stride: u64,
    zones: u32,
    /// Bytes of the flush log, which follows the zones.
    log_bytes: u64,
    /// Bytes of the whole file.
    bytes: u64,
    /// Whether it can outlive this boot, so that durability has a meaning.
    pub lasting: bool,
    /// Whether an overwrite of it replaces its bytes.
    pub overwrites_in_place: bool,
    /// What is written to an image that is only looked at: it stays in memory.
    changes: Option<Box<RwLock<Changes>>>,
    /// Where the append log is, in the file's bytes; of an image from before there was one, nowhere.
    pub append_log: Option<Range<u64>>,
    /// The log of small flushes; none where the file system has no direct writes, or after one failed.
    pub log: Mutex<Option<Box<FlushLog>>>,
}

/// Blocks by their offset in the image.
type Changes = HashMap<u64, Box<[u8]>>;

/// An image and how far what it says may be believed.
pub struct Opened {
    pub image: Image,
    /// What its header says.
    pub header: Header,
    /// Whether the host went down while it was in use: what was not flushed may be lost or half written.
    pub host_crashed: bool,
    /// How its records may be read.
    pub torn: TornSlots,
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
        let bytes = header.image_bytes();
        let file = make(path, overwrite, bytes, |file| {
            fill_with_zeros(file, bytes, progress).map_err(|source| DeviceError::of_image(path, source))
        })?;
        Image::fresh(file, path, header, true)
    }

    /// Makes a new image in memory.
    pub fn memory_file(header: &Header) -> Result<Image, DeviceError> {
        let path = PathBuf::from("(memory)");
        let file = memory_file("weft-device", header.image_bytes())
            .map_err(|source| DeviceError::Io { path: path.clone(), source })?;
        let file = lock(file, &path)?;
        Image::fresh(file, &path, header, false)
    }

    /// Fills the pages of an image whose bytes are all zero; the table's records are left to the caller.
    fn fresh(file: LockedFile, path: &Path, header: &Header, lasting: bool) -> Result<Image, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        let zones = header.geometry.zones();
        let frame = Frame::new(file, header.id, zones, Spare::of(header), None, false).map_err(io)?;
        frame.begin_session().map_err(io)?;
        let log = lasting.then(|| flush_log(&frame, header)).flatten();
        Ok(Image {
            log: Mutex::new(log),
            id: header.id,
            append_log: append_log(header),
            path: path.to_path_buf(),
            base: header::data_offset(zones),
            stride: header.geometry.zone_bytes,
            zones: zones as u32,
            log_bytes: log::log_bytes(&header.geometry),
            bytes: header.image_bytes(),
            overwrites_in_place: overwrites_in_place(&frame.file),
            frame,
            lasting,
            changes: None,
        })
    }

    /// Writes the header page, which makes the file an image, and makes everything durable.
    pub fn commit_header(&self, header: &Header) -> Result<(), DeviceError> {
        self.frame.write_header(&header.encode()).map_err(|e| self.io(e))?;
        self.sync()
    }

    /// Opens an image and takes its lock. What is written to one that is opened to look is gone when it is closed.
    pub fn open(path: &Path, look: bool) -> Result<Opened, DeviceError> {
        let io = |source| DeviceError::Io { path: path.to_path_buf(), source };
        let bad = |what: String| DeviceError::BadImage { path: path.to_path_buf(), what };
        let file = open(path, look)?;
        let decoded = match first_page(&file) {
            Ok(page) => Header::decode(&page),
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
        let wanted = header.image_bytes();
        let base = header::data_offset(header.geometry.zones());
        if length < wanted && (!look || length < base) {
            return Err(bad(cut_short(length, wanted)));
        }
        if length < wanted {
            tracing::warn!(image = %path.display(), "{}", cut_short(length, wanted));
        }
        let last = LastUse::read(&file, &spare).ok_or_else(|| bad(NO_SESSION.into()))?;
        let host_crashed = last.host_crashed;
        let mut flushed = Vec::new();
        if host_crashed {
            let mut bytes = vec![0; log::log_bytes(&header.geometry) as usize];
            let read = file.read_exact_at(&mut bytes, header::log_offset(&header.geometry));
            if !look {
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
        let frame =
            Frame::new(file, header.id, header.geometry.zones(), spare, Some(&last), look).map_err(io)?;
        let log = if look { None } else { flush_log(&frame, &header) };
        let changes = look.then(Box::default);
        let (path, stride, log) = (path.to_path_buf(), header.geometry.zone_bytes, Mutex::new(log));
        let append_log = append_log(&header);
        let image = Image {
            overwrites_in_place: overwrites_in_place(&frame.file),
            frame,
            path,
            id: header.id,
            base,
            stride,
            zones: header.geometry.zones() as u32,
            log_bytes: log::log_bytes(&header.geometry),
            bytes: wanted,
            lasting: !look,
            changes,
            append_log,
            log,
        };
        Ok(Opened { image, header, torn: last.torn_slots(), host_crashed, flushed, header_damaged })
    }

    /// Writes down that the image is in use under this boot, and makes everything in it durable. Comes after recovery:
    /// until then another crash has to find the session that the first one left.
    pub fn begin_session(&self) -> Result<(), DeviceError> {
        if self.is_only_looked_at() {
            return Ok(());
        }
        self.frame.begin_session().map_err(|e| self.io(e))?;
        self.sync()
    }

    /// Writes down that everything is durable and the image no longer in use.
    pub fn end_session(&self) -> Result<(), DeviceError> {
        if self.is_only_looked_at() {
            return Ok(());
        }
        let sync = || if self.lasting { self.frame.sync_data() } else { Ok(()) };
        self.frame.end_session(sync).map_err(|e| self.io(e))
    }

    /// What the file lacks, in words, if it lacks something.
    pub fn cut_short(&self) -> Option<String> {
        let length = self.frame.file.metadata().ok()?.len();
        (length < self.bytes).then(|| cut_short(length, self.bytes))
    }

    /// Whether the file is not to be changed.
    pub fn is_only_looked_at(&self) -> bool {
        self.changes.is_some()
    }

    /// Makes data and table durable.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.frame.sync_data().map_err(|e| self.io(e))
    }

    /// Makes the table durable, without the data.
    pub fn sync_table(&self) -> Result<(), DeviceError> {
        self.frame.table.sync().map_err(|e| self.io(e))
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
            return self.frame.file.write_all_at(data, offset).map_err(|e| self.io(e));
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
        self.frame.file.read_exact_at(out, offset).map_err(|e| self.io(e))?;
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

    /// Overwrites the bytes of zones and of the flush log, of which nothing is needed any more, in so many passes of random bytes and with
    /// zeros at last; durable afterwards. What is zeros already stays.
    pub fn erase(&self, zones: &[ZoneId], passes: u32) -> Result<(), DeviceError> {
        let zone = |zone: &ZoneId| self.offset(zone.0, 0)..self.offset(zone.0, 0) + self.stride;
        let mut ranges: Vec<Range<u64>> = zones.iter().map(zone).collect();
        let mut log = self.log.lock();
        let used = log.as_mut().map_or(self.log_bytes, |log| log.restart_erased());
        let log_at = self.offset(self.zones, 0);
        ranges.push(log_at..log_at + used);
        self.overwrite(&ranges, passes).map_err(|e| self.io(e))
    }

    fn overwrite(&self, ranges: &[Range<u64>], passes: u32) -> io::Result<()> {
        let file = &self.frame.file;
        let mut bytes = vec![0; ERASE_CHUNK_BYTES];
        let mut found: Vec<(u64, usize)> = Vec::new();
        for range in ranges {
            for at in range.clone().step_by(ERASE_CHUNK_BYTES) {
                let part = &mut bytes[..(range.end - at).min(ERASE_CHUNK_BYTES as u64) as usize];
                file.read_exact_at(part, at)?;
                if part.iter().any(|byte| *byte != 0) {
                    found.push((at, part.len()));
                }
            }
        }
        for pass in 0..=passes {
            let mut random = SplitMix::new(u64::from_le_bytes(random()?), &[]);
            for (at, len) in &found {
                let part = &mut bytes[..*len];
                match pass < passes {
                    true => {
                        part.as_chunks_mut()
                            .0
                            .iter_mut()
                            .for_each(|word| *word = random.next().to_le_bytes());
                    }
                    false => part.fill(0),
                }
                file.write_all_at(part, *at)?;
            }
            // Else a cache on the way may keep all passes but the last to itself.
            file.sync_data()?;
        }
        Ok(())
    }

    /// Has the kernel read what it does not cache of these places, all at once.
    pub fn will_read(&self, places: &[(ZoneId, u32, u32)]) {
        // One place tells of the others: blocks that are read together were often written together.
        let Some(&(zone, at, _)) = places.last() else { return };
        if read_would_wait(&self.frame.file, self.offset(zone.0, at)) {
            for &(zone, at, blocks) in places {
                let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
                will_read(&self.frame.file, self.offset(zone.0, at), bytes);
            }
        }
    }

    fn offset(&self, zone: u32, at: u32) -> u64 {
        self.base + u64::from(zone) * self.stride + u64::from(at) * BLOCK_BYTES as u64
    }

    fn io(&self, source: io::Error) -> DeviceError {
        DeviceError::of_image(&self.path, source)
    }
}

/// The bytes of an image's append log.
fn append_log(header: &Header) -> Option<Range<u64>> {
    let from = header::append_log_offset(&header.geometry);
    header.has_append_log.then(|| from..from + log::log_bytes(&header.geometry))
}

/// The log of small flushes, where direct writes are possible.
fn flush_log(frame: &Frame, header: &Header) -> Option<Box<FlushLog>> {
    match DirectFile::of(&frame.file) {
        Ok(direct) => {
            let session = frame.session.opens;
            let (offset, bytes) = (header::log_offset(&header.geometry), log::log_bytes(&header.geometry));
            // A write of a process that was killed may be under way yet, and would come over an entry of this one. This takes room that
            // is there; file systems let direct writes end before.
            let _ = allocate(&frame.file, offset, bytes);
            Some(Box::new(FlushLog::new(direct, header.id, session, offset, bytes)))
        }
        Err(error) => {
            tracing::debug!(%error, "no direct writes here: each flush syncs the whole image");
            None
        }
    }
}

/// Makes a file for an image, takes its lock and fills it. With `overwrite` it may exist; it keeps its content until it is
/// locked, and when there is no room for the `bytes` that it is filled with.
pub fn make(
    path: &Path,
    overwrite: bool,
    bytes: u64,
    fill: impl FnOnce(&File) -> Result<(), DeviceError>,
) -> Result<LockedFile, DeviceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).create_new(!overwrite).truncate(false);
    let file = options.open(path).map_err(|source| DeviceError::Io { path: path.to_path_buf(), source })?;
    let file = lock(file, path)?;
    // Programs of a server that was killed may still write to its append log.
    if is_record_locked(&file) {
        return Err(DeviceError::Busy(path.to_path_buf()));
    }
    // Before what stood there is given up, and before others find the file system full.
    if let Err(source) = has_room(&file, bytes) {
        if !overwrite {
            let _ = std::fs::remove_file(path);
        }
        return Err(DeviceError::HostFull { path: path.to_path_buf(), source });
    }
    fill(&file).inspect_err(|_| {
        // A disk that is full is not left full. What stood there before was given up with `overwrite`.
        let _ = file.set_len(0);
        if !overwrite {
            let _ = std::fs::remove_file(path);
        }
    })?;
    Ok(file)
}

/// Whether a file can have so many bytes, as far as its file system tells.
fn has_room(file: &File, bytes: u64) -> io::Result<()> {
    let (Ok(free), Ok(meta)) = (free_bytes(file), file.metadata()) else { return Ok(()) };
    let room = free.saturating_add(meta.blocks() * 512);
    if bytes <= room {
        return Ok(());
    }
    let (wanted, room) = (format_size(bytes), format_size(room));
    Err(io::Error::new(io::ErrorKind::StorageFull, format!("the image needs {wanted}, and {room} are free")))
}

/// Opens the file of an image and takes its lock; to look at it, one that others who look may share.
pub fn open(path: &Path, look: bool) -> Result<LockedFile, DeviceError> {
    // To open a FIFO waits for who writes to it.
    let kind = std::fs::metadata(path).map(|found| found.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir() && !kind.is_block_device()) {
        let what = "a socket, a FIFO or a character device, not an image; name the file of the image".into();
        return Err(DeviceError::BadImage { path: path.to_path_buf(), what });
    }
    let opened = OpenOptions::new().read(true).write(!look).open(path);
    let file = opened.map_err(|source| DeviceError::Io { path: path.to_path_buf(), source })?;
    if look { locked(LockedFile::share(file), path) } else { lock(file, path) }
}

/// Takes the exclusive lock of a file.
pub fn lock(file: File, path: &Path) -> Result<LockedFile, DeviceError> {
    locked(LockedFile::lock(file), path)
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
    file.sync_all()?;
    // Of no use to anybody, and kept in pieces so large that ext4 is slow to write a block of one.
    drop_cached(file, 0, total);
    Ok(())
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

/// The first page of a file, or as much of it as there is.
pub fn first_page(mut file: &File) -> io::Result<Vec<u8>> {
    let mut page = Vec::with_capacity(header::PAGE_BYTES);
    file.by_ref().take(header::PAGE_BYTES as u64).read_to_end(&mut page)?;
    Ok(page)
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
    Image(Box<Image>),
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

    /// Shows all bytes that it has, in parts.
    pub fn raw(&self, show: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        match self {
            Store::Image(image) => {
                let mut bytes = vec![0; CREATE_CHUNK_BYTES];
                for at in (0..image.bytes).step_by(CREATE_CHUNK_BYTES) {
                    let part = &mut bytes[..(image.bytes - at).min(CREATE_CHUNK_BYTES as u64) as usize];
                    image.frame.file.read_exact_at(part, at).map_err(|e| image.io(e))?;
                    show(part);
                }
            }
            Store::Memory(zones) => {
                for zone in zones {
                    zone.read().chunks.iter().flatten().for_each(|chunk| show(&chunk[..]));
                }
            }
        }
        Ok(())
    }

    /// A zone was reset: in memory its blocks go.
    pub fn discard(&self, zone: u32) {
        self.restore(zone, ZoneBlocks::default());
    }
}
