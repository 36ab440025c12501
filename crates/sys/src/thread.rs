//! Threads and processors.

use std::io;
use std::marker::PhantomData;

/// Processors that threads can run on.
pub fn processors() -> u32 {
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).max(1)
}

/// Processors that the machine can ever have, which the kernel numbers from 0 on.
///
/// # Errors
/// `/sys` is not mounted.
pub fn possible_processors() -> io::Result<u32> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // "0-3", or "0-1,4-7".
    let last = listed.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other("a list of processors without a number"))
}

/// Names the calling thread; of a longer name the first 15 bytes.
pub fn set_name(name: &str) {
    let mut text = [0u8; 16];
    text.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from);
    // SAFETY: a C string of at most 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, text.as_ptr()) };
}

/// The processors that the calling thread may run on: as they were before, once this is dropped.
#[derive(Debug)]
pub struct Affinity {
    before: Option<libc::cpu_set_t>,
    /// Of one thread alone.
    thread: PhantomData<*const ()>,
}

impl Affinity {
    /// As it is.
    pub fn of_this_thread() -> Affinity {
        Affinity { before: None, thread: PhantomData }
    }

    /// Runs the thread on one processor from now on, when there is one with this number.
    pub fn restrict_to(&mut self, cpu: u32) {
        if cpu as usize >= libc::CPU_SETSIZE as usize {
            return;
        }
        // SAFETY: an all-zero set is valid, `cpu` is within it; the calls affect only the calling thread.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if self.before.is_none() && libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) == 0 {
                self.before = Some(set);
            }
            set = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: a set that the kernel has filled.
            unsafe { libc::sched_setaffinity(0, size_of_val(before), before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_processor_that_it_is_given_and_goes_on_when_there_is_none() {
        // SAFETY: takes nothing.
        let here = || unsafe { libc::sched_getcpu() } as u32;
        let available = || std::thread::available_parallelism().map_or(0, usize::from);
        std::thread::spawn(move || {
            let mut affinity = Affinity::of_this_thread();
            affinity.restrict_to(u32::MAX);
            let before = available();
            let cpu = here();
            affinity.restrict_to(cpu);
            assert!(here() == cpu && processors() >= 1);
            assert!(possible_processors().unwrap() >= processors());
            assert_eq!(available(), 1);
            drop(affinity);
            assert_eq!(available(), before);
        })
        .join()
        .unwrap();
    }
}
