//! What code an input reached.
//!
//! `-C instrument-coverage` gives each region of the program a counter, all of them in one section whose ends the linker
//! names. They are looked at after each input and set to zero. How often a region was reached counts by powers of two, as
//! in AFL.

/// The counters of this program; none when it has none.
#[cfg(weft_coverage)]
fn counters() -> &'static [std::sync::atomic::AtomicU64] {
    use std::sync::atomic::AtomicU64;
    unsafe extern "C" {
        #[link_name = "__start___llvm_prf_cnts"]
        static START: AtomicU64;
        #[link_name = "__stop___llvm_prf_cnts"]
        static STOP: AtomicU64;
    }
    let (start, stop) = (&raw const START, &raw const STOP);
    // SAFETY: the linker puts the two at the ends of the section, which holds nothing but counters of 64 bits; the program
    // increments them without care for other threads, and an increment that is lost here is lost.
    unsafe { std::slice::from_raw_parts(start, stop.offset_from(start) as usize) }
}

/// The counters of this program; none when it has none.
#[cfg(not(weft_coverage))]
fn counters() -> &'static [std::sync::atomic::AtomicU64] {
    &[]
}

/// What has been reached so far.
#[derive(Default)]
pub struct Reached {
    seen: Vec<u8>,
    /// Regions that some input has reached.
    pub regions: usize,
}

impl Reached {
    /// Whether the program tells what it reaches.
    pub fn is_told() -> bool {
        !counters().is_empty()
    }

    /// Forgets what was counted since the last look.
    pub fn begin() {
        for counter in counters() {
            counter.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Adds what was counted since [`begin`](Self::begin); whether any of it is new.
    pub fn add(&mut self) -> bool {
        let counters = counters();
        self.seen.resize(counters.len(), 0);
        let mut new = false;
        for (counter, seen) in counters.iter().zip(&mut self.seen) {
            let count = counter.load(std::sync::atomic::Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            // 1, 2, 3, 4.., 8.., 16.., 32.., 128..
            let class = match count {
                1..4 => count - 1,
                4..8 => 3,
                8..16 => 4,
                16..32 => 5,
                32..128 => 6,
                _ => 7,
            };
            if *seen == 0 {
                self.regions += 1;
            }
            if *seen & 1 << class == 0 {
                *seen |= 1 << class;
                new = true;
            }
        }
        new
    }
}
