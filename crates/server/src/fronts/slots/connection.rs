//! Connections: the socket of a process, from the first hello to its end.
//!
//! One thread reads the socket. A thread serves each call slot from its first use on, so that a slow call
//! (an fsync) delays no other thread of the program; it answers further hellos (`fork`, `exec`, a change of user);
//! and at the end of the socket it ends the process.

use super::identity::{self, ThreadStatus};
use super::link::Link;
use super::quota::Quota;
use super::slot::{publish_cpu_load, serve};
use crate::ops::{Caller, Session};
use crate::state::processes::Process;
use crate::state::volume::Volume;
use bytemuck::{Zeroable, bytes_of};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_client::proto::{
    HELLO_CLONE, HELLO_HEIR, HELLO_HERE, HELLO_IDENTITY, HELLO_MAGIC, HELLO_MEMORY, HELLO_QUIET,
    HELLO_RESUME, HELLO_THREAD, HELLO_UNLEASED, Hello, HelloReply, IDENTITY_UNKNOWN, IMAGE_IS_CACHE,
    IMAGE_MAPPABLE, MOUNT_POINT_MAX,
};
use weft_client::shared::VERSION;
use weft_client::shared::channel::SLOTS;
use weft_client::sys;
use weft_sys::message::{self, Received, as_stream, receive, tell_senders};
use weft_sys::peer::{self, credentials};
use weft_sys::thread::set_name;
use weft_volume::ImageKind;

/// How long a process may take for its hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);

/// A process that is connected by a socket.
pub struct Connection {
    pub volume: Arc<Volume>,
    all: Arc<Connections>,
    /// What the volume knows of it.
    pub process: Arc<Process>,
    pub(super) link: Arc<Link>,
    identities: RwLock<Identities>,
    /// Its process id, or that of the process that made the connection for it.
    pid: u32,
    /// The process before it became this program by `exec`.
    predecessor: Option<u32>,
    /// The program that this process was last about to become.
    heir: Mutex<Weak<Process>>,
}

/// Who the threads of a process are.
struct Identities {
    /// Those that have not said that they are somebody else.
    process: Arc<Caller>,
    /// Those that have. The number is the process's own.
    threads: FxHashMap<u32, Arc<Caller>>,
    /// At this size, entries of threads that have ended are removed.
    threads_max: usize,
}

/// Entries of ended threads that may stay at least.
const ENDED_THREADS: usize = 64;

impl Identities {
    fn new(process: Arc<Caller>) -> Identities {
        Identities { process, threads: FxHashMap::default(), threads_max: ENDED_THREADS }
    }

    fn of(&self, thread: u32) -> Option<&Arc<Caller>> {
        if thread == 0 { Some(&self.process) } else { self.threads.get(&thread) }
    }
}

impl Connection {
    /// Who a thread of the process runs as; 0 is one that is as the process. `None`: it has to say so first.
    pub fn caller(&self, thread: u32) -> Option<Arc<Caller>> {
        self.identities.read().of(thread).cloned()
    }

    /// Who the process runs as.
    fn process_caller(&self) -> Arc<Caller> {
        self.identities.read().process.clone()
    }
}

/// All connections of a volume.
pub struct Connections {
    quota: Arc<Quota>,
    threads: Mutex<Threads>,
}

/// Waits for the end of what a thread of a slot does: nothing is sent, and the sender is dropped then.
type End = Receiver<Infallible>;

/// What a thread does for a connection, from its beginning to its end.
type Life = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Threads for connections and their slots. One whose connection has ended waits for the next, because a start of a thread takes much
/// of the time in which a program starts.
#[derive(Default)]
struct Threads {
    all: Vec<JoinHandle<()>>,
    /// Those that wait.
    idle: Vec<Sender<Life>>,
    are_ended: bool,
}

/// A thread that serves no slot.
const THREAD_NAME: &str = "weft-conn";

/// So many threads wait at most.
const IDLE_MAX: usize = 16;

impl Default for Connections {
    fn default() -> Connections {
        Connections { quota: Quota::of_process(), threads: Mutex::default() }
    }
}

impl Connections {
    /// Waits until each connection has given back what it held.
    pub fn join(&self) {
        loop {
            let all = {
                let mut threads = self.threads.lock();
                threads.are_ended = true;
                // Those that wait see that nothing comes any more.
                threads.idle.clear();
                std::mem::take(&mut threads.all)
            };
            if all.is_empty() {
                return;
            }
            for thread in all {
                // A panic has been reported by the panic hook.
                let _ = thread.join();
            }
            // One that was about to end may have begun another connection.
        }
    }

    /// Serves a socket that has just been accepted, in a thread of its own.
    pub fn serve(self: &Arc<Self>, volume: Arc<Volume>, socket: UnixStream) {
        let connections = self.clone();
        let Ok(peer) = credentials(&socket) else { return };
        let Some(permit) = self.quota.take(peer.uid) else {
            tracing::warn!(uid = peer.uid, "a user has all the connections that one may have");
            // It has ended already, or reads why it is not served.
            let _ = refuse(&socket, libc::EAGAIN);
            return;
        };
        let begun = self.spawn(move || {
            let _permit = permit;
            first_hello(connections, volume, socket)
        });
        if let Err(error) = begun {
            tracing::error!(%error, "a connection was refused");
        }
    }

    fn spawn(self: &Arc<Self>, life: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let mut life: Life = Box::new(life);
        let mut threads = self.threads.lock();
        while let Some(idle) = threads.idle.pop() {
            match idle.send(life) {
                Ok(()) => return Ok(()),
                // It has panicked, which the panic hook has reported.
                Err(unsent) => life = unsent.0,
            }
        }
        let all = self.clone();
        let thread = std::thread::Builder::new().name(THREAD_NAME.into()).spawn(move || all.live_on(life));
        threads.all.retain(|t| !t.is_finished());
        threads.all.push(thread?);
        Ok(())
    }

    /// A thread serves one connection after the other.
    fn live_on(&self, mut life: Life) {
        loop {
            if let Err(error) = life() {
                tracing::debug!(%error, "connection refused");
            }
            let next = {
                let mut threads = self.threads.lock();
                if threads.are_ended || threads.idle.len() >= IDLE_MAX {
                    return;
                }
                let (sender, next) = channel();
                threads.idle.push(sender);
                next
            };
            // Whoever ends all of them drops what would be sent by.
            let Ok(another) = next.recv() else { return };
            life = another;
        }
    }
}

fn refuse(socket: &UnixStream, errno: i32) -> io::Result<()> {
    message::send(socket, bytes_of(&HelloReply { status: errno, ..HelloReply::zeroed() }), &[])
}

/// Where a hello is answered that came without a socket for that: here, or where the new connection begins of which this one gets the
/// other end.
fn place_of_answer(socket: &UnixStream, flags: u32) -> io::Result<OwnedFd> {
    if flags & HELLO_CLONE == 0 {
        return Ok(socket.try_clone()?.into());
    }
    let (ours, theirs) = UnixStream::pair()?;
    message::send(socket, bytes_of(&HelloReply::zeroed()), &[theirs.as_raw_fd()])?;
    Ok(ours.into())
}

/// A hello and who sent it.
fn read_hello(socket: &UnixStream) -> io::Result<(Hello, Option<peer::Peer>)> {
    let mut hello = Hello::zeroed();
    let bytes = bytemuck::bytes_of_mut(&mut hello);
    let Received { len, sender, .. } = receive(socket, bytes)?;
    // Clients send it in one piece.
    if len == bytes.len() { Ok((hello, sender)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn comm_of(hello: &Hello) -> String {
    let len = hello.comm.iter().position(|&b| b == 0).unwrap_or(hello.comm.len());
    String::from_utf8_lossy(&hello.comm[..len]).into_owned()
}

/// A connection that somebody has made from outside.
fn first_hello(all: Arc<Connections>, volume: Arc<Volume>, socket: UnixStream) -> io::Result<()> {
    // Whoever connects and says nothing must not keep the server from stopping.
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    tell_senders(&socket)?;
    let (hello, sender) = read_hello(&socket)?;
    socket.set_read_timeout(None)?;
    if hello.magic != HELLO_MAGIC || hello.version != VERSION || hello.flags != 0 {
        return refuse(&socket, libc::EPROTO);
    }
    let peer = credentials(&socket)?;
    let identity = identity::of_newcomer(&socket, peer, sender, hello.thread);
    let mount_point = hello.mount_point[..(hello.mount_point_len as usize).min(MOUNT_POINT_MAX)].to_vec();
    let origin =
        Origin { identity: Arc::new(identity), pid: peer.pid, mount_point, parent: None, is_heir: false };
    match begin(all, volume, &socket, &hello, origin)? {
        Some(begun) => {
            let real_user = begun.0.process_caller().real.uid;
            begun.0.link.set_process(peer.pid, real_user);
            live(&begun, &socket, Way::Anew)
        }
        None => Ok(()),
    }
}

/// What a connection begins with.
struct Origin<'a> {
    identity: Arc<Caller>,
    pid: u32,
    mount_point: Vec<u8>,
    /// Whose open files it shares.
    parent: Option<&'a Connection>,
    /// Whether it is for the program that the parent is about to become.
    is_heir: bool,
}

/// A connection that has begun. It ends with this.
struct Begun(Arc<Connection>);

impl Drop for Begun {
    fn drop(&mut self) {
        let Connection { volume, process, heir, .. } = &*self.0;
        process.set_ending();
        let heir = heir.lock().upgrade();
        volume.orphans.meet(self.0.process_caller().effective.uid);
        volume.orphans.expect_any();
        volume.end_process(process, heir.as_deref());
        tracing::info!(connection = process.id, "a process uses the volume no more");
    }
}

/// Begins a connection; `None` when it is refused.
fn begin(
    all: Arc<Connections>,
    volume: Arc<Volume>,
    socket: &UnixStream,
    hello: &Hello,
    origin: Origin<'_>,
) -> io::Result<Option<Begun>> {
    let Origin { identity, pid, mount_point, parent, is_heir } = origin;
    // Before the process reads the answer: the kernel adds the sender's credentials to all that it sends from then on.
    tell_senders(socket)?;
    let link = Arc::new(Link::new(socket.try_clone()?)?);
    let begun = volume.begin_process(
        comm_of(hello),
        mount_point,
        parent.map(|parent| &*parent.process),
        link.clone(),
    );
    let Some(process) = begun else { return refuse(socket, libc::ECONNREFUSED).map(|()| None) };
    let predecessor = parent.filter(|_| is_heir);
    if let Some(predecessor) = predecessor {
        *predecessor.heir.lock() = Arc::downgrade(&process);
    }
    let user = identity.effective.uid;
    tracing::info!(connection = process.id, user, "a process uses the volume");
    volume.orphans.meet(user);
    Ok(Some(Begun(Arc::new(Connection {
        volume,
        all,
        predecessor: predecessor.map(|predecessor| predecessor.process.id),
        process,
        link,
        identities: RwLock::new(Identities::new(identity)),
        pid,
        heir: Mutex::default(),
    }))))
}

/// Serves a connection until its end.
fn live(Begun(connection): &Begun, socket: &UnixStream, way: Way) -> io::Result<()> {
    publish_cpu_load(connection, 1);
    match way {
        Way::Anew => connection.answer_hello(socket)?,
        Way::Awaited => connection.answer_child(socket)?,
        Way::Quietly => {}
    }
    connection.read_socket(socket, way == Way::Anew)
}

/// How a connection came about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A program has connected.
    Anew,
    /// A process has asked for one, and waits until its child may use it.
    Awaited,
    /// The same, but the child asks for its memory when it wants that.
    Quietly,
}

impl Connection {
    /// The answer to a program, which gets all that it may have.
    fn answer_hello(&self, socket: &UnixStream) -> io::Result<()> {
        let lease_fds =
            if identity::may_lease(&self.process_caller()) { self.volume.lease_fds()? } else { None };
        if lease_fds.is_some() {
            self.process.set_leased(true);
        }
        let mut fds = Vec::new();
        let (mut image, mut image_bytes) = (0, 0);
        if let (Some((shared, _)), Some(direct)) = (&lease_fds, &self.volume.direct) {
            fds.extend(shared);
            (image, image_bytes) = match direct.kind {
                ImageKind::Cache(bytes) => (IMAGE_IS_CACHE, bytes),
                _ => {
                    let mappable = if direct.mappable { IMAGE_MAPPABLE } else { 0 };
                    (mappable, direct.base + direct.device_blocks * weft_core::BLOCK_BYTES as u64)
                }
            };
        }
        let leases = u32::from(lease_fds.is_some());
        self.answer(
            socket,
            HelloReply { leases, image_mappable: image, image_bytes, ..HelloReply::zeroed() },
            &fds,
        )
    }

    /// The answer to the child of a fork: what leases share it has by its parent's mappings, if that has leases.
    fn answer_child(&self, socket: &UnixStream) -> io::Result<()> {
        self.answer(socket, HelloReply::zeroed(), &[])
    }

    fn answer(&self, socket: &UnixStream, shared: HelloReply, shared_fds: &[RawFd]) -> io::Result<()> {
        self.link.tell_identity(&self.process_caller());
        let reply = HelloReply {
            connection: self.process.id,
            volume_id: self.volume.id(),
            session: self.volume.session,
            ..shared
        };
        message::send(socket, bytes_of(&reply), &[&[self.link.channel_fd()], shared_fds].concat())
    }

    /// Starts the thread of a slot, unless there is one.
    fn serve_slot(self: &Arc<Self>, index: usize, threads: &mut [Option<End>]) -> io::Result<()> {
        self.link.channel().slots[index].served.store(1, Release);
        // The slot says so too, but that is the client's to write: one that takes it back must not get a second thread.
        if threads[index].is_none() {
            let (running, end) = channel();
            let mine = self.clone();
            self.all.spawn(move || {
                let _running = running;
                set_name(&format!("weft-{}.{index}", mine.process.id));
                serve(&mine, index);
                set_name(THREAD_NAME);
                Ok(())
            })?;
            threads[index] = Some(end);
        }
        Ok(())
    }

    /// Reads the socket until it ends: slot numbers of slots used for the first time, and further hellos.
    fn read_socket(self: &Arc<Self>, socket: &UnixStream, is_new: bool) -> io::Result<()> {
        let mut threads: [Option<End>; SLOTS] = [const { None }; SLOTS];
        let mut first = [0u8; 1];
        // A new process maps what it got before it makes its first call, and finds the thread there by then. One that forked off
        // may never make any.
        let mut begun = if is_new { self.serve_slot(0, &mut threads) } else { Ok(()) };
        let result = loop {
            if begun.is_err() {
                break begun;
            }
            match receive(socket, &mut first) {
                Ok(Received { len: 0, .. }) => break Ok(()),
                Ok(_) if (first[0] as usize) < SLOTS => {
                    begun = self.serve_slot(first[0] as usize, &mut threads);
                }
                // The first byte of a hello's magic is no slot number.
                Ok(Received { fd, sender, .. }) if first[0] == HELLO_MAGIC.to_le_bytes()[0] => {
                    if let Err(error) = self.further_hello(socket, fd, sender) {
                        break Err(error);
                    }
                }
                Ok(_) => break Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.process.set_ending();
        // Nobody sleeps at a slot that has no thread for long, and to look there would cost a page each.
        for (slot, _) in self.link.channel().slots.iter().zip(&threads).filter(|(_, thread)| thread.is_some())
        {
            sys::futex_wake(&slot.state, u32::MAX >> 1);
        }
        for end in threads.into_iter().flatten() {
            // A slot thread that panicked has been reported by the panic hook; the connection ends either way.
            let Err(_) = end.recv();
        }
        result
    }

    /// A further hello, whose first byte has come, and what came with that.
    fn further_hello(
        self: &Arc<Self>,
        socket: &UnixStream,
        fd: Option<OwnedFd>,
        sender: Option<peer::Peer>,
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
        let (flags, fd) = match fd {
            Some(token) if hello.flags & HELLO_HERE != 0 => {
                // The client's own socket, perhaps: kept here, it would hide the client's end.
                drop(token);
                let flags = hello.flags & !HELLO_HERE;
                match place_of_answer(socket, flags) {
                    Ok(place) => (flags, Some(place)),
                    // Of descriptors, perhaps, of which the server has no more.
                    Err(error) => return refuse(socket, error.raw_os_error().unwrap_or(libc::EAGAIN)),
                }
            }
            fd => (hello.flags, fd),
        };
        match (flags, fd) {
            // Nothing without a descriptor: nobody is brought to send one along with what another wants written.
            (HELLO_RESUME, Some(fd)) => self.resume(&as_stream(fd)?, sender, &hello),
            (HELLO_IDENTITY, Some(fd)) => self.renew(&as_stream(fd)?, sender, hello.thread),
            (flags, Some(fd)) if flags == HELLO_IDENTITY | HELLO_THREAD && hello.thread != 0 => {
                self.renew_thread(&as_stream(fd)?, sender, hello.thread)
            }
            (HELLO_UNLEASED, Some(fd)) => self.confirm(&as_stream(fd)?, false),
            // Not for a program that was executed: it has to say who it is by now.
            (HELLO_MEMORY, Some(fd)) if self.predecessor.is_none() => {
                if let Some(sender) = sender {
                    self.link.set_process(sender.pid, self.process_caller().real.uid);
                }
                self.answer_child(&as_stream(fd)?)
            }
            (flags, Some(fd)) if flags & !(HELLO_HEIR | HELLO_QUIET) == HELLO_CLONE => {
                let child = as_stream(fd)?;
                if let Err(error) = self.clone_for(child, &hello) {
                    tracing::debug!(%error, "no connection for a child");
                }
                if flags & HELLO_QUIET != 0 {
                    self.link.count_child();
                }
                Ok(())
            }
            _ => refuse(socket, libc::EPROTO),
        }
    }

    /// A connection for a child. It begins here, before this process changes what it has open, or ends.
    fn clone_for(self: &Arc<Self>, child: UnixStream, hello: &Hello) -> io::Result<()> {
        let Some(identity) = self.caller(hello.thread) else {
            return refuse(&child, IDENTITY_UNKNOWN);
        };
        let Some(permit) = self.all.quota.take(identity.effective.uid) else {
            return refuse(&child, libc::EAGAIN);
        };
        let origin = Origin {
            identity,
            pid: self.pid,
            mount_point: self.process.mount_point.clone(),
            parent: Some(self),
            is_heir: hello.flags & HELLO_HEIR != 0,
        };
        let Some(begun) = begin(self.all.clone(), self.volume.clone(), &child, hello, origin)? else {
            return Ok(());
        };
        let way = if hello.flags & HELLO_QUIET != 0 { Way::Quietly } else { Way::Awaited };
        self.all.spawn(move || {
            let _permit = permit;
            live(&begun, &child, way)
        })
    }

    /// The process has become another program: it gets its shared memory anew, if who it is by now may have that.
    fn resume(&self, answer: &UnixStream, sender: Option<peer::Peer>, hello: &Hello) -> io::Result<()> {
        let (pid, status) = self.identify(answer, sender, 0)?;
        self.link.set_process(pid, status.caller.real.uid);
        *self.identities.write() = Identities::new(Arc::new(status.caller));
        self.process.set_leased(false);
        self.process.set_name(comm_of(hello));
        if let Some(predecessor) = self.predecessor {
            // Perhaps before the server reads the end of the old socket.
            self.volume.locks.hand_over(predecessor, self.process.id);
        }
        if let Some(kept) = hello.kept() {
            Session::new(&self.volume, &self.process, &self.process_caller()).retain(kept);
        }
        self.answer_hello(answer)
    }

    /// Who a thread of the process that sent a message is by now. When nobody knows, the connection ends.
    fn identify(
        &self,
        answer: &UnixStream,
        sender: Option<peer::Peer>,
        thread: u32,
    ) -> io::Result<(u32, ThreadStatus)> {
        let told = sender.ok_or_else(|| io::ErrorKind::InvalidData.into());
        let told = told.and_then(|sender| Ok((sender.pid, ThreadStatus::of_sender(sender, thread)?)));
        told.inspect_err(|error| {
            tracing::warn!(pid = self.pid, %error, "a process with an identity that cannot be told");
            // Before the answer: the server performs nothing more by the rights that it had.
            self.process.set_ending();
            // It has ended, or reads why it is not served.
            let _ = refuse(answer, libc::EACCES);
        })
    }

    /// All threads of the process are who the `thread`th is by now.
    fn renew(&self, answer: &UnixStream, sender: Option<peer::Peer>, thread: u32) -> io::Result<()> {
        let (pid, status) = self.identify(answer, sender, thread)?;
        let keeps = status.can_lease() || identity::any_thread(pid, ThreadStatus::can_lease);
        self.link.tell_identity(&status.caller);
        *self.identities.write() = Identities::new(Arc::new(status.caller));
        self.confirm(answer, keeps)
    }

    /// One thread is somebody else than the others. What the process was stays the others' as long as one of them is or can become
    /// that again; then nobody in the process can ask by it any more.
    fn renew_thread(&self, answer: &UnixStream, sender: Option<peer::Peer>, thread: u32) -> io::Result<()> {
        let (pid, status) = self.identify(answer, sender, thread)?;
        let identity = Arc::new(status.caller.clone());
        let mut identities = self.identities.write();
        identities.threads.insert(thread, identity.clone());
        let dropped = !status.can_be(&identities.process);
        if dropped || identities.threads.len() > identities.threads_max {
            identities.threads.retain(|thread, _| identity::has_thread(pid, *thread));
            identities.threads_max = 2 * identities.threads.len() + ENDED_THREADS;
        }
        let (mut keeps, mut stays) = (status.can_lease(), !dropped);
        if dropped || !keeps {
            identity::any_thread(pid, |other| {
                keeps |= other.can_lease();
                stays |= other.can_be(&identities.process);
                keeps && stays
            });
        }
        if !stays {
            self.link.tell_identity(&identity);
            identities.process = identity;
        }
        drop(identities);
        self.confirm(answer, keeps)
    }

    /// Confirms the process's change of identity or that it gives its leases up, and says whether it keeps the memory of leases; once
    /// given up, the memory does not come back.
    fn confirm(&self, answer: &UnixStream, keeps: bool) -> io::Result<()> {
        let leases = self.volume.direct.is_some() && self.process.is_leased() && keeps;
        if !keeps {
            self.volume.give_leases_up(&self.process);
        }
        let reply = HelloReply { connection: self.process.id, leases: leases.into(), ..HelloReply::zeroed() };
        message::send(answer, bytes_of(&reply), &[])
    }
}
