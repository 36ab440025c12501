//! Output for the user: results on standard output, everything else on standard error.

use crate::error::CliError;
use crate::sys::terminal::was_stdout_closed;
use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use weft_core::text::is_hidden;

/// What errors name standard output by.
pub const OUTPUT: &str = "standard output";

/// Standard output, buffered. A reader that has gone (`weft ls | head`) is no error.
pub type Out = BufWriter<Stdout>;

/// Takes standard output.
pub fn out() -> Out {
    BufWriter::with_capacity(64 << 10, Stdout(io::stdout().lock()))
}

/// Standard output, an error when the command was started without one: the standard library writes to `/dev/null` then, and what
/// was to be printed would be lost without a word.
pub struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if was_stdout_closed() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = out();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(unwritten)
}

/// One value as lines of JSON.
pub fn json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|t| t + "\n").map_err(|e| CliError::io("write", Path::new("JSON"), e.into()))
}

/// Writes what a command found: for programs, in words, or not at all.
pub fn report<V: serde::Serialize>(
    json: bool,
    quiet: bool,
    value: impl FnOnce() -> V,
    words: impl FnOnce() -> String,
) -> Result<(), CliError> {
    match (json, quiet) {
        (true, _) => print(&json_line(&value())?),
        (false, true) => Ok(()),
        (false, false) => print(&words()),
    }
}

/// The error of standard output.
pub fn unwritten(source: io::Error) -> CliError {
    CliError::io("write", Path::new(OUTPUT), source)
}

/// Says on standard output that a server is ready.
pub fn serving(what: &Path, socket: &Path) {
    // Whoever started the server need not read this.
    let _ = print(&format!("weft: serving {} on {}\n", what.display(), socket.display()));
}

/// Says on standard output that a volume is mounted.
pub fn mounted(what: &Path, dir: &Path) {
    // As above.
    let _ = print(&format!("weft: {} is mounted on {}\n", what.display(), dir.display()));
}

/// Says a line on standard error. A name in it may hold anything: what a terminal would obey is shown as `?`.
pub fn say(line: impl fmt::Display) {
    let text = line.to_string();
    let shown = text.split('\n').map(|line| printable(line.as_bytes())).collect::<Vec<_>>().join("\n");
    // There is nobody left to tell that nobody listens.
    let _ = writeln!(io::stderr(), "{shown}");
}

/// Says a line on standard error that begins with the command's name.
pub fn warn(line: impl fmt::Display) {
    say(format_args!("weft: {line}"));
}

/// Bytes of a name as a terminal may show them: control characters and those that change how others are shown become `?`.
pub fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if is_hidden(c) { '?' } else { c }).collect()
}
