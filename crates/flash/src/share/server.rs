//! The side that has the monitor.

use super::CONNECTIONS_MAX;
use super::wire::{self, Request};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::monitor::{GrantRequest, Monitor};
use parking_lot::Mutex;
use rustix::fs::{Mode, fchmod};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_core::codec::WriteFields;

/// Until a connection is accepted again when one could not be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A monitor that is served. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct MonitorServer {
    path: PathBuf,
    /// Device and inode of the socket that was made, which another server may have replaced since.
    made: (u64, u64),
    /// The listening socket, to end the wait for connections.
    listening: UnixStream,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    monitor: Arc<Monitor>,
    ending: AtomicBool,
    connections: Mutex<Vec<(UnixStream, JoinHandle<()>)>>,
}

impl MonitorServer {
    /// Serves a monitor at a path. A socket there that nobody serves is replaced, anything else is left alone and an error.
    pub fn start(monitor: Arc<Monitor>, path: &Path) -> Result<MonitorServer, LevelError> {
        let failed = |error: io::Error| LevelError::Connection(format!("{}: {error}", path.display()));
        let listener = match bind_for_owner(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if !is_socket(path) {
                    return Err(LevelError::InTheWay(path.to_path_buf()));
                }
                if !is_left_over(path) {
                    return Err(LevelError::Served(path.to_path_buf()));
                }
                std::fs::remove_file(path).map_err(failed)?;
                bind_for_owner(path)
            }
            other => other,
        }
        .map_err(failed)?;
        let made = identity(path).map_err(failed)?;
        // Shutting down is done alike with any socket, and only a stream's type offers it.
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(failed)?));
        let shared =
            Arc::new(Shared { monitor, ending: AtomicBool::new(false), connections: Mutex::default() });
        let accepting = shared.clone();
        let accepting = std::thread::spawn(move || accepting.accept(&listener));
        Ok(MonitorServer { path: path.to_path_buf(), made, listening, shared, accepting: Some(accepting) })
    }
}

/// A listening socket that its owner alone may connect to from the moment that it has a name: the name gets the mode that
/// the socket has.
fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &address)?;
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
struct Ending(UnixStream);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for MonitorServer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Release);
        // Not by a connection: the path may be gone, or another server's.
        let _ = self.listening.shutdown(Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for (stream, thread) in std::mem::take(&mut *self.shared.connections.lock()) {
            let _ = stream.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
        if identity(&self.path).is_ok_and(|found| found == self.made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Shared {
    fn accept(self: Arc<Shared>, listener: &UnixListener) {
        let mut failing = false;
        for stream in listener.incoming() {
            if self.ending.load(Acquire) {
                return;
            }
            let accepted =
                stream.and_then(|stream| Ok((stream.try_clone()?, Ending(stream.try_clone()?), stream)));
            let (ours, ending, stream) = match accepted {
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
            let mut connections = self.connections.lock();
            connections.retain(|(_, thread)| !thread.is_finished());
            if connections.len() >= CONNECTIONS_MAX {
                refuse(stream);
                continue;
            }
            let monitor = self.monitor.clone();
            let thread = std::thread::Builder::new().spawn(move || {
                let _ending = ending;
                if let Err(error) = serve(&monitor, stream) {
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

/// Tells a client that there are too many, in the answer to its first request.
fn refuse(mut stream: UnixStream) {
    let mut answer = vec![1];
    wire::put_error(&mut answer, &LevelError::TooManyConnections { most: CONNECTIONS_MAX });
    // The buffer of the socket takes it at once; a client that is gone does not need it.
    let _ = wire::send(&mut stream, &answer);
}

/// Answers one client until it is gone.
fn serve(monitor: &Arc<Monitor>, mut stream: UnixStream) -> io::Result<()> {
    let mut grant = None;
    while let Some(raw) = wire::receive(&mut stream)? {
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "an unknown request");
        let request = Request::decode(&raw).map_err(|_| unknown())?.ok_or_else(unknown)?;
        let mut answer = vec![0];
        if let Err(error) = answer_to(monitor, &mut grant, request, &mut answer) {
            answer = vec![1];
            wire::put_error(&mut answer, &error);
        }
        wire::send(&mut stream, &answer)?;
    }
    Ok(())
}

fn answer_to(
    monitor: &Arc<Monitor>,
    grant: &mut Option<Grant>,
    request: Request,
    answer: &mut Vec<u8>,
) -> Result<(), LevelError> {
    let attached = match &request {
        Request::Detach => {
            *grant = None;
            return Ok(());
        }
        Request::Release { name } => return monitor.release(name),
        Request::List => {
            wire::put_grants(answer, &monitor.grants());
            return Ok(());
        }
        Request::Attach { name } => Some(monitor.attach(name)?),
        Request::Allocate { name, bytes, over_provisioning_permille } => {
            let (name, bytes) = (name.clone(), *bytes);
            let over_provisioning_permille = *over_provisioning_permille;
            Some(monitor.allocate(&GrantRequest { name, bytes, over_provisioning_permille })?)
        }
        _ => None,
    };
    if let Some(attached) = attached {
        wire::put_geometry(answer, attached.geometry());
        *grant = Some(attached);
        return Ok(());
    }
    let missing = || LevelError::BadRequest("no grant yet; attach to one first".into());
    let grant = grant.as_ref().ok_or_else(missing)?;
    match request {
        Request::Read { issued, page, offset, data, oob } => {
            let geometry = grant.geometry();
            // Longer buffers are refused before any is made.
            let most = |given: u32, most: u32| given.min(most.saturating_add(1)) as usize;
            let mut data = vec![0; most(data, geometry.page_bytes)];
            let mut oob = vec![0; most(oob, geometry.oob_bytes)];
            let done = grant.read(issued, page, offset, &mut data, &mut oob)?;
            wire::put_done(answer, done);
            answer.extend_from_slice(&data);
            answer.extend_from_slice(&oob);
        }
        Request::Program { issued, page, data, oob } => {
            wire::put_done(answer, grant.program(issued, page, &data, &oob)?);
        }
        Request::Erase { issued, block } => wire::put_done(answer, grant.erase(issued, block)?),
        Request::Look { block } => wire::put_look(answer, grant.look(block)?),
        Request::FreeAt { block } => answer.put_u64(grant.free_at(block)?.0),
        Request::Sync => grant.sync()?,
        Request::Attach { .. }
        | Request::Allocate { .. }
        | Request::Detach
        | Request::Release { .. }
        | Request::List => {}
    }
    Ok(())
}
