//! Random operations do to this core what they do to the oracle, across remounts. `WEFT_CASES=N` tries N sequences instead of 200,
//! `WEFT_SEED=N` others. `WEFT_CAMPAIGN=1` tries more than a million operations.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::cell::RefCell;
use std::sync::Arc;
use weft_conformance::model::{Effort, a_core_does_what_the_oracle_does};
use weft_tagfs::{FormatOptions, Layout, MountOptions, TagFs};
use weft_tags::MemoryStore;
use weft_vfs::FileSystem;

/// Sequences of the campaign. They have up to 200 operations each.
const CAMPAIGN_CASES: u64 = 11_000;

#[test]
fn the_core_does_what_the_oracle_does_across_remounts() {
    agrees(Layout::Whole, CAMPAIGN_CASES);
}

#[test]
fn so_it_does_with_each_attribute_in_a_node_of_its_own() {
    agrees(Layout::Fine, CAMPAIGN_CASES / 10);
}

fn agrees(layout: Layout, campaign_cases: u64) {
    let medium: RefCell<Arc<MemoryStore>> = RefCell::default();
    let options = || MountOptions { cache_bytes: 16 << 20, ..MountOptions::default() };
    let make = || -> Box<dyn FileSystem> {
        let fresh = Arc::new(MemoryStore::new());
        let format = FormatOptions { capacity_bytes: 128 << 20, layout, ..FormatOptions::default() };
        TagFs::format(Box::new(fresh.clone()), &format).unwrap();
        *medium.borrow_mut() = fresh.clone();
        Box::new(TagFs::mount(Box::new(fresh), options()).unwrap())
    };
    // The core has been synced and is not closed, so nothing may be missing.
    let remount = |old: Box<dyn FileSystem>| -> Box<dyn FileSystem> {
        drop(old);
        let report = TagFs::check(Box::new(medium.borrow().clone())).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
        Box::new(TagFs::mount(Box::new(medium.borrow().clone()), options()).unwrap())
    };
    let number = |name| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let is_campaign = std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0");
    let cases = number("WEFT_CASES").unwrap_or(if is_campaign { campaign_cases } else { 200 }) as u32;
    let seed = number("WEFT_SEED").unwrap_or(3u64);
    let ops = a_core_does_what_the_oracle_does(&make, &remount, Effort { cases, ops_max: 200, seed });
    println!("{cases} sequences, {ops} operations");
    assert!(!is_campaign || ops >= 90 * campaign_cases, "{ops} operations");
}
