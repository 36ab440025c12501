//! The schedulers to compare, by name.

use super::Tenant;
use serde::Serialize;
use weft_vfs::compound::schedule::{
    Ended, Fair, FairSettings, Fifo, NotRunning, Refused, Request, RequestId, RoundRobin, Scheduler, Turn,
    UserId,
};

/// What [`Scheduling::FairByCount`] charges for a turn, in nanoseconds.
const CONSTANT_NS: u64 = 1_000;

/// A scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// First come, first served: the papers.
    Fifo,
    /// Users take turns.
    RoundRobin,
    /// Fair shares of a constant for each operation, which runs to its end: FusionFS (FAST 2022) charges such constants.
    FairByCount,
    /// Fair shares of measured time.
    Fair,
}

impl Scheduling {
    /// All.
    pub const ALL: [Scheduling; 4] =
        [Scheduling::Fifo, Scheduling::RoundRobin, Scheduling::FairByCount, Scheduling::Fair];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Scheduling::Fifo => "fifo",
            Scheduling::RoundRobin => "round-robin",
            Scheduling::FairByCount => "fair-by-count",
            Scheduling::Fair => "fair",
        }
    }

    /// One for these tenants: tenant number n is user n.
    pub fn scheduler(self, tenants: &[Tenant]) -> Box<dyn Scheduler> {
        let fair = || {
            let mut fair = Fair::new(FairSettings::default());
            for (number, tenant) in tenants.iter().enumerate() {
                fair.set_weight(UserId(number as u32), tenant.weight);
            }
            fair
        };
        match self {
            Scheduling::Fifo => Box::new(Fifo::default()),
            Scheduling::RoundRobin => Box::new(RoundRobin::default()),
            Scheduling::FairByCount => Box::new(ByCount(fair())),
            Scheduling::Fair => Box::new(fair()),
        }
    }
}

/// The fair scheduler without measurements.
struct ByCount(Fair);

impl Scheduler for ByCount {
    fn arrive(&mut self, request: Request) -> Result<(), Refused> {
        self.0.arrive(request)
    }

    fn next(&mut self) -> Option<Turn> {
        self.0.next().map(|turn| Turn { slice_ns: None, ..turn })
    }

    fn ended(&mut self, id: RequestId, _ran_ns: u64, ended: Ended) -> Result<(), NotRunning> {
        self.0.ended(id, CONSTANT_NS, ended)
    }
}
