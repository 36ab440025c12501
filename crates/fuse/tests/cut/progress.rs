//! How far each process is, in memory beside the volume that outlives the process.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Two counters for each process: operations that have begun, and operations that have returned.
pub struct Progress {
    _file: File,
    words: &'static [AtomicU64],
}

impl Progress {
    pub fn create(path: &Path, processes: u64) -> Progress {
        File::create_new(path).unwrap().set_len(processes * 16).unwrap();
        Progress::open(path)
    }

    pub fn open(path: &Path) -> Progress {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        // SAFETY: a new mapping of a whole file, which nobody cuts; it stays for the life of this program.
        let words = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts(at.cast::<AtomicU64>(), len / 8)
        };
        Progress { _file: file, words }
    }

    pub fn begin(&self, process: u64, operation: u64) {
        self.words[process as usize * 2].store(operation + 1, SeqCst);
    }

    pub fn returned(&self, process: u64, operation: u64) {
        self.words[process as usize * 2 + 1].store(operation + 1, SeqCst);
    }

    pub fn all_begun(&self) -> Vec<u64> {
        self.words.iter().step_by(2).map(|word| word.load(SeqCst)).collect()
    }

    pub fn all_returned(&self) -> Vec<u64> {
        self.words.iter().skip(1).step_by(2).map(|word| word.load(SeqCst)).collect()
    }
}
