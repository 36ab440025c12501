//! What a turn of a program takes before it begins.

use weft_vfs::change::CHANGE_BYTES_MAX;
use weft_vfs::compound::{Allocate, Bytes, Kind, Num, Op};

/// What a turn takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// Nobody else adds or removes names, or changes modes, owners and attributes.
    pub alone: bool,
    /// Space that may be taken, in bytes.
    pub bytes: u64,
}

impl Needs {
    /// Of these operations.
    pub fn of(ops: &[Op], free_bytes: impl Fn() -> u64) -> Needs {
        let mut needs = Needs::default();
        let mut written = 0usize;
        for op in ops {
            match &op.kind {
                Kind::Write { data: Bytes::Lit(data), .. } => written = written.saturating_add(data.len()),
                Kind::Write { .. } => written = CHANGE_BYTES_MAX,
                Kind::Fallocate { mode: Allocate::PunchHole, .. } => {}
                // More than there is will be refused; rings need not go for that.
                Kind::Fallocate { len: Num::Lit(len), .. } if *len <= free_bytes() => needs.bytes += len,
                Kind::Rename { .. }
                | Kind::Unlink { .. }
                | Kind::Rmdir { .. }
                | Kind::SetXattr { .. }
                | Kind::RemoveXattr { .. } => needs.alone = true,
                _ => {}
            }
        }
        needs.bytes += written.min(CHANGE_BYTES_MAX) as u64;
        needs
    }
}
