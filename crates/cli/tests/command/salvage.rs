use crate::volume::{Bench, noise, wait_for};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use std::os::unix::fs::FileExt;

/// Flips a bit of the first place of the image where these bytes stand.
fn flip(bench: &Bench, wanted: &[u8]) {
    let path = bench.path("vol.img");
    let image = std::fs::read(&path).unwrap();
    let at = image.windows(wanted.len()).position(|w| w == wanted).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[image[at] ^ 1], at as u64).unwrap();
}

/// Overwrites the start of every block of the image that begins so.
fn wipe(bench: &Bench, magic: &[u8]) -> usize {
    let path = bench.path("vol.img");
    let image = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let blocks = (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(magic));
    blocks.map(|at| file.write_all_at(&[0; 64], at as u64).unwrap()).count()
}

#[test]
fn a_file_with_a_damaged_block_is_put_aside_and_listed_and_the_rest_is_whole() {
    let bench = Bench::with_volume();
    let (bad, good) = (noise(100_000, 2), noise(50_000, 3));
    bench.file("tree/bad", &bad);
    bench.file("tree/sub/good", &good);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    flip(&bench, &bad[50_000..50_064]);
    let before = std::fs::read(bench.path("vol.img")).unwrap();
    bench.weft(&["fsck", "vol.img"]).code(1).stderr(contains("weft salvage vol.img NEW"));
    bench
        .weft(&["salvage", "--dry-run", "vol.img"])
        .code(1)
        .stdout(contains("/tree/bad").and(contains("/lost+found/#")));
    bench
        .weft(&["salvage", "vol.img", "new.img"])
        .code(1)
        .stdout(contains("/tree/bad").and(contains("bytes 49152 to 53247")))
        .stderr(contains("not everything could be salvaged"));
    assert!(std::fs::read(bench.path("vol.img")).unwrap() == before, "the damaged image was changed");
    bench.weft(&["fsck", "new.img"]).success();
    let out = bench.weft(&["cat", "new.img:/tree/sub/good"]).success().get_output().stdout.clone();
    assert!(out == good);
    bench.weft(&["cat", "new.img:/tree/bad"]).code(1);
    bench.weft(&["ls", "new.img:/lost+found"]).success().stdout(contains("#"));
    bench.weft(&["salvage", "vol.img", "new.img"]).code(2).stderr(contains("new.img exists"));
}

#[test]
fn a_sound_volume_and_one_that_lost_a_page_of_its_image_are_salvaged_whole() {
    let bench = Bench::with_volume();
    let content = noise(70_000, 4);
    bench.file("a", &content);
    bench.weft(&["cp", "a", "vol.img:/a"]).success();
    let file = std::fs::File::options().write(true).open(bench.path("vol.img")).unwrap();
    file.write_all_at(&[0; 4096], 12288).unwrap();
    let output =
        bench.weft(&["salvage", "--json", "vol.img", "new.img"]).success().get_output().stdout.clone();
    let report: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((report["complete"].as_bool(), report["files"].as_u64()), (Some(true), Some(1)));
    assert_eq!(report["damaged"].as_array().unwrap().len(), 0);
    for image in ["new.img", "vol.img"] {
        let path = format!("{image}:/a");
        assert!(bench.weft(&["cat", &path]).success().get_output().stdout == content);
    }
}

#[test]
fn what_has_no_checkpoint_left_cannot_be_salvaged_and_leaves_no_new_volume() {
    let bench = Bench::with_volume();
    bench.file("a", noise(1000, 2));
    bench.weft(&["cp", "a", "vol.img:/a"]).success();
    assert!(wipe(&bench, b"WFRM") > 2);
    bench.weft(&["ls", "vol.img:"]).code(1);
    bench.weft(&["salvage", "vol.img", "new.img"]).code(2).stderr(contains("nothing can be salvaged"));
    assert!(!bench.path("new.img").exists());
    bench.weft(&["salvage", "none.img", "new.img"]).code(2);
}

#[test]
fn what_is_read_of_a_volume_that_lost_metadata_for_good_exits_with_1() {
    let bench = Bench::with_volume();
    bench.file("tree/a", noise(1000, 2));
    bench.weft(&["ls", "vol.img:"]).success();
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    // All frames behind those of the format.
    let path = bench.path("vol.img");
    let image = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let frames = (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"WFRM"));
    frames.skip(2).for_each(|at| file.write_all_at(&[image[at + 100] ^ 1], at as u64 + 100).unwrap());
    for args in
        [&["ls", "vol.img:"][..], &["export", "vol.img", "vol.tar"], &["cp", "-r", "vol.img:/", "out"]]
    {
        bench.weft(args).code(1).stderr(contains("missing are"));
    }
}

#[test]
fn what_is_damaged_in_a_file_costs_its_copies_no_more_than_that() {
    let bench = Bench::with_volume();
    // Whole blocks: the tail of a file shares a block with others.
    let (bad, good) = (noise(1_000_000, 2), noise(49_152, 3));
    bench.file("tree/bad", &bad);
    bench.file("tree/sub/good", &good);
    std::fs::hard_link(bench.path("tree/bad"), bench.path("tree/sub/twice")).unwrap();
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    for at in [50_000, 60_000, 999_990] {
        flip(&bench, &bad[at - 64..at]);
    }
    let mut left = bad.clone();
    for lost in [49_152..53_248, 57_344..61_440, 999_424..1_000_000] {
        left[lost].fill(0);
    }
    let told = "/tree/bad: 4096 bytes at 49152, 4096 bytes at 57344, 576 bytes at 999424 cannot be read";
    let once = |text: &str| text.matches("cannot be read").count() == 1;
    let read = |path: &str| std::fs::read(bench.path(path)).unwrap();
    let put_away = |dir: &str| {
        let names: Vec<_> =
            std::fs::read_dir(bench.path(dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
        let [name] = &names[..] else { panic!("{names:?}") };
        assert!(name.to_str().unwrap().starts_with('#'), "{name:?}");
        format!("{dir}/{}", name.to_str().unwrap())
    };

    // An archive, to a file and to a pipe: the same.
    bench
        .weft(&["export", "vol.img", "vol.tar"])
        .code(1)
        .stderr(contains(told).and(contains("lost+found/#")).and(predicates::function::function(once)));
    let piped = bench.weft(&["export", "vol.img"]).code(1).get_output().stdout.clone();
    assert!(piped == read("vol.tar"));
    std::fs::create_dir(bench.path("unpacked")).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.args(["-xf", "../vol.tar"]).current_dir(bench.path("unpacked"));
    assert!(tar.status().unwrap().success());
    assert!(read("unpacked/tree/sub/good") == good);
    assert!(read(&put_away("unpacked/lost+found")) == left);
    for gone in ["unpacked/tree/bad", "unpacked/tree/sub/twice"] {
        assert!(!bench.path(gone).exists(), "{gone}");
    }
    // An older archive, which may be whole, is not replaced by one that is not.
    std::fs::write(bench.path("vol.tar"), "older").unwrap();
    bench.weft(&["export", "-f", "vol.img", "vol.tar"]).code(1).stderr(contains("vol.tar.incomplete"));
    assert!(read("vol.tar") == b"older" && read("vol.tar.incomplete") == piped);
    // What is imported again is as it was.
    bench.weft(&["format", "--quiet", "--size", "64M", "--zone-size", "1M", "new.img"]).success();
    bench.weft(&["import", "new.img", "vol.tar.incomplete"]).success();
    assert!(bench.weft(&["cat", "new.img:/tree/sub/good"]).success().get_output().stdout == good);

    // Copies.
    bench
        .weft(&["cp", "-r", "vol.img:/", "out"])
        .code(1)
        .stderr(contains(told).and(contains("the rest is in out/lost+found/#")));
    assert!(read("out/tree/sub/good") == good && read(&put_away("out/lost+found")) == left);
    assert!(!bench.path("out/tree/bad").exists() && !bench.path("out/tree/sub/twice").exists());
    std::fs::create_dir(bench.path("one")).unwrap();
    bench.weft(&["cp", "vol.img:/tree/bad", "one/bad"]).code(1).stderr(contains(told));
    assert!(!bench.path("one/bad").exists() && read(&put_away("one/lost+found")) == left);
    // A target that is no file stays where it is.
    std::fs::write(bench.path("there"), "").unwrap();
    std::os::unix::fs::symlink("there", bench.path("link")).unwrap();
    bench.weft(&["cp", "vol.img:/tree/bad", "link"]).code(1).stderr(contains("the rest is in link"));
    assert!(read("there") == left && bench.path("link").is_symlink());

    // Whoever reads a stream gets no byte at a wrong place, and what is whole before it.
    let cat = bench.weft(&["cat", "vol.img:/tree/bad"]).code(1);
    let cat = cat.stderr(contains("4096 bytes at 49152").and(contains("'weft cp' copies the rest")));
    assert!(cat.get_output().stdout == bad[..49_152]);
}

#[test]
fn an_interrupted_salvage_leaves_no_volume_under_the_new_name() {
    let bench = Bench::empty();
    bench.weft(&["format", "-q", "--size", "512M", "vol.img"]).success();
    bench.file("f", noise(100_000, 8));
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    let part = bench.path("new.img.weft-part");
    let interrupt = |signal: i32| {
        let mut child = bench.spawn(&["salvage", "-q", "vol.img", "new.img"]);
        wait_for("the part file", || part.metadata().is_ok_and(|meta| meta.len() > 0));
        // SAFETY: a system call on numbers; the child is not yet waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        let ended = std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap());
        assert_eq!(ended, Some(signal), "the command was faster than the signal");
        assert!(!bench.path("new.img").exists());
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        interrupt(signal);
        assert!(!part.exists(), "signal {signal} left the part file");
    }
    // What a kill leaves is replaced by the next one.
    interrupt(libc::SIGKILL);
    assert!(part.exists());
    bench.weft(&["salvage", "-q", "vol.img", "new.img"]).success();
    assert!(!part.exists());
    bench.weft(&["fsck", "new.img"]).success();
    assert!(bench.weft(&["cat", "new.img:/f"]).success().get_output().stdout == noise(100_000, 8));
    // Somebody's own file is not.
    bench.file("other.img.weft-part", "own data");
    bench.weft(&["salvage", "vol.img", "other.img"]).code(2).stderr(contains("in the way"));
    assert_eq!(std::fs::read(bench.path("other.img.weft-part")).unwrap(), b"own data");
}
