//! Sessions for other processes, over a Unix socket.
//!
//! ```text
//!  request:  length 4 | operation 1 | fields           answer:  length 4 | 0 and fields, or the refusal and its text
//! ```
//!
//! A connection is a session. Who the caller is, the kernel says (`SO_PEERCRED`, `SO_PEERGROUPS`); no length is trusted; a
//! client that sends, or takes answers, too slowly loses its session, and a transaction ends at its limit whatever it does.

use super::error::{Refusal, SessionError};
use super::field::Field;
use super::peer;
use super::{Outcome, Session, SessionLimits, SessionNode};
use crate::ids::{EdgeType, InfoForm, NodeId};
use crate::options::Durability;
use crate::store::Store;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_core::Credentials;
use weft_core::frame;
use weft_core::serve::{Serve, ServeError, ServeOptions, SocketServer, TooMany};

/// Most bytes of a request or an answer: a node's data is in one.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// How sessions are served.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// Where sessions begin.
    pub root: NodeId,
    /// How long a client may be silent, and a transaction may take.
    pub limits: SessionLimits,
    /// Whether other users may connect. What they may do there, the s-nodes say.
    pub for_everyone: bool,
    /// Whether the server's own user and root may do everything, as they can with the store's file.
    pub owner_is_superuser: bool,
    /// Most clients at once.
    pub connections_max: usize,
    /// When a commit is durable.
    pub durability: Durability,
}

impl SessionSetup {
    /// For the server's own user, who may do everything; the usual limits; 256 clients; commits are durable when they
    /// have returned.
    pub fn new(root: NodeId) -> SessionSetup {
        SessionSetup {
            root,
            limits: SessionLimits::default(),
            for_everyone: false,
            owner_is_superuser: true,
            connections_max: 256,
            durability: Durability::Sync,
        }
    }
}

/// A store that is served. Dropping it ends all sessions and removes the socket.
#[derive(Debug)]
pub struct SessionServer {
    _socket: SocketServer,
}

struct Served {
    store: Arc<Store>,
    setup: SessionSetup,
}

impl SessionServer {
    /// Serves a store at a path. A socket there that nobody serves is replaced, anything else is left alone.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(store: Arc<Store>, path: &Path, setup: SessionSetup) -> Result<SessionServer, ServeError> {
        let options =
            ServeOptions { connections_max: setup.connections_max, for_everyone: setup.for_everyone };
        Ok(SessionServer { _socket: SocketServer::start(path, options, Arc::new(Served { store, setup }))? })
    }
}

impl Serve for Served {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let credentials = peer::credentials(&stream, self.setup.owner_is_superuser)?;
        serve(&self.store, stream, credentials, &self.setup)
    }

    fn refusal(&self, why: &TooMany) -> Vec<u8> {
        refused(&SessionError::new(Refusal::Connection, format!("the tag store's server: {why}")))
    }
}

fn refused(error: &SessionError) -> Vec<u8> {
    let mut answer = Vec::new();
    error.put(&mut answer);
    answer
}

/// Answers one client until it is gone or its session has ended.
fn serve(
    store: &Store,
    mut stream: UnixStream,
    credentials: Credentials,
    setup: &SessionSetup,
) -> io::Result<()> {
    let mut session = match store.open_session(setup.root, credentials, setup.limits) {
        Ok(session) => session,
        Err(error) => return frame::send(&mut stream, &refused(&error)),
    };
    session.durability(setup.durability);
    let SessionLimits { idle, request, .. } = setup.limits;
    let mut within = idle.min(request);
    loop {
        let mut client = Client::wait_for(&stream, &mut session, within);
        within = idle;
        let raw = match frame::receive(&mut client, FRAME_BYTES_MAX) {
            Ok(Some(raw)) => raw,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                session.close();
                // The client may be waiting for nothing; whoever asks next reads this.
                return frame::send(&mut stream, &refused(&Refusal::Ended.into()));
            }
            Err(error) => return Err(error),
        };
        let answer = session.answer(&raw);
        frame::send(&mut Client::wait_for(&stream, &mut session, idle.min(request)), &answer)?;
        if session.has_ended() {
            return Ok(());
        }
    }
}

/// A client that is waited for, until it has been silent for too long. Its transaction ends meanwhile when its time is over.
struct Client<'a, 's> {
    stream: &'a UnixStream,
    session: &'a mut Session<'s>,
    /// When all of a request or answer has to be over; never, where that is beyond all times.
    until: Option<Instant>,
    /// How long a request may take that has not begun.
    request: Option<Duration>,
}

impl<'a, 's> Client<'a, 's> {
    fn wait_for(stream: &'a UnixStream, session: &'a mut Session<'s>, within: Duration) -> Client<'a, 's> {
        let (until, request) = (Instant::now().checked_add(within), Some(session.limits.request));
        Client { stream, session, until, request }
    }

    /// Tries `step`, with the time that it may wait, until it comes to an end in time.
    fn attempt(
        &mut self,
        mut step: impl FnMut(&UnixStream, Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let now = Instant::now();
            self.session.end_overdue();
            if self.until.is_some_and(|until| until <= now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let next = self.session.transaction_until().into_iter().chain(self.until).min();
            // No time at all would be no limit.
            let left = next.map(|next| next.saturating_duration_since(now).max(Duration::from_millis(1)));
            match step(self.stream, left) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }
}

impl Read for Client<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.attempt(|mut stream, left| {
            stream.set_read_timeout(left)?;
            stream.read(buffer)
        })?;
        let end = self.request.take().and_then(|request| Instant::now().checked_add(request));
        self.until = self.until.into_iter().chain(end).min();
        Ok(count)
    }
}

impl Write for Client<'_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.attempt(|mut stream, left| {
            stream.set_write_timeout(left)?;
            stream.write(buffer)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session<'_> {
    fn has_ended(&self) -> bool {
        self.ended
    }

    /// Answers a request as it comes over a socket, without its length. Any bytes get an answer.
    pub fn answer(&mut self, raw: &[u8]) -> Vec<u8> {
        let mut answer = vec![0];
        let done = self.carry_out(raw, &mut answer);
        match done {
            Ok(()) if answer.len() <= FRAME_BYTES_MAX => answer,
            Ok(()) => {
                let text = format!("an answer of {} bytes; a socket takes {FRAME_BYTES_MAX}", answer.len());
                refused(&SessionError::new(Refusal::BadRequest, text))
            }
            Err(error) => refused(&error),
        }
    }

    /// The first request of a client.
    pub(super) fn first(&mut self) -> Outcome<SessionNode> {
        self.enter()?;
        Ok(self.root())
    }

    /// As [`Session::edge_type`], with the fields in the order in which they come.
    pub(super) fn type_of(&mut self, form: InfoForm, name: &str) -> Outcome<EdgeType> {
        self.edge_type(name, form)
    }

    /// The last one.
    pub(super) fn end(&mut self) -> Outcome<()> {
        self.close();
        Ok(())
    }
}
