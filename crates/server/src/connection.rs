//! One connected process: its channel, what it has open, and the threads that answer it.
//!
//! Each slot that the client uses has a thread of its own, made at the first use: a slow call (an fsync) holds up no
//! other thread of the program. The thread that reads the socket notices the process's end, by whatever cause, and
//! gives back everything it held.

use crate::crowd::Watch;
use crate::identity::{self, Identity, Standing};
use crate::open_files::OpenFile;
use crate::places::Places;
use crate::volume::Volume;
use bytemuck::{Zeroable, bytes_of};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_client::FileRef;
use weft_client::patience::{Place, ServerPatience};
use weft_client::proto::{
    HELLO_CLONE, HELLO_HEIR, HELLO_IDENTITY, HELLO_MAGIC, HELLO_RESUME, HELLO_THREAD, Hello, HelloReply,
    IDENTITY_UNKNOWN, IMAGE_IS_CACHE, IMAGE_MAPPABLE, MOUNT_POINT_MAX, is_writable,
};
use weft_client::shared::VERSION;
use weft_client::shared::channel::{
    Channel, DONE, Measured, PAYLOAD_BYTES, Response, SLOTS, SUBMITTED, Slot,
};
use weft_client::shared::turn;
use weft_client::sys;
use weft_sys::SharedMemory;
use weft_sys::message::{self, Received, as_stream, receive, tell_senders};
use weft_sys::peer::{Peer, credentials};
use weft_volume::ImageKind;

use crate::locks::Waiter;

/// A slot thread looks at its slot this often between two yields, or before it sleeps.
const LOOKS: u32 = 4;
/// How long a process may take for its hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);
/// After this long asleep, look whether the connection still stands.
const WAIT_NS: u64 = 500_000_000;

/// One connected process.
pub struct Connection {
    /// Its number; its locks in shared memory carry it plus 1.
    pub id: u32,
    /// Who it runs as.
    identities: RwLock<Identities>,
    /// Whether it has the memory of leases: it may have been given, and has not been given up.
    leased: AtomicBool,
    /// Its process id, or that of the process that made the connection for it.
    pub pid: u32,
    /// Its name.
    pub comm: Mutex<String>,
    /// Where the volume appears to it.
    pub mount_point: Vec<u8>,
    channel: Arc<SharedMemory>,
    socket: UnixStream,
    /// The connection of the process before it became this program by `exec`.
    forebear: Option<u32>,
    /// The connection of the program that this process was last about to become.
    heir: Mutex<Weak<Connection>>,
    /// References to open files that it holds.
    files: Mutex<FxHashMap<u64, u32>>,
    closing: AtomicBool,
    all: Weak<Connections>,
}

/// Who the threads of a process are.
struct Identities {
    /// Those that have not said that they are somebody else.
    process: Arc<Identity>,
    /// Those that have. The number is the process's own.
    threads: FxHashMap<u32, Arc<Identity>>,
    /// With so many it is looked which have ended.
    threads_max: usize,
}

/// So many threads may end at least before it is looked which have.
const ENDED_THREADS: usize = 64;

impl Identities {
    fn new(process: Arc<Identity>) -> Identities {
        Identities { process, threads: FxHashMap::default(), threads_max: ENDED_THREADS }
    }

    fn of(&self, thread: u32) -> Option<&Arc<Identity>> {
        if thread == 0 { Some(&self.process) } else { self.threads.get(&thread) }
    }
}

impl Connection {
    fn channel(&self) -> &Channel {
        // SAFETY: the channel memory holds a `Channel`; its cells are accessed only by the side whose turn it is.
        unsafe { self.channel.view() }
    }

    /// Who a thread of the process runs as; 0 is one that is as the process. `None`: it has to say so first.
    pub fn identity(&self, thread: u32) -> Option<Arc<Identity>> {
        self.identities.read().of(thread).cloned()
    }

    /// Who the process runs as.
    fn process_identity(&self) -> Arc<Identity> {
        self.identities.read().process.clone()
    }

    /// Whether the process has the memory of leases.
    pub fn is_leased(&self) -> bool {
        self.leased.load(Relaxed)
    }

    /// A thread of the process that waits for locks.
    pub fn waiter(&self, thread: u64) -> Waiter {
        let channel = self.channel.clone();
        let bell = move || {
            // SAFETY: as in `channel`.
            let changes = unsafe { &channel.view::<Channel>().events.locks };
            changes.fetch_add(1, SeqCst);
            sys::futex_wake(changes, u32::MAX >> 1);
        };
        Waiter { connection: self.id, thread, bell: Arc::new(bell) }
    }

    /// What the process measured.
    pub fn measured(&self) -> &Measured {
        &self.channel().measured
    }

    /// The payload of a slot.
    pub fn payload(&self, slot: usize) -> *mut u8 {
        let channel = self.channel.as_ptr::<Channel>();
        // SAFETY: `slot` is below SLOTS at every caller, within the mapped channel.
        unsafe { (&raw mut (*channel).payloads[slot]).cast() }
    }

    /// Whether the process is gone.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Whether some process has ended and not yet given back everything.
    pub fn others_have_ended(&self) -> bool {
        let Some(all) = self.all.upgrade() else { return false };
        all.all().iter().any(|other| other.is_closing() || other.peer_has_ended())
    }

    /// Whether the other end of the socket is closed, whatever is left to be read from it.
    fn peer_has_ended(&self) -> bool {
        let mut polled = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one descriptor that is open as long as `self`; does not wait.
        let ready = unsafe { libc::poll(&raw mut polled, 1, 0) };
        ready > 0 && polled.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0
    }

    /// Counts a reference that the process holds from now on.
    pub fn hold(&self, file: FileRef) {
        *self.files.lock().entry(file.0).or_insert(0) += 1;
    }

    /// Takes one reference away from the process; false when it holds none.
    pub fn give_up(&self, file: FileRef) -> bool {
        let mut files = self.files.lock();
        let Some(count) = files.get_mut(&file.0) else { return false };
        *count -= 1;
        if *count == 0 {
            files.remove(&file.0);
        }
        true
    }

    /// Whether the process holds a reference.
    pub fn holds(&self, file: FileRef) -> bool {
        self.files.lock().contains_key(&file.0)
    }

    /// All references with their counts.
    pub fn held(&self) -> Vec<(FileRef, u32)> {
        self.files.lock().iter().map(|(file, count)| (FileRef(*file), *count)).collect()
    }

    /// Keeps only these references; returns what the process held before.
    pub fn replace_held(&self, files: FxHashMap<u64, u32>) -> FxHashMap<u64, u32> {
        std::mem::replace(&mut *self.files.lock(), files)
    }
}

/// All connections of a volume.
pub struct Connections {
    /// Who may have how many.
    places: Arc<Places>,
    live: Mutex<FxHashMap<u32, Arc<Connection>>>,
    /// Set when no connection may come any more; looked at under the lock of `live`.
    stopping: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections {
            places: Places::of_process(),
            live: Mutex::default(),
            stopping: AtomicBool::new(false),
            threads: Mutex::default(),
        }
    }
}

impl Connections {
    /// Connected processes now.
    pub fn count(&self) -> usize {
        self.live.lock().len()
    }

    /// The connection with this number.
    pub fn get(&self, id: u32) -> Option<Arc<Connection>> {
        self.live.lock().get(&id).cloned()
    }

    fn admit(&self, connection: &Arc<Connection>) -> bool {
        let mut live = self.live.lock();
        if self.stopping.load(Relaxed) {
            return false;
        }
        live.insert(connection.id, connection.clone());
        true
    }

    /// Every connection.
    pub fn all(&self) -> Vec<Arc<Connection>> {
        self.live.lock().values().cloned().collect()
    }

    /// Ends every connection and waits until each has given back what it held.
    pub fn end_all(&self) {
        let live = {
            let live = self.live.lock();
            self.stopping.store(true, Relaxed);
            live.values().cloned().collect::<Vec<_>>()
        };
        for connection in live {
            // It may have ended by itself.
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
    }

    /// Serves a socket that has just been accepted, in a thread of its own.
    pub fn serve(self: &Arc<Self>, volume: Arc<Volume>, socket: UnixStream) {
        let connections = self.clone();
        let Ok(peer) = credentials(&socket) else { return };
        let Some(place) = self.places.take(peer.uid) else {
            tracing::warn!(uid = peer.uid, "a user has all the connections that one may have");
            // It has ended already, or hears why it is not served.
            let _ = refuse(&socket, libc::EAGAIN);
            return;
        };
        self.spawn(move || {
            let _place = place;
            run(&connections, &volume, socket)
        });
    }

    fn spawn(&self, life: impl FnOnce() -> io::Result<()> + Send + 'static) {
        let thread = std::thread::Builder::new().name("weft-conn".into()).spawn(move || {
            if let Err(error) = life() {
                tracing::debug!(%error, "connection refused");
            }
        });
        match thread {
            Ok(thread) => {
                let mut threads = self.threads.lock();
                threads.retain(|t| !t.is_finished());
                threads.push(thread);
            }
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }
}

fn refuse(socket: &UnixStream, errno: i32) -> io::Result<()> {
    message::send(socket, bytes_of(&HelloReply { status: errno, ..HelloReply::zeroed() }), &[])
}

/// A hello and who sent it.
fn read_hello(socket: &UnixStream) -> io::Result<(Hello, Option<Peer>)> {
    let mut hello = Hello::zeroed();
    let bytes = bytemuck::bytes_of_mut(&mut hello);
    let Received { len, sender, .. } = receive(socket, bytes)?;
    // Clients send it in one piece.
    if len == bytes.len() { Ok((hello, sender)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A number that nobody can guess.
pub fn secret() -> io::Result<u64> {
    weft_sys::file::random().map(u64::from_le_bytes)
}

fn comm_of(hello: &Hello) -> String {
    let len = hello.comm.iter().position(|&b| b == 0).unwrap_or(hello.comm.len());
    String::from_utf8_lossy(&hello.comm[..len]).into_owned()
}

/// A connection that somebody has made from outside.
fn run(connections: &Arc<Connections>, volume: &Arc<Volume>, socket: UnixStream) -> io::Result<()> {
    // Whoever connects and says nothing must not keep the server from stopping.
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    tell_senders(&socket)?;
    let (hello, sender) = read_hello(&socket)?;
    socket.set_read_timeout(None)?;
    if hello.magic != HELLO_MAGIC || hello.version != VERSION || hello.flags != 0 {
        return refuse(&socket, libc::EPROTO);
    }
    let peer = credentials(&socket)?;
    let identity = Identity::of_newcomer(&socket, peer, sender, hello.thread);
    let mount_point = hello.mount_point[..(hello.mount_point_len as usize).min(MOUNT_POINT_MAX)].to_vec();
    let birth =
        Birth { identity: Arc::new(identity), pid: peer.pid, mount_point, parent: None, is_heir: false };
    live(connections, volume, socket, &hello, birth)
}

/// What a connection begins with.
struct Birth {
    identity: Arc<Identity>,
    pid: u32,
    mount_point: Vec<u8>,
    /// Whose open files it shares.
    parent: Option<Arc<Connection>>,
    /// Whether it is for the program that the parent is about to become.
    is_heir: bool,
}

/// The life of a connection.
fn live(
    connections: &Arc<Connections>,
    volume: &Arc<Volume>,
    mut socket: UnixStream,
    hello: &Hello,
    birth: Birth,
) -> io::Result<()> {
    let Birth { identity, pid, mount_point, parent, is_heir } = birth;
    // Before the process hears that it is served: what it sends from then on tells who it is.
    tell_senders(&socket)?;
    let connection = Arc::new(Connection {
        id: volume.connections_made.fetch_add(1, Relaxed),
        identities: RwLock::new(Identities::new(identity)),
        // A forked child has its parent's memory.
        leased: AtomicBool::new(parent.as_ref().is_some_and(|parent| parent.is_leased())),
        pid,
        comm: Mutex::new(comm_of(hello)),
        mount_point,
        channel: Arc::new(SharedMemory::create("weft-channel", size_of::<Channel>())?),
        socket: socket.try_clone()?,
        forebear: parent.as_ref().filter(|_| is_heir).map(|parent| parent.id),
        heir: Mutex::default(),
        files: Mutex::new(FxHashMap::default()),
        closing: AtomicBool::new(false),
        all: Arc::downgrade(connections),
    });
    if let Some(parent) = &parent {
        if is_heir {
            *parent.heir.lock() = Arc::downgrade(&connection);
        }
        for (file, count) in parent.held() {
            for _ in 0..count {
                if volume.files.reference(file) {
                    connection.hold(file);
                }
            }
        }
    }
    drop(parent);
    if !connections.admit(&connection) {
        end(volume, &connection);
        return refuse(&socket, libc::ECONNREFUSED);
    }
    let user = connection.process_identity().cred.uid;
    volume.leftovers.meet(user);
    tracing::info!(connection = connection.id, user, "a process uses the volume");
    tell_crowd(&connection, 1);
    volume.program_begins(&connection);
    let served =
        answer_hello(volume, &connection, &socket).and_then(|()| attend(volume, &connection, &mut socket));
    end(volume, &connection);
    connections.live.lock().remove(&connection.id);
    served
}

fn answer_hello(volume: &Volume, connection: &Connection, socket: &UnixStream) -> io::Result<()> {
    let lease_fds = if connection.process_identity().may_lease() { volume.lease_fds()? } else { None };
    connection.leased.fetch_or(lease_fds.is_some(), Relaxed);
    let mut fds = vec![connection.channel.fd()];
    let (mut image, mut image_bytes) = (0, 0);
    if let (Some((shared, _)), Some(direct)) = (&lease_fds, &volume.direct) {
        fds.extend(shared);
        (image, image_bytes) = match direct.kind {
            ImageKind::Cache(bytes) => (IMAGE_IS_CACHE, bytes),
            _ => {
                let mappable = if direct.mappable { IMAGE_MAPPABLE } else { 0 };
                (mappable, direct.base + direct.device_blocks * weft_core::BLOCK_BYTES as u64)
            }
        };
    }
    let reply = HelloReply {
        status: 0,
        connection: connection.id,
        leases: u32::from(lease_fds.is_some()),
        image_mappable: image,
        image_bytes,
        volume_tag: volume.id(),
        session: volume.session,
    };
    message::send(socket, bytes_of(&reply), &fds)
}

/// Reads the socket until it ends: slot numbers of slots used for the first time, and further hellos.
fn attend(volume: &Arc<Volume>, connection: &Arc<Connection>, socket: &mut UnixStream) -> io::Result<()> {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    // The slot says so too, but that is the client's to write: one that takes it back must not get a second thread.
    let mut served = [false; SLOTS];
    let mut first = [0u8; 1];
    let result = loop {
        match receive(socket, &mut first) {
            Ok(Received { len: 0, .. }) => break Ok(()),
            Ok(_) if (first[0] as usize) < SLOTS => {
                let index = first[0] as usize;
                connection.channel().slots[index].served.store(1, Release);
                if !std::mem::replace(&mut served[index], true) {
                    let (volume, mine) = (volume.clone(), connection.clone());
                    let name = format!("weft-{}.{index}", connection.id);
                    let spawned = std::thread::Builder::new()
                        .name(name)
                        .spawn(move || serve_slot(&volume, &mine, index));
                    match spawned {
                        Ok(thread) => threads.push(thread),
                        Err(error) => break Err(error),
                    }
                }
            }
            // The first byte of a hello's magic is no slot number.
            Ok(Received { fd, sender, .. }) if first[0] == HELLO_MAGIC.to_le_bytes()[0] => {
                if let Err(error) = heed(volume, connection, socket, fd, sender) {
                    break Err(error);
                }
            }
            Ok(_) => break Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    connection.closing.store(true, SeqCst);
    for slot in &connection.channel().slots {
        sys::futex_wake(&slot.state, u32::MAX >> 1);
    }
    for thread in threads {
        // A slot thread that panicked has been reported by the panic hook; the connection ends either way.
        let _ = thread.join();
    }
    result
}

/// A further hello, whose first byte has come, and what came with that.
fn heed(
    volume: &Arc<Volume>,
    connection: &Arc<Connection>,
    socket: &UnixStream,
    fd: Option<OwnedFd>,
    sender: Option<Peer>,
) -> io::Result<()> {
    let mut bytes = [0; size_of::<Hello>()];
    bytes[0] = HELLO_MAGIC.to_le_bytes()[0];
    let rest = receive(socket, &mut bytes[1..])?;
    let hello: Hello = bytemuck::pod_read_unaligned(&bytes);
    // In one piece and by one sender: a process that can be brought to write what another wants to a descriptor that it has
    // been given (a program with more rights, to its output) must not end what that one began.
    let whole = rest.len == bytes.len() - 1 && rest.sender == sender && rest.fd.is_none();
    if !whole || hello.magic != HELLO_MAGIC || hello.version != VERSION {
        return refuse(socket, libc::EPROTO);
    }
    match (hello.flags, fd) {
        // Nothing without a descriptor: nobody is brought to send one along with what another wants written.
        (HELLO_RESUME, Some(fd)) => resume(volume, connection, &as_stream(fd)?, sender, &hello),
        (HELLO_IDENTITY, Some(fd)) => renew(volume, connection, &as_stream(fd)?, sender, hello.thread),
        (flags, Some(fd)) if flags == HELLO_IDENTITY | HELLO_THREAD && hello.thread != 0 => {
            renew_thread(volume, connection, &as_stream(fd)?, sender, hello.thread)
        }
        (flags, Some(fd)) if flags & !HELLO_HEIR == HELLO_CLONE => {
            let (volume, child) = (volume.clone(), as_stream(fd)?);
            let connections = connection.all.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            let Some(identity) = connection.identity(hello.thread) else {
                return refuse(&child, IDENTITY_UNKNOWN);
            };
            let Some(place) = connections.places.take(identity.cred.uid) else {
                return refuse(&child, libc::EAGAIN);
            };
            let birth = Birth {
                identity,
                pid: connection.pid,
                mount_point: connection.mount_point.clone(),
                parent: Some(connection.clone()),
                is_heir: flags & HELLO_HEIR != 0,
            };
            let all = connections.clone();
            connections.spawn(move || {
                let _place = place;
                live(&all, &volume, child, &hello, birth)
            });
            Ok(())
        }
        _ => refuse(socket, libc::EPROTO),
    }
}

/// The process has become another program: it gets its shared memory anew, if who it is by now may have that.
fn resume(
    volume: &Volume,
    connection: &Connection,
    answer: &UnixStream,
    sender: Option<Peer>,
    hello: &Hello,
) -> io::Result<()> {
    let (_, standing) = identify(connection, answer, sender, 0)?;
    *connection.identities.write() = Identities::new(Arc::new(standing.identity));
    connection.leased.store(false, Relaxed);
    *connection.comm.lock() = comm_of(hello);
    if let Some(forebear) = connection.forebear {
        // Perhaps before the end of the old socket is heard of.
        volume.locks.hand_over(forebear, connection.id);
    }
    answer_hello(volume, connection, answer)
}

/// Who a thread of the process that sent a message is by now. When nobody knows, the connection ends.
fn identify(
    connection: &Connection,
    answer: &UnixStream,
    sender: Option<Peer>,
    thread: u32,
) -> io::Result<(u32, Standing)> {
    let told = sender.ok_or_else(|| io::ErrorKind::InvalidData.into());
    let told = told.and_then(|sender| Ok((sender.pid, Standing::of_sender(sender, thread)?)));
    told.inspect_err(|error| {
        tracing::warn!(pid = connection.pid, %error, "a process with an identity that cannot be told");
        // Before it hears of it: what it asks for from then on is not answered by the rights that it had.
        connection.closing.store(true, SeqCst);
        // It has ended, or hears why it is not served.
        let _ = refuse(answer, libc::EACCES);
    })
}

/// All threads of the process are who the `thread`th is by now.
fn renew(
    volume: &Volume,
    connection: &Connection,
    answer: &UnixStream,
    sender: Option<Peer>,
    thread: u32,
) -> io::Result<()> {
    let (pid, standing) = identify(connection, answer, sender, thread)?;
    let keeps = standing.can_lease() || identity::any_thread(pid, Standing::can_lease);
    *connection.identities.write() = Identities::new(Arc::new(standing.identity));
    confirm(volume, connection, answer, keeps)
}

/// One thread is somebody else than the others. What the process was stays the others' as long as one of them is or can become
/// that again; then nobody in the process can ask by it any more.
fn renew_thread(
    volume: &Volume,
    connection: &Connection,
    answer: &UnixStream,
    sender: Option<Peer>,
    thread: u32,
) -> io::Result<()> {
    let (pid, standing) = identify(connection, answer, sender, thread)?;
    let identity = Arc::new(standing.identity.clone());
    let mut identities = connection.identities.write();
    identities.threads.insert(thread, identity.clone());
    let dropped = !standing.can_be(&identities.process);
    if dropped || identities.threads.len() > identities.threads_max {
        identities.threads.retain(|thread, _| identity::has_thread(pid, *thread));
        identities.threads_max = 2 * identities.threads.len() + ENDED_THREADS;
    }
    let (mut keeps, mut stays) = (standing.can_lease(), !dropped);
    if dropped || !keeps {
        identity::any_thread(pid, |other| {
            keeps |= other.can_lease();
            stays |= other.can_be(&identities.process);
            keeps && stays
        });
    }
    if !stays {
        identities.process = identity;
    }
    drop(identities);
    confirm(volume, connection, answer, keeps)
}

/// Tells the process that its identity is heard of, and whether it keeps the memory of leases; once given up, it is given no more.
fn confirm(volume: &Volume, connection: &Connection, answer: &UnixStream, keeps: bool) -> io::Result<()> {
    let leases = volume.direct.is_some() && connection.leased.fetch_and(keeps, Relaxed) && keeps;
    let reply = HelloReply { connection: connection.id, leases: leases.into(), ..HelloReply::zeroed() };
    message::send(answer, bytes_of(&reply), &[])
}

/// Gives back everything that a process held.
fn end(volume: &Volume, connection: &Connection) {
    connection.closing.store(true, SeqCst);
    let heir = connection.heir.lock().upgrade();
    let heir_is_gone = || heir.as_ref().is_none_or(|heir| heir.is_closing());
    volume.locks.end_process(connection.id, heir.as_ref().map(|heir| heir.id), heir_is_gone);
    let holder = connection.id + 1;
    for (file, count) in connection.replace_held(FxHashMap::default()) {
        let file = FileRef(file);
        if let Some(open) = volume.files.get(file) {
            volume.files.shared(file).lock.free_if_held_by(holder);
            volume.inodes.shared(open.inode.slot).write_lock.free_if_held_by(holder);
        }
        if let Some(last) = volume.files.release(file, count) {
            close_last(volume, &last, false);
        }
    }
    volume.leftovers.meet(connection.process_identity().cred.uid);
    volume.leftovers.expect_any();
    volume.program_ends(connection);
    tracing::info!(connection = connection.id, "a process uses the volume no more");
}

/// The last reference to an open file is gone. Returns the failed write-back that it has not been told of, if it could
/// write and `hears`.
pub fn close_last(volume: &Volume, open: &Arc<OpenFile>, hears: bool) -> Option<i32> {
    volume.locks.drop_owner(crate::locks::Owner::File(open.file.0));
    // Whoever only read did not lose anything.
    let hears = hears && is_writable(open.flags);
    volume.inodes.release(&open.inode, hears.then_some(&open.heard))
}

/// Answers the requests of one slot.
fn serve_slot(volume: &Arc<Volume>, connection: &Arc<Connection>, index: usize) {
    let slot = &connection.channel().slots[index];
    let (mut patience, mut place) = (ServerPatience::new(), Place::ANYWHERE);
    while let Some(met) = wait_submitted(connection, slot, &mut patience) {
        if connection.is_closing() {
            return;
        }
        // SAFETY: the request is the server's from SUBMITTED to DONE. It is copied once; what is checked is the copy.
        let request = unsafe { *slot.request.get() };
        if let Some(cpu) = place.asked_from(request.cpu, met == Met::Asleep) {
            stay_near(cpu);
        }
        // This thread, and the caller's unless it sleeps.
        let own = 1 + u32::from(slot.client_sleeps.load(Relaxed) == 0);
        tell_crowd(connection, own);
        let payload = connection.payload(index);
        // A defect that one request meets must not leave its caller, and all others of the slot, waiting for ever.
        let response = std::panic::catch_unwind(AssertUnwindSafe(|| {
            crate::serve::answer(volume, connection, &request, payload, PAYLOAD_BYTES)
        }))
        .unwrap_or_else(|_| {
            tracing::error!(op = request.op, "answering a request panicked; the caller gets EIO");
            Response { ret: -i64::from(libc::EIO), ..Response::default() }
        });
        // SAFETY: the response is the server's until DONE.
        unsafe { *slot.response.get() = response };
        turn::pass(&slot.state, DONE, &slot.client_sleeps);
    }
}

/// Looks whether the machine is crowded, when that is due, and lets the process know.
fn tell_crowd(connection: &Connection, own: u32) {
    let known = &connection.channel().events.crowded;
    let crowded = Watch::of_process().is_crowded(sys::monotonic_ns(), own).into();
    if known.load(Relaxed) != crowded {
        known.store(crowded, Relaxed);
    }
}

/// How a request met its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    Awake,
    Asleep,
}

/// Waits for a request; `None` when the connection ends.
fn wait_submitted(connection: &Connection, slot: &Slot, patience: &mut ServerPatience) -> Option<Met> {
    let is_there = || {
        (0..LOOKS).any(|look| {
            if look > 0 {
                std::hint::spin_loop();
            }
            slot.state.load(Acquire) == SUBMITTED
        })
    };
    let mut before = sys::monotonic_ns();
    // What the client makes of this word is its own loss: what may be lost here is 50 us of an awake thread.
    let crowded = connection.channel().events.crowded.load(Relaxed) != 0;
    let mut go_on = patience.answered(before, crowded);
    let mut asked = is_there();
    while !asked && go_on {
        sys::yield_now();
        asked = is_there();
        let now = sys::monotonic_ns();
        go_on = patience.yielded(before, now, asked);
        before = now;
    }
    let met = if asked {
        Met::Awake
    } else {
        let give_up = || connection.is_closing();
        if !turn::sleep_until(&slot.state, SUBMITTED, &slot.server_sleeps, WAIT_NS, give_up) {
            return None;
        }
        Met::Asleep
    };
    patience.asked(sys::monotonic_ns());
    Some(met)
}

/// Runs the calling thread on its caller's processor: a wake there costs a tenth of one across processors.
fn stay_near(cpu: u32) {
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: an all-zero set is valid, `cpu` is within it; the call affects only the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
