//! Sessions of tag stores that another process serves ('weft tags serve').

use crate::error::{Failure, exports};
use crate::handle::{bytes, give, handle, put, put_unless_null, take, text};
use crate::store::copy_out;
use std::ffi::c_char;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weft_tags::{EdgeType, Info, InfoForm, NodeType, RemoteSession, SessionNode};

/// A session of a tag store in another process. Ids of nodes are its own: they mean nothing in another session.
pub struct WeftSession(Mutex<RemoteSession>);

/// The session, for one call.
///
/// # Safety
/// The handle is null or open.
unsafe fn of<'a>(session: *const WeftSession) -> Result<MutexGuard<'a, RemoteSession>, Failure> {
    // SAFETY: the caller's promise.
    let session = unsafe { handle(session, "session") }?;
    Ok(session.0.lock().unwrap_or_else(PoisonError::into_inner))
}

exports! {
    /// Opens a session of the store that is served at this path. Who the caller is, the kernel says.
    ///
    /// # Safety
    /// `path` is a string; `out` can be written.
    fn weft_session_connect(path: *const c_char, out: *mut *mut WeftSession) {
        let session = RemoteSession::connect(Path::new(text(path, "path")?))?;
        give(WeftSession(Mutex::new(session)), out)
    }

    /// Ends a session; its transaction is aborted.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_session_close(session: *mut WeftSession) -> () {
        drop(take(session))
    }

    /// The node that the session began at.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_session_root(session: *const WeftSession, out: *mut u64) {
        put(of(session)?.root().0, out)
    }

    /// Begins a transaction; a session has one at a time.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_session_begin(session: *const WeftSession) {
        Ok(of(session)?.begin()?)
    }

    /// Commits the transaction. WEFT_EAGAIN: somebody else has changed what it has read; run it again.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_session_commit(session: *const WeftSession) {
        Ok(of(session)?.commit().map(drop)?)
    }

    /// Aborts the transaction.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_session_abort(session: *const WeftSession) {
        Ok(of(session)?.abort()?)
    }

    /// The edge type of this name, whose edges carry a number; registered if it is new and the caller may write at the root.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; `out` can be written.
    fn weft_session_edge_type(session: *const WeftSession, name: *const c_char, out: *mut u32) {
        put(of(session)?.edge_type(text(name, "name")?, InfoForm::Number)?.0, out)
    }

    /// Makes a node in the s-node of another one, in the transaction.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes; `out` can be written.
    fn weft_session_create_node(
        session: *const WeftSession,
        near: u64,
        kind: u32,
        data: *const u8,
        data_bytes: usize,
        out: *mut u64,
    ) {
        let (mut session, data) = (of(session)?, bytes(data, data_bytes)?);
        let node = session.create_node(SessionNode(near), NodeType(kind), data)?;
        put(node.0, out)
    }

    /// Copies a part of a node's data, from byte `at` on: as much as there is room for, and less at the end. `part_bytes` tells how much.
    ///
    /// # Safety
    /// The handle is open; `part` has room for `capacity` bytes; `part_bytes` can be written.
    fn weft_session_read_node(
        session: *const WeftSession,
        node: u64,
        kind: u32,
        at: u64,
        part: *mut u8,
        capacity: usize,
        part_bytes: *mut usize,
    ) {
        let found = of(session)?.read_at(SessionNode(node), NodeType(kind), at, capacity)?;
        copy_out(&found, part, capacity, part_bytes)
    }

    /// Gives a node new data, in the transaction.
    ///
    /// # Safety
    /// The handle is open; `data` has so many bytes.
    fn weft_session_update_node(
        session: *const WeftSession,
        node: u64,
        kind: u32,
        data: *const u8,
        data_bytes: usize,
    ) {
        let (mut session, data) = (of(session)?, bytes(data, data_bytes)?);
        Ok(session.update_node(SessionNode(node), NodeType(kind), data)?)
    }

    /// Writes into a node's data, in the transaction, from byte `at` on, which is not behind its end.
    ///
    /// # Safety
    /// The handle is open; `part` has so many bytes.
    fn weft_session_write_node(
        session: *const WeftSession,
        node: u64,
        kind: u32,
        at: u64,
        part: *const u8,
        part_bytes: usize,
    ) {
        let (mut session, part) = (of(session)?, bytes(part, part_bytes)?);
        Ok(session.write_at(SessionNode(node), NodeType(kind), at, part)?)
    }

    /// Deletes a node without edges, in the transaction.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_session_delete_node(session: *const WeftSession, node: u64, kind: u32) {
        Ok(of(session)?.delete_node(SessionNode(node), NodeType(kind))?)
    }

    /// Leads an edge to a node, or makes it, in the transaction. `before`, unless null, gets the node it led to, or 0.
    ///
    /// # Safety
    /// The handle is open; `before` is null or can be written.
    fn weft_session_set_edge(
        session: *const WeftSession,
        source: u64,
        edge_type: u32,
        info: u64,
        to: u64,
        before: *mut u64,
    ) {
        let (source, to) = (SessionNode(source), SessionNode(to));
        let found = of(session)?.set_edge(source, EdgeType(edge_type), Info::Number(info), to)?;
        put_unless_null(found.map_or(0, |node| node.0), before);
        Ok(())
    }

    /// Deletes an edge, in the transaction. `to`, unless null, gets the node it led to.
    ///
    /// # Safety
    /// The handle is open; `to` is null or can be written.
    fn weft_session_delete_edge(
        session: *const WeftSession,
        source: u64,
        edge_type: u32,
        info: u64,
        to: *mut u64,
    ) {
        let mut session = of(session)?;
        let found = session.delete_edge(SessionNode(source), EdgeType(edge_type), Info::Number(info))?;
        put_unless_null(found.0, to);
        Ok(())
    }

    /// Where an edge leads; WEFT_ENOENT when there is none.
    ///
    /// # Safety
    /// The handle is open; `out` can be written.
    fn weft_session_get_destination(
        session: *const WeftSession,
        source: u64,
        edge_type: u32,
        info: u64,
        out: *mut u64,
    ) {
        let mut session = of(session)?;
        let found = session.edge(SessionNode(source), EdgeType(edge_type), Info::Number(info))?;
        let found = found.ok_or(Failure::NoSuchKey)?;
        put(found.0, out)
    }
}
