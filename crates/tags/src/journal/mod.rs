//! The journal: the changes of every commit since the last checkpoint.
//!
//! The data of new nodes is not in it where it fills whole pages: those go to their place, once, and the journal has
//! their checksum. [`record`] is what a commit says, [`log`] how it reaches the medium and is found again, [`writes`]
//! what a sync has to wait for, [`periodic`] who syncs it for commits that do not wait.

pub(crate) mod log;
pub(crate) mod periodic;
pub(crate) mod record;
pub(crate) mod writes;
