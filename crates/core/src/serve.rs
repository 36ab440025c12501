//! A Unix socket that is served: a thread for each client, a bound on their number, an end that is waited for.
//!
//! Nobody can keep others from being served: a user who holds as many connections as are free gets no more, so that no user
//! takes the last one; and within [`PacedFrame`]s a client's silence has an end. Nor can anybody fill the server's log: of bad
//! connections it has one line a second, with the number of the others.

use crate::frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Until a connection is accepted again when one could not be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Shortest time from one warning of a bad connection to the next.
const WARN_AFTER: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Most bytes of a socket's path: what the kernel's address of a Unix socket has room for.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The usual time for a client's first request, for the rest of a frame that has begun, and for taking an answer.
pub const FRAME_WITHIN: Duration = Duration::from_secs(10);

/// What is done with a client.
pub trait Serve: Send + Sync + 'static {
    /// Answers one client until it is gone.
    fn serve(&self, stream: UnixStream) -> io::Result<()>;

    /// The frame that a client gets that is one too many.
    fn refusal(&self, why: &TooMany) -> Vec<u8>;
}

/// A client that is one too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooMany {
    /// For the server.
    #[error("it has {most} connections, and takes no more; close some, or connect again later")]
    OfAll {
        /// Most at once.
        most: usize,
    },
    /// For one user, who would leave others too few.
    #[error("user {user} has {held} connections, and {free} of {most} are left for others; close some")]
    OfUser {
        /// The user's number.
        user: u32,
        /// Its connections.
        held: usize,
        /// Those that nobody has.
        free: usize,
        /// Most at once.
        most: usize,
    },
}

/// How a socket is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Most clients at once.
    pub connections_max: usize,
    /// Whether other users may connect. The server's own user and root then have to leave connections to others as well.
    pub for_everyone: bool,
}

/// A socket that was not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Something that is no socket is there.
    #[error("{}: a file that is no socket is there; name another path for the socket, or move the file", .0.display())]
    InTheWay(PathBuf),
    /// Another server answers there.
    #[error("{}: another server answers there; stop it, or name another path for the socket", .0.display())]
    Served(PathBuf),
    /// The path is longer than the address of a socket.
    #[error(
        "{}: the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes, and this one has {}; give a shorter one, or a relative one",
        .0.display(), .0.as_os_str().len()
    )]
    TooLong(PathBuf),
    /// The socket could not be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Reason of the system.
        source: io::Error,
    },
}

/// A served socket. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct SocketServer {
    path: PathBuf,
    /// Device and inode of the socket that was made, which another server may have replaced since.
    made: (u64, u64),
    /// The listening socket, to end the wait for connections.
    listening: UnixStream,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ending: AtomicBool,
    connections: Mutex<Vec<Connection>>,
    bad: Mutex<BadConnections>,
}

/// The warnings of bad connections. A client can make as many as it likes, and must not fill the log with them.
#[derive(Debug, Default)]
struct BadConnections {
    warned: Option<Instant>,
    /// Bad connections since the last warning.
    left_out: u64,
}

impl BadConnections {
    /// Counts one more. How many were left out before it, when it is to be in the log.
    fn add(&mut self, now: Instant) -> Option<u64> {
        if self.warned.is_some_and(|last| now.saturating_duration_since(last) < WARN_AFTER) {
            self.left_out += 1;
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    user: u32,
    thread: JoinHandle<()>,
}

/// Whether one more client may come, and of this user.
fn admit(connections: &[Connection], user: u32, options: ServeOptions) -> Result<(), TooMany> {
    let most = options.connections_max;
    let free = most.saturating_sub(connections.len());
    if free == 0 {
        return Err(TooMany::OfAll { most });
    }
    let shares = options.for_everyone || (user != 0 && user != rustix::process::geteuid().as_raw());
    let held = connections.iter().filter(|connection| connection.user == user).count();
    if shares && held >= free {
        return Err(TooMany::OfUser { user, held, free, most });
    }
    Ok(())
}

impl SocketServer {
    /// Serves clients at a path. A socket there that nobody serves is replaced, anything else is left alone and an error.
    pub fn start(
        path: &Path,
        options: ServeOptions,
        serve: Arc<dyn Serve>,
    ) -> Result<SocketServer, ServeError> {
        let failed = |source: io::Error| ServeError::Io { path: path.to_path_buf(), source };
        check_path(path)?;
        let listener = match bind(path, options.for_everyone) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if !is_socket(path) {
                    return Err(ServeError::InTheWay(path.to_path_buf()));
                }
                if !is_left_over(path) {
                    return Err(ServeError::Served(path.to_path_buf()));
                }
                std::fs::remove_file(path).map_err(failed)?;
                bind(path, options.for_everyone)
            }
            other => other,
        }
        .map_err(failed)?;
        let made = identity(path).map_err(failed)?;
        // Shutting down is done alike with any socket, and only a stream's type offers it.
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(failed)?));
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        let accepting = std::thread::spawn(move || accepting.accept(&listener, options, &serve));
        Ok(SocketServer { path: path.to_path_buf(), made, listening, shared, accepting: Some(accepting) })
    }
}

/// Refuses a path that no socket can have.
pub fn check_path(path: &Path) -> Result<(), ServeError> {
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(ServeError::TooLong(path.to_path_buf()));
    }
    Ok(())
}

/// A listening socket that has its mode from the moment that it has a name: the name gets the mode that the socket has.
fn bind(path: &Path, for_everyone: bool) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &address)?;
    if for_everyone {
        // The process's mask does not count for this. Nobody else can connect before it listens.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    }
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Whether a server that is gone left this socket. What does not answer for another reason is somebody's.
fn is_left_over(path: &Path) -> bool {
    connect_now(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// A connection to a server, for a caller that must not wait.
///
/// # Errors
/// `WouldBlock` of a server that exists and leaves its connections waiting; `ConnectionRefused` of one that is gone.
pub fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Tells the client that nobody answers any more, however its thread ends.
struct ShutdownOnDrop(UnixStream);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Release);
        // Not by a connection: the path may be gone, or another server's.
        let _ = self.listening.shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let connections =
            std::mem::take(&mut *self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner));
        // All before any is waited for: one may wait for what another holds.
        for connection in &connections {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        for connection in connections {
            let _ = connection.thread.join();
        }
        let left_out = self.shared.bad.lock().unwrap_or_else(PoisonError::into_inner).left_out;
        if left_out > 0 {
            tracing::warn!(left_out, "more connections ended badly");
        }
        if identity(&self.path).is_ok_and(|found| found == self.made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Shared {
    fn accept(self: Arc<Shared>, listener: &UnixListener, options: ServeOptions, serve: &Arc<dyn Serve>) {
        let mut failing = false;
        for stream in listener.incoming() {
            if self.ending.load(Acquire) {
                return;
            }
            let accepted = stream.and_then(|stream| {
                let user = net::sockopt::socket_peercred(&stream)?.uid.as_raw();
                Ok((user, stream.try_clone()?, ShutdownOnDrop(stream.try_clone()?), stream))
            });
            let (user, ours, ending, mut stream) = match accepted {
                Ok(all) => all,
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "connections cannot be accepted; trying again");
                    }
                    // Most often too many files are open; that passes, and not at once.
                    std::thread::sleep(ACCEPT_AGAIN);
                    continue;
                }
            };
            failing = false;
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.retain(|connection| !connection.thread.is_finished());
            if let Err(why) = admit(&connections, user, options) {
                // The buffer of the socket takes it at once; a client that is gone does not need it.
                let _ = frame::send(&mut stream, &serve.refusal(&why));
                continue;
            }
            let (serve, shared) = (serve.clone(), self.clone());
            let thread = std::thread::Builder::new().spawn(move || {
                let _ending = ending;
                if let Err(error) = serve.serve(stream) {
                    shared.warn(&error);
                }
            });
            match thread {
                Ok(thread) => connections.push(Connection { stream: ours, user, thread }),
                Err(error) => self.warn(&error),
            }
        }
    }

    /// Warns of a connection that ended badly, or could not be served; once in a while.
    fn warn(&self, error: &io::Error) {
        let left_out = self.bad.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now());
        match left_out {
            Some(0) => tracing::warn!(%error, "a connection ended badly"),
            Some(left_out) => tracing::warn!(%error, left_out, "a connection ended badly, as did others"),
            None => {}
        }
    }
}

/// Whether nobody is there any more to take an answer: the other side has gone, or the connection was ended on this one.
pub fn is_gone(stream: &UnixStream) -> bool {
    let mut looked = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut looked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A frame on its way from or to a client. Once it has begun all of it has to be there within a time, however slowly the other
/// side sends or reads.
pub struct PacedFrame<'s> {
    stream: &'s UnixStream,
    /// When all of it has to be over.
    deadline: Option<Instant>,
    /// How long it may take from when it begins.
    within: Option<Duration>,
    /// What is done before each wait; when it is to be done again.
    meanwhile: Option<Box<dyn FnMut() -> Option<Instant> + 's>>,
}

impl<'s> PacedFrame<'s> {
    /// A frame that the other side may begin when it wants.
    pub fn idle(stream: &'s UnixStream, within: Duration) -> PacedFrame<'s> {
        PacedFrame { stream, deadline: None, within: Some(within), meanwhile: None }
    }

    /// A frame whose time runs already: a client's first one, or an answer.
    pub fn begun(stream: &'s UnixStream, within: Duration) -> PacedFrame<'s> {
        let deadline = Instant::now().checked_add(within);
        PacedFrame { stream, deadline, within: None, meanwhile: None }
    }

    /// Ends the wait for the other side to begin after `idle`.
    pub fn silent_for(mut self, idle: Duration) -> PacedFrame<'s> {
        self.deadline = Instant::now().checked_add(idle);
        self
    }

    /// Does something before each wait, and again at the moment that it names.
    pub fn meanwhile(mut self, meanwhile: impl FnMut() -> Option<Instant> + 's) -> PacedFrame<'s> {
        self.meanwhile = Some(Box::new(meanwhile));
        self
    }

    /// Tries `step`, which does not wait, until it comes to an end in time.
    fn attempt(
        &mut self,
        ready: PollFlags,
        mut step: impl FnMut() -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match step() {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                other => return Ok(other?),
            }
            let again = self.meanwhile.as_mut().and_then(|meanwhile| meanwhile());
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let next = self.deadline.into_iter().chain(again).min();
            let left = next.and_then(|next| Timespec::try_from(next.saturating_duration_since(now)).ok());
            match poll(&mut [PollFd::new(self.stream, ready)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for PacedFrame<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // With nothing to watch the call itself waits.
        let waits = self.deadline.is_none() && self.meanwhile.is_none();
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let stream = self.stream;
        let count = self.attempt(PollFlags::IN, || Ok(net::recv(stream, &mut *buffer, flags)?.0))?;
        let end = self.within.take().and_then(|within| Instant::now().checked_add(within));
        self.deadline = self.deadline.into_iter().chain(end).min();
        Ok(count)
    }
}

impl Write for PacedFrame<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let stream = self.stream;
        self.attempt(PollFlags::OUT, || net::send(stream, buffer, flags))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(50);

    fn timed_out<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn a_client_may_be_silent_between_frames_and_not_within_one() {
        let (mut client, ours) = UnixStream::pair().unwrap();
        assert!(timed_out(frame::receive(&mut PacedFrame::begun(&ours, WITHIN), 100)), "no first request");
        // A byte now and then does not prolong it.
        let dripping = std::thread::spawn(move || {
            std::thread::sleep(4 * WITHIN);
            for byte in [9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7] {
                client.write_all(&[byte]).unwrap();
                std::thread::sleep(WITHIN / 5);
            }
            client
        });
        assert!(timed_out(frame::receive(&mut PacedFrame::idle(&ours, WITHIN), 100)), "half a request");
        drop(dripping.join().unwrap());
    }

    #[test]
    fn a_client_is_silent_for_so_long_at_most_and_what_is_to_be_done_meanwhile_is_done_in_time() {
        let (_client, ours) = UnixStream::pair().unwrap();
        let mut times = 0;
        let began = Instant::now();
        let mut next = PacedFrame::idle(&ours, WITHIN).silent_for(4 * WITHIN).meanwhile(|| {
            times += 1;
            Some(began + times * WITHIN)
        });
        assert!(timed_out(frame::receive(&mut next, 100)), "no request");
        drop(next);
        assert!(times >= 4, "{times}");
    }

    #[test]
    fn bad_connections_are_in_the_log_once_a_second_and_those_between_are_counted() {
        let (mut bad, begun) = (BadConnections::default(), Instant::now());
        let at = |part: u32| begun + part * WARN_AFTER / 4;
        let told: Vec<Option<u64>> = (0..9).map(|part| bad.add(at(part))).collect();
        let (first, again) = (Some(0), Some(3));
        assert_eq!(told, [first, None, None, None, again, None, None, None, again]);
        assert_eq!(bad.add(at(20)), Some(0));
    }

    #[test]
    fn a_client_that_only_sends_no_more_is_not_gone_and_a_connection_that_was_ended_is() {
        let (client, ours) = UnixStream::pair().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(!is_gone(&ours));
        ours.shutdown(Shutdown::Both).unwrap();
        assert!(is_gone(&ours));
    }

    #[test]
    fn a_client_that_takes_no_answers_is_not_waited_for() {
        let (client, ours) = UnixStream::pair().unwrap();
        assert!(timed_out(frame::send(&mut PacedFrame::begun(&ours, WITHIN), &vec![7; 64 << 20])));
        assert!(!is_gone(&ours));
        drop(client);
        assert!(is_gone(&ours));
        let error = frame::send(&mut PacedFrame::begun(&ours, WITHIN), b"gone").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
