//! The parts of a path: directory, name, suffix, and the name's shape.

/// Longest suffix that is taken for one; what is longer is part of a name that has a dot in it.
const SUFFIX_MAX: usize = 16;

/// Splits `/dir/name` into `/dir` and `name`. The root's files have the directory `/`.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"/", path),
    }
}

/// The suffix of a name, without its dot; empty when there is none. A leading dot begins a hidden file's name, and
/// what is all digits counts files, so neither makes a suffix.
pub fn suffix(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&b| b == b'.') {
        Some(at) if at > 0 => {
            let suffix = &name[at + 1..];
            let counts = suffix.iter().all(u8::is_ascii_digit);
            if counts || suffix.len() > SUFFIX_MAX { b"" } else { suffix }
        }
        _ => b"",
    }
}

/// The name with every run of digits collapsed to `#`: `000123.sst` and `000124.sst` both give `#.sst`.
pub fn shape(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    let mut in_digits = false;
    for piece in String::from_utf8_lossy(name).chars() {
        let digit = piece.is_ascii_digit();
        if !digit {
            out.push(piece);
        } else if !in_digits {
            out.push('#');
        }
        in_digits = digit;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_at_its_last_slash() {
        assert_eq!(split(b"/db/000001.log"), (&b"/db"[..], &b"000001.log"[..]));
        assert_eq!(split(b"/a"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split(b"bare"), (&b"/"[..], &b"bare"[..]));
        assert_eq!(split(b"/"), (&b"/"[..], &b""[..]));
    }

    #[test]
    fn a_suffix_is_what_follows_the_last_dot_unless_it_counts_or_hides() {
        assert_eq!(suffix(b"000001.log"), b"log");
        assert_eq!(suffix(b"archive.tar.gz"), b"gz");
        for none in [&b"CURRENT"[..], b".bashrc", b"WiredTigerLog.0000000001", b"LOG.old.1234567", b"x."] {
            assert_eq!(suffix(none), b"", "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn a_shape_collapses_digits() {
        assert_eq!(shape(b"000123.sst"), "#.sst");
        assert_eq!(shape(b"OPTIONS-000005"), "OPTIONS-#");
        assert_eq!(shape(b"a1b22c"), "a#b#c");
        assert_eq!(shape(b"plain"), "plain");
    }
}
