//! `weft run --hints`: a program on an ordinary file system, with placement's streams as the kernel's lifetime hints.
//!
//! The preloaded library asks for each file that the program opens for writing; this process answers. Streams are what
//! the policy says; lifetimes are not learned, since nobody here sees files die.

use crate::args::PlacementArgs;
use crate::error::CliError;
use crate::guest::{Guest, exit_status, find_shim};
use crate::host;
use crate::say::say;
use crate::sys::file::Removed;
use crate::sys::signal::Queue;
use crate::table::Table;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_client::advice::{AdviceRequest, MAGIC, PATH_MAX};
use weft_placement::{Engine, FileContext, OpenIntent, WriteHint, write_hint};
use weft_server::ops::intent;

/// How long the adviser waits for the rest of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hints given, by stream.
#[derive(Default)]
struct HintCounts {
    streams: BTreeMap<u16, (WriteHint, u64)>,
    refused: u64,
}

struct Adviser {
    engine: Engine,
    begun: Instant,
    given: Mutex<HintCounts>,
}

/// Runs the program; its exit status.
pub fn run(
    placement: &PlacementArgs,
    quiet: bool,
    guest: &Guest<'_>,
    signals: &Queue,
) -> Result<u8, CliError> {
    let shim = find_shim()?;
    let socket = Removed(host::private_socket()?);
    let failed = |e| CliError::io("listen on", &socket.0, e);
    let listener = UnixListener::bind(&socket.0).map_err(failed)?;
    let adviser = Arc::new(Adviser {
        engine: placement.choice().engine()?,
        begun: Instant::now(),
        given: Mutex::default(),
    });
    let answering = Arc::clone(&adviser);
    std::thread::Builder::new()
        .name("weft-hints".into())
        .spawn(move || answering.serve(&listener))
        .map_err(failed)?;
    let ended = guest.run_with(&shim, &[("WEFT_HINTS", socket.0.as_os_str())], signals)?;
    if !quiet {
        say(format_args!("\n{adviser}"));
    }
    Ok(exit_status(ended.status))
}

impl Adviser {
    fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if let Err(error) = stream.and_then(|stream| self.answer(stream)) {
                self.given.lock().refused += 1;
                tracing::warn!(%error, "a request for a hint was not answered");
            }
        }
    }

    /// Answers the one request of a connection.
    fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = <AdviceRequest as bytemuck::Zeroable>::zeroed();
        stream.read_exact(bytemuck::bytes_of_mut(&mut request))?;
        if request.magic != MAGIC || request.path_len as usize > PATH_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a request"));
        }
        let mut path = vec![0; request.path_len as usize];
        stream.read_exact(&mut path)?;
        let process = process_name(&stream);
        let hint = self.advise(&request, &path, &process);
        stream.write_all(&(hint as u64).to_le_bytes())
    }

    fn advise(&self, request: &AdviceRequest, path: &[u8], process: &str) -> WriteHint {
        let thread = request.thread.split(|&byte| byte == 0).next().unwrap_or_default();
        let thread = String::from_utf8_lossy(thread);
        let flags = request.flags as i32;
        let tag = self.engine.place(&FileContext {
            process,
            thread: &thread,
            thread_id: request.thread_id,
            // The library asks about files that are opened for writing. Whether this made the file, its being empty says.
            flags: OpenIntent::WRITE | intent(flags, flags & libc::O_CREAT != 0 && request.size == 0),
            size: request.size,
            uid: request.uid,
            now: self.begun.elapsed(),
            ..FileContext::new(path)
        });
        let hint = write_hint(self.engine.lifetime_bytes(tag.stream));
        let mut given = self.given.lock();
        let of_stream = given.streams.entry(tag.stream.0).or_default();
        *of_stream = (hint, of_stream.1 + 1);
        hint
    }
}

/// Name of the process at the other end; empty when it is gone.
fn process_name(stream: &UnixStream) -> String {
    let Ok(peer) = weft_sys::peer::credentials(stream) else { return String::new() };
    let name = std::fs::read_to_string(Path::new("/proc").join(peer.pid.to_string()).join("comm"));
    name.map(|name| name.trim_end().to_string()).unwrap_or_default()
}

impl fmt::Display for Adviser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.given.lock();
        writeln!(f, "hints      mode {}, policy {}", self.engine.mode(), self.engine.policy_name())?;
        let mut table = Table::new("stream< files> hint<");
        for (id, (hint, files)) in &given.streams {
            let name = self.engine.stream_name(weft_core::StreamId(*id)).unwrap_or("-");
            table.cells(&[&name, files, hint]);
        }
        write!(f, "\n{table}")?;
        if given.refused > 0 {
            writeln!(f, "\n{} questions could not be answered", given.refused)?;
        }
        Ok(())
    }
}
