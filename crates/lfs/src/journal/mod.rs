//! The journal and checkpoints: one chain of frames through metadata zones.
//!
//! A transaction's records gather in a buffer; a commit writes the buffer as one frame. A checkpoint is a run of part
//! frames and an end frame in the same chain; what lies before it is then of no use, and its zones are reset.
//! [`writer`] appends frames, [`checkpoint`] writes the whole state, [`scan`] finds frames on a device, [`replay`]
//! makes a state of them, [`salvage`] makes what it can of a damaged volume's.

pub mod checkpoint;
pub mod replay;
pub mod salvage;
pub mod scan;
pub mod writer;
