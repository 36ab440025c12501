//! Bytes on a line of text, and back: what a terminal and a text file can hold.
//!
//! Printable text stays as it is; a backslash, a tab, a line end and every other byte become `\\`, `\t`, `\n` and
//! `\xNN`. [`unescape`] takes back what [`escape`] gives, whatever the bytes.

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
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (first, behind) =
            rest[at + 1..].split_first().ok_or("a backslash at the end; write \\\\ for one")?;
        rest = behind;
        match first {
            b'\\' => out.push(b'\\'),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'x' => {
                let (digits, behind) = rest.split_at(rest.len().min(2));
                rest = behind;
                let parsed = parse_hex(digits).map_err(|_| {
                    format!("'\\x{}' is no byte; write two hex digits", String::from_utf8_lossy(digits))
                })?;
                out.extend(parsed);
            }
            other => {
                let what = other.escape_ascii();
                return Err(format!("'\\{what}' means nothing; write \\\\, \\t, \\n or \\xNN"));
            }
        }
    }
    out.extend_from_slice(rest);
    Ok(out)
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
    let shown = || String::from_utf8_lossy(text).into_owned();
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return Err(format!("'{}' is not hex; write two digits a byte", shown()));
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let bytes: Option<Vec<u8>> = text.chunks_exact(2).map(byte).collect();
    bytes.ok_or_else(|| format!("'{}' is not hex; write digits 0 to 9 and a to f", shown()))
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
            assert_eq!(parse_hex(hex(bytes).as_bytes()).unwrap_or_default(), bytes);
        }
        assert_eq!(escape(b"a\\\xff"), "a\\\\\\xff");
    }

    #[test]
    fn wrong_text_is_refused_with_what_is_wrong_in_it() {
        assert!(unescape(b"a\\q").unwrap_err().contains("\\q"));
        assert!(unescape(b"a\\").unwrap_err().contains("end"));
        assert!(unescape(b"a\\x4").unwrap_err().contains("two hex digits"));
        assert!(unescape(b"a\\xzz").is_err());
        assert!(parse_hex(b"abc").is_err());
        assert!(parse_hex(b"0g").is_err());
    }
}
