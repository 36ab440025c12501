//! Power cuts: when the power goes, and how far the command of that moment is executed.

use super::error::FlashError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_core::random::SplitMix;

use parking_lot::Mutex;

/// How far an operation is executed: all of it, unless the power is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Execution {
    /// It is carried out and reported.
    Reported,
    /// Power goes after it was carried out, before that was reported.
    Whole,
    /// Power goes in the middle.
    Torn,
    /// Power goes before it begins.
    Nothing,
}

const ON: u8 = 0;
const ARMED: u8 = 1;
const LOST: u8 = 2;

#[derive(Clone, Copy, Default, Debug)]
struct Plan {
    /// Operations that still pass.
    left: u64,
    seed: u64,
}

/// The switch. While nothing is armed it costs an operation one load.
#[derive(Default, Debug)]
pub(crate) struct Power {
    state: AtomicU8,
    plan: Mutex<Plan>,
}

impl Power {
    /// Lets `operations` more pass and goes in the one after them.
    pub fn cut_after(&self, operations: u64, seed: u64) {
        *self.plan.lock() = Plan { left: operations, seed };
        self.state.store(ARMED, Release);
    }

    pub fn restore(&self) {
        self.state.store(ON, Release);
    }

    pub fn is_lost(&self) -> bool {
        self.state.load(Acquire) == LOST
    }

    /// For a command that changes nothing.
    pub fn check(&self) -> Result<(), FlashError> {
        if self.is_lost() { Err(FlashError::PowerLost) } else { Ok(()) }
    }

    /// For an operation that changes the flash and was found to be legal: what becomes of it.
    pub fn begin(&self) -> Result<Execution, FlashError> {
        if self.state.load(Acquire) == ON {
            return Ok(Execution::Reported);
        }
        let mut plan = self.plan.lock();
        // Under the lock nobody else takes power away.
        match self.state.load(Relaxed) {
            ON => Ok(Execution::Reported),
            LOST => Err(FlashError::PowerLost),
            _ if plan.left > 0 => {
                plan.left -= 1;
                Ok(Execution::Reported)
            }
            _ => {
                self.state.store(LOST, Release);
                Ok(execution(plan.seed, 0))
            }
        }
    }

    /// For an operation that was under way on another LUN when power went: what becomes of it.
    pub fn sibling(&self, number: u64) -> Execution {
        execution(self.plan.lock().seed, number + 1)
    }
}

fn execution(seed: u64, number: u64) -> Execution {
    match SplitMix::new(seed, &[number]).below(4) {
        0 => Execution::Nothing,
        1 => Execution::Whole,
        _ => Execution::Torn,
    }
}
