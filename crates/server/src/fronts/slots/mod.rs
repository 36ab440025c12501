//! The front of programs under the shim and of the client library: a Unix socket on which a process connects, and call slots in
//! memory that it shares with the server.

pub(crate) mod connection;
mod crowd;
mod decode;
pub(crate) mod identity;
mod link;
mod quota;
mod slot;

pub(crate) use connection::{Connection, Connections};
