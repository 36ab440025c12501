//! A channel or link in device time.

use std::ops::Range;

/// A shared path that carries one transfer at a time: when it is taken, in order and without overlap.
#[derive(Clone, Default, Debug)]
pub struct Path {
    busy: Vec<Range<u64>>,
}

impl Path {
    /// Puts a transfer of `duration` into the first gap from `ready` on; returns when it ends.
    pub fn transfer(&mut self, now: u64, ready: u64, duration: u64) -> u64 {
        if self.busy.first().is_some_and(|taken| taken.end <= now) {
            let past = self.busy.partition_point(|taken| taken.end <= now);
            self.busy.drain(..past);
        }
        let mut begins = ready.max(now);
        // Most transfers come after all others.
        match self.busy.last_mut() {
            Some(last) if last.end < begins => {
                self.busy.push(begins..begins + duration);
                return begins + duration;
            }
            Some(last) if last.end == begins => {
                last.end += duration;
                return last.end;
            }
            _ => {}
        }
        let mut at = self.busy.partition_point(|taken| taken.end <= begins);
        while let Some(taken) = self.busy.get(at).filter(|taken| taken.start < begins + duration) {
            begins = taken.end;
            at += 1;
        }
        let ends = begins + duration;
        let joins_before = at > 0 && self.busy[at - 1].end == begins;
        let joins_after = self.busy.get(at).is_some_and(|taken| taken.start == ends);
        match (joins_before, joins_after) {
            (true, true) => self.busy[at - 1].end = self.busy.remove(at).end,
            (true, false) => self.busy[at - 1].end = ends,
            (false, true) => self.busy[at].start = begins,
            (false, false) => self.busy.insert(at, begins..ends),
        }
        ends
    }

    /// Forgets the oldest transfers when more than `most` are known: no later transfer begins before their end.
    pub fn forget_beyond(&mut self, most: usize) {
        if self.busy.len() > most {
            let forgotten = self.busy.len() - most / 2;
            self.busy[forgotten - 1].start = 0;
            self.busy.drain(..forgotten - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_take_the_first_gap_and_never_overlap() {
        let mut path = Path::default();
        assert_eq!(path.transfer(0, 100, 10), 110);
        assert_eq!(path.transfer(0, 0, 10), 10);
        assert_eq!(path.transfer(0, 0, 95), 205, "too long for the gap");
        assert_eq!(path.transfer(0, 5, 90), 100, "fills the gap");
        assert!(matches!(&path.busy[..], [all] if *all == (0..205)));
        assert_eq!(path.transfer(300, 0, 1), 301);
        assert!(matches!(&path.busy[..], [all] if *all == (300..301)));
    }

    #[test]
    fn what_is_forgotten_counts_as_taken() {
        let mut path = Path::default();
        for at in 0..10 {
            path.transfer(0, at * 100, 10);
        }
        path.forget_beyond(10);
        assert_eq!(path.clone().transfer(0, 0, 50), 60, "nothing was forgotten yet");
        path.forget_beyond(9);
        assert_eq!(path.transfer(0, 0, 50), 560, "gaps before the forgotten transfers are gone");
        assert_eq!(path.transfer(0, 0, 1), 561, "those after them are still there");
    }
}
