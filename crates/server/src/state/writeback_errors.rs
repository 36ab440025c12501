//! Errors of write-back, and which open files have reported them.
//!
//! The server may find out that it cannot store accepted bytes when no call waits for them. As Linux does (`errseq_t`), it
//! remembers such an error with the inode, and each open file reports it once: from its next `fsync`, `msync` or last
//! close. A file that is opened while no open file has reported an error yet reports it, too.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bits of the errno.
const ERRNO: u64 = 0xfff;
/// An open file has reported the error.
const SEEN: u64 = 0x1000;
/// Counts errors that came after one that was seen.
const ONE: u64 = 0x2000;

/// The last error: its errno, whether an open file has reported it, and a count that distinguishes it from earlier ones.
#[derive(Debug, Default)]
pub struct WritebackErrors(AtomicU64);

/// Up to which of the [`WritebackErrors`] an open file has reported.
#[derive(Debug, Default)]
pub struct ErrorCursor(AtomicU64);

impl WritebackErrors {
    /// Of an inode that was closed with an error that no open file had reported.
    pub fn after(unseen: Option<i32>) -> WritebackErrors {
        let errors = WritebackErrors::default();
        if let Some(errno) = unseen {
            errors.record(errno);
        }
        errors
    }

    /// A write-back has failed.
    pub fn record(&self, errno: i32) {
        debug_assert!(errno > 0 && errno as u64 <= ERRNO, "no errno: {errno}");
        let failed = |old: u64| {
            let count = old & !(ERRNO | SEEN);
            let next = if old & SEEN != 0 { count.wrapping_add(ONE) } else { count };
            Some(next | errno as u64 & ERRNO)
        };
        // It never refuses.
        let _ = self.0.fetch_update(AcqRel, Acquire, failed);
    }

    /// The cursor of a file that is opened now.
    pub fn sample(&self) -> ErrorCursor {
        let now = self.0.load(Acquire);
        ErrorCursor(AtomicU64::new(if now & SEEN != 0 { now } else { 0 }))
    }

    /// The error behind the cursor of an open file, which moves beyond it.
    pub fn check_and_advance(&self, cursor: &ErrorCursor) -> Option<i32> {
        let now = self.0.load(Acquire);
        if now == cursor.0.load(Acquire) {
            return None;
        }
        let seen = self.0.fetch_or(SEEN, AcqRel) | SEEN;
        cursor.0.store(seen, Release);
        Some((seen & ERRNO) as i32).filter(|errno| *errno != 0)
    }

    /// Whether there was one.
    pub fn has_any(&self) -> bool {
        self.0.load(Acquire) & ERRNO != 0
    }

    /// The error that no open file has reported.
    pub fn unseen(&self) -> Option<i32> {
        let now = self.0.load(Acquire);
        (now & SEEN == 0 && now & ERRNO != 0).then_some((now & ERRNO) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_hears_of_a_failure_once_and_of_the_next_one_again() {
        let errors = WritebackErrors::default();
        let (one, two) = (errors.sample(), errors.sample());
        assert_eq!(errors.check_and_advance(&one), None);
        errors.record(libc::ENOSPC);
        errors.record(libc::ENOSPC);
        assert_eq!(
            (errors.check_and_advance(&one), errors.check_and_advance(&one)),
            (Some(libc::ENOSPC), None)
        );
        assert_eq!(
            (errors.check_and_advance(&two), errors.check_and_advance(&two)),
            (Some(libc::ENOSPC), None)
        );
        errors.record(libc::ENOSPC);
        assert_eq!(
            (errors.check_and_advance(&two), errors.check_and_advance(&two)),
            (Some(libc::ENOSPC), None)
        );
        errors.record(libc::EIO);
        assert_eq!(
            (errors.check_and_advance(&one), errors.check_and_advance(&two)),
            (Some(libc::EIO), Some(libc::EIO))
        );
    }

    #[test]
    fn whoever_opens_a_file_hears_of_a_failure_that_nobody_has_heard_of() {
        let errors = WritebackErrors::default();
        errors.record(libc::EIO);
        assert_eq!(errors.unseen(), Some(libc::EIO));
        assert_eq!(errors.check_and_advance(&errors.sample()), Some(libc::EIO));
        assert_eq!(errors.unseen(), None);
        assert_eq!(errors.check_and_advance(&errors.sample()), None);
        let later = WritebackErrors::after(Some(libc::ENOSPC));
        assert_eq!(later.check_and_advance(&later.sample()), Some(libc::ENOSPC));
        assert_eq!(WritebackErrors::after(None).unseen(), None);
    }
}
