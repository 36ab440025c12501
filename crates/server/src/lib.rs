//! One process owns a volume and serves it to others.
//!
//! A [`Server`] listens on a Unix socket. Each process that connects gets a channel of call slots. A process of the
//! server's user also gets the shared memory by which it appends and reads without a call ([`weft_client::shared`]).
//! The server knows a file core only by the trait [`weft_vfs::Core`], and of a program only its name.
//!
//! Three layers, each of which knows only those below it: fronts decode requests, [`ops`] performs them, the state
//! holds what is open, locked and mapped. Call slots are the front in this crate; the crate `fuse` is another one, and `tests/http.rs`
//! has a third.
//!
//! Threads: one accepts connections; one per process notices its end, and one per call slot in use answers it; a
//! flusher moves the content of rings to the core; one ticks the core; one brings stores of killed programs to their
//! files; one has stopped programs end the writes that others wait for. One more holds a robust mutex while the server lives, so that clients see the server's death in one load.

mod error;
mod fronts;
pub mod ops;
mod server;
mod socket;
mod state;

pub use error::ServerError;
pub use fronts::slots::identity::of_thread as caller_of_thread;
pub use server::Server;
pub use socket::{other_sockets, socket_dir, socket_dirs, socket_path};
pub use state::processes::{Peer, Process};
pub use state::program_cpus::{CpuLoad, ProgramCpus};
pub use state::volume::Volume;
pub use state::watch::{Watcher, acts_for_watcher};
