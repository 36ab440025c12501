//! One process owns a volume and serves it to others.
//!
//! A [`Server`] listens on a Unix socket. Each process that connects gets a channel of call slots, and, when it runs as
//! the server's user, the shared memory that lets it append and read without asking ([`weft_client::shared`]). The
//! server knows a file core by its [`weft_vfs::Core`] trait only, and of a program nothing but its name.
//!
//! Threads: one that accepts; per process one that notices its end, and one per call slot in use; one flusher that
//! moves what rings hold to the core; one that ticks the core. The thread that runs [`Server::start`]'s keeper holds a
//! robust mutex, so that clients see the server's death in one load.

pub mod error;
mod fronts;
pub mod ops;
pub mod server;
pub mod state;

pub use error::ServerError;
pub use server::{Server, socket_path};
pub use state::processes::{Peer, Process};
pub use state::volume::Volume;
