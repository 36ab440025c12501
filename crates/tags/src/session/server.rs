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
use super::{Outcome, Session, SessionLimits, SessionNode};
use crate::ids::{EdgeType, InfoForm, NodeId};
use crate::options::Durability;
use crate::store::Store;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weft_core::Credentials;
use weft_core::frame;
use weft_core::serve::{PacedFrame, Serve, ServeError, ServeOptions, SocketServer, TooMany};
use weft_sys::peer;

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
    /// Answers one client until it is gone or its session has ended.
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let setup = &self.setup;
        // The user and groups that the client had when it connected.
        let (who, groups) = (peer::credentials(&stream)?, peer::groups(&stream)?);
        let is_owner = who.uid == 0 || who.uid == weft_sys::effective_user().0;
        let credentials = if setup.owner_is_superuser && is_owner {
            Credentials::superuser(who.uid)
        } else {
            Credentials { gid: who.gid, ..Credentials::user(who.uid, &groups) }
        };
        let SessionLimits { idle, request, .. } = setup.limits;
        let answering = || PacedFrame::begun(&stream, idle.min(request));
        let mut session = match self.store.open_session(setup.root, credentials, setup.limits) {
            Ok(session) => session,
            Err(error) => return frame::send(&mut answering(), &refused(&error)),
        };
        session.durability(setup.durability);
        session.client = Some(&stream);
        let mut silent_for = idle.min(request);
        loop {
            let next = PacedFrame::idle(&stream, request).silent_for(silent_for);
            let received = frame::receive(&mut next.meanwhile(|| session.attend()), FRAME_BYTES_MAX);
            let raw = match received {
                Ok(Some(raw)) => raw,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    session.close();
                    // The client may be waiting for nothing; whoever asks next reads this.
                    return frame::send(&mut answering(), &refused(&Refusal::Ended.into()));
                }
                Err(error) => return Err(error),
            };
            silent_for = idle;
            let answer = session.answer(&raw);
            // A client that does not take its answer costs that and no more.
            drop(raw);
            frame::send(&mut answering().meanwhile(|| session.attend()), &answer)?;
            if session.ended {
                return Ok(());
            }
        }
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

impl Session<'_> {
    /// Ends the transaction when its time is over; until when it may last.
    pub(super) fn attend(&mut self) -> Option<Instant> {
        self.end_overdue();
        self.open.as_ref().and_then(|open| open.until)
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
