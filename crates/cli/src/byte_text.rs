//! Bytes on a line of text, and back: what a terminal and a text file can hold.
//!
//! Printable text stays as it is; a backslash, a tab, a line end and every other byte become `\\`, `\t`, `\n` and
//! `\xNN`. [`unescape`] takes back what [`escape`] gives, whatever the bytes.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::fmt::Write;

/// Bytes as text on one line, without tabs.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        // Most text needs nothing said otherwise: it is copied by runs.
        while let Some(at) = rest.bytes().position(|byte| !matches!(byte, b' '..=b'[' | b']'..=b'~')) {
            let (plain, behind) = rest.split_at(at);
            out.push_str(plain);
            let mut chars = behind.chars();
            match chars.next() {
                Some('\\') => out.push_str("\\\\"),
                Some('\t') => out.push_str("\\t"),
                Some('\n') => out.push_str("\\n"),
                Some(c) if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
                }
                c => out.extend(c),
            }
            rest = chars.as_str();
        }
        out.push_str(rest);
        chunk.invalid().iter().for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
    }
    out
}

/// The bytes of a text that [`escape`] gave.
///
/// # Errors
/// A sentence that names what stands after a backslash and should not.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    match &text[unescape_part(text, &mut out)?..] {
        [] => Ok(out),
        [_] => Err("a backslash at the end; write \\\\ for one".to_string()),
        [_, _, digits @ ..] => Err(no_byte(digits)),
    }
}

/// Appends the bytes of a part of a text that [`escape`] gave; how much of the part that was. What begins in this part and ends in the next
/// one is left.
///
/// # Errors
/// As [`unescape`].
pub fn unescape_part(text: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        match rest {
            [_] | [_, b'x'] | [_, b'x', _] => return Ok(text.len() - rest.len()),
            [_, b'x', high, low, ..] => {
                let digits = [*high, *low];
                out.extend(parse_hex(&digits).map_err(|_| no_byte(&digits))?);
                rest = &rest[4..];
            }
            [_, first, ..] => {
                out.push(match first {
                    b'\\' => b'\\',
                    b't' => b'\t',
                    b'n' => b'\n',
                    other => {
                        let what = other.escape_ascii();
                        return Err(format!("'\\{what}' means nothing; write \\\\, \\t, \\n or \\xNN"));
                    }
                });
                rest = &rest[2..];
            }
            [] => {}
        }
    }
    out.extend_from_slice(rest);
    Ok(text.len())
}

fn no_byte(digits: &[u8]) -> String {
    format!("'\\x{}' is no byte; write two hex digits", String::from_utf8_lossy(digits))
}

/// The bytes of `text` before a character of UTF-8 that begins in it and does not end there; all of them where it has nothing else.
pub fn whole_characters(text: &[u8]) -> &[u8] {
    let mut tail = text.len().saturating_sub(3)..text.len();
    let begun = tail.rfind(|at| text[*at] >= 0xc0);
    let is_cut = |at: &usize| std::str::from_utf8(&text[*at..]).is_err_and(|e| e.error_len().is_none());
    begun.filter(|at| *at > 0 && is_cut(at)).map_or(text, |at| &text[..at])
}

/// Takes an argument of the command line that is text, or bytes in hex digits.
pub fn text_parser() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| {
        text.into_string().map_err(|_| "it is not text (UTF-8); give its bytes in hex digits, with --hex")
    })
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The bytes that hex digits stand for.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
        _ => None,
    };
    let wrong = |pair: &[u8]| {
        format!("'{}' is not hex; write two digits, 0 to 9 and a to f, for each byte", pair.escape_ascii())
    };
    text.chunks(2).map(|pair| byte(pair).ok_or_else(|| wrong(pair))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_their_line_of_text() {
        let every: Vec<u8> = (0..=255).collect();
        for bytes in [&b""[..], b"plain", "gr\u{fc}n \u{85}".as_bytes(), b"a\tb\nc\\x41", &every] {
            let line = escape(bytes);
            assert!(!line.contains(['\t', '\n']));
            assert_eq!(unescape(line.as_bytes()).unwrap(), bytes, "{line}");
            assert_eq!(parse_hex(hex(bytes).as_bytes()).unwrap(), bytes);
        }
        assert_eq!(escape(b"a\\\xff"), "a\\\\\\xff");
    }

    #[test]
    fn text_that_is_cut_anywhere_gives_the_same_bytes() {
        let bytes = [&b"a\\x\t"[..], "gr\u{fc}n \u{85}\u{1f332}".as_bytes(), b"\xff\xf0\x9f\n\\"].concat();
        let line = escape(&bytes).into_bytes();
        for at in 0..=line.len() {
            let mut out = Vec::new();
            let used = unescape_part(&line[..at], &mut out).unwrap();
            assert_eq!(unescape_part(&line[used..], &mut out).unwrap(), line.len() - used);
            assert_eq!(out, bytes, "cut at {at}");
        }
        for at in 1..=bytes.len() {
            let first = whole_characters(&bytes[..at]);
            let parts = escape(first) + &escape(&bytes[first.len()..]);
            assert_eq!(parts.as_bytes(), line, "cut at {at}");
        }
    }

    #[test]
    fn wrong_text_is_refused_with_what_is_wrong_in_it() {
        assert!(unescape(b"a\\q").unwrap_err().contains("\\q"));
        assert!(unescape(b"a\\").unwrap_err().contains("end"));
        assert!(unescape(b"a\\x4").unwrap_err().contains("two hex digits"));
        assert!(unescape(b"a\\xzz").is_err());
        assert!(parse_hex(b"abc").unwrap_err().contains("'c'"));
        assert!(parse_hex(b"0g").is_err());
    }
}
