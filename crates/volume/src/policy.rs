//! Reading placement policies.

use crate::error::VolumeError;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use weft_placement::Policy;

/// Most bytes of a file that people write.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Reads a policy: a file, or the name of a shipped one when no file has that name.
pub fn read_policy(path: &Path) -> Result<Policy, VolumeError> {
    let name = path.to_string_lossy();
    if !path.exists()
        && let Some(shipped) = Policy::shipped_by_name(&name)
    {
        return Ok(shipped?);
    }
    let text = read_settings(path).map_err(|source| VolumeError::Io {
        what: "policy",
        path: path.to_path_buf(),
        source,
    })?;
    Policy::parse(&text, &name).map_err(|source| {
        let excerpt = excerpt(&text, source.line, source.column);
        VolumeError::PolicyText { source: Box::new(source), excerpt }
    })
}

/// The text of a file that people write.
///
/// # Errors
/// Those of reading; more than a mebibyte, which is another file, or never ends.
pub fn read_settings(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(SETTINGS_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > SETTINGS_BYTES_MAX {
        return Err(io::Error::other("it has more than 1 MiB; give another file"));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it is not text (UTF-8)"))
}

/// A line of a text with a mark below one of its columns.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(content) = line.checked_sub(1).and_then(|index| text.lines().nth(index)) else {
        return String::new();
    };
    let number = line.to_string();
    let blank = " ".repeat(number.len());
    // Tabs stay, so that the mark stands below its place whatever they are worth.
    let before: String =
        content.chars().take(column.saturating_sub(1)).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let mark = if column == 0 { "" } else { "^" };
    format!(
        "\n      {number} | {}\n      {blank} | {before}{mark}",
        content.replace(|c: char| c.is_control() && c != '\t', "?")
    )
}
