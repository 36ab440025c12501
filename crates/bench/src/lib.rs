//! Side-by-side benchmarks with peers.
