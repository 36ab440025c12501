//! Standard output, and the abilities of the terminal there.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Columns when nobody tells.
const COLUMNS_DEFAULT: usize = 80;

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: a system call on a number.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    STDOUT_CLOSED.store(closed, Relaxed);
}

/// Called before `main`, where the standard library opens `/dev/null` in place of what is closed.
// SAFETY: the section holds addresses of functions that take and return nothing, as this one does: it uses nothing that the
// standard library has not set up yet.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;

/// Whether this process was started without a standard output (`weft ls ... >&-`).
pub fn was_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Relaxed)
}

/// Whether standard output shows colours and block characters: a terminal that is not dumb, with a locale in UTF-8, of a
/// user who has not set `NO_COLOR`. `CLICOLOR_FORCE` set to anything but 0 shows them anywhere.
pub fn shows_colours() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or_default();
    let utf8 = ["utf-8", "utf8"].iter().any(|known| locale.to_lowercase().ends_with(known));
    std::io::stdout().is_terminal() && utf8 && set("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal, or what `COLUMNS` says.
pub fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills the structure that it is given, or fails.
    let known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    if known && size.ws_col > 0 {
        return usize::from(size.ws_col);
    }
    std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS_DEFAULT)
}
