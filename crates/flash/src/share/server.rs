//! The side that has the monitor.

use super::wire::{self, Request};
use super::{CONNECTIONS_MAX, FRAME_BYTES_MAX};
use crate::error::LevelError;
use crate::grant::Grant;
use crate::monitor::{GrantRequest, Monitor};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use weft_core::codec::WriteFields;
use weft_core::frame;
use weft_core::serve::{Serve, ServeOptions, SocketServer};

/// A monitor that is served. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct MonitorServer {
    _socket: SocketServer,
}

struct Grants(Arc<Monitor>);

impl MonitorServer {
    /// Serves a monitor at a path. A socket there that nobody serves is replaced, anything else is left alone and an error.
    pub fn start(monitor: Arc<Monitor>, path: &Path) -> Result<MonitorServer, LevelError> {
        let options = ServeOptions { connections_max: CONNECTIONS_MAX, for_everyone: false };
        Ok(MonitorServer { _socket: SocketServer::start(path, options, Arc::new(Grants(monitor)))? })
    }
}

impl Serve for Grants {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        serve(&self.0, stream)
    }

    fn refusal(&self) -> Vec<u8> {
        let mut answer = vec![1];
        wire::put_error(&mut answer, &LevelError::TooManyConnections { most: CONNECTIONS_MAX });
        answer
    }
}

/// Answers one client until it is gone.
fn serve(monitor: &Arc<Monitor>, mut stream: UnixStream) -> io::Result<()> {
    let mut grant = None;
    while let Some(raw) = frame::receive(&mut stream, FRAME_BYTES_MAX)? {
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "an unknown request");
        let request = Request::decode(&raw).map_err(|_| unknown())?.ok_or_else(unknown)?;
        let mut answer = vec![0];
        if let Err(error) = answer_to(monitor, &mut grant, request, &mut answer) {
            answer = vec![1];
            wire::put_error(&mut answer, &error);
        }
        frame::send(&mut stream, &answer)?;
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
