//! Checks periodically whether the machine is busy, so that no thread waits awake where others want to run
//! ([`weft_client::patience`]).
//!
//! The kernel says in `/proc/loadavg` how many threads run or could run now. A thread that answers a request reads it
//! when the last check is older than [`INTERVAL_NS`]; a server without requests does not check.

use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weft_client::patience::CpuLoad;

/// Time between two checks, each of which takes some microseconds.
const INTERVAL_NS: u64 = 5_000_000;
/// After this long without a check, earlier results do not count.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// How busy the processors of the machine are.
pub struct LoadMonitor {
    /// Time of the next check.
    next: AtomicU64,
    oversubscribed: AtomicBool,
    /// Held by the thread that checks.
    sampler: Mutex<Sampler>,
}

struct Sampler {
    load: CpuLoad,
    last: u64,
    /// `None` before the first check; then the file, if there is one.
    file: Option<Option<File>>,
    processors: u32,
}

static MONITOR: LoadMonitor = LoadMonitor {
    next: AtomicU64::new(0),
    oversubscribed: AtomicBool::new(false),
    sampler: Mutex::new(Sampler { load: CpuLoad::NONE, last: 0, file: None, processors: 1 }),
};

impl LoadMonitor {
    /// The one of this process.
    pub fn of_process() -> &'static LoadMonitor {
        &MONITOR
    }

    /// Whether the machine is oversubscribed. The caller is one of `own` threads that run for a request.
    pub fn is_oversubscribed(&self, now: u64, own: u32) -> bool {
        if now >= self.next.load(Relaxed)
            && let Some(mut sampler) = self.sampler.try_lock()
        {
            self.next.store(now + INTERVAL_NS, Relaxed);
            self.oversubscribed.store(sampler.again(now, own), Relaxed);
        }
        self.oversubscribed.load(Relaxed)
    }
}

impl Sampler {
    fn again(&mut self, now: u64, own: u32) -> bool {
        if now.saturating_sub(std::mem::replace(&mut self.last, now)) > FORGOTTEN_NS {
            self.load = CpuLoad::NONE;
        }
        let processors = &mut self.processors;
        let file = self.file.get_or_insert_with(|| {
            *processors = weft_sys::thread::processors();
            File::open("/proc/loadavg").ok()
        });
        let mut text = [0; 64];
        let Some(len) = file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()) else { return false };
        runnable(&text[..len]).is_some_and(|runnable| self.load.update(runnable, own, self.processors))
    }
}

/// The fourth word of `/proc/loadavg` up to its slash.
fn runnable(text: &[u8]) -> Option<u32> {
    let word = text.split(|byte| *byte == b' ').nth(3)?;
    std::str::from_utf8(word.split(|byte| *byte == b'/').next()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_many_threads_could_run() {
        assert_eq!(runnable(b"2.16 1.98 1.16 3/135 17799\n"), Some(3));
        assert_eq!(runnable(b"2.16 1.98"), None);
        let here = std::fs::read("/proc/loadavg").unwrap();
        assert!(runnable(&here).unwrap() >= 1);
    }
}
