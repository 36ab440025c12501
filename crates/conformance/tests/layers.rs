//! The structure of the house: a crate knows only crates of the layers below it, and the modules of a crate do not know
//! each other in a circle.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates, from the ground up.
const LAYERS: [&[&str]; 8] = [
    &["core", "sys"],
    &["compute", "device", "placement", "tags"],
    &["flash", "vfs"],
    &["client", "conformance", "flash-pages", "lfs", "tagfs"],
    &["capi", "shim", "sim", "volume"],
    &["server"],
    &["fuse"],
    &["bench", "cli"],
];

/// Crates whose top modules (files or folders) must not know each other in a circle.
const WITHOUT_CIRCLES: [&str; 12] = [
    "cli",
    "compute",
    "conformance",
    "flash-pages",
    "lfs",
    "placement",
    "server",
    "sim",
    "tagfs",
    "tags",
    "vfs",
    "volume",
];

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The stem of a file's name, or the name of a folder.
fn name_of(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The first words of a path, or of each path of a group, that `text` begins with.
fn first_words(text: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = text.strip_prefix('{') else { return vec![word(text)] };
    let mut depth = 0;
    let mut top = String::new();
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            c if depth == 0 => top.push(c),
            _ => {}
        }
    }
    top.split(',').map(|path| word(path.trim())).collect()
}

/// Code without comments and without the tests at its end.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("\n#[cfg(test)]").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n").replace("in crate::", "")
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    entries(path).iter().flat_map(|path| files_below(path)).collect()
}

/// By top module of a crate: the top modules that it names, also by what the crate's root exports of them.
fn modules(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let is_root = |path: &Path| ["lib", "main"].contains(&name_of(path).as_str());
    let (roots, tops): (Vec<PathBuf>, Vec<PathBuf>) =
        entries(src).into_iter().partition(|path| is_root(path));
    let names: BTreeSet<String> = tops.iter().map(|path| name_of(path)).collect();
    let root = code_of(&roots[0]);
    let mut home: BTreeMap<&str, String> = BTreeMap::new();
    for statement in root.split(';').filter_map(|code| code.trim().strip_prefix("pub use ")) {
        let module = first_words(statement).remove(0);
        let words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
        home.extend(words.map(|word| (word, module.clone())));
    }
    let named = |path: &PathBuf| {
        let code: Vec<String> = files_below(path).iter().map(|path| code_of(path)).collect();
        let paths = code.iter().flat_map(|code| code.split("crate::").skip(1)).flat_map(first_words);
        let found = paths.filter_map(|word| {
            if names.contains(&word) { Some(word) } else { home.get(word.as_str()).cloned() }
        });
        found.filter(|found| names.contains(found) && *found != name_of(path)).collect()
    };
    tops.iter().map(|path| (name_of(path), named(path))).collect()
}

#[test]
fn a_crate_knows_only_crates_of_the_layers_below() {
    let layer = |name: &str| {
        let found = LAYERS.iter().position(|names| names.contains(&name));
        found.unwrap_or_else(|| panic!("{name} is in no layer"))
    };
    for path in entries(Path::new(CRATES)) {
        let name = name_of(&path);
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]"));
        for known in section.unwrap_or("").lines().filter_map(|line| line.strip_prefix("weft-")) {
            let known = known.split(['.', ' ', '=']).next().unwrap();
            assert!(layer(known) < layer(&name), "{name} knows {known}, which is not below it");
        }
    }
}

#[test]
fn the_modules_of_a_crate_do_not_know_each_other_in_a_circle() {
    for name in WITHOUT_CIRCLES {
        let mut left = modules(&Path::new(CRATES).join(name).join("src"));
        assert!(left.values().any(|known| !known.is_empty()), "{name}: nothing was read");
        while let Some(free) = left.iter().find(|(_, known)| known.is_empty()).map(|(name, _)| name.clone()) {
            left.remove(&free);
            left.values_mut().for_each(|known| known.retain(|known| *known != free));
        }
        assert!(left.is_empty(), "{name}: in a circle, or above one: {left:?}");
    }
}
