//! The control memfd: the volume page, open files and inodes.

use super::lock::Lock;
use super::records::Records;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, fence};

/// "weftvol1" in memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"weftvol1");
/// Open files a volume can have at once.
pub const OPEN_FILES_MAX: usize = 1 << 16;
/// Inodes a volume can have open at once.
pub const INODES_MAX: usize = 1 << 16;
/// Bytes of an append ring; a power of two.
pub const RING_BYTES: usize = 1 << 20;
/// Append rings and overwrite areas a volume can have at once.
pub const RINGS_MAX: usize = 256;
/// Entries of a map chunk: 2 MiB of a file.
pub const CHUNK_ENTRIES: usize = 512;
/// Chunk numbers in a directory page: 2 GiB of a file.
pub const DIRECTORY_ENTRIES: usize = 1024;
/// Directory pages of an inode: files above 32 GiB are read beyond that through the server.
pub const DIRECTORIES: usize = 16;
/// The entry of a block that the core still buffers: `len` bytes of it (1 to 4096) are in this page of the map memory, the rest
/// are zeros.
pub fn copied_entry(page: u32, len: usize) -> u64 {
    debug_assert!((1..=4096).contains(&len) && page != 0, "no copy of a block");
    COPIED | u64::from(page) << 12 | (len as u64 - 1)
}

/// Page and length of such an entry.
pub fn copied(entry: u64) -> Option<(u32, usize)> {
    (entry & COPIED != 0).then_some(((entry >> 12) as u32, (entry & 0xfff) as usize + 1))
}

/// No address of a device is so high.
const COPIED: u64 = 1 << 63;
/// Blocks whose map entries are with the inode.
pub const FIRST_BLOCKS: usize = 8;
/// In [`Inode::first`]: nobody has looked yet. No [`weft_vfs::MapEntry`] has this value.
pub const UNKNOWN: u64 = 2;
/// Pages of the map memfd.
pub const MAP_PAGES_MAX: usize = 1 << 18;

/// In [`Inode::by_call`]: the server is about to give the inode up, or has.
pub const GOING: u32 = 1;
/// In [`Inode::by_call`]: a process stores to it by a map, which may leave something to be merged when it is killed.
pub const MAPPED: u32 = 2;
/// In [`Inode::by_call`]: what clients have overwritten cannot be stored; no more is accepted without a call, which says why.
pub const STUCK: u32 = 4;

/// In [`Inode::by_call`]: the file only grows (`chattr +a`). A descriptor of before may write elsewhere, and a program must not.
pub const APPEND_ONLY: u32 = 8;

/// Set by the kernel in a robust lock word when its owner died (`FUTEX_OWNER_DIED`).
const OWNER_DIED: u32 = 0x4000_0000;

/// First page of the control memfd.
#[repr(C, align(4096))]
pub struct VolumePage {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`super::VERSION`].
    pub version: AtomicU32,
    /// 0 while the server serves, 1 once it has shut down cleanly.
    pub stopped: AtomicU32,
    /// A robust mutex that the server holds as long as it lives; the kernel marks its first word when it dies, however
    /// it dies. Clients read that word and nothing else of it.
    pub alive: [AtomicU32; 16],
    /// Number of flush requests so far: the flusher's doorbell.
    pub kicks: AtomicU32,
    /// Non-zero while the flusher sleeps on `kicks`.
    pub flusher_sleeps: AtomicU32,
    /// Number of reports of stalled writers so far: the doorbell of who looks after them.
    pub stalls: AtomicU32,
    /// Bytes from the start of one zone to the next.
    pub zone_bytes: AtomicU64,
    /// Byte offset of zone 0 in the image.
    pub image_base: AtomicU64,
    /// Device blocks, the length of the CRC table.
    pub device_blocks: AtomicU64,
    /// The append log of the image.
    pub append_log: AppendLog,
    /// Non-zero: all [programs](weft_vfs::compound) are the server's, for the device has processors for them.
    pub runs_programs: AtomicU32,
}

/// The [append log](weft_core::append_log) of the image, for clients that make appended bytes durable by themselves.
#[repr(C)]
pub struct AppendLog {
    /// Where the next entry begins ([`log_place`]); 0 while clients ask the server.
    pub next: AtomicU64,
    /// Byte offset of the log in the image.
    pub offset: AtomicU64,
    /// The first block behind those for entries.
    pub end: AtomicU32,
    /// What entries name as their server.
    pub session: AtomicU64,
    /// The image's id, little-endian.
    pub image: [AtomicU64; 2],
}

/// The word of [`AppendLog::next`]: a turn, and a block in it.
pub fn log_place(turn: u32, block: u32) -> u64 {
    u64::from(turn) << 32 | u64::from(block)
}

/// Bits of [`Inode::durable`] that hold the size.
const DURABLE_BITS: u32 = 44;
/// The size in [`Inode::durable`] is below this.
pub const DURABLE_MAX: u64 = 1 << DURABLE_BITS;

/// The value of [`Inode::durable`]: how many bytes are durable, or `None` when the server has to be asked, and a number that
/// tells values of the same size apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable(pub u64);

impl Durable {
    /// Bytes below this are durable, and with them all else that an `fsync` is about.
    pub fn size(self) -> Option<u64> {
        (self.0 & (DURABLE_MAX - 1)).checked_sub(1)
    }

    /// The next value.
    pub fn then(self, size: Option<u64>) -> Durable {
        let size = size.map(|size| size + 1).filter(|word| *word < DURABLE_MAX).unwrap_or(0);
        Durable((self.0 >> DURABLE_BITS).wrapping_add(1) << DURABLE_BITS | size)
    }
}

impl VolumePage {
    /// Whether the server still serves.
    pub fn is_alive(&self) -> bool {
        self.alive[0].load(Relaxed) & OWNER_DIED == 0 && self.stopped.load(Relaxed) == 0
    }
}

/// An open file description: what `dup`ed and inherited descriptors share.
#[repr(C, align(64))]
pub struct OpenFile {
    /// Incremented when the slot is given out; a descriptor knows the generation that it was opened with.
    pub generation: AtomicU32,
    /// Slot of its inode.
    pub inode: AtomicU32,
    /// `open` flags: access mode, `O_APPEND`, ...
    pub flags: AtomicU32,
    /// Guards `offset` across read-and-advance.
    pub lock: Lock,
    /// The file offset, in bytes.
    pub offset: AtomicU64,
}

/// An open inode.
#[repr(C, align(256))]
pub struct Inode {
    /// Its number.
    pub ino: AtomicU64,
    /// Size in bytes, what the ring holds included.
    pub size: AtomicU64,
    /// Bytes below are with the core, those from here to `size` in the ring.
    pub head: AtomicU64,
    /// Last change of the data made by a client, in nanoseconds since 1970; 0 = none since the core's.
    pub mtime_ns: AtomicI64,
    /// First read since the server looked last, by which no append was pending, in nanoseconds since 1970; 0 = none.
    pub atime_ns: AtomicI64,
    /// First read behind the last append; 0 = none. What a read does to the access time depends on when the data was changed
    /// last.
    pub atime_after_ns: AtomicI64,
    /// Sequence lock over the map; odd while it changes.
    pub seq: AtomicU32,
    /// Which step of the server that changes several inodes at once comes next, twice; odd while one is under way: nobody reads the
    /// inode then, nor tells its size.
    pub step: AtomicU32,
    /// Number of its ring plus 1; 0 = appends go through the server.
    pub ring: AtomicU32,
    /// Number plus 1 of its [overwrite area](super::overwrites), among the rings; 0 = overwrites go through the server.
    pub overwrites: AtomicU32,
    /// Excludes writers from one another.
    pub write_lock: Lock,
    /// `st_mode` bits that tell regular files from others.
    pub kind: AtomicU32,
    /// Non-zero since a lock of it was asked for, it has lost a name, or a write-back has failed: whoever closes it tells the
    /// server at once.
    pub attended: AtomicU32,
    /// Why the server has to be asked to open it: [`GOING`], [`MAPPED`], [`STUCK`], [`APPEND_ONLY`]. With the second and the
    /// third, to overwrite it, too.
    pub by_call: AtomicU32,
    /// Map pages that hold the directories; 0 = none.
    pub directories: [AtomicU32; DIRECTORIES],
    /// Map entries of the first blocks, so that a small file needs no pages; [`UNKNOWN`] where the chunk tells.
    pub first: [AtomicU64; FIRST_BLOCKS],
    /// What of it is durable, as a [`Durable`]. What follows is in its ring, all of it.
    pub durable: AtomicU64,
    /// The turn of the append log in which a client has written, or was about to write, an entry of it; 0 = none.
    pub logged: AtomicU32,
    /// Who writes to it in several pieces, between which no other call changes it: that looks here under the write lock first.
    pub long_write: Lock,
    /// Counts pieces of long writes.
    pub long_pieces: AtomicU32,
    /// The thread in that write, as its process numbers it; 0 = the server writes for itself, or nobody does.
    pub long_thread: AtomicU32,
    /// Where the last append ends that a power cut may leave whole or not at all. What the ring holds goes to the core in one step
    /// as long as that is behind `head`.
    pub unit_end: AtomicU64,
}

/// After so long without a piece the writer of a long write counts as stopped, in nanoseconds.
const LONG_WRITE_PATIENCE: u64 = 5_000_000_000;
/// For so long others wait for a long write that goes on; then they write in between.
const LONG_WRITE_MOST: u64 = 30_000_000_000;

impl Inode {
    /// What `look` finds between two steps; `None` when one is under way, or has come meanwhile: the server knows.
    pub fn between_steps<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let step = self.step.load(Acquire);
        if step & 1 != 0 {
            return None;
        }
        let found = look();
        fence(Acquire);
        (self.step.load(Relaxed) == step).then_some(found)
    }

    /// The server has to be asked to make it durable.
    pub fn must_ask_for_sync(&self) {
        // All that follow must see it: a client looks again after it has taken its place in the log.
        let _ = self.durable.fetch_update(SeqCst, SeqCst, |word| Some(Durable(word).then(None).0));
    }

    /// Waits until no long write is under way, and keeps others from beginning one; false when the caller gave up, or the writer has
    /// done nothing for seconds, or goes on for much longer, and lost it. `is_over` is asked now and then whether to give up.
    pub fn exclude_long_writes(&self, holder: u32, is_over: impl Fn() -> bool) -> bool {
        let look = || (self.long_write.holder(), self.long_pieces.load(Relaxed));
        let begun = crate::sys::monotonic_ns();
        let (mut seen, mut since) = (look(), begun);
        let gives_up = || {
            let now = (look(), crate::sys::monotonic_ns());
            if now.0 != seen {
                (seen, since) = now;
            }
            is_over() || now.1 - since > LONG_WRITE_PATIENCE || now.1 - begun > LONG_WRITE_MOST
        };
        let excluded = self.long_write.lock(holder, gives_up);
        let is_late = crate::sys::monotonic_ns() - begun > LONG_WRITE_MOST;
        if !excluded && !is_over() && (look() == seen || is_late && look().0 == seen.0) {
            self.long_write.free_if_held_by(seen.0);
        }
        excluded
    }

    /// Notes a read at `now_ns`; most are not the first.
    pub fn note_read(&self, now_ns: impl FnOnce() -> i64) {
        let changed = self.mtime_ns.load(Relaxed);
        let (noted, known) = match changed {
            0 => (&self.atime_ns, 0),
            _ => (&self.atime_after_ns, changed),
        };
        if noted.load(Relaxed) <= known {
            noted.store(now_ns().max(known.saturating_add(1)), Relaxed);
        }
    }
}

/// What the control memfd holds, as one type.
#[repr(C)]
pub struct Control {
    /// The volume page.
    pub volume: VolumePage,
    /// Open files.
    pub open_files: [OpenFile; OPEN_FILES_MAX],
    /// Inodes.
    pub inodes: [Inode; INODES_MAX],
    /// One bit per inode: its ring wants flushing.
    pub kick_bits: [AtomicU64; INODES_MAX / 64],
    /// One bit per inode: somebody waits for a writer, who is perhaps stopped.
    pub stall_bits: [AtomicU64; INODES_MAX / 64],
    /// Record locks of the inodes.
    pub records: [Records; INODES_MAX],
}

impl Control {
    /// Asks the server to look whether the writer of the inode in a slot is stopped.
    pub fn report_stall(&self, slot: u32) {
        self.stall_bits[slot as usize / 64].fetch_or(1 << (slot % 64), SeqCst);
        self.volume.stalls.fetch_add(1, SeqCst);
        crate::sys::futex_wake(&self.volume.stalls, 1);
    }
}

/// After so long a wait for a writer is reported, and again each time, in nanoseconds.
const STALL_NS: u64 = 20_000_000;

/// A wait for a writer of an inode, which is perhaps stopped.
pub struct Stall<'a> {
    control: &'a Control,
    slot: u32,
    /// When it began, or was last reported; 0 = it has not begun.
    since: Cell<u64>,
}

impl<'a> Stall<'a> {
    /// A wait for whoever writes to the inode in a slot.
    pub fn new(control: &'a Control, slot: u32) -> Stall<'a> {
        Stall { control, slot, since: Cell::new(0) }
    }

    /// Reports the wait when it is time to. To be called now and then during the wait.
    pub fn look(&self) {
        let (now, since) = (crate::sys::monotonic_ns(), self.since.get());
        if since != 0 && now - since < STALL_NS {
            return;
        }
        self.since.set(now);
        if since != 0 {
            self.control.report_stall(self.slot);
        }
    }
}

/// A page of the map memfd.
#[repr(C, align(4096))]
pub union MapPage {
    /// Numbers of chunk pages; 0 = not filled yet.
    pub directory: std::mem::ManuallyDrop<[AtomicU32; DIRECTORY_ENTRIES]>,
    /// [`weft_vfs::MapEntry`] values.
    pub chunk: std::mem::ManuallyDrop<[AtomicU64; CHUNK_ENTRIES]>,
}

const _: () = {
    assert!(size_of::<VolumePage>() == 4096);
    assert!(size_of::<OpenFile>() == 64);
    assert!(size_of::<Inode>() == 256);
    assert!(size_of::<MapPage>() == 4096);
    assert!(RING_BYTES.is_power_of_two());
    // `alive` must hold a pthread_mutex_t and start where its lock word is.
    assert!(size_of::<libc::pthread_mutex_t>() <= 64);
};
