//! Files that commands write on the host: none of them is an image of weft.

use crate::server::Serving;
use crate::volume::Bench;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

/// Runs a command that must refuse its output, and leave the image as it is.
fn refused(bench: &Bench, image: &str, kind: &str, code: i32, args: &[&str]) {
    let before = std::fs::read(bench.path(image)).unwrap();
    let told = contains(format!("is {kind}")).and(contains("remove it first"));
    bench.weft(args).code(code).stderr(told);
    assert!(std::fs::read(bench.path(image)).unwrap() == before, "{args:?} changed {image}");
}

#[test]
fn no_option_for_an_output_replaces_a_volume_a_device_or_a_store() {
    let bench = Bench::with_volume();
    bench.weft(&["format", "-q", "--size", "64M", "--zone-size", "1M", "other.img"]).success();
    bench.weft(&["tags", "create", "store.tags"]).success();
    bench.weft(&["flash", "create", "--size", "256M", "d.svg"]).success();
    std::fs::hard_link(bench.path("vol.img"), bench.path("again")).unwrap();
    std::os::unix::fs::symlink("vol.img", bench.path("link")).unwrap();
    let run = |image: &str, kind: &str, option: &str, file: &str| {
        let args = ["run", "-q", "--volume", "vol.img", option, file, "--", "touch", "ran"];
        refused(&bench, image, kind, 125, &args);
        assert!(!bench.path("ran").exists(), "the program ran");
    };
    for option in ["--report", "--record"] {
        for file in ["vol.img", "./again", "link"] {
            run("vol.img", "a weft volume", option, file);
        }
        run("other.img", "a weft volume", option, "other.img");
        run("store.tags", "a tag store", option, "store.tags");
        run("d.svg", "a flash device of weft", option, "d.svg");
    }
    let wear = ["flash", "wear", "--picture", "d.svg", "d.svg"];
    refused(&bench, "d.svg", "a flash device of weft", 1, &wear);
    let compare = ["compare", "--size", "64M", "--json", "vol.img", "--", "touch", "ran"];
    refused(&bench, "vol.img", "a weft volume", 1, &compare);
    refused(&bench, "vol.img", "a weft volume", 125, &["lab", "--log", "vol.img", "--", "true"]);
    // What the program itself makes there stays, too.
    let made =
        ["run", "-q", "--volume", "vol.img", "--report", "new.img", "--", "cp", "other.img", "new.img"];
    bench.weft(&made).code(125).stderr(contains("new.img is a weft volume"));
    bench.weft(&["fsck", "new.img"]).success();
}

#[test]
fn an_image_of_which_the_beginning_is_damaged_is_not_replaced_by_a_report_on_it() {
    let bench = Bench::with_volume();
    let file = std::fs::File::options().write(true).open(bench.path("vol.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"damaged!", 0).unwrap();
    let args = ["run", "-q", "--volume", "vol.img", "--read-only", "--report", "vol.img", "--", "true"];
    refused(&bench, "vol.img", "the device that this command uses", 125, &args);
}

#[test]
fn a_copy_to_the_host_replaces_no_image_when_a_colon_is_forgotten() {
    let bench = Bench::with_volume();
    for volume in ["in/tree/v.img", "v2.img"] {
        std::fs::create_dir_all(bench.path("in/tree")).unwrap();
        bench.weft(&["format", "-q", "--size", "64M", "--zone-size", "1M", volume]).success();
    }
    bench.file("h", "content");
    bench.file("tree/v.img", "content");
    std::os::unix::fs::symlink("h", bench.path("link")).unwrap();
    bench.weft(&["cp", "-r", "h", "tree", "vol.img:/"]).success();
    let server = Serving::start(&bench);
    for args in
        [&["cp", "vol.img:/h", "vol.img"][..], &["cp", "h", "vol.img"], &["cp", "-r", "link", "vol.img"]]
    {
        refused(&bench, "vol.img", "a weft volume", 1, args);
    }
    bench.weft(&["cp", "h", "vol.img"]).stderr(contains("write vol.img:/ or vol.img:/NAME"));
    refused(&bench, "v2.img", "a weft volume", 1, &["cp", "vol.img:/h", "v2.img"]);
    refused(&bench, "in/tree/v.img", "a weft volume", 1, &["cp", "-r", "vol.img:/tree", "in"]);
    assert_eq!(server.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
    // Other files are replaced, and an image that is not there is made, as ever.
    bench.file("out", "older");
    bench.weft(&["cp", "vol.img:/h", "out"]).success();
    bench.weft(&["cp", "v2.img", "copy.img"]).success();
    assert_eq!(std::fs::read(bench.path("out")).unwrap(), b"content");
    bench.weft(&["fsck", "copy.img"]).success();
}

#[test]
fn a_socket_takes_the_place_of_no_file() {
    let bench = Bench::with_volume();
    let before = std::fs::read(bench.path("vol.img")).unwrap();
    let serve = ["serve", "-q", "--volume", "vol.img", "--socket", "vol.img"];
    bench.weft(&serve).code(1).stderr(contains("vol.img").and(contains("no socket")));
    assert!(bench.path("vol.img").metadata().unwrap().len() == before.len() as u64);
    bench.weft(&["fsck", "vol.img"]).success();
}
