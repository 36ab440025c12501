//! A device in a file: a header, a session page, a record for each erase block, and the pages in a sparse area.
//! `docs/formats/open-channel-image.md` draws it.
//!
//! The parts that other images have too are the same: session page, records with two slots, the lock on the file.

mod lost;

use super::block::{Block, Health, Unsynced};
use super::error::Unreadable;
use super::lun::ISSUED_MAX_NS;
use super::setup::{FlashSetup, Keep, PageTimes, Pairing};
use super::syncs::Writes;
use crate::geometry::Geometry;
use crate::image::frame::{Frame, LastUse, NO_SESSION};
use crate::image::header::{PAGE_BYTES, data_offset};
use crate::image::slot::{CONTENT_WORDS, Content};
use crate::image::spare::Spare;
use crate::image::table::Record;
use crate::store::{cut_short, first_page, make, open, write_zeros};
use crate::timing::Timing;
use crate::{DeviceError, nand::FlashShape};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use weft_core::checksum::{crc32c, crc32c_append};
use weft_core::codec::{Reader, Truncated, put, seal_page, unseal};
use weft_sys::file::{punch_hole, random};

/// First bytes of an image.
const MAGIC: [u8; 8] = *b"WEFTOCF\0";
/// The format's version. A reader refuses another one.
const VERSION: u32 = 3;
/// Most bytes of what an annex was made from: the room for it in the header page.
const ANNEX_MADE_FROM_MAX: usize = 1024;
/// What follows a page's out-of-band bytes: a checksum and the erases of its block.
const TRAILER_BYTES: usize = 8;
/// Most bytes of an image; a file offset is signed.
const IMAGE_BYTES_MAX: u64 = 1 << 62;
/// Largest counts and moments that an image may hold, so that counting on never overflows: 36 years in nanoseconds.
const COUNT_MAX: u64 = 1 << 60;

/// The slot that counts in the record of a block that was never used.
pub(crate) const FIRST_SLOT: u32 = 0;

/// Most bytes of erased blocks whose room is kept.
const ROOM_KEPT_MAX: u64 = 1 << 30;

/// An open image.
#[derive(Debug)]
pub(crate) struct FlashImage {
    /// The block table, the file, and how it is being used.
    frame: Frame,
    path: PathBuf,
    id: [u8; 16],
    layout: Layout,
    /// The header page.
    header: Vec<u8>,
    /// Whether a copy of the header page has to be written anew.
    header_damaged: bool,
    /// Its last use did not end with a close.
    left: bool,
    counters: Mutex<Counters>,
    writes: Writes,
    /// Why no sync is made any more.
    failed: OnceLock<String>,
    synced: OnceLock<SyncObserver>,
    erased: Erased,
    reused: Reused,
    /// It is only looked at: what is stored in the table stays in this process, and nothing is written.
    look: bool,
    /// The session page has this session, and what the last one left has been recovered.
    opened: AtomicBool,
}

/// Learns of each sync.
struct SyncObserver(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for SyncObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SyncObserver")
    }
}

/// The counters record.
#[derive(Debug)]
struct Counters {
    /// Which slot of it counts.
    slot: u32,
    /// Device time when the image was last synced or closed, in nanoseconds; the number of this use of the image, and the last write in
    /// it that is known to be durable.
    content: Content,
}

/// Places in the content of the counters record.
const NOW: usize = 0;
const USE: usize = 1;
const SYNCED: usize = 2;

/// A page in one life of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivePage {
    /// Number of the block in the device.
    pub block: u64,
    pub page: u32,
    /// Erases of the block before.
    pub erases: u32,
}

/// What a drive that owns the flash keeps in its image: what it was made from, in the header page, and an area behind
/// the pages, of which this module knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Annex {
    pub made_from: Vec<u8>,
    pub bytes: u64,
}

/// Erased blocks whose room has not been given back. Most are written again soon, and cost less than when their room has to be found
/// again: it is given back when the image is closed, when the disk is full, and when it has become much. The lock is held
/// meanwhile, and taken by who writes the first page of a block.
#[derive(Debug, Default)]
struct Erased(Mutex<BTreeSet<u64>>);

/// Blocks behind whose programmed pages the file still has pages of an earlier life. `None`: nobody knows, so any may be one.
#[derive(Debug, Default)]
struct Reused(Mutex<Option<BTreeSet<u64>>>);

/// Where pages lie.
#[derive(Clone, Copy, Debug)]
struct Layout {
    base: u64,
    page_bytes: usize,
    oob_bytes: usize,
    page_stride: u64,
    block_stride: u64,
    pages_per_block: u32,
    blocks: u64,
    annex_bytes: u64,
}

impl Layout {
    fn new(shape: &FlashShape, annex: &Annex) -> Result<Layout, DeviceError> {
        let page_stride = u64::from(shape.page_bytes) + u64::from(shape.oob_bytes) + TRAILER_BYTES as u64;
        let block_stride =
            (page_stride * u64::from(shape.pages_per_block)).next_multiple_of(PAGE_BYTES as u64);
        let blocks = shape.blocks();
        let base = data_offset(blocks);
        let annex_bytes = annex.bytes;
        let all = blocks.checked_mul(block_stride).and_then(|bytes| bytes.checked_add(annex_bytes));
        if all.is_none_or(|bytes| bytes > IMAGE_BYTES_MAX - base) {
            return Err(DeviceError::BadGeometry(format!("{blocks} erase blocks do not fit into a file")));
        }
        let (page_bytes, oob_bytes) = (shape.page_bytes as usize, shape.oob_bytes as usize);
        let pages_per_block = shape.pages_per_block;
        Ok(Layout {
            base,
            page_bytes,
            oob_bytes,
            page_stride,
            block_stride,
            pages_per_block,
            blocks,
            annex_bytes,
        })
    }

    fn annex(&self) -> u64 {
        self.base + self.blocks * self.block_stride
    }

    fn spare(&self) -> Spare {
        Spare::at((self.annex() + self.annex_bytes).next_multiple_of(PAGE_BYTES as u64), self.blocks)
    }

    fn image_bytes(&self) -> u64 {
        self.spare().offset() + data_offset(self.blocks)
    }

    /// The block and the page whose bytes lie at an offset, and whether these are its out-of-band bytes or what follows them.
    fn place(&self, offset: u64) -> Option<(u64, u32, bool)> {
        let at = offset.checked_sub(self.base)?;
        let (block, at) = (at / self.block_stride, at % self.block_stride);
        let (page, at) = (at / self.page_stride, at % self.page_stride);
        let is_within = block < self.blocks && page < u64::from(self.pages_per_block);
        is_within.then_some((block, page as u32, at >= self.page_bytes as u64))
    }

    fn page(&self, block: u64, page: u32) -> u64 {
        self.base + block * self.block_stride + u64::from(page) * self.page_stride
    }
}

/// An image that was opened, and what it says.
pub(crate) struct Opened {
    pub image: FlashImage,
    pub setup: FlashSetup,
    /// By number in the device.
    pub blocks: Vec<(Block, u32)>,
    /// Device time when it was last synced or closed, in nanoseconds.
    pub now: u64,
    pub annex: Annex,
    /// After a use that was not closed, the host is taken to have crashed.
    pub last: LastUse,
}

impl FlashImage {
    /// Makes a new image. The area of its pages is sparse and takes room as they are programmed. All else is written now:
    /// a store to a mapped record must never need room that a full disk does not have.
    pub fn create(
        path: &Path,
        setup: &FlashSetup,
        annex: &Annex,
        overwrite: bool,
    ) -> Result<FlashImage, DeviceError> {
        let io = |source| DeviceError::of_image(path, source);
        if setup.keep != Keep::All {
            return Err(DeviceError::BadGeometry(
                "an image keeps data and out-of-band bytes; take a device in memory to keep less".into(),
            ));
        }
        let layout = Layout::new(&setup.shape(), annex)?;
        let id = random().map_err(io)?;
        let spare = layout.spare();
        let file = make(path, overwrite, layout.base + data_offset(layout.blocks), |file| {
            // Truncation first takes the old content and its magic away.
            file.set_len(0)
                .and_then(|()| file.set_len(layout.image_bytes()))
                .and_then(|()| write_zeros(file, 0, layout.base, &mut |_| {}))
                .and_then(|()| write_zeros(file, spare.offset(), data_offset(layout.blocks), &mut |_| {}))
                .and_then(|()| file.sync_all())
                .map_err(io)
        })?;
        let frame = Frame::new(file, id, layout.blocks, spare, None, false).map_err(io)?;
        let unused = encode_block(&Block::default(), Unsynced::default(), 0, 0);
        for number in 0..layout.blocks as u32 {
            let slot = frame.table.set(Record::Zone(number), 1 - FIRST_SLOT, &unused);
            debug_assert_eq!(slot, FIRST_SLOT);
        }
        let slot = frame.table.set(Record::Counters, 1, &[0; CONTENT_WORDS]);
        let header = encode_header(&id, setup, &layout, annex);
        let image = FlashImage::new(frame, path, id, layout, header, ([0; CONTENT_WORDS], slot), false);
        let image = FlashImage { header_damaged: true, ..image };
        image.begin_session()?;
        image.has_opened();
        Ok(image)
    }

    fn new(
        frame: Frame,
        path: &Path,
        id: [u8; 16],
        layout: Layout,
        header: Vec<u8>,
        (content, slot): (Content, u32),
        look: bool,
    ) -> FlashImage {
        let mut content = content;
        (content[USE], content[SYNCED]) = (frame.session.opens, 0);
        FlashImage {
            frame,
            path: path.to_path_buf(),
            id,
            layout,
            header,
            header_damaged: false,
            left: false,
            counters: Mutex::new(Counters { slot, content }),
            writes: Writes::default(),
            failed: OnceLock::new(),
            synced: OnceLock::new(),
            erased: Erased::default(),
            reused: Reused::default(),
            look,
            opened: AtomicBool::new(false),
        }
    }

    /// Opens an image and takes its lock; to look at it, a lock that others who look may share.
    pub fn open(path: &Path, look: bool) -> Result<Opened, DeviceError> {
        let io = |source| DeviceError::of_image(path, source);
        let bad = |what: String| DeviceError::BadImage { path: path.to_path_buf(), what };
        let file = open(path, look)?;
        let length = file.metadata().map_err(io)?.len();
        let mut page = Vec::new();
        let first = first_page(&file).map_err(|e| e.to_string()).and_then(|found| {
            page = found;
            decode_header(&page)
        });
        let mut copy = vec![0u8; PAGE_BYTES];
        let copied =
            length.checked_sub(PAGE_BYTES as u64).is_some_and(|at| file.read_exact_at(&mut copy, at).is_ok());
        let header_damaged = !copied || copy != page;
        let (id, setup, annex) = match first {
            Ok(header) => header,
            // The copy is the last page of the file.
            Err(what) if copied => {
                let header = decode_header(&copy).map_err(|_| bad(what))?;
                page = copy;
                header
            }
            Err(what) => return Err(bad(what)),
        };
        setup.validate()?;
        let layout = Layout::new(&setup.shape(), &annex)?;
        if length < layout.image_bytes() {
            return Err(bad(cut_short(length, layout.image_bytes())));
        }
        let spare = layout.spare();
        let last_use = || LastUse::read(&file, &spare).ok_or_else(|| bad(NO_SESSION.into()));
        let mut last = last_use()?;
        if !last.closed && !look {
            FlashImage::forget_cached(&file, length);
            last = last_use()?;
        }
        // Of a use that was not closed, anything may be missing: its host may have crashed, or its last sync may have failed.
        last.host_crashed = !last.closed;
        let frame = Frame::new(file, id, layout.blocks, spare, Some(&last), look).map_err(io)?;
        let damaged = |what: String| bad(format!("the record of {what} is damaged; restore the image"));
        // The copy of the counters may be older than the image: then the clock goes on from an earlier moment.
        let from_copy = || {
            let content = frame.spare_record(Record::Counters)?;
            Some((content, frame.table.set(Record::Counters, 1, &content)))
        };
        let torn = last.torn_slots();
        let counters = frame.table.read(Record::Counters, torn).or_else(from_copy);
        let (counters, slot) = counters.ok_or_else(|| damaged("the counters".into()))?;
        // A clock beyond its end is nobody's loss: it stands still there.
        let now = counters[NOW].min(ISSUED_MAX_NS);
        let mut synced = if counters[USE] == last.opens { counters[SYNCED] } else { 0 };
        let decode = |content: &Content| decode_block(content, setup.geometry.pages_per_block);
        let mut blocks = Vec::with_capacity(layout.blocks as usize);
        let mut doubtful = Vec::new();
        for number in 0..layout.blocks as u32 {
            let record = Record::Zone(number);
            let stored = frame.table.read(record, torn);
            let stored = stored.and_then(|(content, slot)| {
                let (block, unsynced) = (decode(&content)?, unsynced_of(&content, last.opens));
                synced = synced.max(synced_of(&content, last.opens));
                if unsynced.is_doubtful() {
                    doubtful.push((number, unsynced));
                }
                Some((block, slot))
            });
            let from_copy = || {
                let content = frame.spare_record(record)?;
                let block = decode(&content)?;
                tracing::warn!(image = %path.display(), block = number, "the record is damaged; its copy is taken");
                Some((block, frame.table.set(record, 1, &content)))
            };
            let block = stored.or_else(from_copy);
            blocks.push(block.ok_or_else(|| damaged(format!("erase block {number}")))?);
        }
        // Counts that nobody can have counted to are damage, and would not bear being counted on.
        let pages = u64::from(setup.geometry.pages_per_block);
        let counted = blocks.iter().try_fold(0u64, |sum, (block, _)| {
            sum.checked_add(block.programmed)?.checked_add(u64::from(block.erases) * pages)
        });
        if counted.is_none_or(|sum| sum > COUNT_MAX) {
            return Err(damaged("some erase block".into()));
        }
        let image = FlashImage::new(frame, path, id, layout, page, (counters, slot), look);
        let image = FlashImage { header_damaged, left: !last.closed, ..image };
        if !last.closed {
            doubtful.retain(|(_, unsynced)| unsynced.erase > 0 || unsynced.write > synced);
            image.make_certain(&mut blocks, &doubtful, synced)?;
        }
        Ok(Opened { image, setup, blocks, now, annex, last })
    }

    /// As [`Layout::place`].
    pub fn place(&self, offset: u64) -> Option<(u64, u32, bool)> {
        self.layout.place(offset)
    }

    /// Calls somebody after each sync. Who was first stays.
    pub fn after_syncs(&self, observer: Box<dyn Fn() + Send + Sync>) {
        let _ = self.synced.set(SyncObserver(observer));
    }

    /// Stores the record of a block; returns the slot that counts from now on.
    pub fn publish(&self, number: u64, slot: u32, block: &Block, unsynced: Unsynced) -> u32 {
        let content = encode_block(block, unsynced, self.frame.session.opens, self.synced());
        let slot = self.frame.table.set(Record::Zone(number as u32), slot, &content);
        // A sync that covers the page may have begun before the record was stored.
        self.writes.add();
        slot
    }

    /// A number for what is written next: once it is durable, all that was written before is.
    pub fn number_a_write(&self) -> u64 {
        self.writes.add()
    }

    /// The last write that is known to be durable, with all before it.
    pub fn synced(&self) -> u64 {
        self.writes.synced()
    }

    /// Writes a page; returns the number of the write.
    pub fn program(&self, at: LivePage, data: &[u8], oob: &[u8]) -> Result<u64, DeviceError> {
        self.write_page(at, data, oob, true)
    }

    /// Makes a page one that cannot be read; returns the number of the write.
    pub fn tear(&self, at: LivePage) -> Result<u64, DeviceError> {
        self.write_page(at, &[], &[], false)
    }

    fn write_page(&self, at: LivePage, data: &[u8], oob: &[u8], whole: bool) -> Result<u64, DeviceError> {
        let Layout { page_bytes, oob_bytes, page_stride, .. } = self.layout;
        let mut bytes = Vec::with_capacity(page_stride as usize);
        bytes.extend_from_slice(data);
        bytes.resize(page_bytes, 0);
        bytes.extend_from_slice(oob);
        bytes.resize(page_bytes + oob_bytes, 0);
        let crc = self.page_crc(&bytes, at);
        put(&mut bytes, &[&if whole { crc } else { !crc }, &at.erases]);
        self.check_writable()?;
        if at.page == 0
            && self.erased.0.lock().remove(&at.block)
            && let Some(reused) = &mut *self.reused.0.lock()
        {
            reused.insert(at.block);
        }
        let offset = self.layout.page(at.block, at.page);
        let mut written = self.frame.file.write_all_at(&bytes, offset);
        if written
            .as_ref()
            .is_err_and(|e| matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
        {
            self.give_room_back()?;
            written = self.frame.file.write_all_at(&bytes, offset);
        }
        written.map_err(|e| self.io(e))?;
        Ok(self.writes.add())
    }

    /// What is the matter with a page of which these are the bytes.
    fn look_at(&self, bytes: &[u8], at: LivePage) -> Option<Unreadable> {
        let (content, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
        let crc = self.page_crc(content, at);
        match trailer {
            trailer if trailer[..4] == crc.to_le_bytes() => None,
            trailer if trailer[..4] == (!crc).to_le_bytes() => Some(Unreadable::Torn),
            _ => Some(Unreadable::Image),
        }
    }

    /// Reads a part of a page's data and its first out-of-band bytes; what is the matter when the page is not whole.
    pub fn read(
        &self,
        at: LivePage,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Option<Unreadable>, DeviceError> {
        let Layout { page_bytes, page_stride, .. } = self.layout;
        let mut bytes = vec![0; page_stride as usize];
        self.frame
            .file
            .read_exact_at(&mut bytes, self.layout.page(at.block, at.page))
            .map_err(|e| self.io(e))?;
        let why = self.look_at(&bytes, at);
        if why.is_none() {
            data.copy_from_slice(&bytes[offset as usize..][..data.len()]);
            oob.copy_from_slice(&bytes[page_bytes..][..oob.len()]);
        }
        Ok(why)
    }

    /// Before a block is erased: makes what was programmed so far durable, so that a crash of the host never keeps an
    /// erase and loses the copies that were made before it. No LUN's lock is held meanwhile.
    pub fn prepare_erase(&self) -> Result<(), DeviceError> {
        self.make_durable()
    }

    /// A block was erased: the room of its pages is given back some time. The erase is over, so an error of the host here is
    /// nobody's: the room stays noted, and the next sync reports what is the matter.
    pub fn discard(&self, number: u64) {
        let mut erased = self.erased.0.lock();
        erased.insert(number);
        if erased.len() as u64 * self.layout.block_stride > ROOM_KEPT_MAX
            && let Err(error) = self.punch(&mut erased)
        {
            tracing::warn!(%error, "the room of erased blocks was not given back");
        }
    }

    /// Gives back the room of all erased blocks.
    pub fn give_room_back(&self) -> Result<(), DeviceError> {
        self.punch(&mut self.erased.0.lock())
    }

    /// Leaves nothing in the file of pages that were erased. `behind` calls with the number of a block and the first page that is not
    /// programmed, which nobody programs meanwhile.
    pub fn forget_erased(
        &self,
        behind: impl Fn(u64, &mut dyn FnMut(u32) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<(), DeviceError> {
        self.check_writable()?;
        // A crash of the host must not bring back a block whose pages are gone.
        self.make_durable()?;
        self.give_room_back()?;
        let reused = self.reused.0.lock().replace(BTreeSet::new());
        let blocks = reused.unwrap_or_else(|| (0..self.layout.blocks).collect());
        let file = &self.frame.file;
        for number in blocks {
            let end = self.layout.page(number, self.layout.pages_per_block);
            let forgotten = behind(number, &mut |page| {
                let at = self.layout.page(number, page);
                match punch_hole(file, at, end - at) {
                    _ if at == end => Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                        write_zeros(file, at, end - at, &mut |_| {})
                    }
                    punched => punched,
                }
            });
            if let Err(error) = forgotten {
                *self.reused.0.lock() = None;
                return Err(self.io(error));
            }
        }
        self.make_durable()
    }

    fn punch(&self, erased: &mut BTreeSet<u64>) -> Result<(), DeviceError> {
        let stride = self.layout.block_stride;
        while let Some(first) = erased.first().copied() {
            // Neighbours together.
            let count = (first..).take_while(|number| erased.contains(number)).count() as u64;
            match punch_hole(&self.frame.file, self.layout.page(first, 0), count * stride) {
                Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(self.io(error)),
                _ => {}
            }
            for number in first..first + count {
                erased.remove(&number);
            }
        }
        Ok(())
    }

    /// Writes a part of the annex. What is written becomes durable as pages do.
    pub fn write_annex(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_writable()?;
        let at = self.annex_place(offset, bytes.len() as u64)?;
        self.frame.file.write_all_at(bytes, at).map_err(|e| self.io(e))?;
        self.writes.add();
        Ok(())
    }

    /// Reads a part of the annex.
    pub fn read_annex(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        let mut found = vec![0; bytes as usize];
        let at = self.annex_place(offset, bytes)?;
        self.frame.file.read_exact_at(&mut found, at).map_err(|e| self.io(e))?;
        Ok(found)
    }

    fn annex_place(&self, offset: u64, bytes: u64) -> Result<u64, DeviceError> {
        let end = offset + bytes;
        if end > self.layout.annex_bytes {
            return Err(self.bad(format!("bytes {offset} to {end} of the annex: it is shorter")));
        }
        Ok(self.layout.annex() + offset)
    }

    pub fn check_writable(&self) -> Result<(), DeviceError> {
        if self.look {
            return Err(self.bad("the image was opened to be looked at; open it to write".into()));
        }
        if self.writes.have_failed() {
            return Err(self.sync_failed());
        }
        Ok(())
    }

    fn sync_failed(&self) -> DeviceError {
        let why = self.failed.get().cloned().unwrap_or_default();
        DeviceError::SyncFailed { path: self.path.clone(), why }
    }

    fn bad(&self, what: String) -> DeviceError {
        DeviceError::BadImage { path: self.path.clone(), what }
    }

    /// Makes everything durable, with the device's clock.
    pub fn sync(&self, now: u64) -> Result<(), DeviceError> {
        if self.look {
            return Ok(());
        }
        self.count(|content| content[NOW] = now);
        // Without the lock, under which threads would wait for each other's syncs.
        self.writes.add();
        self.make_durable()
    }

    /// Changes the counters record.
    fn count(&self, change: impl FnOnce(&mut Content)) {
        let counters = &mut *self.counters.lock();
        change(&mut counters.content);
        counters.slot = self.frame.table.set(Record::Counters, counters.slot, &counters.content);
    }

    /// Sees to it that what was written so far is durable.
    pub fn make_durable(&self) -> Result<(), DeviceError> {
        let sync = |covered| {
            if let Err(error) = self.frame.sync_data() {
                let _ = self.failed.set(error.to_string());
                return Err(self.sync_failed());
            }
            if let Some(SyncObserver(observer)) = self.synced.get() {
                observer();
            }
            // Durable itself with the next sync: what is known of this one then is enough.
            self.count(|content| content[SYNCED] = covered);
            Ok(())
        };
        self.writes.sync(sync, || self.sync_failed())
    }

    /// What was written last is in a state that only the next opening can mend.
    pub fn give_up(&self, why: &DeviceError) {
        let _ = self.failed.set(why.to_string());
        self.writes.fail();
    }

    /// Writes down that the image is in use. Until then it says how it was used last, so that whoever opens it the next time
    /// learns of a crash of the host, too.
    pub fn begin_session(&self) -> Result<(), DeviceError> {
        if self.look {
            return Ok(());
        }
        if self.left {
            // In this use, records of the last one that say what may be missing do not count.
            self.frame.sync_data().map_err(|e| self.io(e))?;
        }
        self.frame.begin_session().map_err(|e| self.io(e))?;
        if self.header_damaged {
            self.frame.write_header(&self.header).map_err(|e| self.io(e))?;
        }
        self.frame.sync_data().map_err(|e| self.io(e))
    }

    /// What is in the image has been recovered: it can be closed.
    pub fn has_opened(&self) {
        self.opened.store(!self.look, Release);
    }

    /// Writes down that everything is durable and the image no longer in use.
    pub fn end_session(&self) -> Result<(), DeviceError> {
        if !self.is_open() {
            return Ok(());
        }
        self.frame.end_session(|| self.frame.sync_data()).map_err(|e| self.io(e))
    }

    /// Whether it is to be closed.
    pub fn is_open(&self) -> bool {
        self.opened.load(Acquire)
    }

    pub fn has_annex(&self) -> bool {
        self.layout.annex_bytes > 0
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn page_crc(&self, content: &[u8], at: LivePage) -> u32 {
        let mut place = [0; 32];
        place[..16].copy_from_slice(&self.id);
        place[16..24].copy_from_slice(&at.block.to_le_bytes());
        place[24..28].copy_from_slice(&at.page.to_le_bytes());
        place[28..].copy_from_slice(&at.erases.to_le_bytes());
        crc32c_append(crc32c(content), &place)
    }

    fn io(&self, source: std::io::Error) -> DeviceError {
        DeviceError::of_image(&self.path, source)
    }
}

/// The record of a block in the use of the image with this number, when writes up to `synced` were durable.
fn encode_block(block: &Block, unsynced: Unsynced, opens: u64, synced: u64) -> Content {
    let mut content = [0; CONTENT_WORDS];
    let flags = block.health as u64 | u64::from(block.half_erased) << 8;
    content[0] = u64::from(block.next) | flags << 32;
    content[1] = u64::from(block.erases) | u64::from(block.reads) << 32;
    content[2] = block.programmed;
    content[3] = block.written_at;
    let Unsynced { write, from, erase } = unsynced;
    content[4..9].copy_from_slice(&[opens, write, u64::from(from), erase, synced]);
    content
}

/// The last write that was durable when a record was stored in the use of the image with this number.
fn synced_of(content: &Content, opens: u64) -> u64 {
    if content[4] == opens { content[8] } else { 0 }
}

/// What of a block was not synced when its record was stored in the use of the image with this number.
fn unsynced_of(content: &Content, opens: u64) -> Unsynced {
    match content[4] == opens {
        true => Unsynced { write: content[5], from: content[6] as u32, erase: content[7] },
        false => Unsynced::default(),
    }
}

fn decode_block(content: &Content, pages_per_block: u32) -> Option<Block> {
    let health = match content[0] >> 32 & 0xff {
        0 => Health::Good,
        1 => Health::FactoryBad,
        2 => Health::ProgramFailed,
        3 => Health::EraseFailed,
        _ => return None,
    };
    let half_erased = match content[0] >> 40 {
        0 => false,
        1 => true,
        _ => return None,
    };
    let (next, erases) = (content[0] as u32, content[1] as u32);
    // What a block's erases leave room for; there is room for one more erase at least.
    let most = (u64::from(erases) + 1) * u64::from(pages_per_block);
    let possible =
        next <= pages_per_block && erases < u32::MAX / 2 && (u64::from(next)..=most).contains(&content[2]);
    possible.then(|| Block {
        next,
        health,
        half_erased,
        erases,
        reads: (content[1] >> 32) as u32,
        programmed: content[2],
        written_at: content[3],
        torn: Vec::new(),
    })
}

fn encode_header(id: &[u8; 16], setup: &FlashSetup, layout: &Layout, annex: &Annex) -> Vec<u8> {
    let g = &setup.geometry;
    let mut page = Vec::with_capacity(PAGE_BYTES);
    put(&mut page, &[&MAGIC, &VERSION, &setup.oob_bytes, id, &g.total_bytes, &layout.base]);
    let shape = [g.channels, g.luns_per_channel, g.planes, g.pages_per_block, g.page_bytes, g.endurance];
    let stride = setup.pairing.map_or(0, |pairing| pairing.stride);
    let (lsb, msb) = setup.pairing.map_or_else(Default::default, |pairing| (pairing.lsb, pairing.msb));
    let paired = [lsb.read_ns, lsb.program_ns, msb.read_ns, msb.program_ns];
    put(&mut page, &[&shape, &g.timing.queue_depth, &stride, &g.timing.words(), &paired]);
    debug_assert!(annex.made_from.len() <= ANNEX_MADE_FROM_MAX);
    put(&mut page, &[&annex.bytes, &annex.made_from]);
    seal_page(page, PAGE_BYTES)
}

fn decode_header(page: &[u8]) -> Result<([u8; 16], FlashSetup, Annex), String> {
    let short = |_: Truncated| "the header is cut short; restore the image".to_string();
    let mut r = Reader::new(page);
    match r.array::<8>() {
        Ok(MAGIC) => {}
        Err(cut) if MAGIC.starts_with(page) => return Err(short(cut)),
        _ => {
            return Err(
                "not an open-channel image, or one whose making was interrupted; make a new one".into()
            );
        }
    }
    let version = r.u32().map_err(short)?;
    if version != VERSION {
        return Err(format!(
            "the image has format version {version}, and this program reads version {VERSION}; use the program that \
             wrote it"
        ));
    }
    if page.len() < PAGE_BYTES || unseal(page).is_none() {
        return Err("the checksum of the header does not match: the image is damaged; restore it".into());
    }
    let (id, setup) = header_fields(&mut r).map_err(short)?;
    let bytes = r.u64().map_err(short)?;
    let length = r.u32().map_err(short)? as usize;
    if length > ANNEX_MADE_FROM_MAX || bytes > IMAGE_BYTES_MAX || (bytes == 0 && length > 0) {
        return Err("the header names an annex that cannot be; restore the image".into());
    }
    let annex = Annex { made_from: r.bytes(length).map_err(short)?.to_vec(), bytes };
    Ok((id, setup, annex))
}

fn header_fields(r: &mut Reader) -> Result<([u8; 16], FlashSetup), Truncated> {
    let oob_bytes = r.u32()?;
    let id = r.array()?;
    let total_bytes = r.u64()?;
    let _base = r.u64()?;
    let mut geometry = Geometry {
        total_bytes,
        channels: r.u32()?,
        luns_per_channel: r.u32()?,
        planes: r.u32()?,
        pages_per_block: r.u32()?,
        page_bytes: r.u32()?,
        endurance: r.u32()?,
        ..Geometry::bbssd()
    };
    let queue_depth = r.u32()?;
    let stride = r.u32()?;
    geometry.timing = Timing { queue_depth, ..Timing::read(r)? };
    let mut times = || Ok(PageTimes { read_ns: r.u64()?, program_ns: r.u64()? });
    let (lsb, msb) = (times()?, times()?);
    let pairing = (stride > 0).then_some(Pairing { stride, lsb, msb });
    Ok((id, FlashSetup { oob_bytes, pairing, ..FlashSetup::new(geometry) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> FlashSetup {
        FlashSetup { pairing: Some(Pairing::mlc()), ..FlashSetup::new(Geometry::mlc().with_size(1 << 30)) }
    }

    #[test]
    fn a_header_survives_encoding_and_no_bit_of_it_may_flip() {
        let annex = Annex { made_from: vec![7; 100], bytes: 8192 };
        let layout = Layout::new(&setup().shape(), &annex).unwrap();
        let page = encode_header(&[9; 16], &setup(), &layout, &annex);
        let (id, found, found_annex) = decode_header(&page).unwrap();
        assert_eq!((id, found.shape(), found.pairing), ([9; 16], setup().shape(), setup().pairing));
        assert_eq!(found_annex, annex);
        assert_eq!(found.geometry.timing, setup().geometry.timing);
        assert_eq!(found.geometry.endurance, setup().geometry.endurance);
        for at in 0..page.len() {
            let mut bad = page.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(decode_header(&bad).is_err(), "byte {at}");
        }
        assert!(decode_header(&page[..100]).is_err());
    }

    #[test]
    fn a_block_survives_encoding_and_one_that_cannot_be_is_refused() {
        let block = Block {
            next: 7,
            erases: 12,
            reads: 900,
            health: Health::ProgramFailed,
            half_erased: true,
            programmed: 71,
            written_at: 1 << 40,
            torn: Vec::new(),
        };
        let unsynced = Unsynced { write: 1 << 40, from: 3, erase: 1 << 41 };
        let content = encode_block(&block, unsynced, 9, 77);
        assert_eq!((synced_of(&content, 9), synced_of(&content, 10)), (77, 0));
        let back = decode_block(&content, 8).unwrap();
        assert_eq!(format!("{back:?}"), format!("{block:?}"));
        assert_eq!(unsynced_of(&content, 9), unsynced);
        assert_eq!(unsynced_of(&content, 10), Unsynced::default(), "a later use of the image has synced it");
        assert!(decode_block(&content, 6).is_none(), "more pages than a block has");
        for (word, flip) in [(0, 4u64 << 32), (0, 2 << 40), (1, 1 << 31), (2, 1 << 40), (2, 0b1000_0000)] {
            let mut bad = content;
            bad[word] ^= flip;
            assert!(decode_block(&bad, 8).is_none(), "word {word}, {flip:#x}");
        }
    }
}
