//! The policies that come with weft.

use super::{Policy, PolicyError};

/// Name and text of each, in the order in which programs are looked for; the generic one is last.
const TEXTS: [(&str, &str); 6] = [
    ("rocksdb", include_str!("../../policies/rocksdb.toml")),
    ("leveldb", include_str!("../../policies/leveldb.toml")),
    ("sqlite", include_str!("../../policies/sqlite.toml")),
    ("wiredtiger", include_str!("../../policies/wiredtiger.toml")),
    ("cachelib", include_str!("../../policies/cachelib.toml")),
    ("generic", include_str!("../../policies/generic.toml")),
];

impl Policy {
    /// Name and text of every policy that comes with weft. The last is `generic`, which suits any program.
    pub fn shipped_texts() -> &'static [(&'static str, &'static str)] {
        &TEXTS
    }

    /// Every policy that comes with weft, in the order of [`Policy::shipped_texts`].
    pub fn shipped() -> Result<Vec<Policy>, PolicyError> {
        TEXTS.iter().map(|(name, text)| Policy::parse(text, &format!("shipped policy {name}"))).collect()
    }

    /// The shipped policy for a program of this name; `generic` when none is made for it.
    pub fn for_program(process: &str) -> Result<Policy, PolicyError> {
        let mut shipped = Policy::shipped()?;
        let at = shipped.iter().position(|p| p.applies().to_process(process)).unwrap_or(shipped.len() - 1);
        Ok(shipped.swap_remove(at))
    }

    /// The shipped policy of this name.
    pub fn shipped_by_name(name: &str) -> Option<Result<Policy, PolicyError>> {
        let (name, text) = TEXTS.iter().find(|(n, _)| *n == name)?;
        Some(Policy::parse(text, &format!("shipped policy {name}")))
    }
}
