//! What the engine promises in each mode, and what each condition of a rule means.

// The lint spares test functions but not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;
use weft_core::{DataClass, Origin, StreamId, Tag};
use weft_placement::{Engine, FileContext, Mode, OpenIntent, Policy, WriteHint};

fn with_policy(text: &str) -> Engine {
    Engine::new(Mode::Rules, Some(Policy::parse(text, "test").unwrap()), 0).unwrap()
}

fn name_of(engine: &Engine, ctx: &FileContext<'_>) -> String {
    engine.stream_name(engine.place(ctx).stream).unwrap().to_string()
}

#[test]
fn mode_off_has_one_stream() {
    let engine = Engine::new(Mode::Off, None, 0).unwrap();
    let tags: Vec<Tag> =
        ["/a.log", "/b.sst", "/c"].map(|p| engine.place(&FileContext::new(p.as_bytes()))).to_vec();
    assert!(tags.iter().all(|t| *t == tags[0]));
    assert_eq!(engine.stream_name(tags[0].stream), Some("off.all"));
    assert_eq!(engine.policy_name(), "off");
}

#[test]
fn mode_random_draws_evenly_and_the_same_for_one_seed() {
    let draw = |seed| {
        let engine = Engine::new(Mode::Random, None, seed).unwrap();
        (0..600u32)
            .map(|n| engine.place(&FileContext::new(format!("/{n}").as_bytes())).stream.0)
            .collect::<Vec<_>>()
    };
    let first = draw(1);
    assert_eq!(first, draw(1));
    assert_ne!(first, draw(2));
    for stream in 1..=6 {
        let count = first.iter().filter(|s| **s == stream).count();
        assert!((60..140).contains(&count), "{count} in {stream}");
    }
}

#[test]
fn mode_suffix_has_a_stream_per_suffix_and_numbers_it_alike_in_every_run() {
    let ids = |order: &[&str]| {
        let engine = Engine::new(Mode::Suffix, None, 0).unwrap();
        let mut ids: Vec<(String, StreamId)> = order
            .iter()
            .map(|p| {
                let id = engine.place(&FileContext::new(p.as_bytes())).stream;
                (engine.stream_name(id).unwrap().to_string(), id)
            })
            .collect();
        ids.sort();
        ids
    };
    let one = ids(&["/1.log", "/2.sst", "/MANIFEST-000001"]);
    assert_eq!(one, ids(&["/MANIFEST-000009", "/7.sst", "/9.log"]));
    let names: Vec<&str> = one.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["suffix.suffix:(none)", "suffix.suffix:log", "suffix.suffix:sst"]);
}

#[test]
fn a_split_stream_stops_at_its_limit_and_takes_the_rest_itself() {
    let engine = with_policy(
        "name = \"p\"\ndefault = \"s\"\n[[stream]]\nname = \"s\"\nsplit = \"directory\"\nsplit_max = 2\n",
    );
    let names = ["/a/1", "/b/1", "/c/1", "/a/2"].map(|p| name_of(&engine, &FileContext::new(p.as_bytes())));
    assert_eq!(names, ["p.s:/a", "p.s:/b", "p.s", "p.s:/a"]);
}

#[test]
fn the_first_rule_that_matches_decides_and_each_condition_must_hold() {
    let engine = with_policy(
        r##"
        name = "p"
        default = "rest"
        stream = [{ name = "path" }, { name = "shape" }, { name = "who" }, { name = "flags" }, { name = "hint" },
                  { name = "big" }, { name = "rest" }]
        rule = [
            { path = "/tmp/*", stream = "path" },
            { shape = "log-#", stream = "shape" },
            { process = ["a*", "b"], thread = "io?", stream = "who" },
            { flags = ["append", "sync"], stream = "flags" },
            { hint = ["long", "extreme"], stream = "hint" },
            { name = "*.img", min_size = "1M", max_size = "2M", stream = "big" },
        ]
        "##,
    );
    let base = FileContext::new(b"/x");
    let of = |ctx: FileContext<'_>| name_of(&engine, &ctx);
    assert_eq!(of(base), "p.rest");
    assert_eq!(of(FileContext::new(b"/tmp/x")), "p.path");
    assert_eq!(of(FileContext::new(b"/tmp/deep/x")), "p.rest", "* does not cross a slash");
    assert_eq!(of(FileContext::new(b"/log-20260101")), "p.shape");
    assert_eq!(of(FileContext::new(b"/log-2026-01")), "p.rest");
    assert_eq!(of(FileContext { process: "apache", thread: "io7", ..base }), "p.who");
    assert_eq!(of(FileContext { process: "apache", thread: "main", ..base }), "p.rest");
    assert_eq!(
        of(FileContext { flags: OpenIntent::APPEND | OpenIntent::SYNC | OpenIntent::WRITE, ..base }),
        "p.flags"
    );
    assert_eq!(of(FileContext { flags: OpenIntent::APPEND, ..base }), "p.rest");
    assert_eq!(of(FileContext { hint: WriteHint::Extreme, ..base }), "p.hint");
    assert_eq!(of(FileContext { hint: WriteHint::Short, ..base }), "p.rest");
    let image = FileContext::new(b"/a.img");
    for (size, stream) in
        [((1 << 20) - 1, "p.rest"), (1 << 20, "p.big"), (2 << 20, "p.big"), ((2 << 20) + 1, "p.rest")]
    {
        assert_eq!(of(FileContext { size, ..image }), stream, "{size}");
    }
}

#[test]
fn a_file_that_the_given_policy_leaves_open_is_placed_by_the_generic_one() {
    let engine =
        with_policy("name = \"p\"\n[[stream]]\nname = \"a\"\n[[rule]]\nname = \"*.a\"\nstream = \"a\"\n");
    assert_eq!(name_of(&engine, &FileContext::new(b"/x.a")), "p.a");
    assert_eq!(name_of(&engine, &FileContext::new(b"/x.log")), "generic.log");
    assert_eq!(engine.policy_name(), "p");
}

#[test]
fn a_tag_carries_owner_class_and_the_death_that_the_policy_expects() {
    let engine = with_policy(
        "name = \"p\"\ndefault = \"a\"\n[[stream]]\nname = \"a\"\nclass = \"log\"\nlifetime = \"1M\"\n",
    );
    let tag = engine.place(&FileContext { uid: 1000, volume_bytes: 5 << 20, ..FileContext::new(b"/x") });
    assert_eq!((tag.owner, tag.class, tag.origin, tag.death), (1000, DataClass::Log, Origin::Host, 6 << 20));
}

#[test]
fn observed_deaths_replace_what_the_policy_expects() {
    let engine = with_policy(
        "name = \"p\"\ndefault = \"a\"\n[[stream]]\nname = \"other\"\n[[stream]]\nname = \"a\"\nlifetime = \"1M\"\n",
    );
    let ctx = FileContext::new(b"/x");
    let tag = engine.place(&ctx);
    for n in 0..20u64 {
        engine.observe_death(&tag, b"/x", 4096, n << 20, (n << 20) + (64 << 20));
    }
    assert_eq!(engine.place(&ctx).death, 64 << 20);
    let info = &engine.streams()[0];
    assert_eq!((info.files, info.lifetime.deaths, info.lifetime.dead_bytes), (2, 20, 20 * 4096));
    // A tag of another engine, whose stream is not known here, is no reason to fail.
    engine.observe_death(&Tag { stream: StreamId(60_000), ..tag }, b"/x", 1, 0, 1);
}

#[test]
fn groups_follow_the_clock_that_the_policy_names() {
    let engine = with_policy(
        r#"
        name = "p"
        stream = [{ name = "b", group = { by = "bytes", window = "16M" } }, { name = "t", group = { by = "time", window = "10s" } }]
        rule = [{ name = "*.b", stream = "b" }, { name = "*.t", stream = "t" }]
        "#,
    );
    let group = |path: &[u8], volume_bytes, seconds| {
        let now = Duration::from_secs(seconds);
        engine.place(&FileContext { volume_bytes, now, ..FileContext::new(path) }).group
    };
    assert_eq!(group(b"/1.b", 0, 0), group(b"/2.b", (16 << 20) - 1, 99));
    assert_ne!(group(b"/1.b", 0, 0), group(b"/2.b", 16 << 20, 0));
    assert_eq!(group(b"/1.t", 0, 0), group(b"/2.t", 1 << 40, 9));
    assert_ne!(group(b"/1.t", 0, 0), group(b"/2.t", 0, 10));
}

#[test]
fn explaining_a_file_names_policy_rule_and_reason_and_changes_nothing() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    let ctx =
        FileContext { process: "db_bench", thread: "rocksdb:high", ..FileContext::new(b"/db/000009.sst") };
    let told = engine.explain(&ctx).to_string();
    assert!(told.contains("policy    rocksdb: it applies to process db_bench"), "{told}");
    assert!(told.contains("name *.sst or *.ldb, thread rocksdb:high*"), "{told}");
    assert!(told.contains("stream    rocksdb.flush (number "), "{told}");
    assert!(engine.streams().is_empty());
    let off = Engine::new(Mode::Off, None, 0).unwrap().explain(&ctx).to_string();
    assert!(off.contains("policy    off: mode off has no policy"), "{off}");
    let rest =
        engine.explain(&FileContext { process: "db_bench", ..FileContext::new(b"/notes.txt") }).to_string();
    assert!(rest.contains("policy    generic: no other policy has a rule for the file"), "{rest}");
    assert!(rest.contains("rule      none: no rule matches; this is the policy's default stream"), "{rest}");
}

#[test]
fn explaining_a_file_takes_no_group_from_others() {
    let engine = Engine::new(Mode::Rules, None, 0).unwrap();
    let of =
        |thread_id| FileContext { process: "db_bench", thread_id, ..FileContext::new(b"/db/000010.sst") };
    let groups: Vec<_> = (1..=4).map(|thread| engine.place(&of(thread)).group).collect();
    assert_eq!(engine.explain(&of(5)).group, groups[0], "the one unused for longest would go");
    assert_eq!((1..=4).map(|thread| engine.place(&of(thread)).group).collect::<Vec<_>>(), groups);
}

#[test]
fn threads_that_place_at_once_agree_on_the_streams() {
    let engine = Engine::new(Mode::Suffix, None, 0).unwrap();
    let ids: Vec<Vec<u16>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..40u32)
                        .map(|n| engine.place(&FileContext::new(format!("/f.s{n}x").as_bytes())).stream.0)
                        .collect()
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|i| *i == ids[0]));
    let mut distinct = ids[0].clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 40);
}

#[test]
fn every_rule_that_was_tried_says_what_came_of_it() {
    let text = "name = \"p\"\n[[stream]]\nname = \"a\"\n[[stream]]\nname = \"b\"\n\
        [[rule]]\nname = \"*.log\"\nthread = \"w*\"\nstream = \"a\"\n\
        [[rule]]\npath = \"/db/*\"\nstream = \"b\"\n\
        [[rule]]\nname = \"*\"\nmax_size = \"1M\"\nstream = \"a\"\n\
        [[rule]]\nhint = [\"long\"]\nstream = \"a\"\n";
    let engine = Engine::new(Mode::Rules, Some(Policy::parse(text, "p.toml").unwrap()), 0).unwrap();
    let ctx = FileContext { thread: "main", ..FileContext::new(b"/db/1.log") };
    let told = engine.explain(&ctx).considered;
    let verdicts: Vec<(usize, String)> = told.iter().map(|c| (c.line, c.verdict.to_string())).collect();
    let expected = [
        (6, "the thread is main"),
        (10, "decides"),
        (13, "would match, but line 10 comes first"),
        (17, "the hint is not-set"),
    ];
    let expected: Vec<(usize, String)> =
        expected.iter().map(|(line, text)| (*line, text.to_string())).collect();
    assert_eq!(verdicts, expected);
    // A file that the policy leaves to the generic one shows both policies' rules.
    let other = engine.explain(&FileContext::new(b"/elsewhere/big.bin")).considered;
    assert!(other.iter().any(|c| c.policy == "p"), "{other:?}");
    let large = FileContext { size: 2 << 20, ..FileContext::new(b"/x/y.bin") };
    let told = engine.explain(&large);
    assert_eq!(told.considered[2].verdict.to_string(), "the size is 2.00 MiB");
    assert_eq!(told.considered[..4].iter().map(|c| c.policy.as_str()).collect::<Vec<_>>(), ["p"; 4]);
    assert!(told.considered[4..].iter().all(|c| c.policy == "generic") && told.considered.len() > 4);
    assert_eq!(Engine::new(Mode::Off, None, 0).unwrap().explain(&ctx).considered, []);
}
