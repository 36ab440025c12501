//! The tutorial of the tag store, followed to the letter: each block is done in its place, in one shell, without the network.

use crate::volume::Bench;
use std::path::Path;
use std::process::Command;

/// What a reader does, as a script: text for a file that the line before it names, and commands.
fn script(tutorial: &str) -> String {
    let mut script = String::from("set -eux\n");
    let (mut blocks, mut before) = (0, "");
    let mut lines = tutorial.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            before = if line.is_empty() { before } else { line };
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        blocks += 1;
        match language {
            "sh" => script += &format!("{block}\n"),
            "rust" => {
                let name = before.strip_suffix("`:").and_then(|text| text.rsplit_once('`'));
                let (_, name) = name.unwrap_or_else(|| panic!("no file is named before this block: {block}"));
                script += &format!("mkdir -p $(dirname {name})\ncat > {name} <<'BLOCK'\n{block}\nBLOCK\n");
            }
            other => panic!("what is a reader to do with a block of '{other}'?"),
        }
    }
    assert!(blocks >= 5, "{blocks} blocks were found");
    script
}

#[test]
fn whoever_follows_the_tutorial_of_the_tag_store_gets_what_it_says() {
    let bench = Bench::empty();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let tutorial = sources.join("docs/how-to/build-a-persistent-structure.md");
    let tutorial = std::fs::read_to_string(tutorial).unwrap();
    let weft = assert_cmd::cargo::cargo_bin("weft");
    let target = weft.parent().unwrap();
    let path = format!("{}:{}", target.display(), std::env::var("PATH").unwrap());
    let followed = Command::new("bash")
        .args(["-c", &script(&tutorial)])
        .current_dir(bench.dir())
        .env("WEFT", sources)
        .env("PATH", path)
        .env("CARGO_NET_OFFLINE", "true")
        // What it needs is compiled once, not by each run.
        .env("CARGO_TARGET_DIR", target.join("tutorial"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.success(), "{said}\n{}", String::from_utf8_lossy(&followed.stdout));
    assert!(String::from_utf8_lossy(&followed.stdout).contains("no problems"));
    for made in ["people.tags", "people.dot", "copy.tags"] {
        assert!(bench.path("address-book").join(made).exists(), "{made}");
    }
}
