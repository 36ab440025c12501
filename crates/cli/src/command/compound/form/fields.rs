//! The values of an operation's keys: each method reads one key as one type.

use super::error::{FormError, Place, Problem, Read, one_of};
use super::source::{Names, OpName, Source, is_reference, shown, type_of};
use crate::byte_text::parse_hex;
use std::cell::Cell;
use std::fs::File as LocalFile;
use std::io::Read as _;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};
use weft_vfs::compound::{At, Bytes, Compare, Dir, File, Guard, Num, Op, Operand, Ref, Type};

/// What a key for bytes takes.
const BYTES: &str = "text in quotes, { hex = \"...\" }, { file = \"...\" } or \"$name\"";
/// What a key for a number takes.
const NUM: &str = "a number or \"$name\"";
/// What a key for a comparison takes.
const COMPARISON: &str = "[left, operator, right], such as [\"$size\", \"<\", 100]";

/// An operation's table while it is read.
pub struct Fields<'a> {
    /// The text.
    pub source: Source<'a>,
    /// The operation.
    pub op: OpName,
    /// Its keys.
    pub table: &'a DeTable<'a>,
    /// Where it begins.
    pub span: Range<usize>,
    /// The operations before it.
    pub earlier: &'a [Op],
    /// The names of all operations.
    pub names: &'a Names,
    /// Bytes that local files may still give to the program.
    pub file_bytes_left: &'a Cell<usize>,
}

type Value<'a> = &'a Spanned<DeValue<'a>>;

impl<'a> Fields<'a> {
    /// An error at a key.
    pub fn error(&self, key: &str, value: Option<Value<'_>>, problem: Problem) -> Box<FormError> {
        let place = Place {
            op: Some(self.op.clone()),
            key: Some(key.to_string()),
            value: value.map(|value| shown(value.get_ref())),
            ..Place::default()
        };
        let span = value.map_or_else(|| self.span.clone(), Spanned::span);
        self.source.error(Some(span), place, problem)
    }

    fn wrong(&self, key: &str, value: Value<'_>, wanted: &'static str) -> Box<FormError> {
        self.error(key, Some(value), Problem::Type { found: type_of(value.get_ref()), wanted })
    }

    fn required(&self, key: &str, wanted: &'static str) -> Read<Value<'a>> {
        self.table
            .get(key)
            .ok_or_else(|| self.error(key, None, Problem::Missing { wanted: wanted.to_string() }))
    }

    /// Text that is no reference: a word or a name.
    pub fn text(&self, key: &str, wanted: &'static str) -> Read<&'a str> {
        let value = self.required(key, wanted)?;
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong(key, value, wanted)),
        }
    }

    /// One of some words, or the default when the key is not there.
    pub fn choice<T: Copy>(&self, key: &str, words: &[(&'static str, T)], default: Option<T>) -> Read<T> {
        let known = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let Some(value) = self.table.get(key) else {
            let wanted = || format!("one of {}", one_of(&known()));
            return default.ok_or_else(|| self.error(key, None, Problem::Missing { wanted: wanted() }));
        };
        let found = match value.get_ref() {
            DeValue::String(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        found
            .map(|(_, of)| *of)
            .ok_or_else(|| self.error(key, Some(value), Problem::Choice { words: known() }))
    }

    /// True or false.
    pub fn flag(&self, key: &str, default: bool) -> Read<bool> {
        match self.table.get(key) {
            None => Ok(default),
            Some(value) => match value.get_ref() {
                DeValue::Boolean(is) => Ok(*is),
                _ => Err(self.wrong(key, value, "true or false")),
            },
        }
    }

    /// A number.
    pub fn num(&self, key: &str) -> Read<Num> {
        self.num_of(key, self.required(key, NUM)?)
    }

    /// A number, or 0 when the key is not there.
    pub fn num_or_0(&self, key: &str) -> Read<Num> {
        self.table.get(key).map_or(Ok(Num::Lit(0)), |value| self.num_of(key, value))
    }

    fn num_of(&self, key: &str, value: Value<'_>) -> Read<Num> {
        match value.get_ref() {
            DeValue::Integer(number) => Ok(Num::Lit(self.integer(key, value, number, u64::MAX)?)),
            DeValue::String(text) if is_reference(text) => Ok(Num::Of(self.reference(key, value, text)?)),
            _ => Err(self.wrong(key, value, NUM)),
        }
    }

    fn integer(&self, key: &str, value: Value<'_>, number: &DeInteger<'_>, max: u64) -> Read<u64> {
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let fits = parsed.filter(|number| *number <= max);
        fits.ok_or_else(|| self.error(key, Some(value), Problem::Number { max }))
    }

    /// Where a write begins.
    pub fn place(&self, key: &str) -> Read<At> {
        const WANTED: &str = "a number, \"$name\" or \"end\"";
        let Some(value) = self.table.get(key) else { return Ok(At::Offset(Num::Lit(0))) };
        match value.get_ref() {
            DeValue::String(text) if text == "end" => Ok(At::End),
            DeValue::String(text) if !is_reference(text) => Err(self.wrong(key, value, WANTED)),
            DeValue::String(_) | DeValue::Integer(_) => Ok(At::Offset(self.num_of(key, value)?)),
            _ => Err(self.wrong(key, value, WANTED)),
        }
    }

    /// A number of bytes; the check knows which are right.
    pub fn width(&self, key: &str) -> Read<u8> {
        const WANTED: &str = "a number of bytes, 1 to 8";
        let value = self.required(key, WANTED)?;
        let DeValue::Integer(number) = value.get_ref() else { return Err(self.wrong(key, value, WANTED)) };
        Ok(self.integer(key, value, number, u8::MAX.into())? as u8)
    }

    /// A level of compression, 0 unless it is given; the check knows which are right.
    pub fn level(&self, key: &str) -> Read<i32> {
        const WANTED: &str = "a level, from 0 on";
        let Some(value) = self.table.get(key) else { return Ok(0) };
        let DeValue::Integer(number) = value.get_ref() else { return Err(self.wrong(key, value, WANTED)) };
        Ok(self.integer(key, value, number, u8::MAX.into())? as i32)
    }

    /// Permission bits, in octal digits.
    pub fn perm(&self, key: &str, default: u32) -> Read<u32> {
        let Some(value) = self.table.get(key) else { return Ok(default) };
        let bits = match value.get_ref() {
            DeValue::String(digits) => u32::from_str_radix(digits, 8).ok(),
            // 644 without 0o is another number than the one that is meant.
            DeValue::Integer(number) if number.radix() == 8 => u32::from_str_radix(number.as_str(), 8).ok(),
            _ => None,
        };
        bits.ok_or_else(|| self.error(key, Some(value), Problem::Perm))
    }

    /// A file that an operation opens or makes.
    pub fn file(&self, key: &str) -> Read<File> {
        Ok(File(self.value_of(key, "\"$name\" of an open or create operation")?))
    }

    /// Attributes that an operation gives.
    pub fn attr(&self, key: &str) -> Read<Ref> {
        self.value_of(key, "\"$name\" of a stat operation")
    }

    fn value_of(&self, key: &str, wanted: &'static str) -> Read<Ref> {
        let value = self.required(key, wanted)?;
        match value.get_ref() {
            DeValue::String(text) if is_reference(text) => self.reference(key, value, text),
            _ => Err(self.wrong(key, value, wanted)),
        }
    }

    /// The directory in which a path begins: the root of the volume when the key is not there.
    pub fn dir(&self, key: &str) -> Read<Dir> {
        Ok(if self.table.contains_key(key) { Dir::At(self.file(key)?) } else { Dir::Start })
    }

    /// Bytes.
    pub fn bytes(&self, key: &str) -> Read<Bytes> {
        self.bytes_of(key, self.required(key, BYTES)?)
    }

    /// A list of bytes.
    pub fn parts(&self, key: &str) -> Read<Vec<Bytes>> {
        const WANTED: &str = "a list of bytes";
        let value = self.required(key, WANTED)?;
        match value.get_ref() {
            DeValue::Array(parts) => parts.iter().map(|part| self.bytes_of(key, part)).collect(),
            _ => Err(self.wrong(key, value, WANTED)),
        }
    }

    fn bytes_of(&self, key: &str, value: Value<'_>) -> Read<Bytes> {
        match value.get_ref() {
            DeValue::String(text) if is_reference(text) => Ok(Bytes::Of(self.reference(key, value, text)?)),
            // The second dollar says that the first one is meant.
            DeValue::String(text) if text.starts_with("$$") => Ok(Bytes::Lit(text[1..].into())),
            DeValue::String(text) => Ok(Bytes::Lit(text.as_bytes().into())),
            DeValue::Table(table) => Ok(Bytes::Lit(self.stored(key, value, table)?)),
            _ => Err(self.wrong(key, value, BYTES)),
        }
    }

    /// Bytes that do not stand in the text as they are.
    fn stored(&self, key: &str, value: Value<'_>, table: &DeTable<'_>) -> Read<Vec<u8>> {
        let fail = |problem| self.error(key, Some(value), problem);
        let mut entries = table.iter().map(|(name, of)| (&**name.get_ref(), of.get_ref()));
        match (entries.next(), entries.next()) {
            (Some(("hex", DeValue::String(digits))), None) => {
                parse_hex(digits.as_bytes()).map_err(|why| fail(Problem::Hex(why)))
            }
            (Some(("file", DeValue::String(path))), None) => self.read_local(path).map_err(fail),
            _ => Err(self.wrong(key, value, BYTES)),
        }
    }

    /// A comparison.
    pub fn guard(&self, key: &str) -> Read<Guard> {
        let value = self.required(key, COMPARISON)?;
        let DeValue::Array(parts) = value.get_ref() else { return Err(self.wrong(key, value, COMPARISON)) };
        let wrong = || self.error(key, Some(value), Problem::NoComparison);
        let [left, operator, right] = &parts[..] else { return Err(wrong()) };
        let DeValue::String(operator) = operator.get_ref() else { return Err(wrong()) };
        let (compare, turns) = match &**operator {
            "==" => (Compare::Equal, false),
            "!=" => (Compare::NotEqual, false),
            "<" => (Compare::Less, false),
            "<=" => (Compare::LessOrEqual, false),
            ">" => (Compare::Less, true),
            ">=" => (Compare::LessOrEqual, true),
            _ => return Err(wrong()),
        };
        let (left, right) = (self.operand(key, left)?, self.operand(key, right)?);
        let (left, right) = if turns { (right, left) } else { (left, right) };
        Ok(Guard { left, compare, right })
    }

    fn operand(&self, key: &str, value: Value<'_>) -> Read<Operand> {
        let text = match value.get_ref() {
            DeValue::Integer(_) => return Ok(Operand::Num(self.num_of(key, value)?)),
            DeValue::String(text) if is_reference(text) => text,
            _ => return Ok(Operand::Bytes(self.bytes_of(key, value)?)),
        };
        let of = self.reference(key, value, text)?;
        let at = usize::from(of.0);
        let kind = &self.earlier[at].kind;
        match kind.result() {
            Some(Type::Num) => Ok(Operand::Num(Num::Of(of))),
            Some(Type::Bytes) => Ok(Operand::Bytes(Bytes::Of(of))),
            other => {
                let op = self.names.told(at, Some(kind));
                let of = other.map_or_else(|| "no value".to_string(), |of| of.to_string());
                Err(self.error(key, Some(value), Problem::Uncomparable { op, of }))
            }
        }
    }

    /// The operation of a reference, which comes before this one.
    fn reference(&self, key: &str, value: Value<'_>, text: &str) -> Read<Ref> {
        let name = &text[1..];
        let fail = |problem| Err(self.error(key, Some(value), problem));
        match self.names.find(name) {
            // The check allows fewer operations than a reference can name.
            Some(at) if at < self.earlier.len() => Ok(Ref(at as u8)),
            Some(at) => fail(Problem::LaterName(self.names.told(at, None))),
            None => {
                let earlier = self.names.0.iter().take(self.earlier.len()).flatten().cloned().collect();
                fail(Problem::UnknownName { name: name.to_string(), earlier })
            }
        }
    }

    /// The content of a local file. All files together have no more bytes than a program may hold.
    fn read_local(&self, path: &str) -> Result<Vec<u8>, Problem> {
        let (mut content, left) = (Vec::new(), self.file_bytes_left.get());
        let read =
            LocalFile::open(path).and_then(|file| file.take(left as u64 + 1).read_to_end(&mut content));
        read.map_err(|source| Problem::File { path: path.to_string(), source })?;
        self.file_bytes_left.set(left.checked_sub(content.len()).ok_or(Problem::FilesTooLarge)?);
        Ok(content)
    }
}
