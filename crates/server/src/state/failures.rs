//! Write-backs that failed, and who has been told.
//!
//! Bytes that were accepted earlier may turn out not to be storable when nobody waits for them. As in Linux (`errseq_t`),
//! such a failure is remembered with the inode, and each open file hears of it once: by its next `fsync`, `msync` or
//! last close. A file that is opened while nobody has heard of a failure yet hears of it, too.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bits of the errno.
const ERRNO: u64 = 0xfff;
/// Whether somebody was told.
const TOLD: u64 = 0x1000;
/// One more failure after one that somebody was told of.
const ONE: u64 = 0x2000;

/// The last failure: its errno, whether anybody has heard of it, and a count that tells it from earlier ones.
#[derive(Debug, Default)]
pub struct Failures(AtomicU64);

/// How much of the [`Failures`] an open file has heard of.
#[derive(Debug, Default)]
pub struct Heard(AtomicU64);

impl Failures {
    /// Of an inode that was closed before anybody heard of `unheard`.
    pub fn after(unheard: Option<i32>) -> Failures {
        let failures = Failures::default();
        if let Some(errno) = unheard {
            failures.note(errno);
        }
        failures
    }

    /// A write-back has failed.
    pub fn note(&self, errno: i32) {
        let failed = |old: u64| {
            let count = old & !(ERRNO | TOLD);
            let next = if old & TOLD != 0 { count.wrapping_add(ONE) } else { count };
            Some(next | errno as u64 & ERRNO)
        };
        // It never refuses.
        let _ = self.0.fetch_update(AcqRel, Acquire, failed);
    }

    /// Where a file that is opened now begins.
    pub fn heard_by_newcomers(&self) -> Heard {
        let now = self.0.load(Acquire);
        Heard(AtomicU64::new(if now & TOLD != 0 { now } else { 0 }))
    }

    /// The failure that an open file has not heard of, if any; now it has.
    pub fn tell(&self, heard: &Heard) -> Option<i32> {
        let now = self.0.load(Acquire);
        if now == heard.0.load(Acquire) {
            return None;
        }
        let told = self.0.fetch_or(TOLD, AcqRel) | TOLD;
        heard.0.store(told, Release);
        Some((told & ERRNO) as i32).filter(|errno| *errno != 0)
    }

    /// The failure that nobody has heard of, if any.
    pub fn unheard(&self) -> Option<i32> {
        let now = self.0.load(Acquire);
        (now & TOLD == 0 && now & ERRNO != 0).then_some((now & ERRNO) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_hears_of_a_failure_once_and_of_the_next_one_again() {
        let failures = Failures::default();
        let (one, two) = (failures.heard_by_newcomers(), failures.heard_by_newcomers());
        assert_eq!(failures.tell(&one), None);
        failures.note(libc::ENOSPC);
        failures.note(libc::ENOSPC);
        assert_eq!((failures.tell(&one), failures.tell(&one)), (Some(libc::ENOSPC), None));
        assert_eq!((failures.tell(&two), failures.tell(&two)), (Some(libc::ENOSPC), None));
        failures.note(libc::ENOSPC);
        assert_eq!((failures.tell(&two), failures.tell(&two)), (Some(libc::ENOSPC), None));
        failures.note(libc::EIO);
        assert_eq!((failures.tell(&one), failures.tell(&two)), (Some(libc::EIO), Some(libc::EIO)));
    }

    #[test]
    fn whoever_opens_a_file_hears_of_a_failure_that_nobody_has_heard_of() {
        let failures = Failures::default();
        failures.note(libc::EIO);
        assert_eq!(failures.unheard(), Some(libc::EIO));
        assert_eq!(failures.tell(&failures.heard_by_newcomers()), Some(libc::EIO));
        assert_eq!(failures.unheard(), None);
        assert_eq!(failures.tell(&failures.heard_by_newcomers()), None);
        let later = Failures::after(Some(libc::ENOSPC));
        assert_eq!(later.tell(&later.heard_by_newcomers()), Some(libc::ENOSPC));
        assert_eq!(Failures::after(None).unheard(), None);
    }
}
