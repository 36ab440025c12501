//! The journal and checkpoints: one chain of frames through metadata zones.
//!
//! A transaction's records gather in a buffer; a commit writes the buffer as one frame. A checkpoint is a run of part
//! frames and an end frame in the same chain; what lies before it is then of no use, and its zones are reset.
//! [`scan`] finds frames on a device, [`replay`] makes a state of them, [`salvage`] makes what it can of a damaged
//! volume's; [`writer`] has the end of the chain, to which `core::journal` appends frames and `core::checkpoint` the
//! whole state.

pub mod replay;
pub mod salvage;
pub mod scan;
pub mod writer;
