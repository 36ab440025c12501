//! The server: serves the grants of its monitor to clients.

use super::wire::{self, ReadOne, Request, WriteOne};
use super::{CONNECTIONS_MAX, FRAME_BYTES_MAX};
use crate::address::GrantPage;
use crate::error::LevelError;
use crate::grant::{Grant, RawRead, RawWrite};
use crate::monitor::{GrantRequest, Monitor};
use crate::raw::VECTOR_MAX;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weft_core::Nanos;
use weft_core::codec::Encode;
use weft_core::frame;
use weft_core::serve::{FRAME_WITHIN, PacedFrame, Serve, ServeOptions, SocketServer, TooMany};
use weft_device::nand::Done;

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
        serve(&self.0, &stream, FRAME_WITHIN)
    }

    fn refusal(&self, why: &TooMany) -> Vec<u8> {
        let mut answer = vec![1];
        wire::put_error(&mut answer, &LevelError::TooManyConnections(*why));
        answer
    }
}

/// What a connection has.
#[derive(Default)]
struct Session {
    grant: Option<Grant>,
    /// The latest moment that the client knows of.
    told: Nanos,
}

/// Answers one client until it is gone.
fn serve(monitor: &Arc<Monitor>, stream: &UnixStream, within: Duration) -> io::Result<()> {
    let mut session = Session::default();
    let mut next = PacedFrame::begun(stream, within);
    while let Some(raw) = frame::receive(&mut next, FRAME_BYTES_MAX)? {
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "an unknown request");
        let request = Request::decode(&raw).map_err(|_| unknown())?.ok_or_else(unknown)?;
        let mut answer = vec![0];
        if let Err(error) = session.answer(monitor, request, &mut answer) {
            if let LevelError::Unreadable { done, .. } = &error {
                session.told = session.told.max(*done);
            }
            answer = vec![1];
            wire::put_error(&mut answer, &error);
        }
        frame::send(&mut PacedFrame::begun(stream, within), &answer)?;
        next = PacedFrame::idle(stream, within);
    }
    Ok(())
}

impl Session {
    fn answer(
        &mut self,
        monitor: &Arc<Monitor>,
        request: Request,
        answer: &mut Vec<u8>,
    ) -> Result<(), LevelError> {
        let attached = match request {
            Request::Detach => {
                self.grant = None;
                return Ok(());
            }
            Request::Misnamed { name } => {
                let what = format!("the name '{}' is not UTF-8; give one that is", name.escape_ascii());
                return Err(LevelError::BadRequest(what));
            }
            Request::Release { name } => return monitor.release(&name),
            Request::List => {
                monitor.grants().put(answer);
                return Ok(());
            }
            Request::Attach { name } => monitor.attach(&name)?,
            Request::Allocate { name, bytes, over_provisioning_permille } => {
                monitor.allocate(&GrantRequest { name, bytes, over_provisioning_permille })?
            }
            command => return self.command(command, answer),
        };
        attached.geometry().put(answer);
        self.grant = Some(attached);
        Ok(())
    }

    /// Carries out what needs a grant.
    fn command(&mut self, request: Request, answer: &mut Vec<u8>) -> Result<(), LevelError> {
        let missing = || LevelError::BadRequest("no grant yet; attach to one first".into());
        let Session { grant, told } = self;
        let grant = grant.as_ref().ok_or_else(missing)?;
        match request {
            Request::Read { issued, read: ReadOne { page, offset, data, oob } } => {
                let (mut data, mut oob) = read_buffers(grant, data, oob);
                let done = grant.read(issued.min(*told), page, offset, &mut data, &mut oob)?;
                tell(told, answer, done);
                answer.extend_from_slice(&data);
                answer.extend_from_slice(&oob);
            }
            Request::ReadTagged { issued, read: ReadOne { page, offset, data, oob } } => {
                let (mut data, mut oob) = read_buffers(grant, data, oob);
                let (done, tag) = grant.read_tagged(issued.min(*told), page, offset, &mut data, &mut oob)?;
                tell(told, answer, done);
                answer.extend_from_slice(&data);
                answer.extend_from_slice(&oob);
                wire::put_tag(answer, tag);
            }
            Request::Program { issued, write } => {
                let done = grant.program_tagged(issued.min(*told), &write.as_raw())?;
                tell(told, answer, done);
            }
            Request::Erase { issued, block } => {
                let done = grant.erase(issued.min(*told), block)?;
                tell(told, answer, done);
            }
            Request::ReadMany { issued, reads } => {
                check_count(reads.len())?;
                // Longer buffers are refused before any is made.
                for ReadOne { page, offset, data, oob } in &reads {
                    let (given, wanted) = (offset.saturating_add(*data), grant.geometry().page_bytes);
                    check_room(*page, "data", given, wanted)?;
                    check_room(*page, "out-of-band bytes", *oob, grant.geometry().oob_bytes)?;
                }
                let mut buffers: Vec<_> = reads
                    .iter()
                    .map(|read| (vec![0; read.data as usize], vec![0; read.oob as usize]))
                    .collect();
                let parts = reads.iter().zip(&mut buffers);
                let mut raw: Vec<RawRead> = parts
                    .map(|(read, (data, oob))| RawRead { page: read.page, offset: read.offset, data, oob })
                    .collect();
                let results = grant.read_many(issued.min(*told), &mut raw);
                for (result, (data, oob)) in results.into_iter().zip(&buffers) {
                    if tell_each(told, answer, result) {
                        answer.extend_from_slice(data);
                        answer.extend_from_slice(oob);
                    }
                }
            }
            Request::ProgramMany { issued, writes } => {
                let raw: Vec<RawWrite> = writes.iter().map(WriteOne::as_raw).collect();
                check_count(raw.len())?;
                for result in grant.program_many(issued.min(*told), &raw) {
                    tell_each(told, answer, result);
                }
            }
            Request::EraseMany { issued, blocks } => {
                check_count(blocks.len())?;
                for result in grant.erase_many(issued.min(*told), &blocks) {
                    tell_each(told, answer, result);
                }
            }
            Request::Look { block } => grant.look(block)?.put(answer),
            Request::FreeAt { block } => {
                let free = grant.free_at(block)?;
                *told = (*told).max(free);
                free.put(answer);
            }
            Request::Now => {
                *told = (*told).max(grant.now()?);
                told.put(answer);
            }
            Request::Sync => grant.sync()?,
            Request::Attach { .. }
            | Request::Allocate { .. }
            | Request::Misnamed { .. }
            | Request::Detach
            | Request::Release { .. }
            | Request::List => {}
        }
        Ok(())
    }
}

/// Buffers for a read. Longer ones are refused before any is made.
fn read_buffers(grant: &Grant, data: u32, oob: u32) -> (Vec<u8>, Vec<u8>) {
    let most = |given: u32, most: u32| vec![0; given.min(most.saturating_add(1)) as usize];
    (most(data, grant.geometry().page_bytes), most(oob, grant.geometry().oob_bytes))
}

fn check_room(address: GrantPage, what: &'static str, given: u32, wanted: u32) -> Result<(), LevelError> {
    if given > wanted {
        let (given, wanted) = (given as usize, wanted as usize);
        return Err(LevelError::WrongLength { address, what, given, wanted });
    }
    Ok(())
}

fn check_count(given: usize) -> Result<(), LevelError> {
    if given > VECTOR_MAX {
        return Err(LevelError::BadRequest(format!("{given} addresses at once; give at most {VECTOR_MAX}")));
    }
    Ok(())
}

/// Answers for one address of several; whether that is done.
fn tell_each(told: &mut Nanos, answer: &mut Vec<u8>, result: Result<Done, LevelError>) -> bool {
    match result {
        Ok(done) => {
            false.put(answer);
            tell(told, answer, done);
            true
        }
        Err(error) => {
            if let LevelError::Unreadable { done, .. } = &error {
                *told = (*told).max(*done);
            }
            true.put(answer);
            wire::put_error(answer, &error);
            false
        }
    }
}

fn tell(told: &mut Nanos, answer: &mut Vec<u8>, done: Done) {
    *told = (*told).max(done.done);
    done.put(answer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::GrantBlock;
    use crate::monitor::MonitorSetup;
    use std::io::{Read, Write};
    use weft_core::Tag;
    use weft_core::codec::put;
    use weft_device::Geometry;
    use weft_device::nand::{FlashSetup, OpenChannel};

    fn monitor() -> Arc<Monitor> {
        let geometry = Geometry { channels: 1, luns_per_channel: 1, pages_per_block: 8, ..Geometry::bbssd() };
        let setup = FlashSetup::new(geometry.with_size(16 * 8 * 4096));
        Monitor::format(Arc::new(OpenChannel::memory(&setup).unwrap()), MonitorSetup::default()).unwrap()
    }

    #[test]
    fn a_client_that_sends_nothing_or_half_a_request_or_reads_no_answers_is_not_served_for_ever() {
        let within = Duration::from_millis(50);
        let mut list = Vec::new();
        frame::send(&mut list, &Request::List.encode()).unwrap();
        for sent in [vec![], [&list[..], &list[..3]].concat(), list.repeat(1 << 17)] {
            let (mut client, ours) = UnixStream::pair().unwrap();
            let mut writer = client.try_clone().unwrap();
            // The last one fills the buffers, and waits until the server has gone.
            let writing = std::thread::spawn(move || drop(writer.write_all(&sent)));
            let error = serve(&monitor(), &ours, within).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(ours);
            writing.join().unwrap();
            client.read_to_end(&mut Vec::new()).ok();
        }
    }

    #[test]
    fn names_that_are_no_text_or_show_as_another_are_refused_with_what_is_wrong() {
        let monitor = monitor();
        let mut session = Session::default();
        let request = |kind: u8, name: &[u8]| {
            let mut raw = vec![kind];
            name.put(&mut raw);
            if kind == 2 {
                put(&mut raw, &[&1u64, &0u32]);
            }
            Request::decode(&raw).unwrap().unwrap()
        };
        for (name, says) in [
            (&b"ab\xffc"[..], "'ab\\xffc' is not UTF-8"),
            ("a\u{202e}b".as_bytes(), "'a\\u{202e}b' has characters that"),
            (b"a\x1b[2Jb", "'a\\u{1b}[2Jb' has characters that"),
            ("a\u{200b}".as_bytes(), "'a\\u{200b}' has characters that"),
        ] {
            for kind in [1, 2, 10] {
                let refused = session.answer(&monitor, request(kind, name), &mut Vec::new());
                let text = refused.unwrap_err().to_string();
                assert!(text.contains(says), "{kind}: {text}");
            }
        }
        assert_eq!(monitor.grants(), []);
        session.answer(&monitor, request(2, "größe 数据".as_bytes()), &mut Vec::new()).unwrap();
    }

    #[test]
    fn hostile_vectors_are_refused_before_there_is_room_for_them() {
        let monitor = monitor();
        let mut session = Session::default();
        let name = String::from("far");
        let allocate = Request::Allocate { name, bytes: 1, over_provisioning_permille: 0 };
        session.answer(&monitor, allocate, &mut Vec::new()).unwrap();
        let block = GrantBlock { channel: 0, lun: 0, block: 0 };
        let (page, issued) = (block.page(0), Nanos(u64::MAX));
        let read = |data| ReadOne { page, offset: 1, data, oob: 0 };
        let write = WriteOne { page, data: vec![1; 4096], oob: Vec::new(), tag: Tag::METADATA };
        let whole = |reads| Request::ReadMany { issued, reads };
        let refused = [
            whole(vec![read(1); VECTOR_MAX + 1]),
            whole(vec![read(u32::MAX)]),
            whole(vec![read(1), read(4096)]),
            whole(vec![ReadOne { oob: u32::MAX, ..read(1) }]),
            Request::ProgramMany { issued, writes: vec![write.clone(); VECTOR_MAX + 1] },
            Request::EraseMany { issued, blocks: vec![block; VECTOR_MAX + 1] },
        ];
        for request in refused {
            assert!(session.answer(&monitor, request.clone(), &mut Vec::new()).is_err(), "{request:?}");
        }
        // Any bytes behind the kind, and sound requests that are cut or changed: an answer or an error.
        let sound = [
            whole(vec![read(9); 3]),
            Request::ProgramMany { issued, writes: vec![write; 2] },
            Request::EraseMany { issued, blocks: vec![block; 3] },
        ];
        let mut state = 1u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        for round in 0..20_000 {
            let mut raw = sound[round % 3].encode();
            for _ in 0..below(4) {
                let at = below(raw.len().min(90) as u64) as usize;
                raw[at] = below(256) as u8;
            }
            raw.truncate(below(2 * raw.len() as u64) as usize);
            if let Ok(Some(request)) = Request::decode(&raw) {
                let mut answer = Vec::new();
                let _ = session.answer(&monitor, request, &mut answer);
                assert!(answer.len() <= FRAME_BYTES_MAX);
            }
        }
    }
}
