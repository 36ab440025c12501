//! The weft command as a user meets it: what it prints, what it leaves behind, how it exits.

mod copy;
mod errors;
mod files;
mod format;
mod fsck;
mod policy;
mod run;
mod server;
mod volume;
