//! One device, several processes: the one that has the monitor serves grants over a Unix socket.
//!
//! A connection is one grant: it begins with the name, allocated anew or attached to, and when it ends, also because the
//! client was killed, the grant is free to be attached to again. Each command is a request and an answer; a command that
//! was answered is carried out. Threads of a client take turns on its connection.
//!
//! ```text
//!  request:  length 4 | operation 1 | fields           answer:  length 4 | 0 and fields, or 1 and the error
//! ```
//!
//! Clients own no clock: a command is issued when the client says, but not later than the latest moment that the server has
//! told it on this connection, so that no client takes the device further than its own commands do.
//!
//! A connection may also ask for the list of grants and release one that is nobody's at the time.
//!
//! The server trusts no length: a frame has at most [`FRAME_BYTES_MAX`] bytes, and addresses are checked as in one
//! process. The socket is its owner's alone (mode 600), and at most [`CONNECTIONS_MAX`] are served at once.

mod client;
mod server;
mod wire;

pub(crate) use client::RemoteGrant;
pub use client::{allocate, attach, grants, release};
pub use server::MonitorServer;

/// Most bytes of a request or an answer: a page with its out-of-band bytes, and some.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Most connections at once: each has a thread, and buffers of a frame.
pub const CONNECTIONS_MAX: usize = 256;
