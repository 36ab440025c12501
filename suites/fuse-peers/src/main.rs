//! A FUSE server on the crate fuse-backend-rs that passes everything to a directory: a peer of `weft mount`.
//!
//! The server follows the crate's own example, and sets what the crate offers for speed where the server alone changes
//! the directory: write-back, the cache of all data, long-lived names and attributes, and the removal of set-user-ID
//! bits by the server, which spares the kernel a question for each write. Extended attributes are on, as in the other
//! servers. Files are opened (no `no_open`): a file that is unlinked while it is open stays readable.

use clap::Parser;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use fuse_backend_rs::transport::{FuseChannel, FuseSession};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long the kernel keeps names and attributes.
const KEPT: Duration = Duration::from_secs(3600);

/// Serve a directory through FUSE, by fuse-backend-rs.
#[derive(Parser)]
#[command(name = "fuse-peers", max_term_width = 100)]
struct Args {
    /// The directory to which everything passes
    source: PathBuf,
    /// Where the directory shows
    mount: PathBuf,
    /// Name of the file system in the table of mounts; the source by default
    #[arg(long)]
    name: Option<String>,
    /// Threads that serve
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Leave writes to the server, and keep no data over an open
    #[arg(long)]
    no_writeback: bool,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
}

type Peer = Server<PassthroughFs>;

fn main() -> ExitCode {
    match serve(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuse-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    let source = args.source.canonicalize()?.to_string_lossy().into_owned();
    // An inode that the kernel knows is an open file here.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;

    let name = args.name.as_deref().unwrap_or(&source);
    let mut session = FuseSession::new(&args.mount, name, "fuse-backend-rs", false)?;
    session.set_allow_other(true);
    session.mount()?;
    if !args.foreground {
        // Before any thread starts, which a fork would leave behind, and before the file system opens /proc/self.
        nix::unistd::daemon(false, false)?;
    }
    let fs = PassthroughFs::new(Config {
        root_dir: source.clone(),
        cache_policy: if args.no_writeback { CachePolicy::Auto } else { CachePolicy::Always },
        writeback: !args.no_writeback,
        attr_timeout: KEPT,
        entry_timeout: KEPT,
        xattr: true,
        killpriv_v2: true,
        ..Config::default()
    })?;
    let server: Arc<Peer> = Arc::new(Server::new(fs));
    let mut threads = Vec::new();
    for _ in 0..args.threads.max(1) {
        let (server, channel) = (server.clone(), session.new_channel()?);
        threads.push(thread::spawn(move || answer(&server, channel)));
    }
    for thread in threads {
        thread.join().map_err(|_| "a thread of the server has panicked")?;
    }
    Ok(())
}

/// Answers requests until the file system is unmounted.
fn answer(server: &Peer, mut channel: FuseChannel) {
    while let Ok(Some((reader, writer))) = channel.get_request() {
        // The kernel gave the request up, or the caller learned of the error by the answer.
        let _ = server.handle_message(reader, writer.into(), None, None);
    }
}
