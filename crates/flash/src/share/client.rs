//! The client: a grant of a monitor in another process.

use super::FRAME_BYTES_MAX;
use super::wire::{self, ReadOne, Request, WriteOne};
use crate::address::{GrantBlock, GrantGeometry};
use crate::error::LevelError;
use crate::grant::{Grant, RawRead, RawWrite, Results};
use crate::monitor::{BlockLook, GrantInfo, GrantRequest};
use crate::oob::check_most;
use crate::raw::VECTOR_MAX;
use parking_lot::Mutex;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weft_core::codec::{Decode, Reader, Truncated};
use weft_core::frame;
use weft_core::serve::check_path;
use weft_core::{Nanos, Tag};
use weft_device::nand::Done;

/// Allocates a grant of a monitor that another process serves at this path, and attaches to it.
pub fn allocate(path: &Path, request: &GrantRequest) -> Result<Grant, LevelError> {
    let GrantRequest { name, bytes, over_provisioning_permille } = request.clone();
    let ask = Request::Allocate { name, bytes, over_provisioning_permille };
    connect(path, &request.name, &ask)
}

/// Attaches to a grant of a monitor that another process serves at this path.
pub fn attach(path: &Path, name: &str) -> Result<Grant, LevelError> {
    connect(path, name, &Request::Attach { name: name.to_string() })
}

/// Releases a grant of a monitor that another process serves at this path, as [`Monitor::release`](crate::Monitor::release).
pub fn release(path: &Path, name: &str) -> Result<(), LevelError> {
    Connection::new(path)?.ask_with(&Request::Release { name: name.to_string() }, |_| Ok(()))
}

/// The grants of a monitor that another process serves at this path.
pub fn grants(path: &Path) -> Result<Vec<GrantInfo>, LevelError> {
    Connection::new(path)?.ask(&Request::List)
}

fn connect(path: &Path, name: &str, request: &Request) -> Result<Grant, LevelError> {
    let connection = Connection::new(path)?;
    let geometry = connection.ask(request)?;
    Ok(Grant::remote(RemoteGrant { name: name.to_string(), geometry, connection }))
}

/// Longest wait for a server to take a grant back.
const DETACH_WITHIN: Duration = Duration::from_secs(5);

/// A grant whose monitor is in another process.
#[derive(Debug)]
pub(crate) struct RemoteGrant {
    name: String,
    geometry: GrantGeometry,
    connection: Connection,
}

impl Drop for RemoteGrant {
    /// Whoever attaches next finds the grant free; that the connection has ended, the server learns some time later.
    fn drop(&mut self) {
        // A server that does not answer is not waited for for ever.
        let _ = self.connection.0.lock().set_read_timeout(Some(DETACH_WITHIN));
        let _ = self.connection.0.lock().set_write_timeout(Some(DETACH_WITHIN));
        let _ = self.connection.ask_with(&Request::Detach, |_| Ok(()));
    }
}

#[derive(Debug)]
struct Connection(Mutex<UnixStream>);

impl Connection {
    fn new(path: &Path) -> Result<Connection, LevelError> {
        check_path(path)?;
        let connected = UnixStream::connect(path);
        let stream =
            connected.map_err(|error| LevelError::Connection(format!("{}: {error}", path.display())))?;
        Ok(Connection(Mutex::new(stream)))
    }

    /// Sends a request and reads what the answer to it has.
    fn ask<T: for<'a> Decode<'a>>(&self, request: &Request) -> Result<T, LevelError> {
        T::get(&mut Reader::new(&self.answer(request)?[1..])).map_err(short)
    }

    /// The same, by `read`.
    fn ask_with<T>(
        &self,
        request: &Request,
        read: impl FnOnce(&mut Reader) -> Result<T, Truncated>,
    ) -> Result<T, LevelError> {
        read(&mut Reader::new(&self.answer(request)?[1..])).map_err(short)
    }

    /// The answer to a request, which is no error. Its first byte says so.
    fn answer(&self, request: &Request) -> Result<Vec<u8>, LevelError> {
        let broken = |error: io::Error| LevelError::Connection(error.to_string());
        let mut stream = self.0.lock();
        frame::send(&mut *stream, &request.encode()).map_err(broken)?;
        let answer = frame::receive(&mut *stream, FRAME_BYTES_MAX).map_err(broken)?;
        let answer = answer.ok_or_else(|| LevelError::Connection("it has ended the connection".into()))?;
        let mut reader = Reader::new(&answer);
        if reader.u8().map_err(short)? != 0 {
            return Err(wire::read_error(&mut reader).map_err(short)?);
        }
        Ok(answer)
    }
}

fn short(error: Truncated) -> LevelError {
    LevelError::Connection(error.to_string())
}

/// What an answer has of a page.
fn fill(reader: &mut Reader, read: &mut RawRead) -> Result<Done, Truncated> {
    let done = Done::get(reader)?;
    read.data.copy_from_slice(reader.bytes(read.data.len())?);
    read.oob.copy_from_slice(reader.bytes(read.oob.len())?);
    Ok(done)
}

impl RemoteGrant {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn geometry(&self) -> &GrantGeometry {
        &self.geometry
    }

    pub fn read(&self, issued: Nanos, read: &mut RawRead) -> Result<Done, LevelError> {
        let request = Request::Read { issued, read: ReadOne::of(read) };
        self.connection.ask_with(&request, |reader| fill(reader, read))
    }

    pub fn read_tagged(&self, issued: Nanos, read: &mut RawRead) -> Result<(Done, Option<Tag>), LevelError> {
        let request = Request::ReadTagged { issued, read: ReadOne::of(read) };
        self.connection.ask_with(&request, |reader| Ok((fill(reader, read)?, wire::read_tag(reader)?)))
    }

    pub fn program(&self, issued: Nanos, write: &RawWrite) -> Result<Done, LevelError> {
        // Here already: the server does not take a frame of any length.
        let lengths = [
            ("data", write.data, self.geometry.page_bytes),
            ("out-of-band bytes", write.oob, self.geometry.oob_bytes),
        ];
        for (what, bytes, most) in lengths {
            check_most(write.page, what, bytes.len(), most)?;
        }
        self.connection.ask(&Request::Program { issued, write: WriteOne::of(write) })
    }

    pub fn erase(&self, issued: Nanos, block: GrantBlock) -> Result<Done, LevelError> {
        self.connection.ask(&Request::Erase { issued, block })
    }

    /// Asks for several at once, each of which has an answer.
    fn ask_many(
        &self,
        request: &Request,
        mut read: impl FnMut(&mut Reader, usize) -> Result<Done, Truncated>,
        count: usize,
    ) -> Results {
        let answers = self.connection.ask_with(request, |reader| {
            (0..count)
                .map(|at| match reader.u8()? {
                    0 => Ok(Ok(read(reader, at)?)),
                    _ => Ok(Err(wire::read_error(reader)?)),
                })
                .collect::<Result<Results, Truncated>>()
        });
        match answers {
            Ok(answers) => answers,
            // The first address tells what the matter is, the others that they were not come to.
            Err(error) => {
                let text = error.to_string();
                let others = (1..count).map(|_| Err(LevelError::Remote(text.clone())));
                std::iter::once(Err(error)).chain(others).collect()
            }
        }
    }

    /// Pages that a request may name: as many as a frame has room for, and no more than the server takes.
    fn pages_a_request(&self) -> usize {
        let page = self.geometry.page_bytes as usize + self.geometry.oob_bytes as usize + 64;
        (FRAME_BYTES_MAX / 2 / page).clamp(1, VECTOR_MAX)
    }

    pub fn read_many(&self, issued: Nanos, reads: &mut [RawRead]) -> Results {
        let too_long = |read: &RawRead| {
            read.offset as usize + read.data.len() > self.geometry.page_bytes as usize
                || read.oob.len() > self.geometry.oob_bytes as usize
        };
        if reads.iter().any(too_long) {
            return reads.iter_mut().map(|read| self.read(issued, read)).collect();
        }
        let frame = |reads: &mut [RawRead]| {
            let request = Request::ReadMany { issued, reads: reads.iter().map(ReadOne::of).collect() };
            let count = reads.len();
            self.ask_many(&request, |reader, at| fill(reader, &mut reads[at]), count)
        };
        reads.chunks_mut(self.pages_a_request()).flat_map(frame).collect()
    }

    pub fn program_many(&self, issued: Nanos, writes: &[RawWrite]) -> Results {
        let too_long = |write: &RawWrite| {
            write.data.len() > self.geometry.page_bytes as usize
                || write.oob.len() > self.geometry.oob_bytes as usize
        };
        if writes.iter().any(too_long) {
            return writes.iter().map(|write| self.program(issued, write)).collect();
        }
        let frame = |writes: &[RawWrite]| {
            let request = Request::ProgramMany { issued, writes: writes.iter().map(WriteOne::of).collect() };
            self.ask_many(&request, |reader, _| Done::get(reader), writes.len())
        };
        writes.chunks(self.pages_a_request()).flat_map(frame).collect()
    }

    pub fn erase_many(&self, issued: Nanos, blocks: &[GrantBlock]) -> Results {
        let some = |blocks: &[GrantBlock]| {
            let request = Request::EraseMany { issued, blocks: blocks.to_vec() };
            self.ask_many(&request, |reader, _| Done::get(reader), blocks.len())
        };
        blocks.chunks(VECTOR_MAX).flat_map(some).collect()
    }

    pub fn look(&self, block: GrantBlock) -> Result<BlockLook, LevelError> {
        self.connection.ask(&Request::Look { block })
    }

    pub fn free_at(&self, block: GrantBlock) -> Result<Nanos, LevelError> {
        self.connection.ask(&Request::FreeAt { block })
    }

    pub fn now(&self) -> Result<Nanos, LevelError> {
        self.connection.ask(&Request::Now)
    }

    pub fn sync(&self) -> Result<(), LevelError> {
        self.connection.ask_with(&Request::Sync, |_| Ok(()))
    }
}
