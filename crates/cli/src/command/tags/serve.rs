//! `weft tags serve`: serves sessions of a store to other processes until a signal stops it.

use super::store::{StoreArgs, on_flash, open_with};
use crate::error::CliError;
use crate::say;
use crate::sys::file::with_suffix;
use crate::sys::signal::Queue;
use clap::Args;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weft_tags::{Durability, EdgeRule, NodeId, Options, SessionLimits, SessionServer, SessionSetup, SnodeId};

/// Longest wait for one signal; the loop then waits again.
const WAIT: Duration = Duration::from_secs(3600);

/// `weft tags serve`
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The Unix socket [default: the name of the store plus .sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The node at which clients start, such as s1:0x2010. Clients reach other nodes through edges. 'weft tags scan'
    /// lists the nodes [default: the root of the first s-node]
    #[arg(long, value_name = "NODE", value_parser = super::dump::parse_node)]
    root: Option<NodeId>,
    /// End a session, and abort its transaction, after N seconds without a request.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
    /// End a session when the client takes more than N seconds to send its first request, to send the rest of a later
    /// request that it has begun, or to read an answer.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    request: u64,
    /// Abort a transaction that takes longer than N seconds. The locks of a transaction block other clients.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    transaction: u64,
    /// Let clients make edges to every node that they may write. Without this option, an edge can lead only to a node of
    /// the same s-node, or to the root of another s-node.
    #[arg(long)]
    writable_edges: bool,
    /// Let other users connect. The permissions of the s-nodes decide what each user may do. A user gets another
    /// connection only while the user has fewer connections than are free. So no user gets more than half of the
    /// connections.
    #[arg(long)]
    everyone: bool,
    /// Answer a commit before it is durable, and begin the sync at most MS milliseconds later. Without this option, the
    /// server answers a commit when it is durable.
    #[arg(long, value_name = "MS")]
    sync_within: Option<u32>,
    /// Maximum number of clients at a time.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
}

/// Warns where the mode of a store's file lets others past the permissions of the s-nodes.
fn warn_of_readers(path: &Path) {
    let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else { return };
    if meta.mode() & 0o066 != 0 {
        let (path, mode) = (path.display(), meta.mode() & 0o777);
        say::warn(format_args!(
            "{path}: mode {mode:04o} gives other users access to the file, past all permissions of s-nodes; \
            'chmod 600 {path}' ends that"
        ));
    }
}

/// Serves a store.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    // Before any thread is started.
    let signals = Queue::block()?;
    let path = &args.store.path;
    let edge_rule = if args.writable_edges { EdgeRule::Writable } else { EdgeRule::Adapt };
    let store = Arc::new(open_with(&args.store, Options { edge_rule, ..args.store.options() })?);
    let root = match args.root {
        Some(root) => root,
        None => store.root(SnodeId::FIRST).map_err(|e| args.store.fail(e))?,
    };
    store.view(root, 0).map_err(|e| args.store.fail(e))?;
    warn_of_readers(path);
    let socket = args.socket.clone().unwrap_or_else(|| match on_flash(path) {
        // Beside the image.
        Some(spec) => with_suffix(&spec.image, &format!(".{}.sock", spec.grant)),
        None => with_suffix(path, ".sock"),
    });
    let setup = SessionSetup {
        limits: SessionLimits {
            idle: Duration::from_secs(args.idle),
            request: Duration::from_secs(args.request),
            transaction: Duration::from_secs(args.transaction),
        },
        for_everyone: args.everyone,
        connections_max: args.clients as usize,
        durability: args.sync_within.map_or(Durability::Sync, Durability::Periodic),
        ..SessionSetup::new(root)
    };
    let server = SessionServer::start(store.clone(), &socket, setup)?;
    say::serving(path, &socket);
    while !signals.ends_within(WAIT)? {}
    // Waits for every client's thread, and these held the store.
    drop(server);
    Arc::into_inner(store).map_or(Ok(()), |store| store.close().map_err(|e| args.store.fail(e)))
}
