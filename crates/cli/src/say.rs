//! Output for the user: results on standard output, everything else on standard error.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Standard output, buffered. A reader that has gone (`weft ls | head`) is no error.
pub struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    /// Takes standard output.
    pub fn new() -> Out {
        Out(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }
}

impl Write for Out {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Says a line on standard error.
pub fn say(line: impl fmt::Display) {
    // There is nobody left to tell that nobody listens.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says a line on standard error that begins with the command's name.
pub fn warn(line: impl fmt::Display) {
    say(format_args!("weft: {line}"));
}

/// Bytes of a name as a terminal may show them: control characters become `?`.
pub fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
