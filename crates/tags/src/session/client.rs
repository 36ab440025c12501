//! A session in another process.

use super::error::{Refusal, SessionError};
use super::field::Field;
use super::server::FRAME_BYTES_MAX;
use super::{Outcome, SessionNode, refuse};
use crate::ids::{EdgeType, InfoForm};
use std::os::unix::net::UnixStream;
use std::path::Path;
use weft_core::codec::Reader;
use weft_core::frame;

/// A session whose store another process serves. Its calls are those of [`Session`](super::Session), and refused likewise; a
/// connection that breaks is [`Refusal::Connection`]. Dropping it ends the session.
#[derive(Debug)]
pub struct RemoteSession {
    stream: UnixStream,
    root: SessionNode,
}

fn broken(error: impl std::fmt::Display) -> SessionError {
    SessionError::new(
        Refusal::Connection,
        format!("the tag store's server: {error}; see that it runs, and connect again"),
    )
}

pub(super) fn unreadable() -> SessionError {
    broken("its answer cannot be read")
}

impl RemoteSession {
    /// Opens a session of the store that is served at this path.
    ///
    /// # Errors
    /// [`Refusal::Connection`]; [`Refusal::NoSuchNode`] when the caller has no permission at the root.
    pub fn connect(path: &Path) -> Outcome<RemoteSession> {
        let connected = UnixStream::connect(path);
        let stream = connected.map_err(|error| broken(format!("{}: {error}", path.display())))?;
        let mut session = RemoteSession { stream, root: SessionNode(0) };
        session.root = session.first()?;
        Ok(session)
    }

    pub(super) fn ask(&mut self, request: &[u8]) -> Outcome<Vec<u8>> {
        if request.len() > FRAME_BYTES_MAX {
            return refuse(format!("a request of {} bytes; a socket takes {FRAME_BYTES_MAX}", request.len()));
        }
        // A server that has ended the session says so before it goes, and can no longer be sent to.
        let sent = frame::send(&mut self.stream, request);
        let answer = match frame::receive(&mut self.stream, FRAME_BYTES_MAX + 4) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(Refusal::Ended.into()),
            Err(error) => return Err(broken(sent.err().unwrap_or(error))),
        };
        match answer.first() {
            Some(0) => Ok(answer),
            _ => Err(SessionError::get(&mut Reader::new(&answer)).unwrap_or_else(unreadable)),
        }
    }

    /// The node that the session began at.
    pub fn root(&self) -> SessionNode {
        self.root
    }

    /// As [`Session::edge_type`](super::Session::edge_type).
    pub fn edge_type(&mut self, name: &str, form: InfoForm) -> Outcome<EdgeType> {
        self.type_of(form, name)
    }

    /// Ends the session.
    pub fn close(mut self) -> Outcome<()> {
        self.end()
    }
}
