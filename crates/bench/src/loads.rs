//! What else the machine does while something is measured.

use crate::error::BenchError;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// What else the machine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Load {
    /// Nothing.
    Idle,
    /// A program computes on the second processor.
    Busy,
    /// A program computes on each processor.
    Full,
    /// Nothing; program and server are bound to the first processor.
    OneCpu,
    /// Nothing; program and server are bound to the second processor: one of the two takes the interrupts of the disk.
    OtherCpu,
}

impl Load {
    /// As it stands beside a figure.
    pub fn name(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Busy => "one busy",
            Load::Full => "all busy",
            Load::OneCpu => "one cpu",
            Load::OtherCpu => "other cpu",
        }
    }

    /// Binds a command to a processor, if the load does.
    pub fn place(self, command: &mut Command) {
        match self {
            Load::OneCpu => bind(command, 0),
            Load::OtherCpu => bind(command, 1),
            Load::Idle | Load::Busy | Load::Full => {}
        }
    }

    /// Processors on which something computes.
    fn busy_cpus(self) -> std::ops::Range<usize> {
        match self {
            Load::Idle | Load::OneCpu | Load::OtherCpu => 0..0,
            Load::Busy => 1..2,
            Load::Full => 0..std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Makes the command run on one processor only.
pub fn bind(command: &mut Command, cpu: usize) {
    let bind = move || {
        // SAFETY: an all-zero set is valid and `cpu` below its size; the call affects only the child.
        let bound = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu % libc::CPU_SETSIZE as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
        };
        if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: a system call, as is allowed between fork and exec.
    unsafe { command.pre_exec(bind) };
}

/// Programs that compute until they are dropped.
pub struct Spinners(Vec<Child>);

impl Spinners {
    /// Starts those of a load.
    pub fn start(load: Load) -> Result<Spinners, BenchError> {
        let mut spinners = Spinners(Vec::new());
        for cpu in load.busy_cpus() {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            bind(&mut command, cpu);
            spinners.0.push(command.spawn().map_err(|e| BenchError::io("sh", e))?);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
