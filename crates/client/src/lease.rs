//! What a lease allows without the server: appending into the shared ring and reading along the shared map.

use crate::client::{BlockSource, Client, Leases};
use crate::long_write;
use crate::proto::{FileRef, is_writable};
use crate::scratch::Scratch;
use crate::shared::volume::{self, Inode, RING_BYTES, Stall};
use crate::sys::{self, Errno};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use weft_core::{BLOCK_BYTES, checksum, refuse};
use weft_vfs::MapEntry;

/// A reader that met a changing map this often asks the server.
const READ_TRIES: u32 = 16;
/// Ask the flusher to work once this much of a ring is used; the other half takes appends meanwhile.
const KICK_BYTES: u64 = RING_BYTES as u64 / 4;

/// Files that are longer grow by calls: the core knows how long they may get.
const APPENDED_SIZE_MAX: u64 = 1 << 61;

/// Bytes that one append puts into a ring, at most.
pub(crate) const APPEND_MAX: usize = RING_BYTES / 2;

/// Blocks that this process has verified lately.
///
/// Summing 4 KiB for a read of a few hundred bytes costs more than the read. A block's place in the table holds its
/// number and CRC, so a block that is written anew is a different one; and everything in it expires after about a
/// minute, so that what the kernel drops from its cache and reads from the disk again is verified again.
struct Verified([AtomicU64; VERIFIED_ENTRIES]);

/// Entries of the table: 1 GiB of blocks, 2 MiB of memory when all are used.
const VERIFIED_ENTRIES: usize = 1 << 18;
/// Ticks of the processor's counter (a few per nanosecond) after which an entry is old: 2^37 are 34 to 69 seconds.
const VERIFIED_TICKS_BITS: u32 = 37;

static VERIFIED: Verified = Verified([const { AtomicU64::new(0) }; VERIFIED_ENTRIES]);

struct VerifiedEntry<'a> {
    place: &'a AtomicU64,
    good: u64,
}

impl Verified {
    fn entry(&self, session: u64, device_block: u64, crc: u32) -> VerifiedEntry<'_> {
        let age = sys::ticks() >> VERIFIED_TICKS_BITS;
        // The constants spread consecutive ages and sessions over all bits. 0 is the value of an unused entry.
        let salt = age.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ session.wrapping_mul(0xff51_afd7_ed55_8ccd);
        let good = ((u64::from(crc) << 32 | device_block & 0xffff_ffff) ^ salt).max(1);
        VerifiedEntry { place: &self.0[device_block as usize % VERIFIED_ENTRIES], good }
    }
}

impl VerifiedEntry<'_> {
    fn is_good(&self) -> bool {
        self.place.load(Relaxed) == self.good
    }

    fn remember(&self) {
        self.place.store(self.good, Relaxed);
    }
}

/// How a write went that needs no call.
pub(crate) enum Written {
    /// All bytes are accepted.
    Done,
    /// Neither an append nor an overwrite, or no memory for it: the server has to do it.
    NotHere,
    /// Ring or area lacks room: drain it and come again.
    Full,
    /// An append to a regular file that has no ring yet.
    NoRing,
}

/// How a read went.
pub(crate) enum LeaseRead {
    /// So many bytes were read.
    Done(usize),
    /// The server has to do it; it may fill the map on the way.
    NotHere {
        /// The map lacks entries, or what the core still buffers.
        want_map: bool,
    },
}

/// What one block-wise copy met.
pub(crate) enum BlockCopy {
    Done,
    Ask { want_map: bool },
    Retry,
}

/// So many bytes have been appended: the server hears of it once per quarter of the ring, not once per append beyond it.
pub(crate) fn appended(leases: &Leases, inode: &Inode, slot: u32, len: usize) {
    let size = inode.size.load(Relaxed);
    let used = size - inode.head.load(Relaxed).min(size);
    if used >= KICK_BYTES && (size - len as u64) / KICK_BYTES != size / KICK_BYTES {
        kick(leases, slot);
    }
}

impl Client {
    /// Appends `parts` when the write is one: the position is the end of the file and there is a ring.
    ///
    /// `offset` is `None` for the open file's own offset, which then advances.
    pub(crate) fn append_here(
        &self,
        leases: &Leases,
        file: FileRef,
        offset: Option<u64>,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<Written, Errno> {
        let (open, inode, slot) = leases.open_file(file)?;
        let flags = open.flags.load(Relaxed) as i32;
        if !is_writable(flags) {
            return Err(libc::EBADF);
        }
        if len > APPEND_MAX {
            return Ok(Written::NotHere);
        }
        if !leases.control().volume.is_alive() {
            return Err(libc::EIO);
        }
        // As in Linux, an offset does not keep O_APPEND from appending.
        let at_end = flags & libc::O_APPEND != 0;
        // Look before taking the lock: a file written in place never needs it.
        let wanted = offset.unwrap_or_else(|| open.offset.load(Relaxed));
        if !at_end && wanted != inode.size.load(Relaxed) {
            return Ok(Written::NotHere);
        }
        let act = || self.append_locked(leases, inode, open, offset, at_end, parts, len);
        let (outcome, _) = self.under_write_lock((leases, open, inode, slot), file, act)?;
        if let Written::Done = outcome {
            appended(leases, inode, slot, len);
        }
        Ok(outcome)
    }

    /// Appends at the end of the file, wherever that is; the open file's offset stays. Where the bytes begin if they were accepted.
    pub(crate) fn append_at_end(
        &self,
        leases: &Leases,
        file: FileRef,
        data: &[u8],
    ) -> Result<(Written, u64), Errno> {
        let (open, inode, slot) = leases.open_file(file)?;
        let flags = open.flags.load(Relaxed) as i32;
        refuse(!is_writable(flags), libc::EBADF)?;
        refuse(!leases.control().volume.is_alive(), libc::EIO)?;
        if data.len() > APPEND_MAX || flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            return Ok((Written::NotHere, 0));
        }
        let act = || {
            let size = inode.size.load(Relaxed);
            let written = self.append_locked(leases, inode, open, Some(size), false, &[data], data.len())?;
            Ok((written, size))
        };
        let (outcome, _) = self.under_write_lock((leases, open, inode, slot), file, act)?;
        if let Written::Done = outcome.0 {
            appended(leases, inode, slot, data.len());
        }
        Ok(outcome)
    }

    /// What `act` does under the inode's write lock, and whether the lock was not taken away meanwhile.
    pub(crate) fn under_write_lock<T>(
        &self,
        (leases, open, inode, slot): (&Leases, &volume::OpenFile, &Inode, u32),
        file: FileRef,
        act: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<(T, bool), Errno> {
        let mut excludes_long = false;
        let stall = Stall::new(leases.control(), slot);
        let gives_up = || {
            stall.look();
            !self.is_alive()
        };
        loop {
            if !inode.write_lock.lock(self.holder(), gives_up) {
                return Err(libc::EIO);
            }
            if excludes_long || inode.long_write.holder() == 0 || long_write::is_in(slot) {
                break;
            }
            inode.write_lock.unlock(self.holder());
            excludes_long = inode.exclude_long_writes(self.holder(), gives_up);
            // A server that has ended takes nothing any more, and gives no word of a killed writer back.
            if !self.is_alive() {
                if excludes_long {
                    let _ = inode.long_write.unlock(self.holder());
                }
                return Err(libc::EIO);
            }
        }
        // Another thread may have closed the file, whose inode's place may be another one's.
        let is_open = open.generation.load(Acquire) == file.generation() && open.inode.load(Relaxed) == slot;
        let outcome = if is_open { act() } else { Err(libc::EBADF) };
        let is_kept = inode.write_lock.unlock(self.holder());
        if excludes_long {
            let _ = inode.long_write.unlock(self.holder());
        }
        Ok((outcome?, is_kept))
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn append_locked(
        &self,
        leases: &Leases,
        inode: &Inode,
        open: &volume::OpenFile,
        offset: Option<u64>,
        at_end: bool,
        parts: &[&[u8]],
        len: usize,
    ) -> Result<Written, Errno> {
        let size = inode.size.load(Relaxed);
        let position = if at_end { size } else { offset.unwrap_or_else(|| open.offset.load(Relaxed)) };
        if position != size || size > APPENDED_SIZE_MAX || inode.kind.load(Relaxed) != libc::S_IFREG {
            return Ok(Written::NotHere);
        }
        let Some(ring) = leases.ring(inode.ring.load(Relaxed)) else {
            return Ok(Written::NoRing);
        };
        // Acquire: the server is done with what lies below `head` before the bytes are overwritten.
        let head = inode.head.load(Acquire);
        if head > size || size + len as u64 - head > RING_BYTES as u64 {
            return Ok(Written::Full);
        }
        let mut at = size;
        for part in parts {
            copy_into_ring(ring, at, part);
            at += part.len() as u64;
        }
        debug_assert_eq!(at, size + len as u64, "an append writes all its parts");
        debug_assert!(
            at - head <= RING_BYTES as u64,
            "an append overwrites bytes that the server has not taken"
        );
        inode.mtime_ns.store(sys::coarse_now_ns(), Relaxed);
        // From here on the bytes are accepted: they live in the server's memory.
        inode.size.store(at, Release);
        if offset.is_none() {
            open.offset.store(at, Relaxed);
        }
        self.measured().ring_bytes.fetch_add(len as u64, Relaxed);
        Ok(Written::Done)
    }

    /// Reads at `offset` along the shared map and from the ring.
    pub(crate) fn read_here(
        &self,
        leases: &Leases,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<LeaseRead, Errno> {
        if inode.kind.load(Relaxed) != libc::S_IFREG {
            return Ok(LeaseRead::NotHere { want_map: false });
        }
        if !leases.control().volume.is_alive() {
            return Err(libc::EIO);
        }
        for _ in 0..READ_TRIES {
            // The step first: who sees anything of one that has begun sees that it has.
            let (step, seq) = (inode.step.load(Acquire), inode.seq.load(Acquire));
            if step & 1 != 0 {
                return Ok(LeaseRead::NotHere { want_map: false });
            }
            if seq & 1 != 0 {
                std::hint::spin_loop();
                continue;
            }
            let head = inode.head.load(Acquire);
            let size = inode.size.load(Acquire);
            if offset >= size {
                return Ok(LeaseRead::Done(0));
            }
            let end = size.min(offset.saturating_add(out.len() as u64));
            let len = (end - offset) as usize;
            let (below, above) = out[..len].split_at_mut(head.clamp(offset, end) as usize - offset as usize);
            if !below.is_empty() {
                match self.copy_mapped(leases, inode, offset, below) {
                    Ok(BlockCopy::Done) => {}
                    Ok(BlockCopy::Ask { want_map }) => return Ok(LeaseRead::NotHere { want_map }),
                    Ok(BlockCopy::Retry) => continue,
                    Err(error) => {
                        // A checksum that fails because the place was recycled is no error.
                        fence(Acquire);
                        if inode.seq.load(Relaxed) == seq {
                            return Err(error);
                        }
                        continue;
                    }
                }
            }
            if !above.is_empty() {
                let Some(ring) = leases.ring(inode.ring.load(Relaxed)) else { continue };
                let start = offset + below.len() as u64;
                #[cfg(test)]
                tests::meanwhile();
                copy_from_ring(ring, start, above);
                fence(Acquire);
                if inode.head.load(Relaxed) > start {
                    // Flushed meanwhile: the ring's bytes may be newer ones.
                    continue;
                }
            }
            fence(Acquire);
            if inode.seq.load(Relaxed) == seq && inode.step.load(Relaxed) == step {
                // When the server died meanwhile the next one may already write where this one's map led.
                let alive = leases.control().volume.is_alive();
                return if alive { Ok(LeaseRead::Done(len)) } else { Err(libc::EIO) };
            }
        }
        Ok(LeaseRead::NotHere { want_map: false })
    }

    /// Notes the time of a read, once until the server asks: the core's access time follows from that.
    pub(crate) fn note_read(&self, open: &volume::OpenFile, inode: &Inode) {
        if open.flags.load(Relaxed) as i32 & libc::O_NOATIME == 0 {
            inode.note_read(sys::coarse_now_ns);
        }
    }

    /// Copies bytes that lie below the ring, block by block.
    pub(crate) fn copy_mapped(
        &self,
        leases: &Leases,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<BlockCopy, Errno> {
        let overwrites = leases.overwrites(inode);
        let mut done = 0;
        let mut blocks_read = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let block = at / BLOCK_BYTES as u64;
            let within = (at % BLOCK_BYTES as u64) as usize;
            let take = (BLOCK_BYTES - within).min(out.len() - done);
            let piece_out = &mut out[done..done + take];
            if let Some(area) = &overwrites
                && let Ok(number) = u32::try_from(block)
                && let Some(found) = area.find(number).transpose()
            {
                let Ok((page, word)) = found else { return Ok(BlockCopy::Retry) };
                area.read(page, within, piece_out);
                // The area may be another inode's since, or the page another block's.
                if !area.is_still(page, word) || leases.overwrites(inode).is_none_or(|now| !now.is_same(area))
                {
                    return Ok(BlockCopy::Retry);
                }
                done += take;
                continue;
            }
            let entry = match leases.entry(inode, block) {
                None => return Ok(BlockCopy::Ask { want_map: true }),
                Some(raw) => MapEntry(raw),
            };
            if let Some((page, len)) = volume::copied(entry.0) {
                let stored = len.saturating_sub(within).min(take);
                if !leases.read_page(page, within, &mut piece_out[..stored]) {
                    return Ok(BlockCopy::Ask { want_map: false });
                }
                piece_out[stored..].fill(0);
                done += take;
                continue;
            }
            match entry.location() {
                Some((address, piece_len)) => {
                    let device_block = address / BLOCK_BYTES as u64;
                    let Some(place) = leases.place(device_block) else {
                        return Ok(BlockCopy::Ask { want_map: false });
                    };
                    let verified = match place {
                        // Nothing of it comes from a device that could have spoilt it.
                        BlockSource::Cache(word) if word.is_as_written() => Ok(true),
                        _ => self.verify_block(leases, place, device_block),
                    };
                    if verified == Ok(false) {
                        return Ok(BlockCopy::Retry);
                    }
                    #[cfg(test)]
                    tests::meanwhile();
                    let stored = piece_len.saturating_sub(within).min(take);
                    let copied = verified.and_then(|_| {
                        leases.read_image(place, address + within as u64, &mut piece_out[..stored])
                    });
                    // Whatever went wrong with a place that was given to another block is no error.
                    if !leases.is_still(place, device_block) {
                        return Ok(BlockCopy::Ask { want_map: false });
                    }
                    copied?;
                    piece_out[stored..].fill(0);
                    blocks_read += 1;
                }
                None if entry == MapEntry::HOLE => piece_out.fill(0),
                None => return Ok(BlockCopy::Ask { want_map: true }),
            }
            done += take;
        }
        self.measured().direct_blocks.fetch_add(blocks_read, Relaxed);
        Ok(BlockCopy::Done)
    }

    /// Checks a device block against its CRC32C.
    ///
    /// A block that this process found good lately is not summed again ([`Verified`]).
    fn verify_block(&self, leases: &Leases, place: BlockSource, device_block: u64) -> Result<bool, Errno> {
        if device_block >= leases.device_blocks {
            return Ok(false);
        }
        // SAFETY: within the CRC table (checked above).
        let wanted = unsafe { (*leases.crc.add(device_block as usize)).load(Relaxed) };
        let known = VERIFIED.entry(self.session, device_block, wanted);
        if known.is_good() {
            return Ok(true);
        }
        let got = match leases.sum_in_memory(place, device_block) {
            Some(sum) => sum,
            None => {
                let mut block = Scratch::<[u8; BLOCK_BYTES]>::any()?;
                leases.read_image(place, device_block * BLOCK_BYTES as u64, block.as_mut_slice())?;
                checksum::crc32c(block.as_slice())
            }
        };
        if got != wanted {
            return Err(libc::EIO);
        }
        known.remember();
        Ok(true)
    }
}

/// Asks the flusher to look at an inode's ring and overwrite area.
pub(crate) fn kick(leases: &Leases, inode_slot: u32) {
    let control = leases.control();
    let word: &AtomicU64 = &control.kick_bits[inode_slot as usize / 64];
    let bit = 1 << (inode_slot % 64);
    if word.fetch_or(bit, AcqRel) & bit != 0 {
        return;
    }
    control.volume.kicks.fetch_add(1, SeqCst);
    if control.volume.flusher_sleeps.load(SeqCst) != 0 {
        sys::futex_wake(&control.volume.kicks, 1);
    }
}

fn ring_split(at: u64, len: usize) -> (usize, usize) {
    let start = at as usize & (RING_BYTES - 1);
    (start, len.min(RING_BYTES - start))
}

fn copy_into_ring(ring: *mut u8, at: u64, bytes: &[u8]) {
    let (start, first) = ring_split(at, bytes.len());
    // SAFETY: both parts lie within the ring, as `bytes` is at most RING_BYTES long; the write lock makes this thread the
    // only writer, and readers look only below the published size.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(start), first);
        ptr::copy_nonoverlapping(bytes.as_ptr().add(first), ring, bytes.len() - first);
    }
}

pub(crate) fn copy_from_ring(ring: *const u8, at: u64, out: &mut [u8]) {
    let (start, first) = ring_split(at, out.len().min(RING_BYTES));
    let rest = out.len().min(RING_BYTES) - first;
    // SAFETY: both parts lie within the ring. Bytes that are overwritten at the same time are discarded by the caller,
    // which looks at `head` afterwards.
    unsafe {
        ptr::copy_nonoverlapping(ring.add(start), out.as_mut_ptr(), first);
        ptr::copy_nonoverlapping(ring, out.as_mut_ptr().add(first), rest);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::client::Image;
    use crate::shared::names::Names;
    use crate::shared::volume::{Control, MapPage};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32};
    use weft_core::cached::{CHUNK_BYTES, CacheWord};

    thread_local! {
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// What the server does between a reader's look at the map and its copy: once, when a test has set it.
    pub fn meanwhile() {
        if let Some(act) = MEANWHILE.with(|m| m.borrow_mut().take()) {
            act();
        }
    }

    /// Rigs must not share what the process has verified.
    static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

    pub fn set_meanwhile(act: impl FnOnce() + 'static) {
        MEANWHILE.with(|m| *m.borrow_mut() = Some(Box::new(act)));
    }

    fn leaked<T>(count: usize) -> *mut T {
        let layout = std::alloc::Layout::array::<T>(count).unwrap();
        // SAFETY: the layout is not empty; zeroed memory is valid for every type these tests use. Leaked on purpose.
        unsafe { std::alloc::alloc_zeroed(layout).cast() }
    }

    /// A device of 16 blocks, one open file of two blocks at device blocks 3 and 4, an empty ring behind them.
    #[derive(Clone, Copy)]
    pub struct Rig {
        pub client: &'static Client,
        pub leases: &'static Leases,
        image: *mut u8,
        crc: *const AtomicU32,
        map: *mut MapPage,
        rings: *mut u8,
    }

    impl Rig {
        pub fn new() -> Rig {
            let control: *mut Control = leaked(1);
            let (image, crc, map, rings, names): (_, _, _, _, *const Names) =
                (leaked(16 * BLOCK_BYTES), leaked(16), leaked(8), leaked(RING_BYTES), leaked(1));
            let leases = Leases {
                control,
                map,
                crc,
                rings,
                names,
                image: Image::Mapped { data: image },
                device_blocks: 16,
                append_log: None,
            };
            let client = Client {
                socket: AtomicI32::new(-1),
                channel: AtomicPtr::new(leaked(1)),
                parents_channel: AtomicPtr::default(),
                unwatched: AtomicU64::new(0),
                sent: Default::default(),
                near: None,
                connection: AtomicU32::new(0),
                volume_id: 1,
                session: NEXT_SESSION.fetch_add(1, Relaxed),
                leases: Some(leases),
                leases_given_up: AtomicBool::new(false),
                leases_unmapped: AtomicBool::new(false),
                identities: AtomicU64::new(0),
                duplicates: AtomicPtr::default(),
                children: AtomicU32::new(0),
            };
            let rig = Rig {
                client: Box::leak(Box::new(client)),
                leases: Box::leak(Box::new(leases)),
                image,
                crc,
                map,
                rings,
            };
            rig.inode().kind.store(libc::S_IFREG, Relaxed);
            rig.inode().first.iter().for_each(|entry| entry.store(volume::UNKNOWN, Relaxed));
            rig.inode().ring.store(1, Relaxed);
            rig.inode().directories[0].store(1, Relaxed);
            // SAFETY: page 1 of the map is the directory.
            unsafe { (&(*rig.map.add(1)).directory)[0].store(2, Relaxed) };
            rig.place(0, 3, b'a');
            rig.place(1, 4, b'b');
            rig.inode().head.store(2 * BLOCK_BYTES as u64, Relaxed);
            rig.inode().size.store(2 * BLOCK_BYTES as u64, Relaxed);
            rig
        }

        /// The same with a cache in place of the image: it holds the device's only chunk in the second of two slots.
        fn cached(held: u32) -> (Rig, &'static AtomicU64) {
            let rig = Rig::new();
            let (table, slots): (*mut AtomicU64, *mut u8) = (leaked(1), leaked(2 * CHUNK_BYTES));
            // SAFETY: the slot has room for the 16 blocks; the table has one word, and is leaked.
            let (second, word) = unsafe {
                let second = slots.add(CHUNK_BYTES);
                ptr::copy_nonoverlapping(rig.image, second, CHUNK_BYTES);
                (second, &*table)
            };
            word.store(CacheWord::new(9, 1, held).0, Release);
            let image = Image::Cache { table, slots, slot_count: 2 };
            let leases = Box::leak(Box::new(Leases { image, ..*rig.leases }));
            (Rig { leases, image: second, ..rig }, word)
        }

        fn is_left_to_the_server(&self, offset: u64) -> bool {
            let outcome = self.client.read_here(self.leases, self.inode(), offset, &mut [0; 10]);
            matches!(outcome, Ok(LeaseRead::NotHere { want_map: false }))
        }

        pub fn inode(&self) -> &'static Inode {
            &self.leases.control().inodes[0]
        }

        /// Fills a device block and its CRC.
        fn write_block(&self, device_block: usize, byte: u8) {
            let data = [byte; BLOCK_BYTES];
            // SAFETY: the image has 16 blocks, the table 16 entries.
            unsafe {
                ptr::copy_nonoverlapping(
                    data.as_ptr(),
                    self.image.add(device_block * BLOCK_BYTES),
                    BLOCK_BYTES,
                );
                (*self.crc.add(device_block)).store(checksum::crc32c(&data), Relaxed);
            }
        }

        /// Writes a block and maps it as the server does.
        fn place(&self, block: usize, device_block: usize, byte: u8) {
            self.write_block(device_block, byte);
            let entry = MapEntry::piece((device_block * BLOCK_BYTES) as u64, BLOCK_BYTES);
            self.inode().seq.fetch_add(1, AcqRel);
            // SAFETY: page 2 of the map is the chunk.
            unsafe { (&(*self.map.add(2)).chunk)[block].store(entry.0, Relaxed) };
            self.inode().seq.fetch_add(1, Release);
        }

        fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
            let mut out = vec![0; len];
            match self.client.read_here(self.leases, self.inode(), offset, &mut out)? {
                LeaseRead::Done(n) => {
                    out.truncate(n);
                    Ok(out)
                }
                LeaseRead::NotHere { .. } => panic!("not readable here"),
            }
        }
    }

    #[test]
    fn a_read_follows_the_map_and_ends_at_the_size() {
        let rig = Rig::new();
        let got = rig.read(4090, 12).unwrap();
        assert_eq!(got, b"aaaaaabbbbbb");
        assert_eq!(rig.read(8190, 100).unwrap(), b"bb");
        assert_eq!(rig.read(9000, 100).unwrap(), b"");
    }

    #[test]
    fn a_block_that_moves_between_look_and_copy_is_read_at_its_new_place() {
        let rig = Rig::new();
        set_meanwhile(move || {
            rig.place(0, 7, b'a');
            // The old place is erased and holds somebody else's data.
            rig.write_block(3, b'X');
        });
        assert_eq!(rig.read(0, 4096).unwrap(), vec![b'a'; 4096]);
    }

    #[test]
    fn what_was_copied_while_the_server_died_is_not_believed() {
        for at_once in [false, true] {
            let rig = Rig::new();
            // Its checksum is not looked at again.
            rig.read(0, 10).unwrap();
            set_meanwhile(move || {
                if at_once {
                    rig.leases.control().volume.stopped.store(1, Relaxed);
                }
                // What the next server writes there.
                // SAFETY: within the image.
                unsafe { rig.image.add(3 * BLOCK_BYTES).write_bytes(b'X', BLOCK_BYTES) };
            });
            let expected = if at_once { Err(libc::EIO) } else { Ok(vec![b'X'; 10]) };
            assert_eq!(rig.read(0, 10), expected);
        }
    }

    #[test]
    fn a_place_that_was_recycled_before_the_checksum_is_no_error() {
        let rig = Rig::new();
        set_meanwhile(move || {
            rig.place(1, 8, b'b');
            // Half erased: the checksum of the old place cannot match.
            // SAFETY: within the image.
            unsafe { rig.image.add(4 * BLOCK_BYTES).write(b'Z') };
        });
        assert_eq!(rig.read(0, 8192).unwrap()[4096..], vec![b'b'; 4096]);
    }

    #[test]
    fn a_block_whose_checksum_does_not_match_is_eio() {
        let rig = Rig::new();
        // SAFETY: within the image.
        unsafe { rig.image.add(3 * BLOCK_BYTES + 77).write(b'!') };
        assert_eq!(rig.read(0, 10).unwrap_err(), libc::EIO);
    }

    #[test]
    fn ring_bytes_that_are_flushed_and_overwritten_meanwhile_are_read_from_the_device() {
        let rig = Rig::new();
        let at = 2 * BLOCK_BYTES as u64;
        copy_into_ring(rig.rings, at, &[b'c'; BLOCK_BYTES]);
        rig.inode().size.store(at + BLOCK_BYTES as u64, Relaxed);
        set_meanwhile(move || {
            rig.place(2, 9, b'c');
            rig.inode().head.store(at + BLOCK_BYTES as u64, Release);
            copy_into_ring(rig.rings, at + RING_BYTES as u64, &[b'Y'; BLOCK_BYTES]);
        });
        assert_eq!(rig.read(at - 2, 100).unwrap(), [b"bb".as_slice(), &[b'c'; 98]].concat());
    }

    #[test]
    fn ring_bytes_that_are_flushed_meanwhile_are_never_taken_for_older_ones() {
        let rig = Rig::new();
        // Beyond the chunks that are filled: the flush changes no map entry, only the head tells.
        let at = 512 * BLOCK_BYTES as u64;
        rig.inode().head.store(at, Relaxed);
        rig.inode().size.store(at + 100, Relaxed);
        copy_into_ring(rig.rings, at, &[b'c'; 100]);
        set_meanwhile(move || {
            rig.inode().head.store(at + 100, Release);
            copy_into_ring(rig.rings, at + RING_BYTES as u64, &[b'Y'; 100]);
        });
        let mut out = [0; 100];
        let outcome = rig.client.read_here(rig.leases, rig.inode(), at, &mut out).unwrap();
        assert!(matches!(outcome, LeaseRead::NotHere { want_map: true }));
    }

    #[test]
    fn what_the_cache_holds_is_read_here_and_the_rest_left_to_the_server() {
        let (rig, word) = Rig::cached(4);
        assert_eq!(rig.read(4000, 90).unwrap(), vec![b'a'; 90]);
        assert!(rig.is_left_to_the_server(4096), "block 4 is not among the first four");
        word.store(CacheWord::new(9, 1, 5).0, Release);
        assert_eq!(rig.read(4090, 12).unwrap(), b"aaaaaabbbbbb");
        word.store(CacheWord(word.load(Relaxed)).taken_back().0, Release);
        assert!(rig.is_left_to_the_server(0));
        word.store(CacheWord::new(10, 7, 16).0, Release);
        assert_eq!(rig.read(0, 10).unwrap_err(), libc::EIO, "there is no such slot");
    }

    #[test]
    fn a_slot_that_is_given_away_between_look_and_copy_is_not_believed() {
        for known in [false, true] {
            let (rig, word) = Rig::cached(16);
            if known {
                // Its checksum is not looked at again.
                rig.read(0, 10).unwrap();
            }
            set_meanwhile(move || {
                word.store(CacheWord(word.load(Relaxed)).taken_back().0, Release);
                // SAFETY: within the slot.
                unsafe { rig.image.add(3 * BLOCK_BYTES).write_bytes(b'X', BLOCK_BYTES) };
            });
            assert!(rig.is_left_to_the_server(0));
        }
    }

    #[test]
    fn what_is_in_the_cache_as_it_was_written_is_not_summed_and_still_not_believed_when_it_is_given_away() {
        let (rig, word) = Rig::cached(16);
        word.store(CacheWord(word.load(Relaxed)).as_written().0, Release);
        // The table of sums is another's business.
        // SAFETY: within the table.
        unsafe { (*rig.crc.add(3)).fetch_xor(1, Relaxed) };
        assert_eq!(rig.read(0, 10).unwrap(), vec![b'a'; 10]);
        set_meanwhile(move || {
            word.store(CacheWord(word.load(Relaxed)).taken_back().0, Release);
            // SAFETY: within the slot.
            unsafe { rig.image.add(3 * BLOCK_BYTES).write_bytes(b'X', BLOCK_BYTES) };
        });
        assert!(rig.is_left_to_the_server(0));
    }

    #[test]
    fn a_damaged_block_in_the_cache_is_eio() {
        let (rig, _) = Rig::cached(16);
        // SAFETY: within the slot.
        unsafe { rig.image.add(3 * BLOCK_BYTES + 77).write(b'!') };
        assert_eq!(rig.read(0, 10).unwrap_err(), libc::EIO);
    }
}
