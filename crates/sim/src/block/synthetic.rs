//! Requests by a pattern, the same for the same seed.

use super::{Action, Request};
use serde::Serialize;
use weft_core::random::SplitMix;

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "pattern")]
pub enum Pattern {
    /// Any place, each as likely as another.
    Uniform,
    /// From the start to the end, again and again.
    Sequential,
    /// Places by popularity: the nth has a share of 1/n^theta. The popular ones are spread over the device.
    Zipf {
        /// The exponent, from 0 to below 1.
        theta: f64,
    },
    /// A part of the device gets a part of the requests (stream 0), the rest gets the rest (stream 1); uniform in both.
    HotCold {
        /// The hot part of the device, between 0 and 1.
        hot_space: f64,
        /// The part of the requests that goes there, between 0 and 1.
        hot_requests: f64,
    },
}

/// What a synthetic workload is made from.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SyntheticSetup {
    /// Where requests go.
    pub pattern: Pattern,
    /// Blocks of 4 KiB that they go to.
    pub blocks: u64,
    /// Blocks of a request. Requests begin at multiples of it.
    pub request_blocks: u32,
    /// Of a hundred requests, how many are reads.
    pub read_percent: u32,
    /// What everything is drawn from.
    pub seed: u64,
}

/// An endless workload.
#[derive(Clone, Debug)]
pub struct Synthetic {
    setup: SyntheticSetup,
    /// Places where a request can go.
    places: u64,
    random: SplitMix,
    next: u64,
    zipf: Option<Zipf>,
}

impl Synthetic {
    /// A workload; the error says what cannot be and what can.
    pub fn new(setup: SyntheticSetup) -> Result<Synthetic, String> {
        let places = setup.blocks.checked_div(u64::from(setup.request_blocks)).unwrap_or(0);
        if places == 0 {
            return Err(format!(
                "requests of {} blocks on {} blocks; take requests of 1 block up to all of them",
                setup.request_blocks, setup.blocks
            ));
        }
        if setup.read_percent > 100 {
            return Err(format!("{} of 100 requests are reads; take 0 to 100", setup.read_percent));
        }
        let mut zipf = None;
        match setup.pattern {
            Pattern::Zipf { theta } if !(0.0..1.0).contains(&theta) => {
                return Err(format!("zipf's exponent is {theta}; take 0 to below 1, such as 0.99"));
            }
            Pattern::Zipf { theta } => zipf = Some(Zipf::new(places, theta)),
            Pattern::HotCold { hot_space, hot_requests }
                if !((0.0..=1.0).contains(&hot_requests) && hot_space > 0.0 && hot_space < 1.0) =>
            {
                return Err(format!(
                    "{hot_requests} of the requests go to {hot_space} of the device; take parts between 0 and 1"
                ));
            }
            Pattern::Uniform | Pattern::Sequential | Pattern::HotCold { .. } => {}
        }
        let random = SplitMix::new(setup.seed, &[]);
        Ok(Synthetic { setup, places, random, next: 0, zipf })
    }

    /// The next request.
    pub fn request(&mut self) -> Request {
        let reads =
            self.setup.read_percent > 0 && self.random.below(100) < u64::from(self.setup.read_percent);
        let (place, stream) = self.place();
        Request {
            action: if reads { Action::Read } else { Action::Write },
            block: place * u64::from(self.setup.request_blocks),
            blocks: self.setup.request_blocks,
            stream,
            at_ns: 0,
        }
    }

    fn place(&mut self) -> (u64, u16) {
        match self.setup.pattern {
            Pattern::Uniform => (self.random.below(self.places), 0),
            Pattern::Sequential => {
                let place = self.next;
                self.next = (place + 1) % self.places;
                (place, 0)
            }
            Pattern::Zipf { .. } => {
                let draw = self.draw();
                let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(draw));
                (scatter(rank, self.places), 0)
            }
            Pattern::HotCold { hot_space, hot_requests } => {
                let hot = ((self.places as f64 * hot_space) as u64).clamp(1, self.places);
                if self.draw() < hot_requests || hot == self.places {
                    (self.random.below(hot), 0)
                } else {
                    (hot + self.random.below(self.places - hot), 1)
                }
            }
        }
    }

    /// A number from 0 to below 1.
    fn draw(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Puts ranks to places all over the device, each to a place of its own.
fn scatter(rank: u64, places: u64) -> u64 {
    const PRIME: u128 = 2_654_435_761;
    // A prime that does not divide the places permutes them.
    let factor = if u128::from(places).is_multiple_of(PRIME) { 1 } else { PRIME };
    (u128::from(rank) * factor % u128::from(places)) as u64
}

/// Ranks by popularity, in constant time (Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD
/// 1994, as in YCSB).
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    places: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub(crate) fn new(places: u64, theta: f64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let all = zeta(places);
        let n = places as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - zeta(2.min(places)) / all);
        Zipf { places: n, theta, alpha: 1.0 / (1.0 - theta), zeta: all, eta }
    }

    pub(crate) fn rank(&self, draw: f64) -> u64 {
        let scaled = draw * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.places as u64 - 1);
        }
        let rank = self.places * (self.eta * draw - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.places as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(pattern: Pattern) -> SyntheticSetup {
        SyntheticSetup { pattern, blocks: 10_000, request_blocks: 1, read_percent: 0, seed: 3 }
    }

    fn shares(pattern: Pattern) -> Vec<u32> {
        let mut workload = Synthetic::new(setup(pattern)).unwrap();
        let mut seen = vec![0; 10_000];
        for _ in 0..200_000 {
            let request = workload.request();
            assert!(request.action == Action::Write && request.blocks == 1);
            seen[request.block as usize] += 1;
        }
        seen
    }

    #[test]
    fn each_pattern_goes_where_it_says() {
        let uniform = shares(Pattern::Uniform);
        assert!(uniform.iter().all(|n| (1..60).contains(n)));
        let sequential = shares(Pattern::Sequential);
        assert!(sequential.iter().all(|n| *n == 20));
        let hot: u32 = shares(Pattern::HotCold { hot_space: 0.1, hot_requests: 0.9 })[..1000].iter().sum();
        assert!((178_000..182_000).contains(&hot), "{hot}");
    }

    #[test]
    fn zipf_has_the_shares_of_its_law_and_spreads_them() {
        let seen = shares(Pattern::Zipf { theta: 0.99 });
        let zeta: f64 = (1..=10_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [0u64, 1] {
            let wanted = 200_000.0 * ((rank + 1) as f64).powf(-0.99) / zeta;
            let got = f64::from(seen[scatter(rank, 10_000) as usize]);
            assert!((got / wanted - 1.0).abs() < 0.05, "rank {rank}: {got} of {wanted}");
        }
        let mut sorted = seen.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = sorted[..1000].iter().sum();
        // The law gives ranks 1 to 1000 a share of 0.76.
        assert!((145_000..160_000).contains(&top), "{top}");
        let first_half: u32 = seen[..5000].iter().sum();
        assert!((60_000..140_000).contains(&first_half), "{first_half}");
    }

    #[test]
    fn requests_have_the_size_and_the_mix_that_was_asked_for() {
        let mix = SyntheticSetup { request_blocks: 8, read_percent: 30, ..setup(Pattern::Uniform) };
        let mut workload = Synthetic::new(mix).unwrap();
        let requests: Vec<Request> = (0..10_000).map(|_| workload.request()).collect();
        let reads = requests.iter().filter(|r| r.action == Action::Read).count();
        assert!((2_800..3_200).contains(&reads), "{reads}");
        assert!(requests.iter().all(|r| r.block.is_multiple_of(8) && r.block + 8 <= 10_000));
        let mut again = Synthetic::new(mix).unwrap();
        assert!(requests.iter().all(|request| *request == again.request()));
    }

    #[test]
    fn a_workload_that_cannot_be_is_refused() {
        for wrong in [
            SyntheticSetup { blocks: 0, ..setup(Pattern::Uniform) },
            SyntheticSetup { request_blocks: 0, ..setup(Pattern::Uniform) },
            SyntheticSetup { read_percent: 101, ..setup(Pattern::Uniform) },
            setup(Pattern::Zipf { theta: 1.0 }),
            setup(Pattern::HotCold { hot_space: 0.0, hot_requests: 0.5 }),
            setup(Pattern::HotCold { hot_space: 0.5, hot_requests: f64::NAN }),
        ] {
            assert!(Synthetic::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
