//! Progress of long work, on standard error and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

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
