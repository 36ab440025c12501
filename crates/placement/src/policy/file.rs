//! The policy as its TOML file has it. `docs/formats/policy-toml.md` defines the keys.

use crate::context::WriteHint;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;
use toml::Spanned;
use weft_core::DataClass;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub name: Spanned<String>,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub applies: AppliesFile,
    pub default: Option<Spanned<String>>,
    #[serde(default)]
    pub stream: Vec<StreamFile>,
    #[serde(default)]
    pub rule: Vec<Spanned<RuleFile>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AppliesFile {
    #[serde(default)]
    pub process: Patterns,
    #[serde(default)]
    pub path: Patterns,
    #[serde(default)]
    pub evidence: Patterns,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamFile {
    pub name: Spanned<String>,
    #[serde(default)]
    pub class: DataClass,
    pub lifetime: Option<Spanned<String>>,
    pub group: Option<Spanned<GroupFile>>,
    pub split: Option<SplitBy>,
    pub split_max: Option<Spanned<u64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupFile {
    pub by: GroupBy,
    pub window: Option<Spanned<String>>,
    pub slots: Option<Spanned<u64>>,
}

/// What makes files of one stream share a lifetime group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GroupBy {
    None,
    Bytes,
    Time,
    Thread,
    File,
    Directory,
}

impl GroupBy {
    pub(super) fn name(self) -> &'static str {
        match self {
            GroupBy::None => "none",
            GroupBy::Bytes => "bytes",
            GroupBy::Time => "time",
            GroupBy::Thread => "thread",
            GroupBy::File => "file",
            GroupBy::Directory => "directory",
        }
    }
}

/// By what one stream of a policy is split into several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// One stream for each suffix.
    Suffix,
    /// One stream for each name shape (digits collapsed).
    Shape,
    /// One stream for each directory.
    Directory,
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SplitBy::Suffix => "suffix",
            SplitBy::Shape => "shape",
            SplitBy::Directory => "directory",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    #[serde(default)]
    pub path: Patterns,
    #[serde(default)]
    pub name: Patterns,
    #[serde(default)]
    pub shape: Patterns,
    #[serde(default)]
    pub process: Patterns,
    #[serde(default)]
    pub thread: Patterns,
    #[serde(default)]
    pub flags: Vec<FlagName>,
    #[serde(default)]
    pub hint: Vec<WriteHint>,
    pub min_size: Option<Spanned<String>>,
    pub max_size: Option<Spanned<String>>,
    pub stream: Spanned<String>,
}

/// One of `OpenIntent`'s names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FlagName {
    Create,
    Write,
    Append,
    Direct,
    Sync,
    Tmpfile,
    Excl,
    Trunc,
}

/// One pattern or a list of them, each with its place in the text.
#[derive(Debug, Default)]
pub(super) struct Patterns(pub Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Patterns, D::Error> {
        // The place of a lone string is that of the whole value, so it is asked for first.
        let value = Spanned::<OneOrMany>::deserialize(deserializer)?;
        let span = value.span();
        Ok(Patterns(match value.into_inner() {
            OneOrMany::One(text) => vec![Spanned::new(span, text)],
            OneOrMany::Many(list) => list,
        }))
    }
}

enum OneOrMany {
    One(String),
    Many(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern in quotes or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(text.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(OneOrMany::Many(list))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
