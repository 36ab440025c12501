//! What the kernel knows of this process: time on processors, memory, bytes written.

use std::fs;
use std::time::Instant;

/// Where the process stands.
pub struct Mark {
    began: Instant,
    cpu_us: u64,
    written: u64,
}

/// What a phase took.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, Debug, Default)]
pub struct Phase {
    /// Operations done.
    pub ops: u64,
    /// Operations wanted: more than done where the time ran out.
    pub wanted: u64,
    pub seconds: f64,
    /// Time on processors, of all threads.
    pub cpu_seconds: f64,
    /// Bytes that this process had the kernel write to the device.
    pub device_bytes: u64,
    /// Most memory so far.
    pub peak_bytes: u64,
}

impl Mark {
    pub fn now() -> Mark {
        Mark { began: Instant::now(), cpu_us: cpu_us(), written: device_bytes() }
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn phase(&self, ops: u64, wanted: u64) -> Phase {
        Phase {
            ops,
            wanted,
            seconds: self.seconds(),
            cpu_seconds: (cpu_us() - self.cpu_us) as f64 / 1e6,
            device_bytes: device_bytes() - self.written,
            peak_bytes: field("/proc/self/status", "VmHWM:") * 1024,
        }
    }
}

fn cpu_us() -> u64 {
    // SAFETY: the structure is plain numbers and the call fills it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn device_bytes() -> u64 {
    field("/proc/self/io", "write_bytes:") - field("/proc/self/io", "cancelled_write_bytes:")
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
