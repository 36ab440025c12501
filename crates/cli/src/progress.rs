//! Progress of long work, on standard error and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A bar over bytes, or none when nobody would see it.
pub fn bytes(what: &'static str, total: u64, quiet: bool) -> ProgressBar {
    let template = "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total).with_prefix(what);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Shows how far work has come that tells what is done and what there is in all.
pub fn shown<T>(what: &'static str, quiet: bool, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = bytes(what, 0, quiet);
    let done = work(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done
}

/// Shows how far work has come that does not tell: another thread asks.
pub fn watched<T>(bar: &ProgressBar, position: impl Fn() -> u64 + Sync, work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !ended.load(Relaxed) {
                bar.set_position(position());
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = work();
        ended.store(true, Relaxed);
        watcher.thread().unpark();
        bar.finish_and_clear();
        result
    })
}
