//! Refusals: an errno for the program, and one line in the report.
//!
//! Each kind is reported once per process.

use crate::process;
use crate::sys;
use crate::text::{Text, decimal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_client::Errno;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = ($errno:ident, $text:literal),)*) => {
        /// Something that weft refuses.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Refusal { $($(#[$doc])* $name,)* }

        impl Refusal {
            fn parts(self) -> (Errno, &'static str) {
                match self { $(Refusal::$name => (libc::$errno, $text),)* }
            }

            /// What the caller gets.
            pub fn errno(self) -> Errno {
                self.parts().0
            }

            /// What the report says.
            pub fn text(self) -> &'static str {
                self.parts().1
            }
        }
    };
}

refusals! {
    /// More descriptors than the table holds.
    DescriptorTable = (EMFILE, "open: descriptor numbers of 65536 and more cannot lead to a weft file"),
    /// A socket or device node was opened.
    SpecialFile = (ENXIO, "open: sockets and device nodes on a weft volume cannot be opened"),
    /// An `ioctl` of files.
    Ioctl = (ENOTTY, "ioctl: no request is known on weft files but FIONREAD, FIOCLEX, FIONCLEX, FIONBIO, those of inode flags and of atomic writes"),
    /// A `fcntl` command.
    Fcntl = (EINVAL, "fcntl: an unknown command on a weft file"),
    /// `F_SETLEASE`, `F_NOTIFY`, signals.
    Leases = (EINVAL, "fcntl: leases, directory notification and I/O signals are not served on weft files"),
    /// Descriptor passing.
    PassDescriptor = (EOPNOTSUPP, "sendmsg: a weft file cannot be passed to a process that runs without weft; start that one by weft run, too"),
    /// `pidfd_getfd`.
    TakeDescriptor = (EOPNOTSUPP, "pidfd_getfd: a weft file cannot be taken from another process"),
    /// `io_uring`.
    IoUring = (ENOSYS, "io_uring: the kernel cannot read weft files; refused so that the program falls back to read and write"),
    /// `chroot`.
    Chroot = (EPERM, "chroot: not into a weft volume"),
    /// `inotify_add_watch`, `fanotify`.
    Watch = (ENOSYS, "inotify: changes on a weft volume are not reported"),
    /// File handles.
    Handles = (EOPNOTSUPP, "name_to_handle_at: weft files have no handles"),
    /// `mount` and its kin.
    Mount = (EPERM, "mount: nothing can be mounted on or from a weft volume"),
    /// Several `mmap` limits.
    MapTable = (ENOMEM, "mmap: too many mappings of weft files at once"),
    /// No room for the pages of a shared map.
    SharedMemory = (ENOSPC, "mmap: /dev/shm, which holds the pages of shared mappings of weft files, is full; give it more room"),
    /// Stores to a shared map that the volume did not take.
    MapKept = (ENOSPC, "munmap, exit: the volume did not take what was stored to a shared mapping; it is kept in memory until it does"),
    /// A map of a copy beyond the copy's end.
    MapGrow = (EINVAL, "mremap: a private or read-only mapping of a weft file cannot grow beyond what the file had when it was mapped"),
    /// `remap_file_pages`.
    MapOrder = (EINVAL, "remap_file_pages: pages of mapped weft files keep their order"),
    /// `freopen` of a stream that is not a standard one.
    Reopen = (EOPNOTSUPP, "freopen: only stdin, stdout and stderr can be reopened on a weft file"),
    /// More streams than the table holds.
    StreamTable = (EMFILE, "fopen: too many streams on weft files at once"),
    /// More directory streams than the table holds.
    DirTable = (EMFILE, "opendir: too many directory streams on weft directories at once"),
    /// More walks than the table holds.
    Walk = (EMFILE, "fts: too many walks of a weft volume at once"),
    /// `wordexp`.
    Words = (ENOMEM, "wordexp: patterns of names on a weft volume are not expanded (glob does that)"),
    /// A program that lies on the volume and cannot be copied to memory.
    Execute = (EACCES, "exec: a program on a weft volume could not be copied to memory"),
    /// `dlopen`.
    Library = (EACCES, "dlopen: a library on a weft volume could not be copied to memory"),
    /// Own descriptors.
    OwnDescriptor = (EBUSY, "dup2: the number is taken by weft's own descriptor"),
    /// Working directories.
    SpawnDirectory = (EOPNOTSUPP, "posix_spawn: a file action that the child would need weft for"),
    /// `clone` and `unshare`.
    SharedDescriptors = (EINVAL, "clone, unshare, close_range: a descriptor table or working directory that is shared without the memory, or memory without it, cannot hold weft files; use fork or threads, or run the program without weft"),
    /// `prctl(PR_SET_SECCOMP)`, strict. The call itself is made.
    Confined = (EPERM, "seccomp: the program is about to confine itself to read, write and exit; the kernel ends it at its next call on a weft file, which needs more. Close such files before, or run the program without weft"),
    /// The same with a filter.
    Filtered = (EPERM, "seccomp: a program filters its system calls; calls on weft files fail or end it unless the filter allows futex, sched_yield, sendto, recvfrom, getpid, gettid, tgkill, fcntl, close, memfd_secret and ftruncate"),
    /// What a child would open as somebody else.
    SpawnIdentity = (EOPNOTSUPP, "posix_spawn with POSIX_SPAWN_RESETIDS: a file of the volume for a child of another user"),
}

static TOLD: AtomicU64 = AtomicU64::new(0);

/// The errno for a refusal; the first time also a line in the report.
#[cold]
pub fn refuse(refusal: Refusal) -> Errno {
    refuse_for(refusal, None)
}

/// A refusal as the result of a call.
pub fn refused(refusal: Refusal) -> Result<i32, Errno> {
    Err(refuse(refusal))
}

/// As [`refuse`], with the error of the volume behind it in the report.
#[cold]
pub fn refuse_for(refusal: Refusal, cause: Option<Errno>) -> Errno {
    let (errno, text) = refusal.parts();
    let bit = 1u64 << (refusal as u32 % 64);
    if TOLD.fetch_or(bit, Relaxed) & bit == 0 {
        if let Ok(client) = process::client() {
            let _ = match cause {
                Some(cause) => client.note(&with_cause(text, cause)),
                None => client.note(text.as_bytes()),
            };
        }
        // A refusal that may stop the whole program also goes to standard error, where its user looks.
        if matches!(refusal, Refusal::IoUring | Refusal::SharedDescriptors | Refusal::Confined) {
            complain(&[text.as_bytes()]);
        }
    }
    errno
}

/// `TEXT (errno N)`, as much of it as there is room for.
fn with_cause(text: &str, cause: Errno) -> Text<257> {
    Text::of(&[text.as_bytes(), b" (errno ", &decimal(cause.unsigned_abs().into()), b")"])
}

/// Writes `weft: ` and the parts as one line to standard error.
#[cold]
pub fn complain(parts: &[&[u8]]) {
    let mut line = Text::<513>::of(&[b"weft: "]);
    parts.iter().for_each(|part| line.put(part));
    line.put(b"\n");
    let _ = sys::write(2, &line);
}

/// On a panic inside a hook: one line, then the end. Unwinding into C or going on with libc's own function on the
/// placeholder would both be worse.
pub fn install_panic_hook() {
    // A closure without captures: boxing it allocates nothing.
    std::panic::set_hook(Box::new(|info| {
        let (file, line) = info.location().map_or(("?", 0), |place| (place.file(), place.line()));
        let line = decimal(line.into());
        complain(&[b"internal error at ", file.as_bytes(), b":", &line, b"; the program is ended"]);
        sys::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_panic_ends_the_process_with_one_line() {
        if std::env::var_os("WEFT_TEST_PANIC").is_some() {
            install_panic_hook();
            panic!("what this says is not told");
        }
        let name = "report::tests::a_panic_ends_the_process_with_one_line";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("WEFT_TEST_PANIC", "1");
        let output = child.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.starts_with("weft: internal error at crates/shim/src/report.rs:"), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }

    #[test]
    fn the_error_of_the_volume_stands_behind_the_text() {
        let told = with_cause(Refusal::MapKept.text(), libc::EIO);
        assert!(told.ends_with(b"until it does (errno 5)"), "{}", String::from_utf8_lossy(&told));
    }

    #[test]
    fn every_refusal_has_a_bit_of_its_own() {
        // The last one declared; the bits are those of one 64-bit word.
        assert!((Refusal::SpawnIdentity as u32) < 64);
    }
}
