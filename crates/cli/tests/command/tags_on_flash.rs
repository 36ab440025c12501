//! Tag stores on modelled flash, from the command line.

use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

/// A device with pages of 4 KiB.
fn with_device() -> Bench {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "512M", "nand.img"]).success();
    bench
}

#[test]
fn a_store_on_either_level_is_made_filled_checked_and_copied() {
    for level in ["policy", "function"] {
        let bench = with_device();
        let store = format!("{level}:nand.img");
        bench.weft(&["tags", "create", "--size", "200M", &store]).success();
        bench.weft(&["kv", "put", "--create", &store, "apple", "red"]).success();
        bench.weft(&["kv", "put", &store, "plum", "blue"]).success();
        assert_eq!(bench.stdout(&["kv", "get", &store, "apple"]), "red");
        bench.weft(&["tags", "check", &store]).success().stdout(contains("no problems"));
        assert!(bench.json(&["tags", "stat", "--json", &store])["file_bytes"].as_u64().unwrap() > 64 << 20);
        assert_eq!(bench.json(&["flash", "grants", "--json", "nand.img"])["grants"][0]["name"], "tags");
        bench.weft(&["tags", "backup", &store, "copy.tags"]).success();
        assert_eq!(bench.stdout(&["kv", "get", "copy.tags", "plum"]), "blue");
        bench.weft(&["tags", "salvage", &store, "salvaged.tags"]).success();
        assert_eq!(bench.stdout(&["kv", "count", "salvaged.tags"]), "2\n");
        // Two stores on one device.
        let other = format!("{store}#other");
        bench.weft(&["kv", "put", "--create", &other, "pear", "green"]).success();
        assert_eq!(bench.stdout(&["kv", "scan", &other]), "pear\tgreen\n");
        assert_eq!(bench.stdout(&["kv", "count", &store]), "2\n");
    }
}

#[test]
fn what_cannot_be_on_flash_is_refused_with_what_helps() {
    let bench = with_device();
    let refused = |args: &[&str], what: &str, helps: &str| {
        bench.weft(args).code(predicates::ord::ne(0)).stderr(contains(what).and(contains(helps)));
    };
    refused(&["kv", "get", "policy:nand.img", "a"], "no monitor is on this device", "weft tags create");
    refused(&["tags", "create", "policy:none.img"], "none.img", "weft flash create");
    bench.weft(&["tags", "create", "policy:nand.img"]).success();
    refused(&["tags", "create", "policy:nand.img"], "a grant named 'tags' exists", "--force");
    refused(&["kv", "get", "function:nand.img", "a"], "holds data of the policy level", "function level");
    refused(&["kv", "get", "policy:nand.img#more", "a"], "no grant is named 'more'", "weft flash grants");
    refused(&["tags", "backup", "policy:nand.img", "policy:copy.img"], "on flash", "name a file");
    refused(
        &["tags", "create", "--op", "9", "a.tags"],
        "--size and --op are for a store on flash",
        "leave them out",
    );
    bench.weft(&["tags", "create", "--force", "function:nand.img"]).success();
    bench.weft(&["kv", "count", "function:nand.img"]).code(predicates::ord::ne(0));
    bench.weft(&["flash", "create", "--size", "1G", "large.img"]).success();
    refused(&["tags", "create", "policy:large.img"], "pages of 32768 bytes", "--preset bbssd");
}

#[test]
fn a_volume_on_either_level_is_made_written_by_a_program_checked_and_copied() {
    for level in ["policy", "function"] {
        let bench = with_device();
        let volume = format!("{level}:nand.img#files");
        bench.weft(&["format", "--core", "tagfs", "--size", "150M", &volume]).success();
        bench.file("a", "a line\n");
        bench.weft(&["cp", "a", &format!("{volume}:/a")]).success();
        bench
            .weft(&["run", "--quiet", "--volume", &volume, "--", "sh", "-c", "cat /weft/a /weft/a >/weft/b"])
            .success();
        assert_eq!(bench.stdout(&["cat", &format!("{volume}:/b")]), "a line\na line\n");
        bench.weft(&["fsck", &volume]).success().stdout(contains("2 files").and(contains("no problems")));
        // A second volume on the same device has other files, and another server.
        let other = format!("{level}:nand.img#other");
        bench.weft(&["format", "--core", "tagfs", "--size", "60M", &other]).success();
        bench.weft(&["cp", &format!("{volume}:/b"), "copy"]).success();
        assert_eq!(bench.stdout(&["ls", &format!("{other}:/")]), "");
        assert_eq!(std::fs::read_to_string(bench.path("copy")).unwrap(), "a line\na line\n");
    }
}

#[test]
fn a_volume_on_flash_that_cannot_be_is_refused_with_what_helps() {
    let bench = with_device();
    let refused = |args: &[&str], what: &str, helps: &str| {
        bench.weft(args).code(predicates::ord::ne(0)).stderr(contains(what).and(contains(helps)));
    };
    refused(&["format", "policy:nand.img"], "has the core tagfs", "give --core tagfs");
    refused(
        &["format", "--core", "tagfs", "--preset", "slc", "policy:nand.img"],
        "options of volumes with zones",
        "leave them out",
    );
    refused(&["ls", "policy:nand.img:/"], "no monitor is on this device", "weft format --core tagfs");
    refused(&["ls", "policy:none.img:/"], "none.img", "weft flash create");
    bench.weft(&["format", "--core", "tagfs", "policy:nand.img"]).success();
    refused(&["format", "--core", "tagfs", "policy:nand.img"], "a grant named 'tags' exists", "--force");
    refused(&["ls", "function:nand.img:/"], "holds data of the policy level", "function level");
    bench.weft(&["tags", "create", "--force", "policy:nand.img"]).success();
    refused(&["ls", "policy:nand.img:/"], "without a file system", "weft format --core tagfs");
}
