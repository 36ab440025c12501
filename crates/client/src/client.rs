//! The connection of one process, and the memory it shares with the server.

use crate::busy::Busy;
use crate::duplicates::Duplicates;
use crate::durable::LogFile;
use crate::programs::SentPrograms;
use crate::proto::FileRef;
use crate::shared::channel::{Channel, ClientCounters, Slot};
use crate::shared::names::Names;
use crate::shared::volume::{
    self, Control, DIRECTORIES, Inode, MAP_PAGES_MAX, MapPage, RING_BYTES, RINGS_MAX,
};
use crate::sys::{self, Errno};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};
use weft_core::BLOCK_BYTES;
use weft_core::cached::{CHUNK_BLOCKS, CHUNK_BYTES, CacheWord, table_bytes};
use weft_vfs::compound::Near;

/// What [`Client::open`] gives.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// The open file.
    pub file: FileRef,
    /// Its `st_mode`.
    pub mode: u32,
}

/// One process's connection to the server of a volume.
///
/// The fields that differ between a process and its forked child are atomics, replaced by [`Client::adopt`].
pub struct Client {
    pub(crate) socket: AtomicI32,
    pub(crate) channel: AtomicPtr<Channel>,
    /// In a forked child that has not heard: its parent's channel, still mapped. Null otherwise.
    pub(crate) parents_channel: AtomicPtr<Channel>,
    pub(crate) connection: AtomicU32,
    pub(crate) volume_id: u64,
    pub(crate) session: u64,
    /// Looked at by way of [`Client::leases`].
    pub(crate) leases: Option<Leases>,
    pub(crate) leases_given_up: AtomicBool,
    pub(crate) leases_unmapped: AtomicBool,
    /// 0 while all threads are one user; else threads tell who they are when they have not since this number came.
    pub(crate) identities: AtomicU64,
    /// Mapped when the first descriptor is duplicated.
    pub(crate) duplicates: AtomicPtr<Duplicates>,
    /// Connections for children that this process has asked for without waiting.
    pub(crate) children: AtomicU32,
    /// Slots, one bit each, whose answers nobody waits for.
    pub(crate) unwatched: AtomicU64,
    /// Programs that the server keeps.
    pub(crate) sent: Mutex<SentPrograms>,
    /// Codecs for programs that are run here.
    pub(crate) near: Option<&'static dyn Near>,
}

/// Shared memory that only clients of the server's own user get.
#[derive(Clone, Copy)]
pub(crate) struct Leases {
    pub control: *const Control,
    pub map: *const MapPage,
    pub crc: *const AtomicU32,
    pub rings: *mut u8,
    pub names: *const Names,
    pub image: Image,
    pub device_blocks: u64,
    /// Where appended bytes are made durable without the server.
    pub append_log: Option<LogFile>,
}

/// What is called before a descriptor of leases is closed; null: nothing.
static BEFORE_CLOSE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// From now on `act` is called with each descriptor of leases before it is closed: whoever guards it for the program lets it go. The
/// thread that closes it may be any that used the leases last.
pub fn before_own_descriptor_closes(act: fn(i32)) {
    BEFORE_CLOSE.store(act as *mut (), Release);
}

fn close_own(fd: i32) {
    let act = BEFORE_CLOSE.load(Acquire);
    if !act.is_null() {
        // SAFETY: stored above, of this type.
        unsafe { std::mem::transmute::<*mut (), fn(i32)>(act)(fd) };
    }
    let _ = sys::close(fd);
}

/// How the device's data area is read.
#[derive(Clone, Copy)]
pub(crate) enum Image {
    Mapped {
        data: *const u8,
    },
    File {
        fd: i32,
        base: u64,
    },
    /// What the server keeps of a device that clients cannot read ([`weft_core::cached`]).
    Cache {
        table: *const AtomicU64,
        slots: *const u8,
        slot_count: u64,
    },
}

/// Where a device block is read from.
#[derive(Clone, Copy)]
pub(crate) enum BlockSource {
    /// The image, at the block's address.
    Image,
    /// A chunk in the cache, as this word says.
    Cache(CacheWord),
}

// SAFETY: everything behind the pointers is shared memory made of atomics, or bytes whose reading is guarded by the
// sequence lock (`Leases::image`, rings) as described in `shared`; the pointers themselves never change.
unsafe impl Send for Leases {}
// SAFETY: as above.
unsafe impl Sync for Leases {}

/// After so long it is looked whether the server is still there.
const CHILD_PATIENCE_NS: u64 = 50_000_000;

/// Who gets a connection that [`Client::prepare_child`] makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Child {
    /// A forked process.
    Forked,
    /// Another process, after it has executed a program.
    Spawned,
    /// This process, after it has executed a program; it keeps its record locks.
    Executed,
}

/// A connection made for a child that is about to be forked or for a program about to be executed.
#[derive(Debug)]
pub struct ForkTicket {
    pub(crate) socket: i32,
}

impl ForkTicket {
    /// The ticket's socket, for the environment of an executed program.
    pub fn socket(&self) -> i32 {
        self.socket
    }
}

impl Client {
    /// Number that marks this process's locks in shared memory.
    pub(crate) fn holder(&self) -> u32 {
        // A forked child knows its number with the channel.
        let _ = self.channel();
        self.connection.load(Relaxed) + 1
    }

    #[inline]
    pub(crate) fn channel(&self) -> &Channel {
        let mut channel = self.channel.load(Acquire);
        if channel.is_null() {
            channel = self.hear_at_last();
        }
        // SAFETY: the pointer was mapped by `connect` or `hear` and stays mapped until the process ends or is forked. All-zero
        // memory is a valid Channel.
        unsafe { &*channel }
    }

    /// A forked child calls without having [heard](Self::hear). It must not go on in its parent's name: when it cannot hear, all
    /// its calls fail.
    #[cold]
    fn hear_at_last(&self) -> *mut Channel {
        let _busy = Busy::new();
        if self.hear().is_err() {
            self.give_leases_up();
            sys::shut_down(self.socket());
            let Ok(nobodys) = sys::map_anonymous(size_of::<Channel>()) else { std::process::abort() };
            self.channel.store(nobodys.cast(), Release);
        }
        self.channel.load(Acquire)
    }

    pub(crate) fn slot(&self, index: usize) -> &Slot {
        &self.channel().slots[index]
    }

    /// What this process measured so far.
    pub fn measured(&self) -> &ClientCounters {
        &self.channel().measured
    }

    /// Descriptor of the connection; a program must not close it.
    pub fn socket(&self) -> i32 {
        self.socket.load(Relaxed)
    }

    /// The connection's own descriptors, which a program must neither close nor use; -1 for one that is not open.
    pub fn own_descriptors(&self) -> [i32; 3] {
        let leases = self.leases();
        let image = match leases.as_ref().map(|leases| leases.image) {
            Some(Image::File { fd, .. }) => fd,
            _ => -1,
        };
        let log = leases.as_ref().and_then(|leases| leases.append_log).map_or(-1, |log| log.fd);
        [self.socket(), image, log]
    }

    /// Tells this volume from others, whoever serves it.
    pub fn volume_id(&self) -> u64 {
        self.volume_id
    }

    /// Tells this server from others, of other volumes and of this one before and later.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Whether the server is still there.
    pub fn is_alive(&self) -> bool {
        match self.leases() {
            Some(leases) => leases.control().volume.is_alive(),
            None => !self.socket_ended(),
        }
    }

    /// Whether the socket's other end is gone.
    pub(crate) fn socket_ended(&self) -> bool {
        sys::peer_gone(self.socket())
    }

    /// Makes a connection for a child, or for the program that this process is about to become: it begins with this
    /// process's open files. Call it before `fork` or `exec`. The server is not waited for: whatever this process opens or closes
    /// next waits for it.
    pub fn prepare_child(&self, child: Child) -> Result<ForkTicket, Errno> {
        crate::connect::connect_clone(self, child)
    }

    /// In the child, before anything else is done with the client: the ticket's connection is the process's from now on, once it is
    /// [heard](Self::hear) of.
    pub fn adopt(&self, ticket: ForkTicket) {
        let _ = sys::close(self.socket.swap(ticket.socket, Relaxed));
        // The parent's, which is not this process's to use any more. A child that has not heard has none.
        let parents = self.channel.swap(ptr::null_mut(), AcqRel);
        if !parents.is_null() {
            self.parents_channel.store(parents, Release);
        }
        self.children.store(0, Relaxed);
        // The parent's slots.
        self.unwatched.store(0, Relaxed);
        // The ticket is of who the forking thread was, which is all that there is now.
        self.identities.store(0, Relaxed);
        crate::lease_use::forget_slot();
        crate::connect::forget_turn();
    }

    /// In the child, before its first call: what it shares with the server from now on. Threads that do it at once get the same.
    pub fn hear(&self) -> Result<(), Errno> {
        let parents = self.parents_channel.swap(ptr::null_mut(), AcqRel);
        if !parents.is_null() {
            // SAFETY: mapped by the parent's `connect` or `hear`. Nobody refers to it here, where only one thread came from there.
            unsafe { sys::unmap(parents.cast(), size_of::<Channel>()) };
        }
        let (channel, connection) = crate::connect::ask_for_memory(self.socket())?;
        self.connection.store(connection, Relaxed);
        self.channel.store(channel, Release);
        Ok(())
    }

    /// Before this process has other files open than when it made connections for children: the server gives each the files of
    /// the moment.
    #[inline]
    pub(crate) fn await_children(&self) {
        let made = self.children.load(SeqCst);
        if made != self.channel().events.children.load(SeqCst) {
            self.wait_for_children(made);
        }
    }

    #[cold]
    fn wait_for_children(&self, made: u32) {
        let begun = &self.channel().events.children;
        loop {
            let now = begun.load(SeqCst);
            // Others may make more meanwhile, or fail to.
            let is_done = made.wrapping_sub(now) as i32 <= 0 || self.children.load(SeqCst) == now;
            if is_done || self.socket_ended() {
                return;
            }
            sys::futex_wait(begun, now, CHILD_PATIENCE_NS);
        }
    }

    /// In the parent, or when the fork or exec failed: the ticket is the child's alone.
    pub fn forget(&self, ticket: ForkTicket) {
        let _ = sys::close(ticket.socket);
    }

    /// In a child that has not [heard](Self::hear) of its connection: a descriptor of that for the program which it becomes.
    pub fn hand_on(&self) -> Result<ForkTicket, Errno> {
        crate::connect::beyond_exec(self.socket()).map(|socket| ForkTicket { socket })
    }
}

impl Drop for Client {
    /// The connection ends, and with it what was shared with the server.
    fn drop(&mut self) {
        let _ = sys::close(self.socket());
        let channel = self.channel.load(Acquire);
        if !channel.is_null() {
            // SAFETY: mapped by `connect` or `hear`, and whoever borrowed from it borrowed the client.
            unsafe { sys::unmap(channel.cast(), size_of::<Channel>()) };
        }
        let duplicates = self.duplicates.load(Acquire);
        if !duplicates.is_null() {
            // SAFETY: mapped by `duplicates`, and whoever borrowed from it borrowed the client.
            unsafe { sys::unmap(duplicates.cast(), size_of::<Duplicates>()) };
        }
        if let (Some(leases), false) = (&self.leases, self.leases_are_gone()) {
            // SAFETY: likewise.
            unsafe { leases.unmap() };
        }
    }
}

impl Leases {
    /// Bytes of address space that the leases of such a volume take.
    pub(crate) fn address_space(device_blocks: u64, image_bytes: u64) -> u64 {
        let fixed = size_of::<Control>()
            + MAP_PAGES_MAX * size_of::<MapPage>()
            + RINGS_MAX * RING_BYTES
            + size_of::<Names>();
        fixed as u64 + device_blocks * size_of::<AtomicU32>() as u64 + image_bytes
    }

    /// Bytes of address space that these take.
    pub(crate) fn bytes(&self) -> u64 {
        let image_bytes = match self.image {
            Image::Mapped { .. } => self.device_blocks * BLOCK_BYTES as u64,
            Image::Cache { slot_count, .. } => {
                table_bytes(self.device_blocks) + slot_count * CHUNK_BYTES as u64
            }
            Image::File { .. } => 0,
        };
        Self::address_space(self.device_blocks, image_bytes)
    }

    /// Whether a process that may have `limit` bytes of address space, and has `others` in use beside the leases, keeps as much
    /// for itself as these leases take.
    pub(crate) fn fit(bytes: u64, others: u64, limit: u64) -> bool {
        others.saturating_add(bytes.saturating_mul(2)) <= limit
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody uses the leases any more, nor will.
    pub(crate) unsafe fn unmap(&self) {
        let device_bytes = self.device_blocks as usize * BLOCK_BYTES;
        // SAFETY: the ranges are those that `connect` mapped; the rest is the caller's promise.
        unsafe {
            sys::unmap(self.control.cast_mut().cast(), size_of::<Control>());
            sys::unmap(self.map.cast_mut().cast(), MAP_PAGES_MAX * size_of::<MapPage>());
            sys::unmap(self.crc.cast_mut().cast(), self.device_blocks as usize * size_of::<AtomicU32>());
            sys::unmap(self.rings, RINGS_MAX * RING_BYTES);
            sys::unmap(self.names.cast_mut().cast(), size_of::<Names>());
            match self.image {
                Image::Mapped { data } => sys::unmap(data.cast_mut(), device_bytes),
                Image::Cache { table, slots, slot_count } => {
                    let table_bytes = slots.offset_from(table.cast()) as usize;
                    sys::unmap(table.cast_mut().cast(), table_bytes + slot_count as usize * CHUNK_BYTES);
                }
                Image::File { fd, .. } => close_own(fd),
            }
            if let Some(log) = self.append_log {
                close_own(log.fd);
            }
        }
    }

    pub fn control(&self) -> &Control {
        // SAFETY: mapped by `connect` for the life of the process; made of atomics.
        unsafe { &*self.control }
    }

    pub fn names(&self) -> &Names {
        // SAFETY: mapped by `connect` for the life of the process; made of atomics.
        unsafe { &*self.names }
    }

    /// The open file and its inode; `EBADF` when the slot has been given to another file since, `EIO` when the server
    /// has stopped.
    pub fn open_file(&self, file: FileRef) -> Result<(&volume::OpenFile, &Inode, u32), Errno> {
        let open = self.control().open_files.get(file.slot() as usize).ok_or(libc::EBADF)?;
        if open.generation.load(Relaxed) != file.generation() {
            // A server that stops closes every file first.
            return Err(if self.control().volume.is_alive() { libc::EBADF } else { libc::EIO });
        }
        let slot = open.inode.load(Relaxed);
        let inode = self.control().inodes.get(slot as usize).ok_or(libc::EIO)?;
        Ok((open, inode, slot))
    }

    /// The map entry of a file's block; `None` when its chunk is not filled.
    pub fn entry(&self, inode: &Inode, block: u64) -> Option<u64> {
        let first = inode.first.get(block as usize).map_or(volume::UNKNOWN, |entry| entry.load(Acquire));
        if first != volume::UNKNOWN {
            return Some(first);
        }
        let chunk = (block / volume::CHUNK_ENTRIES as u64) as usize;
        let directory = chunk / volume::DIRECTORY_ENTRIES;
        if directory >= DIRECTORIES {
            return None;
        }
        let page = self.map_page(inode.directories[directory].load(Acquire))?;
        // SAFETY: a page that an inode names as a directory is one, or was recycled by the server, in which case the
        // sequence lock tells; either way it is 4,096 bytes of atomics.
        let number = unsafe { page.directory[chunk % volume::DIRECTORY_ENTRIES].load(Acquire) };
        let page = self.map_page(number)?;
        // SAFETY: as above.
        Some(unsafe { page.chunk[(block % volume::CHUNK_ENTRIES as u64) as usize].load(Relaxed) })
    }

    /// Copies bytes of a page of the map memory. Bytes that change meanwhile are of no meaning: the sequence lock tells.
    pub fn read_page(&self, number: u32, within: usize, out: &mut [u8]) -> bool {
        let Some(page) = self.map_page(number).filter(|_| within + out.len() <= BLOCK_BYTES) else {
            return false;
        };
        // SAFETY: within the page, which is mapped.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw const *page).cast::<u8>().add(within),
                out.as_mut_ptr(),
                out.len(),
            );
        }
        true
    }

    fn map_page(&self, number: u32) -> Option<&MapPage> {
        if number == 0 || number as usize >= MAP_PAGES_MAX {
            return None;
        }
        // SAFETY: `number` is within the mapped map memfd.
        Some(unsafe { &*self.map.add(number as usize) })
    }

    /// Start of a ring.
    pub fn ring(&self, number_plus_1: u32) -> Option<*mut u8> {
        if number_plus_1 == 0 || number_plus_1 as usize > RINGS_MAX {
            return None;
        }
        // SAFETY: the ring memfd has RINGS_MAX rings.
        Some(unsafe { self.rings.add((number_plus_1 as usize - 1) * RING_BYTES) })
    }

    /// Where the device block with this number can be read; `None` when only the server can.
    pub fn place(&self, device_block: u64) -> Option<BlockSource> {
        let Image::Cache { .. } = self.image else { return Some(BlockSource::Image) };
        let word = self.cache_word(device_block)?;
        ((device_block % CHUNK_BLOCKS as u64) < u64::from(word.held())).then_some(BlockSource::Cache(word))
    }

    /// Whether what was copied from a place since it was asked for is what it held then.
    pub fn is_still(&self, place: BlockSource, device_block: u64) -> bool {
        let BlockSource::Cache(before) = place else { return true };
        fence(Acquire);
        self.cache_word(device_block).is_some_and(|now| now.is_same_place(before))
    }

    fn cache_word(&self, device_block: u64) -> Option<CacheWord> {
        let Image::Cache { table, .. } = self.image else { return None };
        if device_block >= self.device_blocks {
            return None;
        }
        // SAFETY: the table has a word for each chunk of the device.
        let word = unsafe { &*table.add((device_block / CHUNK_BLOCKS as u64) as usize) };
        Some(CacheWord(word.load(Acquire)))
    }

    /// The address in memory of a byte of the device and the bytes that follow within its block; `None` of an image that
    /// is not in memory, and of a word that makes no sense.
    fn in_memory(&self, place: BlockSource, address: u64) -> Option<*const u8> {
        match (self.image, place) {
            // SAFETY: the caller has checked that the address is within the device, which is mapped.
            (Image::Mapped { data }, _) => Some(unsafe { data.add(address as usize) }),
            (Image::Cache { slots, slot_count, .. }, BlockSource::Cache(word)) => {
                let slot = u64::from(word.slot());
                let at = slot * CHUNK_BYTES as u64 + address % CHUNK_BYTES as u64;
                // SAFETY: that many slots are mapped.
                (slot < slot_count).then(|| unsafe { slots.add(at as usize) })
            }
            _ => None,
        }
    }

    /// CRC32C of a device block as it is in memory; `None` when it is not there.
    pub fn sum_in_memory(&self, place: BlockSource, device_block: u64) -> Option<u32> {
        let at = self.in_memory(place, device_block * BLOCK_BYTES as u64)?;
        // SAFETY: the block is mapped. A concurrent change of the bytes gives a checksum of no meaning, which the
        // caller's sequence lock or look at the place discards.
        Some(weft_core::checksum::crc32c(unsafe { std::slice::from_raw_parts(at, BLOCK_BYTES) }))
    }

    /// Copies written bytes of one block of the device, at a byte address.
    pub fn read_image(&self, place: BlockSource, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let within = (address % BLOCK_BYTES as u64) as usize + out.len() <= BLOCK_BYTES;
        if !within || address + out.len() as u64 > self.device_blocks * BLOCK_BYTES as u64 {
            return Err(libc::EIO);
        }
        if let Image::File { fd, base } = self.image {
            return read_file(fd, base + address, out);
        }
        let at = self.in_memory(place, address).ok_or(libc::EIO)?;
        // SAFETY: the range is within a mapped block (checked above). The server may write these bytes at the same time
        // when the place was recycled; the caller's sequence lock or look at the place then discards the copy.
        unsafe { ptr::copy_nonoverlapping(at, out.as_mut_ptr(), out.len()) };
        Ok(())
    }
}

fn read_file(fd: i32, offset: u64, out: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < out.len() {
        match sys::pread(fd, &mut out[done..], offset + done as u64) {
            Ok(0) => return Err(libc::EIO),
            Ok(n) => done += n,
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
