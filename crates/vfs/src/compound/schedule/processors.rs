//! The choice of a device's processors, and of the scheduler that shares them out.

use super::{Fair, FairSettings, Fifo, RoundRobin, Scheduler, UserId, Weight};
use std::fmt;
use std::str::FromStr;

/// A scheduler by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// [`Fifo`]
    Fifo,
    /// [`RoundRobin`]
    RoundRobin,
    /// [`Fair`]
    #[default]
    Fair,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 3] = [Policy::Fifo, Policy::RoundRobin, Policy::Fair];

    fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::RoundRobin => "round-robin",
            Policy::Fair => "fair",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No scheduler has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no scheduler '{0}'; give fifo, round-robin or fair")]
pub struct NoPolicy(String);

impl FromStr for Policy {
    type Err = NoPolicy;

    fn from_str(name: &str) -> Result<Policy, NoPolicy> {
        let found = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| NoPolicy(name.to_string()))
    }
}

/// Processors of a device that execute programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processors {
    /// How many, 1 or more.
    pub count: u32,
    /// Time that one takes for what takes a processor of the host 100, 100 or more.
    pub slowdown_percent: u32,
    /// Who runs next.
    pub policy: Policy,
    /// Limits of [`Policy::Fair`].
    pub fair: FairSettings,
    /// Weights of users for [`Policy::Fair`], where they are not [`Weight::DEFAULT`].
    pub weights: Vec<(UserId, Weight)>,
}

impl Processors {
    /// So many processors that are as fast as the host's, shared fairly.
    pub fn new(count: u32) -> Processors {
        let fair = FairSettings::default();
        Processors { count, slowdown_percent: 100, policy: Policy::Fair, fair, weights: Vec::new() }
    }

    /// A scheduler for them, without a request.
    pub fn scheduler(&self) -> Box<dyn Scheduler + Send> {
        match self.policy {
            Policy::Fifo => Box::new(Fifo::default()),
            Policy::RoundRobin => Box::new(RoundRobin::default()),
            Policy::Fair => {
                let mut fair = Fair::new(self.fair);
                self.weights.iter().for_each(|(user, weight)| fair.set_weight(*user, *weight));
                Box::new(fair)
            }
        }
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Processors { count, slowdown_percent, policy, .. } = self;
        let processors = if *count == 1 { "processor" } else { "processors" };
        write!(f, "{count} device {processors}, scheduler {policy}, slowdown {slowdown_percent} %")
    }
}
