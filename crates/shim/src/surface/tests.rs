//! The table against this system's libc and against the documentation.

#![allow(clippy::print_stderr)]

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

/// Functions that are not about a program's files.
const REST: &str = include_str!("rest.txt");
/// Set to write the documentation instead of comparing it.
const WRITE: &str = "WEFT_WRITE_DOCS";

/// Functions of liburing that came after version 2.3.
const NEWER: &[&str] = &["io_uring_queue_init_mem", "io_uring_queue_init_try_nosqarr"];

fn exported_by_libc() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("/libc.so.6"));
    exported_by(libc.unwrap())
}

/// Names of another library, when this system has it.
fn exported_by_other(library: &str) -> Option<BTreeSet<String>> {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    // The compiler prints the bare name when it finds none.
    if path.contains('/') {
        Some(exported_by(path.trim()))
    } else {
        eprintln!("skipped: no {library} on this system");
        None
    }
}

/// Names that programs can link against: versions that libc calls private are left out.
fn exported_by(library: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? != "A").then(|| words.next()).flatten()
    });
    symbols
        .filter(|name| !name.contains("GLIBC_PRIVATE"))
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect()
}

fn rest() -> impl Iterator<Item = &'static str> {
    REST.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace)
}

fn is_rest(name: &str) -> bool {
    rest().any(|word| match word.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == word,
    })
}

fn names_of(library: Option<&str>) -> impl Iterator<Item = &'static str> {
    let areas = TABLE.iter().filter(move |area| area.library == library);
    areas.flat_map(|area| area.groups).flat_map(|group| group.names.iter().copied())
}

fn all_names() -> Vec<&'static str> {
    TABLE.iter().flat_map(|area| area.groups).flat_map(|group| group.names.iter().copied()).collect()
}

#[test]
fn every_function_of_libc_is_in_the_table_or_not_about_files() {
    let table: BTreeSet<_> = all_names().into_iter().collect();
    let exported = exported_by_libc();
    assert!(exported.len() > 2000, "{} names", exported.len());
    let unknown: Vec<_> =
        exported.iter().filter(|name| !table.contains(name.as_str()) && !is_rest(name)).collect();
    assert!(unknown.is_empty(), "neither in surface/table.rs nor in surface/rest.txt: {unknown:?}");
}

#[test]
fn no_name_stands_twice() {
    let mut seen = BTreeSet::new();
    for name in all_names() {
        assert!(seen.insert(name), "{name} is in the table twice");
    }
    for word in rest() {
        assert!(!seen.contains(word), "{word} is both in the table and in the rest");
    }
}

#[test]
fn every_name_is_one_that_libc_has() {
    // A misspelt name would be a hook that nobody calls.
    let exported = exported_by_libc();
    let names: Vec<_> = names_of(None).collect();
    let missing: Vec<_> = names.into_iter().filter(|name| !exported.contains(*name)).collect();
    assert!(missing.is_empty(), "not exported by this libc: {missing:?}");
}

#[test]
fn the_names_of_other_libraries_are_theirs_and_all() {
    for library in TABLE.iter().filter_map(|area| area.library) {
        let Some(exported) = exported_by_other(library) else { continue };
        let names: BTreeSet<_> = names_of(Some(library)).collect();
        let missing: Vec<_> =
            names.iter().filter(|name| !exported.contains(**name) && !NEWER.contains(name)).collect();
        assert!(missing.is_empty(), "not exported by {library}: {missing:?}");
        let unknown: Vec<_> = exported.iter().filter(|name| !names.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{library} has what is not in surface/table.rs: {unknown:?}");
    }
}

fn errno_name(errno: i32) -> &'static str {
    let names = BTreeMap::from([
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ENXIO, "ENXIO"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EPERM, "EPERM"),
    ]);
    names[&errno]
}

/// The table as a page of the documentation.
fn page() -> String {
    let mut page = String::from(
        "# Functions of libc\n\nThis page lists every function of libc that accesses files, and what the [shim](shim.md) does when the file is \
         on a volume: it serves the call, refuses it, or leaves it to libc. For all other files, libc's own function runs. A test \
         generates this page from `crates/shim/src/surface/table.rs`, which also defines the exports of the shim, and compares the table with \
         the exports of libc. The last sections list libaio and liburing, which make system calls without libc.\n",
    );
    let count = |wanted: fn(&Treatment) -> bool| -> usize {
        let groups = TABLE.iter().flat_map(|area| area.groups);
        groups.filter(|group| wanted(&group.treatment)).map(|group| group.names.len()).sum()
    };
    let served = count(|treatment| *treatment == Treatment::Served);
    let refused = count(|treatment| matches!(treatment, Treatment::Refused(_)));
    let passing = count(|treatment| matches!(treatment, Treatment::Passes(_)));
    writeln!(page, "\nThe shim serves {served} functions, refuses {refused}, and leaves {passing} to libc.")
        .unwrap();
    for area in TABLE {
        let library = area.library.map_or(String::new(), |library| format!(" ({library})"));
        writeln!(page, "\n## {}{library}\n\n| names | on a volume |\n|---|---|", area.title).unwrap();
        for group in area.groups.iter().filter(|group| !group.names.is_empty()) {
            let names: Vec<_> = group.names.iter().map(|name| format!("`{name}`")).collect();
            let treatment = match group.treatment {
                Treatment::Served => "served".to_owned(),
                Treatment::Refused(refusal) => {
                    format!("refused: `{}`, {}", errno_name(refusal.errno()), refusal.text())
                }
                Treatment::Passes(why) => format!(
                    "{}: {why}",
                    if area.library.is_some() { "the library's own" } else { "libc's own" }
                ),
            };
            writeln!(page, "| {} | {treatment} |", names.join(", ")).unwrap();
        }
    }
    page
}

#[test]
fn the_documentation_tells_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/libc.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/libc.md differs from the table; {WRITE}=1 cargo test -p weft-shim rewrites it"
    );
}
