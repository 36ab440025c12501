//! Starting and stopping: the listener and the threads that work beside requests.

use crate::error::ServerError;
use crate::fronts::slots::Connections;
use crate::state::volume::Volume;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_client::sys;

/// How often the core does its work beside requests.
const TICK: Duration = Duration::from_millis(100);
/// The flusher looks this often even when nobody rings.
const FLUSHER_WAIT_NS: u64 = 200_000_000;
/// Interval of the looks after stopped writers when nobody reports one, in nanoseconds.
const STALLS_WAIT_NS: u64 = 1_000_000_000;
/// Pause between two of its looks.
const STALLS_PAUSE: Duration = Duration::from_millis(5);
/// Rings that nobody flushes are handed to the core after this long, as a kernel writes back dirty pages.
const RING_AGE: Duration = Duration::from_secs(5);

/// Looks for what killed programs left in memory before a server ends, and the pause between two.
const LAST_LOOKS: u32 = 10;
const LAST_LOOKS_PAUSE: Duration = Duration::from_millis(5);

/// A running server.
pub struct Server {
    volume: Arc<Volume>,
    connections: Arc<Connections>,
    socket: PathBuf,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    keeper: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

/// Makes way for a socket. The volume's device is locked by this process, so a socket that stands there, or a link to one, is
/// a dead server's; anything else is somebody's file, and may be the volume itself.
fn remove_dead_socket(socket: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(socket) {
        Ok(meta) if meta.file_type().is_socket() || meta.is_symlink() => std::fs::remove_file(socket),
        Ok(_) => Err(io::Error::other(
            "a file that is no socket is there; name another path for the socket, or move the file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Server {
    /// Serves a volume on a Unix socket.
    pub fn start(volume: Volume, socket: &Path) -> Result<Server, ServerError> {
        let listen = |source| ServerError::Listen { path: socket.to_path_buf(), source };
        remove_dead_socket(socket).map_err(listen)?;
        let listener = Arc::new(UnixListener::bind(socket).map_err(listen)?);
        let volume = Arc::new(volume);
        if volume.mounted.is_looked_at() {
            volume.orphans.leave_alone();
        }
        volume.orphans.begin(volume.id());
        let keeper = keep_alive(&volume)?;
        let mut server = Server {
            volume,
            connections: Arc::default(),
            socket: socket.to_path_buf(),
            listener: listener.clone(),
            stop: Arc::default(),
            threads: Vec::new(),
            keeper: Some(keeper),
        };
        let connections = server.connections.clone();
        server.spawn("weft-accept", move |volume, stop| accept(&listener, volume, &connections, stop))?;
        server.spawn("weft-flush", flush)?;
        server.spawn("weft-tick", tick)?;
        server.spawn("weft-stalls", look_after_stalls)?;
        server.spawn("weft-orphans", |volume, stop| volume.orphans.attend(volume, stop))?;
        Ok(server)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Arc<Volume>, &AtomicBool) + Send + 'static,
    ) -> Result<(), ServerError> {
        let (volume, stop) = (self.volume.clone(), self.stop.clone());
        // A defect that ends one thread must not leave programs waiting for it: they get EIO from then on.
        let guarded = move || {
            if std::panic::catch_unwind(AssertUnwindSafe(|| run(&volume, &stop))).is_err() {
                volume.control.stop_clients();
                tracing::error!("a thread of the server panicked; the volume is served no more");
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(guarded)
            .map_err(|source| ServerError::System { what: "a thread", source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// What is served.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Processes connected now.
    pub fn clients(&self) -> usize {
        self.volume.processes.count()
    }

    /// Waits until no process is connected any more, or `patience` has passed; returns whether none is.
    pub fn wait_idle(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while self.clients() > 0 {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Processes that use the volume: also those that have disconnected by becoming another program, which may connect again.
    pub fn users(&self) -> usize {
        self.volume.processes.users()
    }

    /// Waits until nobody uses the volume; then no process can connect any more. Whoever comes too late gets `ECONNREFUSED`, and
    /// has done nothing.
    pub fn close_when_idle(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while !self.volume.processes.stop_if_idle() {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Stops serving: clients that are still there get EIO from now on; what they had written is handed to the core.
    pub fn stop(mut self) -> Arc<Volume> {
        self.shut_down();
        self.volume.clone()
    }

    fn shut_down(&mut self) {
        if self.stop.swap(true, SeqCst) {
            return;
        }
        self.volume.control.stop_clients();
        self.volume.drain_all();
        // Wakes the thread that accepts; connecting would not when somebody removed the socket's name.
        weft_sys::peer::stop_listening(&*self.listener);
        self.volume.orphans.wake();
        self.volume.control.report_stall(0);
        for thread in self.threads.drain(..) {
            // One that pauses until it is time for more.
            thread.thread().unpark();
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
        self.volume.processes.stop();
        self.connections.join();
        // Of programs that have just been killed, too.
        for _ in 0..LAST_LOOKS {
            if !self.volume.orphans.look(&self.volume) {
                break;
            }
            std::thread::sleep(LAST_LOOKS_PAUSE);
        }
        self.volume.orphans.end(&self.volume);
        self.volume.inodes.give_up_kept();
        if let Some((release, thread)) = self.keeper.take() {
            drop(release);
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A thread that holds the robust mutex for as long as the server lives: the kernel marks it when the thread dies,
/// even by SIGKILL.
fn keep_alive(volume: &Arc<Volume>) -> Result<(mpsc::Sender<()>, JoinHandle<()>), ServerError> {
    let (release, released) = mpsc::channel::<()>();
    let (locked, is_locked) = mpsc::channel();
    let volume = volume.clone();
    let system = |source| ServerError::System { what: "the liveness mutex", source };
    let thread = std::thread::Builder::new()
        .name("weft-alive".into())
        .spawn(move || {
            let _ = locked.send(volume.control.show_death());
            let _ = released.recv();
        })
        .map_err(system)?;
    match is_locked.recv() {
        Ok(Ok(())) => Ok((release, thread)),
        Ok(Err(error)) => Err(system(error)),
        Err(_) => Err(system(io::ErrorKind::Other.into())),
    }
}

fn accept(listener: &UnixListener, volume: &Arc<Volume>, connections: &Arc<Connections>, stop: &AtomicBool) {
    for socket in listener.incoming() {
        match socket {
            _ if stop.load(SeqCst) => return,
            Ok(socket) => connections.serve(volume.clone(), socket),
            Err(error) => {
                tracing::warn!(%error, "accept");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Moves what rings hold to the core when clients ring, and everything that has waited long.
fn flush(volume: &Arc<Volume>, stop: &AtomicBool) {
    let page = &volume.control.volume;
    let mut last_sweep = Instant::now();
    while !stop.load(SeqCst) {
        let seen = page.kicks.load(SeqCst);
        let worked = flush_kicked(volume);
        if last_sweep.elapsed() >= RING_AGE {
            last_sweep = Instant::now();
            // With the rings of files that are closed, others can append.
            volume.take_all_closed();
            volume.drain_all();
            if let Some(log) = volume.inodes.log() {
                log.try_again(volume);
            }
        }
        if let Some(log) = volume.inodes.log() {
            log.go_on(volume);
        }
        if !worked {
            page.flusher_sleeps.store(1, SeqCst);
            if page.kicks.load(SeqCst) == seen && !stop.load(SeqCst) {
                sys::futex_wait(&page.kicks, seen, FLUSHER_WAIT_NS);
            }
            page.flusher_sleeps.store(0, SeqCst);
        }
    }
}

fn flush_kicked(volume: &Arc<Volume>) -> bool {
    let worked = each_slot(&volume.control.kick_bits, |slot| {
        let Some(open) = volume.inodes.in_slot(slot) else { return };
        if let Err(error) = volume.inodes.drain_ahead(&open) {
            tracing::error!(ino = open.ino.0, %error, "accepted data could not be stored");
        }
    });
    if worked {
        volume.inodes.keep_headroom();
    }
    worked
}

/// Has stopped programs end the writes that others wait for.
fn look_after_stalls(volume: &Arc<Volume>, stop: &AtomicBool) {
    let reports = &volume.control.volume.stalls;
    while !stop.load(SeqCst) {
        let seen = reports.load(SeqCst);
        if each_slot(&volume.control.stall_bits, |slot| volume.finish_stalled(slot)) {
            // Each look reads what the kernel tells of a process.
            std::thread::sleep(STALLS_PAUSE);
        }
        if reports.load(SeqCst) == seen && !stop.load(SeqCst) {
            sys::futex_wait(reports, seen, STALLS_WAIT_NS);
        }
    }
}

/// Takes the bits of inodes' slots, one by one; whether there were any.
fn each_slot(bits: &[AtomicU64], mut each: impl FnMut(u32)) -> bool {
    let mut any = false;
    for (index, word) in bits.iter().enumerate() {
        if word.load(Relaxed) == 0 {
            continue;
        }
        let mut bits = word.swap(0, AcqRel);
        while bits != 0 {
            each(index as u32 * 64 + bits.trailing_zeros());
            bits &= bits - 1;
            any = true;
        }
    }
    any
}

fn tick(volume: &Arc<Volume>, stop: &AtomicBool) {
    let mut failed = false;
    while !stop.load(SeqCst) {
        std::thread::park_timeout(TICK);
        let result = volume.fs.tick();
        if let (Err(error), false) = (&result, failed) {
            tracing::error!(%error, "work beside requests");
            volume.inodes.all_failed(libc::EIO);
        }
        failed = result.is_err();
        // Names and attributes take space, too.
        volume.inodes.keep_headroom();
    }
}
