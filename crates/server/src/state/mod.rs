//! State of a served volume, whichever fronts its processes use.
//!
//! [`volume`] holds it together: open [`inodes`] with their append rings, their block [`maps`] and
//! [`writeback_errors`]; the log by which clients make appends durable (`append_log`); names and attributes for clients to look up (`names`), and which
//! are looked up next (`readahead`); [`open_files`], for which descriptors stand, and those that processes open by themselves (`grants`); [`locks`]; [`processes`]; what
//! killed programs left ([`orphans`]); the processors that execute programs ([`program_cpus`]); what a front keeps of inodes without names ([`watch`]); and how much [`memory`] is shared. Clients share parts of it in memory ([`weft_client::shared`]); the server validates
//! what they can write. Nothing here knows how a request arrives.

mod append_log;
mod grants;
pub mod inodes;
mod kept_programs;
pub mod locks;
pub mod maps;
pub mod memory;
mod names;
pub mod open_files;
pub mod orphans;
pub mod processes;
pub mod program_cpus;
pub mod readahead;
mod shared;
mod shown;
pub mod volume;
pub mod watch;
pub mod writeback_errors;
