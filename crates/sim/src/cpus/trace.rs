//! Traces of operations for device processors, as text.
//!
//! ```text
//!  weft-cpu-trace 1
//!  # name, then how it issues: outstanding=N (closed) or every=NS (open, on average); weight=N from 1 to 10000
//!  user light outstanding=32
//!  user heavy outstanding=4 weight=200
//!  # user  kind      ns on a host core  preemptible  bytes
//!  light   write-4k  5000               no           4096
//!  heavy   compress  1000000            yes          262144
//! ```
//!
//! A user's operations are issued in the order of the file, again and again. Bytes are sent to the device, and held there until the
//! operation is done.

use super::machine::TIME_MAX_NS;
use super::{Load, Operation, Phase, Tenant};
use crate::block::TraceError;
use std::io::{BufRead, Read};
use weft_vfs::compound::schedule::Weight;

const HEADING: &str = "weft-cpu-trace 1";
/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 4096;
/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 64;
/// Most users of a trace.
const USERS_MAX: usize = 1000;
/// Most operations of a trace.
const OPERATIONS_MAX: usize = 1 << 20;
/// Most operations that a closed user has under way.
const OUTSTANDING_MAX: u64 = 4096;
/// Most bytes of an operation.
const BYTES_MAX: u64 = 1 << 30;

/// The tenants of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// In the order of the file; each has one phase.
    pub tenants: Vec<Tenant>,
}

/// The traces that come with weft: name and text. Their times are measured as [`costs`](super::Costs) are.
const BUILT_IN: [(&str, &str); 2] = [
    ("key-values", include_str!("traces/key-values.trace")),
    ("functions", include_str!("traces/functions.trace")),
];

impl Trace {
    /// Names of the traces that come with weft.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The text of a trace that comes with weft; `None` when there is none of this name.
    pub fn built_in(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// The line that does not have the form, or that cannot be read.
    pub fn read(mut from: impl BufRead) -> Result<Trace, TraceError> {
        let mut trace = Trace { tenants: Vec::new() };
        let (mut line, mut operations) = (0, 0);
        let mut bytes = Vec::new();
        let mut headed = false;
        loop {
            bytes.clear();
            line += 1;
            let io = |source| TraceError::Io { line, source };
            let wrong = |what: String| TraceError::Line { line, what };
            let read = from.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes).map_err(io)?;
            if read == 0 {
                break;
            }
            if read as u64 > LINE_BYTES_MAX {
                return Err(wrong(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
            }
            let text =
                std::str::from_utf8(&bytes).map_err(|_| wrong("the line is not UTF-8 text".into()))?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if !headed {
                headed = text == HEADING;
                if !headed {
                    return Err(wrong(format!("a trace begins with the line '{HEADING}'")));
                }
                continue;
            }
            operations += trace.line(text).map_err(wrong)?;
            if operations > OPERATIONS_MAX {
                return Err(wrong(format!("the trace has more than {OPERATIONS_MAX} operations")));
            }
        }
        let idle = trace.tenants.iter().find(|tenant| tenant.phases[0].operations.is_empty());
        let missing = match idle {
            Some(tenant) => format!("user {} has no operation", tenant.name),
            None if trace.tenants.is_empty() => {
                format!("the trace has no user; it begins with '{HEADING}' and users")
            }
            None => return Ok(trace),
        };
        Err(TraceError::Line { line, what: missing })
    }

    /// Takes one line; returns how many operations it has.
    fn line(&mut self, text: &str) -> Result<usize, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["user", name, options @ ..] => self.user(name, options).map(|()| 0),
            [user, kind, ns, preemptible, bytes] => {
                let ns = number(ns, "the time in ns", 1..=TIME_MAX_NS)?;
                let bytes = number(bytes, "the number of bytes", 0..=BYTES_MAX)?;
                let preemptible = match *preemptible {
                    "yes" => true,
                    "no" => false,
                    other => return Err(format!("preemptible is '{other}'; write yes or no")),
                };
                let kind = named(kind)?;
                let tenant = self.tenants.iter_mut().find(|tenant| tenant.name == *user);
                let tenant = tenant.ok_or_else(|| {
                    format!("there is no user '{user}'; write a line 'user {user} ...' first")
                })?;
                tenant.phases[0].operations.push(Operation::on_device(kind, ns, preemptible, bytes));
                Ok(1)
            }
            _ => Err(format!(
                "the line has {} words; write 'user NAME OPTION...' or 'USER KIND NS yes|no BYTES'",
                words.len()
            )),
        }
    }

    fn user(&mut self, name: &str, options: &[&str]) -> Result<(), String> {
        let name = named(name)?;
        if name == "user" || self.tenants.iter().any(|tenant| tenant.name == name) {
            return Err(format!("the name '{name}' is taken; give each user another"));
        }
        if self.tenants.len() == USERS_MAX {
            return Err(format!("the trace has more than {USERS_MAX} users"));
        }
        let (mut weight, mut load) = (Weight::DEFAULT, Load::Closed { outstanding: 1 });
        for option in options {
            match option.split_once('=') {
                Some(("outstanding", value)) => {
                    let outstanding = number(value, "outstanding", 1..=OUTSTANDING_MAX)? as u32;
                    load = Load::Closed { outstanding };
                }
                Some(("every", value)) => {
                    load = Load::Open { mean_ns: number(value, "every, in ns,", 1..=TIME_MAX_NS)? };
                }
                Some(("weight", value)) => {
                    let value = number(value, "weight", Weight::MIN.into()..=Weight::MAX.into())?;
                    weight = Weight::new(value as u32).unwrap_or(Weight::DEFAULT);
                }
                _ => {
                    return Err(format!("'{option}' is no option; take outstanding=N, every=NS or weight=N"));
                }
            }
        }
        let phases = vec![Phase { from_ns: 0, operations: Vec::new() }];
        self.tenants.push(Tenant { name: name.to_string(), weight, load, phases });
        Ok(())
    }
}

fn named(text: &str) -> Result<&str, String> {
    if text.len() > NAME_BYTES_MAX {
        return Err(format!("a name is longer than {NAME_BYTES_MAX} bytes"));
    }
    Ok(text)
}

fn number(text: &str, what: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| {
        format!("{what} is '{text}'; take a whole number from {} to {}", range.start(), range.end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        Trace::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    const GOOD: &str = "weft-cpu-trace 1\n# a comment\n\nuser light outstanding=32\nuser heavy every=900 weight=200\n\
        light write-4k 5000 no 4096\nheavy compress 1000000 yes 262144\nlight read-4k 4000 no 0\n";

    #[test]
    fn a_trace_is_read_as_it_is_documented() {
        let trace = read(GOOD).unwrap();
        let [light, heavy] = trace.tenants.as_slice() else { panic!("{trace:?}") };
        assert_eq!((light.name.as_str(), light.load), ("light", Load::Closed { outstanding: 32 }));
        assert_eq!((heavy.load, heavy.weight.get()), (Load::Open { mean_ns: 900 }, 200));
        let kinds: Vec<&str> = light.phases[0].operations.iter().map(|o| o.kind.as_str()).collect();
        assert_eq!(kinds, ["write-4k", "read-4k"]);
        assert_eq!(heavy.phases[0].operations, [Operation::on_device("compress", 1_000_000, true, 262_144)]);
    }

    #[test]
    fn the_traces_that_come_with_weft_can_be_read() {
        for name in Trace::built_in_names() {
            let trace = read(Trace::built_in(name).unwrap()).unwrap();
            assert_eq!(trace.tenants.len(), 3, "{name}");
        }
        assert_eq!(Trace::built_in("no such trace"), None);
    }

    #[test]
    fn an_error_names_the_line_the_value_and_what_was_expected() {
        for (text, expected) in [
            ("", "line 1: the trace has no user"),
            ("user a\n", "line 1: a trace begins with the line 'weft-cpu-trace 1'"),
            ("weft-cpu-trace 1\nuser a\n", "line 3: user a has no operation"),
            (
                "weft-cpu-trace 1\nuser a\na x 0 no 1\n",
                "line 3: the time in ns is '0'; take a whole number from 1 to",
            ),
            ("weft-cpu-trace 1\nuser a\na x 5 maybe 1\n", "line 3: preemptible is 'maybe'; write yes or no"),
            ("weft-cpu-trace 1\nb x 5 no 1\n", "line 2: there is no user 'b'"),
            ("weft-cpu-trace 1\nuser a b\n", "line 2: 'b' is no option"),
            (
                "weft-cpu-trace 1\nuser a weight=0\n",
                "line 2: weight is '0'; take a whole number from 1 to 10000",
            ),
            ("weft-cpu-trace 1\nuser a\n\nuser a\n", "line 4: the name 'a' is taken"),
            ("weft-cpu-trace 1\nuser a\na x 5\n", "line 3: the line has 3 words"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
        let long = format!("weft-cpu-trace 1\n# {}\n", "x".repeat(5000));
        assert_eq!(read(&long).unwrap_err(), "line 2: the line is longer than 4096 bytes");
        assert!(
            Trace::read(&b"weft-cpu-trace 1\nuser \xff\n"[..])
                .unwrap_err()
                .to_string()
                .starts_with("line 2: ")
        );
    }
}
