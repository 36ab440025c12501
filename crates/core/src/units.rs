//! The one place where a number changes its unit: sizes and durations, parsed and printed.

/// Why a size was not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is not a size; write a number with an optional K, M, G or T (powers of 1024), such as 512M or 4G"
)]
pub struct BadSize(pub String);

/// Parses `4096`, `4K`, `1.5M`, `4GiB`; the suffixes are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize(text.to_string());
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(split);
    let shift = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let bytes = number * (1u64 << shift) as f64;
    if !(0.0..=(1u64 << 60) as f64).contains(&bytes) {
        return Err(bad());
    }
    Ok(bytes as u64)
}

/// Prints a size with three significant digits and a binary unit: `1.50 MiB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        return format!("{bytes} B");
    }
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Writes a size so that [`parse_size`] reads the same number: `64M`, `4097`.
pub fn size_argument(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let whole = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Prints a duration with three significant digits: `12.3 us`.
pub fn format_nanos(ns: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (name, scale) = UNITS.into_iter().rev().find(|(_, scale)| ns as f64 >= *scale).unwrap_or(UNITS[0]);
    let value = ns as f64 / scale;
    let digits = if scale == 1.0 || value >= 100.0 {
        0
    } else if value < 10.0 {
        2
    } else {
        1
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed() {
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size(" 1.5 MiB "), Ok(3 << 19));
        assert_eq!(parse_size("0"), Ok(0));
        for bad in ["", "G", "4X", "-1", "1e9G", "nan"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for (bytes, text) in [(0, "0"), (999, "999"), (64 << 20, "64M"), (3 << 19, "1536K"), (5 << 40, "5T")]
        {
            assert_eq!(size_argument(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        assert_eq!(format_size(999), "999 B");
        assert_eq!(format_size(3 << 19), "1.50 MiB");
        assert_eq!(format_nanos(12_345), "12.3 us");
        assert_eq!(format_nanos(0), "0 ns");
    }
}
