//! The error of a wrong policy names the file, the line, the value and the remedy.

// The lint spares test functions but not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use weft_placement::{Policy, PolicyError};

const HEAD: &str = "name = \"p\"\n[[stream]]\nname = \"a\"\n";

/// The error without its column, which has a test of its own.
fn error(text: &str) -> String {
    PolicyError { column: 0, ..Policy::parse(text, "my.toml").expect_err(text) }.to_string()
}

/// The error of a policy whose first stream "a" is followed by this text, which begins in line 4.
fn error_after_stream(text: &str) -> String {
    error(&format!("{HEAD}{text}"))
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_known_ones() {
    let told = error_after_stream("[[rule]]\nnmae = \"*.log\"\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:5: unknown field `nmae`, expected one of `path`, `name`"), "{told}");
    let told = error("name = \"p\"\ncolour = 1\n");
    assert!(told.starts_with("my.toml:2: unknown field `colour`"), "{told}");
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    assert!(
        error("name = \"p\"\nstream = [\n").starts_with("my.toml:"),
        "{}",
        error("name = \"p\"\nstream = [\n")
    );
    let told = error("");
    assert!(told.contains("missing field `name`"), "{told}");
}

#[test]
fn a_value_of_the_wrong_kind_is_told_with_its_line() {
    let told = error_after_stream("[[rule]]\nname = 5\nstream = \"a\"\n");
    assert!(
        told.starts_with("my.toml:5: ") && told.contains("a pattern in quotes or a list of them"),
        "{told}"
    );
    let told = error_after_stream("class = \"wal\"\n");
    assert!(told.starts_with("my.toml:4: unknown variant `wal`, expected one of"), "{told}");
    let told = error_after_stream("[[rule]]\nflags = [\"apend\"]\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:5: unknown variant `apend`"), "{told}");
}

#[test]
fn a_bad_pattern_is_told_with_its_line_even_within_a_list() {
    let told = error_after_stream("[[rule]]\nname = [\n  \"*.log\",\n  \"[a\",\n]\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:7: name = \"[a\" is not a pattern: "), "{told}");
    assert!(told.ends_with("use *, ?, [abc], {a,b} and, in paths, **"), "{told}");
}

#[test]
fn an_unknown_stream_is_told_with_those_that_there_are() {
    let told = error_after_stream("[[rule]]\nname = \"*\"\nstream = \"b\"\n");
    assert_eq!(told, "my.toml:6: there is no stream \"b\"; define it with [[stream]], or use one of: a");
    let told = error(&format!("default = \"c\"\n{HEAD}"));
    assert!(told.starts_with("my.toml:1: there is no stream \"c\""), "{told}");
}

#[test]
fn streams_must_be_there_named_and_distinct() {
    assert_eq!(
        error("name = \"p\"\n"),
        "my.toml: the policy has no streams; add at least one [[stream]] with a name"
    );
    let told = error_after_stream("[[stream]]\nname = \"a\"\n");
    assert_eq!(told, "my.toml:5: stream \"a\" is defined twice; rename one of them");
    let told = error_after_stream("[[stream]]\nname = \"a b\"\n");
    assert_eq!(told, "my.toml:5: \"a b\" is not a name; use 1 to 32 letters, digits, '-' and '_'");
}

#[test]
fn groups_windows_lifetimes_and_numbers_are_checked() {
    let cases = [
        (
            "lifetime = \"forever\"",
            "lifetime = \"forever\" is none; use short, medium, long, extreme, unknown,",
        ),
        ("lifetime = \"0\"", "lifetime = \"0\" is none;"),
        ("group = { by = \"bytes\" }", "group = { by = \"bytes\" }: add window = \"16M\""),
        ("group = { by = \"time\" }", "group = { by = \"time\" }: add window = \"10s\""),
        ("group = { by = \"none\", window = \"1M\" }", "group = { by = \"none\" }: remove the window"),
        (
            "group = { by = \"bytes\", window = \"10s\" }",
            "window = \"10s\" does not go with by = \"bytes\"; use a size",
        ),
        (
            "group = { by = \"time\", window = \"16M\" }",
            "window = \"16M\" does not go with by = \"time\"; use a time",
        ),
        (
            "group = { by = \"thread\", window = \"x\" }",
            "window = \"x\" does not go with by = \"thread\"; use a size such as",
        ),
        (
            "group = { by = \"bytes\", window = \"1M\", slots = 2 }",
            "group = { by = \"bytes\" }: slots goes with",
        ),
        ("group = { by = \"file\", slots = 0 }", "slots = 0 is out of range; use 1 to 64"),
        ("group = { by = \"file\", slots = 65 }", "slots = 65 is out of range; use 1 to 64"),
        ("split_max = 4", "split_max needs split = "),
        ("split = \"suffix\"\nsplit_max = 0", "split_max = 0 is out of range; use 1 to 256"),
    ];
    for (text, expected) in cases {
        let told = error_after_stream(text);
        let line = 3 + text.lines().count();
        assert!(told.starts_with(&format!("my.toml:{line}: {expected}")), "{text}\n{told}");
    }
}

#[test]
fn sizes_of_rules_are_checked() {
    let told = error_after_stream("[[rule]]\nmin_size = \"1X\"\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:5: min_size: '1X' is not a size; write a number"), "{told}");
    let told = error_after_stream("[[rule]]\nmin_size = \"2M\"\nmax_size = \"1M\"\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:4: min_size = 2097152 is above max_size = 1048576"), "{told}");
}

#[test]
fn a_rule_that_is_never_reached_is_told() {
    let told = error_after_stream("[[rule]]\nstream = \"a\"\n[[rule]]\nname = \"*.log\"\nstream = \"a\"\n");
    assert!(told.starts_with("my.toml:6: this rule is never reached, because the rule in line 4"), "{told}");
}

#[test]
fn the_example_in_the_documentation_is_a_policy() {
    let page = include_str!("../../../docs/formats/policy-toml.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let policy = Policy::parse(example, "the documentation").unwrap();
    assert_eq!((policy.name(), policy.streams().len(), policy.rules().count()), ("kafka", 3, 2));
    assert_eq!(policy.default_stream().map(|s| s.name.as_str()), Some("meta"));
}

#[test]
fn the_column_counts_characters_up_to_what_is_wrong() {
    let place = |text: &str| {
        let error = Policy::parse(text, "my.toml").expect_err(text);
        (error.line, error.column, error.to_string())
    };
    let place_of = |text: &str| {
        let (line, column, _) = place(text);
        (line, column)
    };
    let rule = |text: &str| format!("{HEAD}[[rule]]\n{text}\n");
    let (line, column, told) = place(&rule("name = [\"*.é\", \"[a\"]\nstream = \"a\""));
    assert_eq!((line, column), (5, 16));
    assert!(told.starts_with("my.toml:5:16: name = \"[a\""), "{told}");
    assert_eq!(place_of(&rule("name = \"*\"\nstream =   \"b\"")), (6, 12));
    assert_eq!(place_of(&rule("nmae = \"*\"\nstream = \"a\"")), (5, 1));
    assert_eq!(place_of("name = \"p\"\n"), (0, 0));
}
