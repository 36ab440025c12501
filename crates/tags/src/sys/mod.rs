//! Memory from the kernel, with a safe face.

pub(crate) mod aligned;
pub(crate) mod frames;
