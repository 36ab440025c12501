//! A short slice of each target's search, the same each time, and every input that was a finding once. `suites/fuzz.sh`
//! searches for longer, led by coverage.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::time::Duration;

fn seconds() -> u64 {
    std::env::var("WEFT_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(3)
}

/// Another one searches elsewhere.
fn seed() -> u64 {
    std::env::var("WEFT_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// One after the other: a panic is a finding of the target that runs.
#[test]
fn no_target_has_a_finding_in_a_short_search() {
    for name in weft_fuzz::names() {
        let mut target = weft_fuzz::by_name(name).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(name);
        let mut files: Vec<_> =
            std::fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path()).collect();
        files.sort();
        for file in files {
            let input = std::fs::read(&file).unwrap();
            assert!(weft_fuzz::replay(&mut *target, &input), "{name}: {} is a finding again", file.display());
        }
        let outcome = weft_fuzz::drive(&mut *target, Duration::from_secs(seconds()), seed());
        println!("{name}: {outcome:?}");
        assert!(outcome.finding.is_none(), "{name}: {outcome:?}");
        assert!(outcome.tried > 5, "{name}: {outcome:?}");
    }
}
