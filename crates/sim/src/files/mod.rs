//! Simulates placement policies on models, before they run on a device.
//!
//! A [`Workload`](weft_placement::recording::Workload) is a list of file events: a [recording](weft_placement::recording),
//! or what [`lsm`] makes, which behaves like leveled RocksDB. [`model`] plays it against an engine, a resolver and a model of
//! zones with a greedy cleaner, and tells the write amplification; extents, journals and timing are left out: what is compared
//! is where data goes. [`core`] plays it through the file core on a device in memory. Deterministic: the same events, engine
//! and volume give the same numbers on every machine.

pub mod core;
pub mod lsm;
pub mod model;

/// Write amplification by cleaning, of amounts in the same unit.
fn waf(host: u64, cleaned: u64) -> f64 {
    if host == 0 { 1.0 } else { (host + cleaned) as f64 / host as f64 }
}
