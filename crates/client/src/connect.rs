//! Makes a connection: sends the hello, and maps the memory that the reply carries.

use crate::busy::{self, Busy};
use crate::client::{Child, Client, ForkTicket, Image, Leases};
use crate::durable::LogFile;
use crate::identity::IDENTITY_TRIES;
use crate::proto::{
    FileRef, HELLO_CLONE, HELLO_HEIR, HELLO_HERE, HELLO_IDENTITY, HELLO_MAGIC, HELLO_MEMORY, HELLO_QUIET,
    HELLO_RESUME, HELLO_THREAD, HELLO_UNLEASED, Hello, HelloReply, IDENTITY_UNKNOWN, IMAGE_IS_CACHE,
    IMAGE_MAPPABLE,
};
use crate::shared::VERSION;
use crate::shared::channel::Channel;
use crate::shared::names::Names;
use crate::shared::volume::{self, Control, MAP_PAGES_MAX, MapPage, RING_BYTES, RINGS_MAX};
use crate::sys::{self, Errno};
use bytemuck::Zeroable;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use weft_core::cached::{CHUNK_BYTES, table_bytes};
use weft_core::{BLOCK_BYTES, refuse};

/// Sockets and memory files of the connection are kept out of the way of programs that count on low numbers.
const FD_FLOOR: i32 = 700;
/// The connection's socket lies above all else that a process keeps to itself: when a process is killed, Linux closes its
/// descriptors from the highest down. So the server knows that the process is gone before any lock of it is free to others, and does
/// not perform what it had asked for after what they do.
const SOCKET_FLOORS: [i32; 2] = [1000, FD_FLOOR];
const FDS: usize = 8;
/// Of these, those that come with leases; the last one only where there is an append log.
const LEASE_FDS: usize = 7;

/// How to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions<'a> {
    /// The server's Unix socket.
    pub socket_path: &'a [u8],
    /// Where the volume appears, for absolute symlinks.
    pub mount_point: &'a [u8],
}

struct Accepted {
    reply: HelloReply,
    fds: [i32; FDS],
    fd_count: usize,
    channel: *mut Channel,
}

impl Accepted {
    /// It is not wanted.
    fn give_back(self) {
        close_all(&self);
        // SAFETY: just mapped, and nobody got to know of it.
        unsafe { sys::unmap(self.channel.cast(), size_of::<Channel>()) };
    }
}

impl Client {
    /// Connects to the server of a volume.
    ///
    /// `EPROTO` means a server of another version, `ECONNREFUSED` or `ENOENT` that there is none.
    pub fn connect(options: &ConnectOptions<'_>) -> Result<Client, Errno> {
        busy::find_front();
        let socket = lift(sys::connect_unix(options.socket_path)?, &SOCKET_FLOORS, true)?;
        Client::begin(socket, &say_hello(socket, options.mount_point)?)
    }

    /// Takes over a connection that was made for this program ([`Client::prepare_child`]) and inherited through `exec`. Of its open
    /// files a reference is kept for each of `files`; all others are given back.
    pub fn take_over(socket: i32, files: &[FileRef]) -> Result<Client, Errno> {
        busy::find_front();
        sys::set_cloexec(socket, true)?;
        let mut hello = hello(HELLO_RESUME);
        let is_told = hello.keep(files);
        let client = Client::begin(socket, &ask(socket, &hello, hear_reply)?)?;
        if !is_told {
            client.retain(files)?;
        }
        Ok(client)
    }

    fn begin(socket: i32, accepted: &Accepted) -> Result<Client, Errno> {
        let leases = match map_leases(accepted) {
            // The limit on the address space: all goes by the server then.
            Err(libc::ENOMEM) => None,
            leases => leases?,
        };
        sys::calibrate_ticks();
        // SAFETY: just mapped, and all-zero memory is a valid Channel.
        let begun = unsafe { &(*accepted.channel).events.children }.load(SeqCst);
        let client = Client {
            socket: AtomicI32::new(socket),
            channel: AtomicPtr::new(accepted.channel),
            parents_channel: AtomicPtr::default(),
            unwatched: AtomicU64::new(0),
            sent: Default::default(),
            near: None,
            connection: AtomicU32::new(accepted.reply.connection),
            volume_id: accepted.reply.volume_id,
            session: accepted.reply.session,
            leases,
            leases_given_up: AtomicBool::new(false),
            leases_unmapped: AtomicBool::new(false),
            identities: AtomicU64::new(0),
            duplicates: AtomicPtr::default(),
            // What this process had asked for before it became this program has begun.
            children: AtomicU32::new(begun),
        };
        if client.leases.is_none() && accepted.reply.leases != 0 {
            // It reserves nothing for them then. When it cannot be told, nothing is lost but that.
            let _ = tell_unleased(&client);
        }
        Ok(client)
    }
}

/// Says hello on a connection's own socket: nobody else can speak for it, and the server's path need not be reachable any
/// more. The answer comes on the socket that is returned.
fn hello_beside(socket: i32, hello: &Hello) -> Result<i32, Errno> {
    let [ours, theirs] = sys::socket_pair()?;
    let sent = send_hello(socket, hello, theirs);
    let _ = sys::close(theirs);
    if sent.is_err() {
        let _ = sys::close(ours);
    }
    sent.map(|()| ours)
}

fn send_hello(socket: i32, hello: &Hello, passed: i32) -> Result<(), Errno> {
    let identity = hello.flags & (HELLO_IDENTITY | HELLO_RESUME | HELLO_MEMORY) != 0;
    sys::send_with_fd(socket, bytemuck::bytes_of(hello), Some(passed), identity)
}

/// Whether a thread of the process waits for an answer on a connection's own socket, where one at a time can.
static ANSWER_COMES: AtomicBool = AtomicBool::new(false);

/// The turn of a thread.
struct Turn(Busy);

impl Turn {
    fn take() -> Turn {
        // A handler in between would wait for its own thread.
        let busy = Busy::new();
        while ANSWER_COMES.swap(true, Acquire) {
            sys::yield_now();
        }
        Turn(busy)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ANSWER_COMES.store(false, Release);
    }
}

/// In a forked child: whose turn it was is in the parent.
pub(crate) fn forget_turn() {
    ANSWER_COMES.store(false, Relaxed);
}

/// Says hello where there are not even descriptors for a socket of the answer's own, and hears the answer.
fn ask_here<T>(socket: i32, hello: &Hello, hear: impl FnOnce(i32) -> Result<T, Errno>) -> Result<T, Errno> {
    let _turn = Turn::take();
    send_hello(socket, &Hello { flags: hello.flags | HELLO_HERE, ..*hello }, socket)?;
    hear(socket)
}

/// Says hello on a connection's own socket, and hears the answer.
fn ask<T>(socket: i32, hello: &Hello, hear: impl FnOnce(i32) -> Result<T, Errno>) -> Result<T, Errno> {
    let answer = match hello_beside(socket, hello) {
        Err(libc::EMFILE) => return ask_here(socket, hello, hear),
        answer => answer?,
    };
    let heard = hear(answer);
    let _ = sys::close(answer);
    heard
}

/// Has the server begin a connection, whose socket is returned; `None` when there is no descriptor for it.
fn ask_for_clone(socket: i32, hello: &Hello) -> Result<Option<i32>, Errno> {
    match hello_beside(socket, hello) {
        Err(libc::EMFILE) => ask_here(socket, hello, |socket| {
            let (mut reply, mut fd) = (HelloReply::zeroed(), [-1]);
            let fd_count = sys::recv_with_fds(socket, bytemuck::bytes_of_mut(&mut reply), &mut fd)?;
            if reply.status != 0 { Err(reply.status) } else { Ok((fd_count == 1).then_some(fd[0])) }
        }),
        beside => beside.map(Some),
    }
}

/// Tells the server who the calling thread is by now, and the whole process with it unless `alone`; returns whether the process
/// may keep what leases share.
pub(crate) fn tell_identity(client: &Client, alone: bool) -> Result<bool, Errno> {
    let (flags, thread) = if alone { (HELLO_THREAD, sys::gettid()) } else { (0, thread_number()) };
    ask_for_leases(client, HELLO_IDENTITY | flags, thread)
}

/// Tells the server that the process gives the memory of its leases up.
pub(crate) fn tell_unleased(client: &Client) -> Result<(), Errno> {
    let keeps = ask_for_leases(client, HELLO_UNLEASED, 0)?;
    debug_assert!(!keeps, "the server goes on with leases that were given up");
    Ok(())
}

/// Tells the server something and returns whether the process may keep what leases share.
fn ask_for_leases(client: &Client, flags: u32, thread: u32) -> Result<bool, Errno> {
    ask(client.socket(), &Hello { thread, ..hello(flags) }, |socket| {
        let mut reply = HelloReply::zeroed();
        sys::recv_with_fds(socket, bytemuck::bytes_of_mut(&mut reply), &mut [])?;
        if reply.status == 0 { Ok(reply.leases != 0) } else { Err(reply.status) }
    })
}

/// A connection that shares the open files of `parent`'s.
pub(crate) fn connect_clone(parent: &Client, child: Child) -> Result<ForkTicket, Errno> {
    let heir = if child == Child::Executed { HELLO_HEIR } else { 0 };
    let mut tries = IDENTITY_TRIES;
    let cloexec = child == Child::Forked;
    loop {
        let thread = parent.thread_to_name()?;
        if thread == 0 {
            let flags = HELLO_CLONE | HELLO_QUIET | heir;
            // A handler that calls in between would wait for what its own thread has yet to send.
            let _busy = Busy::new();
            // First: a thread that closes a file meanwhile waits.
            parent.children.fetch_add(1, SeqCst);
            let asked = ask_for_clone(parent.socket(), &hello(flags));
            if asked.is_err() {
                parent.children.fetch_sub(1, SeqCst);
            }
            let socket = asked?.ok_or(libc::EMFILE)?;
            return lift(socket, &SOCKET_FLOORS, cloexec).map(|socket| ForkTicket { socket });
        }
        // Whether the server knows the thread has to be heard.
        let asked = ask_for_clone(parent.socket(), &Hello { thread, ..hello(HELLO_CLONE | heir) })?;
        let socket = lift(asked.ok_or(libc::EMFILE)?, &SOCKET_FLOORS, cloexec)?;
        match hear_reply(socket) {
            Ok(accepted) => {
                accepted.give_back();
                return Ok(ForkTicket { socket });
            }
            Err(error) => {
                let _ = sys::close(socket);
                if error != IDENTITY_UNKNOWN || tries == 0 {
                    return Err(if error == IDENTITY_UNKNOWN { libc::EIO } else { error });
                }
                tries -= 1;
                parent.forget_told();
            }
        }
    }
}

/// The channel of a connection that was made quietly, and its number.
pub(crate) fn ask_for_memory(socket: i32) -> Result<(*mut Channel, u32), Errno> {
    let accepted = ask(socket, &hello(HELLO_MEMORY), hear_reply)?;
    // The parent's mappings serve the child too.
    close_all(&accepted);
    Ok((accepted.channel, accepted.reply.connection))
}

/// A descriptor of a connection that stays open when a program is executed.
pub(crate) fn beyond_exec(socket: i32) -> Result<i32, Errno> {
    dup_above_any(socket, &SOCKET_FLOORS, false).or_else(|_| sys::dup_above(socket, 0, false))
}

/// Duplicates a descriptor to a number above a floor, or where the limit allows none, to the highest one below it.
fn dup_above_any(fd: i32, floors: &[i32], cloexec: bool) -> Result<i32, Errno> {
    let limit = || sys::descriptor_limit().min(FD_FLOOR);
    let below = std::iter::once_with(|| (fd + 1..limit()).rev()).flatten();
    let mut lifted = Err(libc::EINVAL);
    for floor in floors.iter().copied().chain(below) {
        lifted = sys::dup_above(fd, floor, cloexec);
        if !matches!(lifted, Err(libc::EINVAL | libc::EMFILE)) {
            break;
        }
    }
    lifted
}

/// Moves a descriptor to a high number.
fn lift(fd: i32, floors: &[i32], cloexec: bool) -> Result<i32, Errno> {
    match dup_above_any(fd, floors, cloexec) {
        Ok(high) => {
            let _ = sys::close(fd);
            Ok(high)
        }
        // No higher number is free.
        Err(libc::EINVAL | libc::EMFILE) => {
            sys::set_cloexec(fd, cloexec)?;
            Ok(fd)
        }
        Err(error) => {
            let _ = sys::close(fd);
            Err(error)
        }
    }
}

fn hello(flags: u32) -> Hello {
    let mut hello = Hello { magic: HELLO_MAGIC, version: VERSION, flags, ..Hello::zeroed() };
    let mut name = [0; 16];
    let len = sys::thread_name(&mut name).len();
    hello.comm[..len].copy_from_slice(&name[..len]);
    hello
}

/// The calling thread as the server looks for it; 0 for the process's first one.
fn thread_number() -> u32 {
    let thread = sys::gettid();
    if thread == sys::getpid() { 0 } else { thread }
}

fn say_hello(socket: i32, mount_point: &[u8]) -> Result<Accepted, Errno> {
    let mut hello = Hello { thread: thread_number(), ..hello(0) };
    let place = hello.mount_point.get_mut(..mount_point.len()).ok_or(libc::ENAMETOOLONG)?;
    place.copy_from_slice(mount_point);
    hello.mount_point_len = mount_point.len() as u32;
    sys::send_with_fd(socket, bytemuck::bytes_of(&hello), None, true)?;
    hear_reply(socket)
}

fn hear_reply(socket: i32) -> Result<Accepted, Errno> {
    let mut reply = HelloReply::zeroed();
    let mut fds = [-1; FDS];
    let fd_count = sys::recv_with_fds(socket, bytemuck::bytes_of_mut(&mut reply), &mut fds)?;
    if reply.status != 0 {
        return Err(reply.status);
    }
    // The server has sent one: the kernel had no number for it.
    refuse(fd_count < 1, libc::EMFILE)?;
    let channel = sys::map_shared(fds[0], 0, size_of::<Channel>(), true)?.cast();
    let _ = sys::close(fds[0]);
    Ok(Accepted { reply, fds, fd_count, channel })
}

/// What is mapped so far, given back when the rest cannot be.
struct Mappings {
    made: [(*mut u8, usize); 6],
    count: usize,
}

impl Mappings {
    fn add(&mut self, fd: i32, at: u64, bytes: usize, writable: bool) -> Result<*mut u8, Errno> {
        let mapped = sys::map_shared(fd, at, bytes, writable)?;
        if let Some(place) = self.made.get_mut(self.count) {
            *place = (mapped, bytes);
            self.count += 1;
        }
        Ok(mapped)
    }

    fn keep(&mut self) {
        self.count = 0;
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        for (mapped, bytes) in self.made.iter().take(self.count) {
            // SAFETY: mapped by `add`, and nobody got to know of it.
            unsafe { sys::unmap(*mapped, *bytes) };
        }
    }
}

/// Maps what comes with the answer. When it fails, nothing of it is left, neither mapped nor open.
fn map_leases(accepted: &Accepted) -> Result<Option<Leases>, Errno> {
    if accepted.reply.leases == 0 || accepted.fd_count < LEASE_FDS {
        close_all(accepted);
        return Ok(None);
    }
    let mut mappings = Mappings { made: [(std::ptr::null_mut(), 0); 6], count: 0 };
    let leases = map_all(accepted, &mut mappings);
    match &leases {
        Ok(_) => mappings.keep(),
        Err(_) => close_all(accepted),
    }
    leases.map(Some)
}

/// Closes what came beside the channel.
fn close_all(accepted: &Accepted) {
    for fd in &accepted.fds[1..accepted.fd_count.max(1)] {
        let _ = sys::close(*fd);
    }
}

fn map_all(accepted: &Accepted, mappings: &mut Mappings) -> Result<Leases, Errno> {
    let [_, control_fd, map_fd, crc_fd, ring_fd, image_fd, names_fd, log_fd] = accepted.fds;
    let control: *const Control = mappings.add(control_fd, 0, size_of::<Control>(), true)?.cast();
    // SAFETY: just mapped, of the type's size.
    let page = unsafe { &(*control).volume };
    if page.magic.load(Acquire) != volume::MAGIC || page.version.load(Relaxed) != VERSION {
        return Err(libc::EPROTO);
    }
    let device_blocks = page.device_blocks.load(Relaxed);
    let base = page.image_base.load(Relaxed);
    let image_bytes = match accepted.reply.image_mappable {
        IMAGE_MAPPABLE => device_blocks * BLOCK_BYTES as u64,
        IMAGE_IS_CACHE => accepted.reply.image_bytes,
        _ => 0,
    };
    let limit = sys::address_space_limit();
    if limit != u64::MAX {
        let bytes = Leases::address_space(device_blocks, image_bytes);
        refuse(!sys::address_space().is_some_and(|used| Leases::fit(bytes, used, limit)), libc::ENOMEM)?;
    }
    let map: *const MapPage = mappings.add(map_fd, 0, MAP_PAGES_MAX * size_of::<MapPage>(), false)?.cast();
    let crc: *const AtomicU32 = mappings.add(crc_fd, 0, device_blocks as usize * 4, false)?.cast();
    let rings = mappings.add(ring_fd, 0, RINGS_MAX * RING_BYTES, true)?;
    let names: *const Names = mappings.add(names_fd, 0, size_of::<Names>(), false)?.cast();
    let data_bytes = device_blocks as usize * BLOCK_BYTES;
    let image = match accepted.reply.image_mappable {
        IMAGE_MAPPABLE => {
            let data = mappings.add(image_fd, base, data_bytes, false)?;
            let _ = sys::close(image_fd);
            Image::Mapped { data }
        }
        IMAGE_IS_CACHE => {
            let (bytes, table_bytes) = (accepted.reply.image_bytes, table_bytes(device_blocks));
            let slot_count = bytes.saturating_sub(table_bytes) / CHUNK_BYTES as u64;
            let table = mappings.add(image_fd, 0, bytes as usize, false)?;
            refuse(bytes < table_bytes, libc::EPROTO)?;
            let _ = sys::close(image_fd);
            // SAFETY: the mapping has at least the table's bytes.
            let slots = unsafe { table.add(table_bytes as usize) };
            Image::Cache { table: table.cast(), slots, slot_count }
        }
        _ => Image::File { fd: lift(image_fd, &[FD_FLOOR], true)?, base },
    };
    let append_log = if accepted.fd_count < FDS { None } else { log_file(log_fd, page)? };
    for fd in [control_fd, map_fd, crc_fd, ring_fd, names_fd] {
        let _ = sys::close(fd);
    }
    Ok(Leases { control, map, crc, rings, names, image, device_blocks, append_log })
}

fn log_file(fd: i32, page: &volume::VolumePage) -> Result<Option<LogFile>, Errno> {
    let fd = lift(fd, &[FD_FLOOR], true)?;
    let Some(file) = sys::file_id(fd) else {
        let _ = sys::close(fd);
        return Ok(None);
    };
    let log = &page.append_log;
    let mut image = [0; 16];
    for (part, word) in image.as_chunks_mut::<8>().0.iter_mut().zip(&log.image) {
        *part = word.load(Relaxed).to_le_bytes();
    }
    let (offset, end) = (log.offset.load(Relaxed), log.end.load(Relaxed));
    Ok(Some(LogFile { fd, file, offset, end, image, session: log.session.load(Relaxed) }))
}
