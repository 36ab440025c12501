//! The front of programs under the shim and of the client library. A process connects to a Unix socket
//! ([`connection`]) and shares a channel of call slots with the server ([`link`]). Each slot in use has a thread
//! ([`slot`]) that decodes its requests ([`decode`]).

pub(crate) mod connection;
mod cpu_load;
mod decode;
pub(crate) mod identity;
mod link;
mod program;
mod quota;
mod slot;
mod stopped;

pub(crate) use connection::{Connection, Connections};
