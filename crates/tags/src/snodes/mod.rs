//! S-nodes: which there are ([`registry`]), what is kept of each for all its nodes ([`tags`]), who may do what with them
//! ([`access`]).

pub(crate) mod access;
mod eras;
pub(crate) mod locks;
pub(crate) mod registry;
pub(crate) mod tags;
