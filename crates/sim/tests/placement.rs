//! The reason for the shipped RocksDB policy: on the model, rules beat suffixes and suffixes beat one stream, for zones
//! of 4 and 8 MiB at 80 and 90 % utilisation, with one compaction at a time and with several.

// The lint spares test functions but not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use weft_placement::recording::{FileAction, Workload};
use weft_placement::{Engine, Mode, ZoneResolver};
use weft_sim::files::lsm::{LsmShape, leveled};
use weft_sim::files::model::{Outcome, Volume, simulate};

fn run(workload: &Workload, volume: Volume, mode: Mode) -> Outcome {
    let engine = Engine::new(mode, None, 1).unwrap();
    simulate(workload, volume, &engine, &mut ZoneResolver::new())
}

fn check_order(compactions: u32) {
    let workload = leveled(LsmShape { compactions, ..LsmShape::default() });
    for zone_bytes in [4 << 20, 8 << 20] {
        for utilisation in [0.8, 0.9] {
            let volume = Volume::for_utilisation(&workload, zone_bytes, utilisation);
            let [off, suffix, rules] =
                [Mode::Off, Mode::Suffix, Mode::Rules].map(|m| run(&workload, volume, m));
            let row = format!(
                "{} MiB, {utilisation}: off {:.3}, suffix {:.3}, rules {:.3}",
                zone_bytes >> 20,
                off.waf(),
                suffix.waf(),
                rules.waf()
            );
            assert!(rules.waf() <= suffix.waf() && suffix.waf() < off.waf(), "{row}");
            assert!(!off.full && !suffix.full && !rules.full, "{row}");
            assert_eq!(
                (off.host_blocks, suffix.host_blocks),
                (rules.host_blocks, rules.host_blocks),
                "{row}"
            );
        }
    }
}

#[test]
fn rules_beat_suffixes_and_suffixes_beat_one_stream_with_one_compaction_at_a_time() {
    check_order(1);
}

#[test]
fn rules_beat_suffixes_and_suffixes_beat_one_stream_with_three_compactions_at_a_time() {
    check_order(3);
}

#[test]
fn the_generated_workload_is_leveled_and_the_same_every_time() {
    let shape = LsmShape { keys: 60_000, level1_bytes: 4 << 20, compactions: 2, ..LsmShape::default() };
    let workload = leveled(shape);
    assert_eq!(workload.events, leveled(shape).events);
    // Each byte goes to the log, to level 0 and then from level to level.
    let taken = 3 * u64::from(shape.keys) * u64::from(shape.entry_bytes);
    let per_byte = workload.written_bytes() as f64 / taken as f64;
    assert!((3.0..10.0).contains(&per_byte), "{per_byte}");
    let mut alive = std::collections::HashSet::new();
    let (mut tables, mut threads) = (0, std::collections::HashSet::new());
    for event in &workload.events {
        match &event.action {
            FileAction::Create { path, opener } => {
                assert!(alive.insert(event.file));
                threads.insert(opener.thread_id);
                tables += usize::from(path.ends_with(b".sst"));
            }
            FileAction::Delete => assert!(alive.remove(&event.file)),
            _ => assert!(alive.contains(&event.file)),
        }
    }
    assert!(tables > 200, "{tables}");
    assert_eq!(threads.len(), 4, "the writer, the flush and two compactions");
    assert!((20..60).contains(&alive.len()), "{} files are left", alive.len());
}

#[test]
fn a_recording_is_played_with_renames_and_overwrites() {
    let text = "O 1 7 main 241 /a.tmp\nW 1 8192\nH 1 2\nC 1\nR /a.tmp /a\nO 2 7 main 241 /a.tmp\nW 2 4096\nC 2\nR /a.tmp /a\nU /a\n";
    let workload = Workload::parse(text, "p").unwrap();
    assert_eq!((workload.written_bytes(), workload.live_peak_bytes()), (12_288, 12_288));
    let deleted: Vec<u32> =
        workload.events.iter().filter_map(|e| (e.action == FileAction::Delete).then_some(e.file)).collect();
    assert_eq!(deleted, [1, 2]);
    let bad = Workload::parse("O 1 7 main 241 /a\nX 1\n", "p").unwrap_err();
    assert!(bad.to_string().starts_with("line 2: 'X 1' is not an event"), "{bad}");
}

#[test]
fn a_volume_that_is_too_small_is_reported_as_full() {
    let workload = leveled(LsmShape { keys: 20_000, overwrites: 0, ..LsmShape::default() });
    let volume = Volume { zones: 4, ..Volume::for_utilisation(&workload, 4 << 20, 0.8) };
    assert!(run(&workload, volume, Mode::Rules).full);
}

#[test]
fn zones_in_which_everything_has_died_are_reset_at_once_and_nothing_is_copied() {
    // Forty files of a zone each, of which two live at a time, on six zones.
    let mut text = String::new();
    for file in 1..=40 {
        text += &format!("O {file} 7 main 241 /{file}.log\nW {file} {}\nC {file}\n", 4 << 20);
        if file > 1 {
            text += &format!("U /{}.log\n", file - 1);
        }
    }
    let workload = Workload::parse(&text, "p").unwrap();
    let volume = Volume { zones: 6, ..Volume::for_utilisation(&workload, 4 << 20, 0.8) };
    let outcome = run(&workload, volume, Mode::Off);
    assert_eq!((outcome.host_blocks, outcome.gc_blocks), (40 * 1024, 0));
    assert_eq!((outcome.resets, outcome.whole_resets), (39, 39));
    assert!(!outcome.full);
}
