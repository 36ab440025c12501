//! A Unix socket that is served: a thread for each client, a bound on their number, an end that is waited for.

use crate::frame;
use rustix::fs::{Mode, fchmod};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Until a connection is accepted again when one could not be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What is done with a client.
pub trait Serve: Send + Sync + 'static {
    /// Answers one client until it is gone.
    fn serve(&self, stream: UnixStream) -> io::Result<()>;

    /// The frame that a client gets that is one too many.
    fn refusal(&self) -> Vec<u8>;
}

/// How a socket is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Most clients at once.
    pub connections_max: usize,
    /// Whether other users may connect.
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
    /// The socket could not be made.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The reason.
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
    connections: Mutex<Vec<(UnixStream, JoinHandle<()>)>>,
}

impl SocketServer {
    /// Serves clients at a path. A socket there that nobody serves is replaced, anything else is left alone and an error.
    pub fn start(
        path: &Path,
        options: ServeOptions,
        serve: Arc<dyn Serve>,
    ) -> Result<SocketServer, ServeError> {
        let failed = |source: io::Error| ServeError::Io { path: path.to_path_buf(), source };
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
        let accepting =
            std::thread::spawn(move || accepting.accept(&listener, options.connections_max, &serve));
        Ok(SocketServer { path: path.to_path_buf(), made, listening, shared, accepting: Some(accepting) })
    }
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
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
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
        for (stream, _) in &connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for (_, thread) in connections {
            let _ = thread.join();
        }
        if identity(&self.path).is_ok_and(|found| found == self.made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Shared {
    fn accept(self: Arc<Shared>, listener: &UnixListener, connections_max: usize, serve: &Arc<dyn Serve>) {
        let mut failing = false;
        for stream in listener.incoming() {
            if self.ending.load(Acquire) {
                return;
            }
            let accepted = stream
                .and_then(|stream| Ok((stream.try_clone()?, ShutdownOnDrop(stream.try_clone()?), stream)));
            let (ours, ending, mut stream) = match accepted {
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
            connections.retain(|(_, thread)| !thread.is_finished());
            if connections.len() >= connections_max {
                // The buffer of the socket takes it at once; a client that is gone does not need it.
                let _ = frame::send(&mut stream, &serve.refusal());
                continue;
            }
            let serve = serve.clone();
            let thread = std::thread::Builder::new().spawn(move || {
                let _ending = ending;
                if let Err(error) = serve.serve(stream) {
                    tracing::warn!(%error, "a connection ended badly");
                }
            });
            match thread {
                Ok(thread) => connections.push((ours, thread)),
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        }
    }
}
