//! Programs that a process has sent to be run later, by the numbers that it has given them.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use weft_vfs::compound::Checked;

/// Programs of a process, at most.
const PROGRAMS_MAX: usize = 256;
/// Bytes of their encodings, at most, beside the last one.
const BYTES_MAX: usize = 4 << 20;

/// The programs of a process. Those that came first go first when they are many: the process sends one again that is missing.
#[derive(Default)]
pub struct KeptPrograms {
    by_number: FxHashMap<u64, (Arc<Checked>, usize)>,
    order: VecDeque<u64>,
    bytes: usize,
}

impl KeptPrograms {
    /// Keeps a program, whose encoding is so long, in the place of what had its number.
    pub fn keep(&mut self, number: u64, program: Checked, bytes: usize) {
        self.forget(number);
        while self.order.len() >= PROGRAMS_MAX || self.bytes + bytes > BYTES_MAX {
            let Some(first) = self.order.front().copied() else { break };
            self.forget(first);
        }
        self.by_number.insert(number, (Arc::new(program), bytes));
        self.order.push_back(number);
        self.bytes += bytes;
    }

    fn forget(&mut self, number: u64) {
        if let Some((_, bytes)) = self.by_number.remove(&number) {
            self.order.retain(|kept| *kept != number);
            self.bytes -= bytes;
        }
    }

    /// The program with a number.
    pub fn get(&self, number: u64) -> Option<Arc<Checked>> {
        self.by_number.get(&number).map(|(program, _)| program.clone())
    }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use weft_vfs::compound::Chain;

    fn program(path: &str) -> Checked {
        let mut chain = Chain::all();
        chain.unlink(path);
        chain.check().unwrap()
    }

    #[test]
    fn the_oldest_programs_go_when_they_are_many_or_long() {
        let mut kept = KeptPrograms::default();
        for number in 0..300 {
            kept.keep(number, program(&number.to_string()), 10);
        }
        assert!(kept.get(43).is_none() && kept.get(44).is_some() && kept.get(299).is_some());
        kept.keep(299, program("another"), BYTES_MAX - 20);
        assert_eq!(*kept.get(299).unwrap(), program("another"));
        assert_eq!(kept.order, [297, 298, 299]);
        kept.keep(7, program("long"), 2 * BYTES_MAX);
        assert_eq!((kept.order.len(), kept.bytes), (1, 2 * BYTES_MAX));
        kept.keep(8, program("short"), 1);
        assert_eq!((kept.get(7).is_none(), kept.bytes), (true, 1));
    }
}
