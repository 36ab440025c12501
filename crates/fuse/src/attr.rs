//! Attributes as the kernel has them.

use crate::abi::{AttrOut, EntryOut, StatxOut, StatxTime, WireAttr};
use std::time::Duration;
use weft_core::BLOCK_BYTES;
use weft_vfs::{Attr, InodeFlags, TimeSpec};

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Whole seconds, and the nanoseconds behind them.
fn parts(time: TimeSpec) -> (i64, u32) {
    (time.0.div_euclid(SECOND), time.0.rem_euclid(SECOND) as u32)
}

/// A time of the kernel.
pub fn time_spec(seconds: i64, nanos: u32) -> TimeSpec {
    TimeSpec(seconds.saturating_mul(SECOND).saturating_add(i64::from(nanos)))
}

/// What the kernel keeps of an inode.
pub fn wire(attr: &Attr) -> WireAttr {
    let [(atime, atime_nsec), (mtime, mtime_nsec), (ctime, ctime_nsec)] =
        [attr.atime, attr.mtime, attr.ctime].map(parts);
    WireAttr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime,
        mtime,
        ctime,
        atime_nsec,
        mtime_nsec,
        ctime_nsec,
        mode: attr.mode(),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: rdev(attr.rdev),
        block_bytes: BLOCK_BYTES as u32,
        flags: 0,
    }
}

/// A device number as the kernel packs it in 32 bits.
fn rdev(rdev: u64) -> u32 {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// The number of a device in a request.
pub fn device_number(rdev: u32) -> u64 {
    libc::makedev(rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00)
}

/// The answer to a question for attributes, which the kernel may keep for so long.
pub fn attr_out(attr: &Attr, kept: Duration) -> AttrOut {
    AttrOut { valid: kept.as_secs(), valid_nsec: kept.subsec_nanos(), pad: 0, attr: wire(attr) }
}

/// The answer to a question for a name.
pub fn entry_out(attr: &Attr, kept: Duration) -> EntryOut {
    EntryOut {
        node: attr.ino.0,
        // An inode's number is never given out again.
        generation: 0,
        entry_valid: kept.as_secs(),
        attr_valid: kept.as_secs(),
        entry_valid_nsec: kept.subsec_nanos(),
        attr_valid_nsec: kept.subsec_nanos(),
        attr: wire(attr),
    }
}

/// The answer that there is no such name.
pub fn no_entry_out(kept: Duration) -> EntryOut {
    EntryOut { entry_valid: kept.as_secs(), entry_valid_nsec: kept.subsec_nanos(), ..EntryOut::default() }
}

/// Attributes with the time of birth.
pub fn statx_out(attr: &Attr, kept: Duration) -> StatxOut {
    let time = |time: TimeSpec| {
        let (seconds, nanos) = parts(time);
        StatxTime { seconds, nanos, pad: 0 }
    };
    StatxOut {
        valid: kept.as_secs(),
        valid_nsec: kept.subsec_nanos(),
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        block_bytes: BLOCK_BYTES as u32,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode() as u16,
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        attributes: attr.marks.flags.statx_attributes(),
        attributes_mask: InodeFlags::all().statx_attributes(),
        rdev_major: libc::major(attr.rdev),
        rdev_minor: libc::minor(attr.rdev),
        ..StatxOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_whole_seconds_and_what_follows_them() {
        for (nanos, wanted) in [(0, (0, 0)), (-1, (-1, 999_999_999)), (2_500_000_000, (2, 500_000_000))] {
            assert_eq!(parts(TimeSpec(nanos)), wanted);
            assert_eq!(time_spec(wanted.0, wanted.1), TimeSpec(nanos));
        }
    }

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(0, 0), (8, 1), (259, 7), (4095, 0xfffff)] {
            let number = libc::makedev(major, minor);
            assert_eq!(device_number(rdev(number)), number);
        }
    }
}
