//! What an input must not do: panic, break memory, take all of it, take for ever.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Most memory of the whole program, in bytes.
pub const MEMORY_MAX: usize = 1 << 30;
/// Longest time for one input.
pub const PATIENCE: Duration = Duration::from_secs(60);

static USED: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicU64 = AtomicU64::new(0);
/// Set while the program reports that there is no more memory, for which it needs some.
static OVER: AtomicBool = AtomicBool::new(false);
/// Nanoseconds since [`started`] at which the present input began; 0 = none.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static PRESENT: Mutex<Option<Present>> = Mutex::new(None);

struct Present {
    target: &'static str,
    input: Vec<u8>,
}

fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

/// The system's allocator with a limit.
pub struct Limited;

impl Limited {
    fn take(&self, bytes: usize) {
        let used = USED.fetch_add(bytes, Relaxed) + bytes;
        if used > MEMORY_MAX && !OVER.swap(true, SeqCst) {
            stop(&format!("takes more than {} MiB of memory (a piece of {bytes} bytes)", MEMORY_MAX >> 20));
        }
    }
}

// SAFETY: the system's allocator does the work; counting changes nothing of it.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.take(size);
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Where findings go.
pub fn findings() -> PathBuf {
    std::env::var_os("WEFT_FUZZ_FINDINGS").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Keeps an input for whoever looks into it; its file.
pub fn keep(target: &str, input: &[u8]) -> PathBuf {
    let dir = findings();
    let _ = std::fs::create_dir_all(&dir);
    let path = dir.join(format!("{target}-{:08x}", weft_core::checksum::crc32c(input)));
    let _ = std::fs::write(&path, input);
    path
}

/// Ends the program because of the present input.
fn stop(why: &str) -> ! {
    let present = PRESENT.try_lock().ok().and_then(|mut present| present.take());
    let told = match present {
        Some(Present { target, input }) => format!("{target}: {} {why}", keep(target, &input).display()),
        None => format!("an input {why}"),
    };
    let line = format!("FINDING {told}\n");
    // SAFETY: plain system calls on bytes that outlive them.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::abort()
    }
}

/// Keeps the input that broke memory, and ends the program.
extern "C" fn broken(signal: libc::c_int) {
    // It is the end in any case: should keeping the input break something too, the signal is not caught again.
    stop(&format!("ends with signal {signal}"));
}

/// Begins to watch: counts panics of all threads, and ends the program when an input takes too long.
pub fn watch() {
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(|| {
        started();
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            // SAFETY: an all-zero sigaction is valid, and outlives the call.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = broken as *const () as usize;
                action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, SeqCst);
            default(info);
        }));
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let began = BEGAN.load(Relaxed);
                let now = started().elapsed();
                if began != 0 && now.saturating_sub(Duration::from_nanos(began)) > PATIENCE {
                    stop(&format!("takes longer than {} s", PATIENCE.as_secs()));
                }
            }
        });
    });
}

/// Does something with an input under guard; false when a thread panicked meanwhile.
pub fn guarded(target: &'static str, input: &[u8], act: impl FnOnce()) -> bool {
    if let Ok(mut present) = PRESENT.lock() {
        *present = Some(Present { target, input: input.to_vec() });
    }
    let before = PANICS.load(SeqCst);
    BEGAN.store(started().elapsed().as_nanos().max(1) as u64, Relaxed);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
    BEGAN.store(0, Relaxed);
    done.is_ok() && PANICS.load(SeqCst) == before
}
