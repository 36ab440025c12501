//! A store in an ordinary file or on a block device.
//!
//! Writes go past the kernel's cache where the file system allows it (`O_DIRECT`), so that the kernel never writes the
//! store back by itself, in an order of its own. Reads may use the kernel's cache or not.

use super::{Mapping, PageAddress, PageStore, PendingWrite, beyond_end};
use crate::error::{Error, Result};
use crate::ids::PAGE_BYTES;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::Tag;
use weft_core::units::format_size;
use weft_sys::AlignedBuf;
use weft_sys::file::{self, PARTS_MAX};
use weft_sys::fork::Process;
use weft_sys::syncs::Syncs;
use weft_sys::uring::Rings;

/// Times that a lock is tried, and the time between them.
const LOCK_TRIES: u32 = 15;
const LOCK_WAIT: std::time::Duration = std::time::Duration::from_millis(10);

/// Which way reads go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadPath {
    /// Through the kernel's cache, which then holds a second copy of what the store's own cache drops.
    Kernel,
    /// Past it: memory is bounded by the store's own cache.
    Direct,
    /// In the kernel's cache, where it is, without a copy; a page comes into the store's own cache when it is changed. The
    /// fastest way where the medium fits the memory that the kernel has for it, and memory is not counted twice.
    ///
    /// A page's checksum is verified when the page is first looked at. What the kernel drops after that it reads again by
    /// itself, unverified, and where the medium fails then, the process is ended by the signal `SIGBUS`, as it is where
    /// somebody shortens the file: choose another way where that cannot be risked. Where files cannot be mapped, this is
    /// [`ReadPath::Kernel`].
    Mapped,
}

/// A file or block device, locked against other processes.
#[derive(Debug)]
pub struct FileStore {
    write: File,
    read: File,
    reads: ReadPath,
    blocks: AtomicU64,
    fixed: bool,
    syncs: Syncs,
    /// A forked child would write where its parent does.
    process: Process,
    rings: Option<Arc<Rings>>,
    mapping: Option<Arc<Mapping>>,
}

impl FileStore {
    /// Makes a new file.
    ///
    /// # Errors
    /// [`Error::Open`] where the file exists already or cannot be made.
    pub fn create(path: &Path, reads: ReadPath) -> Result<FileStore> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|source| Error::Open { path: path.to_owned(), source })?;
        FileStore::open(path, reads)
    }

    /// Opens a file or block device.
    ///
    /// # Errors
    /// [`Error::Open`]; [`Error::InUse`] while another process has it open, or this one has.
    pub fn open(path: &Path, reads: ReadPath) -> Result<FileStore> {
        FileStore::open_for(path, reads, true)
    }

    /// Opens a file or block device that is only read, as for a salvage: a write fails.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open_read_only(path: &Path) -> Result<FileStore> {
        FileStore::open_for(path, ReadPath::Kernel, false)
    }

    fn open_for(path: &Path, reads: ReadPath, writes: bool) -> Result<FileStore> {
        let failed = |source| Error::Open { path: path.to_owned(), source };
        let open = |flags| OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path);
        // A device may have several nodes, and a lock is of one; what the kernel keeps for one user is the device.
        let is_device = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        let alone = if is_device { libc::O_EXCL } else { 0 };
        let write = match open(alone | libc::O_DIRECT) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(alone).map_err(failed)?,
            Err(error) if is_device && error.raw_os_error() == Some(libc::EBUSY) => {
                let file = open(0).map_err(failed)?;
                if !lock(&file).map_err(failed)? {
                    return Err(Error::InUse { path: path.to_owned(), holder: file::lock_holder(&file) });
                }
                let what = "the device is in use: it is mounted, or open under another name; end that first";
                return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, what)));
            }
            Err(error) => return Err(failed(error)),
        };
        if !lock(&write).map_err(failed)? {
            return Err(Error::InUse { path: path.to_owned(), holder: file::lock_holder(&write) });
        }
        let read = match reads {
            ReadPath::Direct => write.try_clone(),
            ReadPath::Kernel | ReadPath::Mapped => open(0),
        }
        .map_err(failed)?;
        let syncs = Syncs::of(&write).map_err(failed)?;
        let meta = read.metadata().map_err(failed)?;
        let fixed = meta.file_type().is_block_device();
        let bytes = if fixed { file::seek(&read, 0, libc::SEEK_END).map_err(failed)? } else { meta.len() };
        let blocks = AtomicU64::new(bytes / PAGE_BYTES as u64);
        let mapping = (reads == ReadPath::Mapped).then(|| Mapping::of(&read, bytes)).and_then(|mapping| {
            mapping
                .inspect_err(|error| tracing::info!(%error, "the store is read, since it cannot be mapped"))
                .ok()
        });
        Ok(FileStore {
            write,
            read,
            reads,
            blocks,
            fixed,
            syncs,
            process: Process::current(),
            rings: Rings::new().map(Arc::new),
            mapping: mapping.map(Arc::new),
        })
    }

    /// Whether writes may be under way while others read.
    ///
    /// The kernel drops what its cache has of a range before a direct write to it, and again when the write has ended: what was read
    /// ahead meanwhile, of blocks beside those that were asked for, is as it was before the write. For a file the second
    /// time comes before the completion is told (`iomap_dio_complete`, in a worker), so whoever was told reads what was written. For a
    /// block device it comes at the end of the call that writes (`blkdev_write_iter`), which a write under way has not waited for:
    /// there what was read ahead would stay, and be read as damage later. So writes to a device whose reads go through the
    /// kernel's cache are waited for.
    fn overlaps(&self) -> bool {
        !self.fixed || self.reads == ReadPath::Direct
    }

    /// Notes that blocks were written.
    fn forget(&self, block: u64, blocks: u64) {
        if let Some(mapping) = &self.mapping {
            mapping.forget(block, blocks);
        }
    }
}

/// Locks a file against other processes.
///
/// One that was killed may be gone for some milliseconds before the kernel has let go of its files, so a lock that is
/// taken is tried again for a little while.
fn lock(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        if file::try_lock(file)? {
            return Ok(true);
        }
        std::thread::sleep(LOCK_WAIT);
    }
    Ok(false)
}

impl PageStore for FileStore {
    fn erases(&self) -> bool {
        file::overwrites_in_place(&self.write)
    }

    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.read.read_exact_at(out, block * PAGE_BYTES as u64)
    }

    fn write(&self, block: u64, _tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.process.check()?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let blocks = (bytes / PAGE_BYTES) as u64;
        if block + blocks > self.blocks() {
            return Err(beyond_end(block));
        }
        file::write_parts_at(&self.write, parts, block * PAGE_BYTES as u64)?;
        self.forget(block, blocks);
        Ok(())
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        let Some(rings) = self.rings.as_ref().filter(|_| reads.len() > 1 && self.process.is_current()) else {
            return reads.iter_mut().try_for_each(|(block, out)| self.read(*block, out));
        };
        let results = rings.read_all(&self.read, reads)?;
        for ((block, out), result) in reads.iter_mut().zip(results) {
            // What went wrong or came in part is read again by a plain call, which says why.
            if result != out.len() as i32 {
                self.read(*block, out)?;
            }
        }
        Ok(())
    }

    unsafe fn begin_write(&self, block: u64, tag: &Tag, pages: &[PageAddress]) -> io::Result<PendingWrite> {
        let blocks = pages.len() as u64;
        let fits = block + blocks <= self.blocks() && pages.len() <= PARTS_MAX && self.process.is_current();
        let rings = self.rings.as_ref().filter(|_| self.overlaps() && fits);
        // SAFETY: the caller's promise; a store waits for its writes before it lets its medium go.
        let begun = rings.and_then(|rings| unsafe { rings.begin_write(&self.write, block, pages) }.ok());
        let Some(write) = begun else {
            // SAFETY: the caller's promise.
            let parts: Vec<_> = pages.iter().map(|page| IoSlice::new(unsafe { &**page })).collect();
            return self.write(block, tag, &parts).map(|()| PendingWrite::done());
        };
        let mapping = self.mapping.clone();
        Ok(PendingWrite::until(move || {
            let done = write.wait();
            // The mapping has the old content of the blocks.
            mapping.inspect(|mapping| mapping.forget(block, blocks));
            done
        }))
    }

    fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.clone()
    }

    fn sync(&self) -> io::Result<()> {
        self.process.check()?;
        self.syncs.sync_data()
    }

    fn discard(&self, block: u64, blocks: u64) {
        // A file keeps its room: what a hole gives back, others may take before it can be taken again.
        if !self.fixed || !self.process.is_current() {
            return;
        }
        let (from, bytes) = (block * PAGE_BYTES as u64, blocks * PAGE_BYTES as u64);
        let discarded = file::discard(&self.write, from, bytes);
        self.forget(block, blocks);
        if let Err(error) = discarded {
            tracing::debug!(block, blocks, %error, "blocks could not be discarded");
        }
    }

    fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        if blocks <= self.blocks() {
            return Ok(());
        }
        self.process.check()?;
        if self.fixed {
            let size = format_size(self.blocks() * PAGE_BYTES as u64);
            return Err(io::Error::new(io::ErrorKind::StorageFull, format!("the device has {size}")));
        }
        self.write.set_len(blocks * PAGE_BYTES as u64)?;
        self.blocks.store(blocks, Ordering::Release);
        Ok(())
    }

    fn reserve(&self, block: u64, blocks: u64) -> io::Result<()> {
        self.process.check()?;
        if self.fixed || blocks == 0 {
            return Ok(());
        }
        match file::allocate(&self.write, block * PAGE_BYTES as u64, blocks * PAGE_BYTES as u64) {
            // The file system has no call for that.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    fn touch(&self, block: u64, blocks: u64) -> io::Result<()> {
        if self.fixed {
            return Ok(());
        }
        let zeros = AlignedBuf::zeroed(PAGE_BYTES);
        self.write(block, &Tag::METADATA, &vec![IoSlice::new(&zeros); blocks as usize])
    }

    fn cut(&self, blocks: u64) -> io::Result<u64> {
        let now = self.blocks();
        if blocks >= now {
            return Ok(now);
        }
        self.process.check()?;
        if self.fixed {
            self.discard(blocks, now - blocks);
            return Ok(now);
        }
        self.write.set_len(blocks * PAGE_BYTES as u64)?;
        self.blocks.store(blocks, Ordering::Release);
        // The kernel has taken these blocks out of the mapping.
        self.forget(blocks, now - blocks);
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sys::AlignedBuf;

    #[test]
    fn blocks_come_back_and_a_second_opener_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = FileStore::create(&path, ReadPath::Kernel).unwrap();
        store.grow(4).unwrap();
        let mut page = AlignedBuf::zeroed(2 * PAGE_BYTES);
        page.fill(7);
        store
            .write(
                1,
                &Tag::default(),
                &[IoSlice::new(&page[..PAGE_BYTES]), IoSlice::new(&page[PAGE_BYTES..])],
            )
            .unwrap();
        store.sync().unwrap();
        let mut out = AlignedBuf::zeroed(4 * PAGE_BYTES);
        store.read(0, &mut out).unwrap();
        assert!(out[..PAGE_BYTES].iter().all(|b| *b == 0) && out[3 * PAGE_BYTES..].iter().all(|b| *b == 0));
        assert!(out[PAGE_BYTES..3 * PAGE_BYTES].iter().all(|b| *b == 7));
        store.discard(1, 1);
        store.read(0, &mut out).unwrap();
        assert!(out[2 * PAGE_BYTES..3 * PAGE_BYTES].iter().all(|b| *b == 7), "only what was said");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * PAGE_BYTES as u64);
        store.write(1, &Tag::default(), &[IoSlice::new(&page[..PAGE_BYTES])]).unwrap();
        store.read(0, &mut out).unwrap();
        assert!(out[PAGE_BYTES..3 * PAGE_BYTES].iter().all(|b| *b == 7));
        assert!(store.write(3, &Tag::default(), &[IoSlice::new(&page)]).is_err(), "beyond the end");
        assert_eq!((store.cut(2).unwrap(), store.cut(3).unwrap(), store.blocks()), (2, 2, 2));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * PAGE_BYTES as u64);
        assert!(
            store.write(2, &Tag::default(), &[IoSlice::new(&page[..PAGE_BYTES])]).is_err()
                && store.read(0, &mut out).is_err()
        );
        store.grow(4).unwrap();
        store.read(0, &mut out).unwrap();
        assert!(out[PAGE_BYTES..2 * PAGE_BYTES].iter().all(|b| *b == 7), "what is before the cut stays");
        assert!(out[2 * PAGE_BYTES..].iter().all(|b| *b == 0), "what was cut off is gone");
        let error = FileStore::open(&path, ReadPath::Direct).unwrap_err();
        assert!(
            error.to_string().ends_with("in use by this process; close the store there first"),
            "{error}"
        );
    }
}
