//! Random operations against an oracle: nodes, edges and s-nodes, transactions with savepoints that are undone, aborts,
//! checkpoints, closes and crashes. `WEFT_CAMPAIGN=1` runs five million operations.

#![allow(clippy::unwrap_used)]

#[path = "support/oracle.rs"]
mod oracle;

use oracle::{run, run_with_snapshots};
use std::sync::Arc;
use weft_tags::{FileStore, MemoryStore, PageStore, ReadPath};

fn on_mapped_file(run: impl FnOnce(Arc<dyn PageStore>)) {
    let dir = tempfile::tempdir().unwrap();
    run(Arc::new(FileStore::create(&dir.path().join("store"), ReadPath::Mapped).unwrap()));
}

#[test]
fn snapshots_see_what_was_committed_when_they_began_whatever_comes_after() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, operations) = if campaign { (40, 25_000) } else { (6, 5_000) };
    for seed in 0..seeds {
        run_with_snapshots(seed, operations, Arc::new(MemoryStore::new()));
        on_mapped_file(|medium| run_with_snapshots(seed, operations / 4, medium));
    }
}

#[test]
fn random_transactions_do_what_the_oracle_does() {
    let campaign = std::env::var_os("WEFT_CAMPAIGN").is_some();
    let (seeds, operations) = if campaign { (50, 100_000) } else { (6, 8_000) };
    for seed in 0..seeds {
        run(seed, operations, Arc::new(MemoryStore::new()));
        on_mapped_file(|medium| run(seed, operations / 4, medium));
    }
}
