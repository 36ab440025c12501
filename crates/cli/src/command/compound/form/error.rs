//! What is wrong with the text of a program: where it is, what stands there, and what would be right.

use super::source::OpName;
use std::fmt;
use std::io;
use weft_vfs::compound::{CheckError, INPUT_BYTES_MAX, Type};

/// The result of reading a part of a text. The error is large, and rare.
pub type Read<T> = Result<T, Box<FormError>>;

/// What is wrong with the text of a program.
#[derive(Debug, thiserror::Error)]
#[error("{origin}{place}{problem}")]
pub struct FormError {
    /// The file's name.
    pub origin: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

/// A place in the text of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The operation.
    pub op: Option<OpName>,
    /// The key.
    pub key: Option<String>,
    /// What stands there.
    pub value: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": ")?;
        if let Some(op) = &self.op {
            write!(f, "{op}: ")?;
        }
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, "{key} = {value}: "),
            (Some(key), None) => write!(f, "{key}: "),
            (None, _) => Ok(()),
        }
    }
}

/// What is wrong at a place.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// No key has this name.
    #[error("there is no such key {of}")]
    UnknownKey {
        /// "in a program", or "of the operation read".
        of: String,
        /// Those that there are.
        keys: Vec<&'static str>,
    },
    /// A key is missing.
    #[error("the key is missing")]
    Missing {
        /// What it takes.
        wanted: String,
    },
    /// A value of another type.
    #[error("this is {found}")]
    Type {
        /// What stands there.
        found: &'static str,
        /// What the key takes.
        wanted: &'static str,
    },
    /// None of the words that the key takes.
    #[error("there is no such value")]
    Choice {
        /// Those that there are.
        words: Vec<&'static str>,
    },
    /// A number that no key takes.
    #[error("the number is not between 0 and {max}")]
    Number {
        /// The largest one.
        max: u64,
    },
    /// Permission bits that were not written as octal digits.
    #[error("permission bits are octal digits")]
    Perm,
    /// A name that nothing can have.
    #[error("this is not a name")]
    BadName,
    /// A name that another operation has.
    #[error("{0} has this name already")]
    TakenName(OpName),
    /// A reference to a name that no operation has.
    #[error("no operation is called '{name}'")]
    UnknownName {
        /// The name.
        name: String,
        /// The names of the operations before this one.
        earlier: Vec<String>,
    },
    /// A reference to an operation that does not come before.
    #[error("{0} does not come before this operation")]
    LaterName(OpName),
    /// Digits that are not hex.
    #[error("{0}")]
    Hex(String),
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Files with more bytes than a program may have.
    #[error("the files of the program have more than {INPUT_BYTES_MAX} bytes")]
    FilesTooLarge,
    /// A comparison that is not of two values.
    #[error("a comparison has three parts")]
    NoComparison,
    /// A value that cannot be compared.
    #[error("{op} gives {of}, which cannot be compared")]
    Uncomparable {
        /// The operation.
        op: OpName,
        /// The type of its value, or that it has none.
        of: String,
    },
    /// A program without operations.
    #[error("the program has no operations")]
    NoOperations,
    /// What [`check`](weft_vfs::compound::check) refuses.
    #[error("{told}")]
    Check {
        /// The error, with names of operations.
        told: String,
        /// The error.
        error: CheckError,
    },
}

/// Words of which one is right.
pub fn one_of(words: &[impl AsRef<str>]) -> String {
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

impl Problem {
    /// What would be right.
    pub fn right(&self) -> String {
        match self {
            Problem::Syntax(_) => "a program is a TOML file; see 'weft do --help' for an example".into(),
            Problem::UnknownKey { keys, .. } => format!("the keys are {}", one_of(keys)),
            Problem::Missing { wanted } => format!("give {wanted}"),
            Problem::Type { wanted, .. } => format!("give {wanted}"),
            Problem::Choice { words } => format!("give one of {}", one_of(words)),
            Problem::Number { max } => format!("give a number between 0 and {max}, or \"$name\""),
            Problem::Perm => "give octal digits: \"0644\" or 0o644".into(),
            Problem::BadName => {
                "give letters, digits, '_' and '-', at most 64, of which the first is a letter or '_'".into()
            }
            Problem::TakenName(_) => "give each operation another name".into(),
            Problem::UnknownName { earlier, .. } if earlier.is_empty() => {
                "no operation before this one has a name; text that begins with a dollar is written \"$$...\"".into()
            }
            Problem::UnknownName { earlier, .. } => format!(
                "the operations before this one are called {}; text that begins with a dollar is written \"$$...\"",
                one_of(earlier)
            ),
            Problem::LaterName(_) => "move that operation before this one".into(),
            Problem::Hex(_) => "{ hex = \"00ff\" } gives the bytes 0 and 255".into(),
            Problem::File { .. } => {
                "give the path of a local file, absolute or relative to the working directory".into()
            }
            Problem::FilesTooLarge => "write the data in parts, with a program for each".into(),
            Problem::NoComparison => {
                "give [left, operator, right] with the operator \"==\", \"!=\", \"<\", \"<=\", \">\" or \">=\"".into()
            }
            Problem::Uncomparable { .. } => "numbers and bytes are compared".into(),
            Problem::NoOperations => "each operation begins with [[op]]; 'weft do --help' has an example".into(),
            Problem::Check { error, .. } => remedy_of(error),
        }
    }
}

/// The next step for a program that its check refuses.
fn remedy_of(error: &CheckError) -> String {
    let text = match error {
        CheckError::TooLong(_) | CheckError::TooManyFiles(_) | CheckError::TooManyBytes(_) => {
            "write several programs"
        }
        CheckError::Forward { .. } => "refer to an operation that comes before",
        CheckError::Type { wanted: Type::File, .. } => "give the name of an open or create operation",
        CheckError::Type { wanted: Type::Attr, .. } => "give the name of a stat operation",
        CheckError::Type { wanted: Type::Bytes, .. } => {
            "give the name of an operation that gives bytes (read, get_xattr, slice, concat, pack, patch)"
        }
        CheckError::Type { wanted: Type::Num, .. } => {
            "give the name of an operation that gives a number (field, write, len, unpack, arith, find, crc32c)"
        }
        CheckError::Closed { .. } => "move the close behind the last use of the file, or leave it out",
        CheckError::Compare(_) => "compare a number with a number, or bytes with bytes",
        CheckError::Export(_) => "leave out export = true",
        CheckError::Width(_) => "give a width of 1 to 8 bytes",
        CheckError::Parts(_) => "concatenate the result of a concat with the other parts",
        CheckError::XattrName(_) => "give a name such as \"user.comment\"",
        CheckError::RenameFlags(_) => "give no_replace, exchange or no flags",
        CheckError::Perm(_) => "give permission bits up to 07777",
        CheckError::Level(_) => "give level 0 for lz4 and lz4_block, 0 to 9 for zstd",
        CheckError::Fuel(_) => "give at most 1,000,000,000 units of fuel",
    };
    text.into()
}
