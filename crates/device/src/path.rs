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
        let begins = self.gap(ready.max(now), duration);
        self.take(begins, duration);
        begins + duration
    }

    /// When a transfer of `duration` can begin, from `ready` on.
    fn gap(&self, ready: u64, duration: u64) -> u64 {
        // Most transfers come after all others.
        if self.busy.last().is_none_or(|last| last.end <= ready) {
            return ready;
        }
        let mut begins = ready;
        let first = self.busy.partition_point(|taken| taken.end <= begins);
        for taken in &self.busy[first..] {
            if taken.start >= begins + duration {
                break;
            }
            begins = taken.end;
        }
        begins
    }

    /// Takes a time that is free.
    fn take(&mut self, begins: u64, duration: u64) {
        let ends = begins + duration;
        match self.busy.last_mut() {
            Some(last) if last.end < begins => return self.busy.push(begins..ends),
            Some(last) if last.end == begins => return last.end = ends,
            _ => {}
        }
        let at = self.busy.partition_point(|taken| taken.end <= begins);
        let joins_before = at > 0 && self.busy[at - 1].end == begins;
        let joins_after = self.busy.get(at).is_some_and(|taken| taken.start == ends);
        match (joins_before, joins_after) {
            (true, true) => self.busy[at - 1].end = self.busy.remove(at).end,
            (true, false) => self.busy[at - 1].end = ends,
            (false, true) => self.busy[at].start = begins,
            (false, false) => self.busy.insert(at, begins..ends),
        }
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

/// Transfers that a span of a [`Timeline`] remembers, to find gaps between them for later ones. What is forgotten counts as
/// taken.
const TRANSFERS_KNOWN: usize = 4096;

/// Spans that a [`Timeline`] remembers: of so many clients, each with a clock of its own, no two wait for each other's.
const SPANS_KNOWN: usize = 64;

/// A path for clients whose clocks may lie any time apart: what one of them transfers far in the future leaves the present
/// of another as it is.
///
/// Time is cut into spans, and each has a [`Path`] of its own. The span that was not used for longest is forgotten, and its
/// time counts as free: nobody is there any more.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// A span is 2 to the power of this in nanoseconds.
    span_bits: u32,
    /// The one that was used last comes last.
    spans: Vec<Span>,
}

#[derive(Clone, Debug)]
struct Span {
    number: u64,
    path: Path,
}

impl Timeline {
    /// A free path. Its transfers usually take so long: a span has room for as many as it remembers.
    pub fn new(usual_ns: u64) -> Timeline {
        let span_ns = usual_ns.saturating_mul(TRANSFERS_KNOWN as u64).clamp(1 << 26, 1 << 40);
        Timeline { span_bits: span_ns.next_power_of_two().ilog2(), spans: Vec::new() }
    }

    /// Puts a transfer of `duration` into the first gap from `ready` on; returns when it ends.
    pub fn transfer(&mut self, ready: u64, duration: u64) -> u64 {
        let mut ready = ready;
        loop {
            let number = ready >> self.span_bits;
            let end = (number + 1) << self.span_bits;
            let begins = self.span(number).gap(ready, duration);
            let ends = begins + duration;
            if begins < end && ends <= end {
                let path = self.span(number);
                path.take(begins, duration);
                path.forget_beyond(TRANSFERS_KNOWN);
                return ends;
            }
            if begins < end && self.span(number + 1).gap(end, ends - end) == end {
                self.span(number + 1).take(end, ends - end);
                self.span(number).take(begins, end - begins);
                return ends;
            }
            ready = end;
        }
    }

    #[inline]
    fn span(&mut self, number: u64) -> &mut Path {
        let last = self.spans.len().saturating_sub(1);
        if self.spans.get(last).is_none_or(|span| span.number != number) {
            self.use_span(number);
        }
        let last = self.spans.len() - 1;
        &mut self.spans[last].path
    }

    /// Makes a span the one that was used last.
    fn use_span(&mut self, number: u64) {
        let known = self.spans.iter().rposition(|span| span.number == number);
        if let Some(at) = known {
            self.spans[at..].rotate_left(1);
            return;
        }
        if self.spans.len() == SPANS_KNOWN {
            self.spans.remove(0);
        }
        self.spans.push(Span { number, path: Path::default() });
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
    fn a_timeline_is_a_path_that_was_cut_into_spans() {
        let mut random = weft_core::random::SplitMix::new(7, &[]);
        let (mut whole, mut cut) = (Path::default(), Timeline::new(1));
        for _ in 0..3000 {
            // Three clients, whose clocks lie seconds apart.
            let ready = random.below(3) * (5 << 30) + random.below(5 << 26);
            let duration = 1 + random.below(1 << 20);
            assert_eq!(cut.transfer(ready, duration), whole.transfer(0, ready, duration));
        }
    }

    #[test]
    fn who_is_far_ahead_does_not_delay_who_is_not() {
        let mut timeline = Timeline::new(10);
        for at in 0..1_000_000 {
            timeline.transfer((1 << 59) + at * 1_000_000, 10);
        }
        assert_eq!(timeline.transfer(0, 10), 10);
        assert!(timeline.spans.len() <= SPANS_KNOWN);
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
