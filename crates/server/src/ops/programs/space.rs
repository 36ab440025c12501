//! Space that a turn of a program may take.

use weft_vfs::change::CHANGE_BYTES_MAX;
use weft_vfs::compound::{Allocate, Bytes, Kind, Num, Op};

/// Bytes that these operations may take, at most.
pub fn space_for(ops: &[Op], free_bytes: impl Fn() -> u64) -> u64 {
    let (mut allocated, mut written) = (0u64, 0usize);
    for op in ops {
        match &op.kind {
            Kind::Write { data: Bytes::Lit(data), .. } => written = written.saturating_add(data.len()),
            Kind::Write { .. } => written = CHANGE_BYTES_MAX,
            Kind::Fallocate { mode: Allocate::PunchHole, .. } => {}
            // More than there is will be refused; rings need not go for that.
            Kind::Fallocate { len: Num::Lit(len), .. } if *len <= free_bytes() => allocated += len,
            // It may be all that there is.
            Kind::Fallocate { len: Num::Of(_), .. } => allocated = allocated.max(free_bytes()),
            _ => {}
        }
    }
    allocated.saturating_add(written.min(CHANGE_BYTES_MAX) as u64)
}
