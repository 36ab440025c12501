//! Requests of a web server: files of very different sizes, some of them wanted again and again.
//!
//! Three quarters of the files are smaller than 18 KB, as in the trace of ADAPT, section 5.4; sizes are log-normal. Popularity follows
//! Zipf's law and has nothing to do with size. Everything is drawn from a seed.

use crate::block::Zipf;
use weft_core::random::SplitMix;

/// Files up to this size are small, as in ADAPT.
pub const SMALL_FILE_BYTES: u64 = 18 << 10;
/// Spread of the logarithms of sizes.
const SIGMA: f64 = 1.6;
/// How far above the mean the third quartile of a normal distribution is, in standard deviations.
const THIRD_QUARTILE: f64 = 0.6745;
/// The largest file.
const FILE_BYTES_MAX: f64 = (64 << 20) as f64;

/// What a trace is like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WebSetup {
    /// Bytes of all files together.
    pub unique_bytes: u64,
    /// Exponent of Zipf's law, 0 to below 1.
    pub theta: f64,
    /// Where it is drawn from.
    pub seed: u64,
}

/// An endless trace.
#[derive(Clone, Debug)]
pub struct WebTrace {
    sizes: Vec<u64>,
    /// By rank: where the file lies among the others.
    places: Vec<u32>,
    zipf: Zipf,
    random: SplitMix,
}

impl WebTrace {
    /// Draws the files.
    ///
    /// # Panics
    /// Never, for an exponent in its range; one outside is taken as the nearest in it.
    pub fn new(setup: WebSetup) -> WebTrace {
        let mut random = SplitMix::new(setup.seed, &[]);
        let mean = (SMALL_FILE_BYTES as f64).ln() - THIRD_QUARTILE * SIGMA;
        let (mut sizes, mut all) = (Vec::new(), 0);
        while all < setup.unique_bytes {
            let size = (mean + SIGMA * normal(&mut random)).exp().clamp(1.0, FILE_BYTES_MAX) as u64;
            sizes.push(size);
            all += size;
        }
        let mut places: Vec<u32> = (0..sizes.len() as u32).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, random.below(at as u64 + 1) as usize);
        }
        let zipf = Zipf::new(sizes.len() as u64, setup.theta.clamp(0.0, 0.999));
        WebTrace { sizes, places, zipf, random }
    }

    /// The sizes of the files, most wanted first.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The file that is wanted next, and its size. Its number says where it lies, which its popularity does not.
    pub fn request(&mut self) -> (u64, u64) {
        let rank = self.zipf.rank(unit(&mut self.random));
        (u64::from(self.places[rank as usize]), self.sizes[rank as usize])
    }
}

/// A number from 0 to below 1.
fn unit(random: &mut SplitMix) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// A draw from the normal distribution (Box and Muller).
fn normal(random: &mut SplitMix) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * unit(random)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_of_the_files_are_small_and_few_are_wanted_often() {
        let mut trace = WebTrace::new(WebSetup { unique_bytes: 1 << 30, theta: 0.9, seed: 4 });
        let files = trace.sizes().len();
        let small = trace.sizes().iter().filter(|size| **size <= SMALL_FILE_BYTES).count();
        assert!((0.74..0.76).contains(&(small as f64 / files as f64)), "{small} of {files}");
        let mut most_wanted: Vec<u64> =
            trace.places[..files / 100].iter().map(|place| u64::from(*place)).collect();
        most_wanted.sort_unstable();
        let hits = (0..20_000).filter(|_| most_wanted.binary_search(&trace.request().0).is_ok()).count();
        assert!((8_000..14_000).contains(&hits), "{hits} of 20000 requests are for a hundredth of the files");
    }

    #[test]
    fn the_same_seed_draws_the_same_requests() {
        let setup = WebSetup { unique_bytes: 10 << 20, theta: 0.8, seed: 9 };
        let (mut one, mut other) = (WebTrace::new(setup), WebTrace::new(setup));
        assert!((0..1000).all(|_| one.request() == other.request()));
    }
}
