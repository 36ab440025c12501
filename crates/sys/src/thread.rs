//! Threads and processors.

/// Processors that threads can run on.
pub fn processors() -> u32 {
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).max(1)
}

/// Runs the calling thread on one processor from now on, when there is one with this number.
pub fn run_on(cpu: u32) {
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: an all-zero set is valid, `cpu` is within it; the call affects only the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_processor_that_it_is_given_and_goes_on_when_there_is_none() {
        // SAFETY: takes nothing.
        let here = || unsafe { libc::sched_getcpu() } as u32;
        std::thread::spawn(move || {
            let cpu = here();
            run_on(u32::MAX);
            run_on(cpu);
            assert!(here() == cpu && processors() >= 1);
        })
        .join()
        .unwrap();
    }
}
