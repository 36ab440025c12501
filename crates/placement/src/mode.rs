//! The placement modes of the engine.

use std::fmt;
use std::str::FromStr;

/// Streams among which [`Mode::Random`] draws.
pub const RANDOM_STREAMS: u16 = 6;

/// How the engine decides where data belongs. The first three are the baselines that the fourth is measured against.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All data in one stream.
    Off,
    /// A stream drawn for each path from the seed, one of [`RANDOM_STREAMS`]: what separation without knowledge does.
    Random,
    /// A stream for each suffix of a file's name: what the learner of the public Reshim code comes down to.
    Suffix,
    /// The rules of a policy.
    #[default]
    Rules,
}

/// A mode that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a placement mode; use off, random, suffix or rules")]
pub struct BadMode(pub String);

impl Mode {
    /// Every mode, baselines first.
    pub const ALL: [Mode; 4] = [Mode::Off, Mode::Random, Mode::Suffix, Mode::Rules];

    /// The name that the command line takes.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Random => "random",
            Mode::Suffix => "suffix",
            Mode::Rules => "rules",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = BadMode;

    fn from_str(text: &str) -> Result<Mode, BadMode> {
        Mode::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| BadMode(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_read_from_its_name_and_others_are_refused_with_the_choice() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let refused = "rule".parse::<Mode>().map_err(|e| e.to_string());
        assert_eq!(
            refused,
            Err("'rule' is not a placement mode; use off, random, suffix or rules".to_string())
        );
    }
}
