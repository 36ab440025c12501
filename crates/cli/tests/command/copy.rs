use crate::volume::{Bench, noise};
use predicates::str::contains;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn a_tree_comes_back_as_it_went_in() {
    let bench = Bench::with_volume();
    bench.file("tree/empty", "");
    bench.file("tree/small", "a few bytes");
    bench.file("tree/sub/large", noise(3_000_000, 5));
    bench.file("tree/sub/odd name\n", noise(4097, 6));
    symlink("sub/large", bench.path("tree/link")).unwrap();
    symlink("/nowhere", bench.path("tree/dangling")).unwrap();
    std::fs::hard_link(bench.path("tree/small"), bench.path("tree/sub/again")).unwrap();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("tree/small", 0o604);
    mode("tree/sub", 0o711);
    let past = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    let file = std::fs::File::options().append(true).open(bench.path("tree/small")).unwrap();
    file.set_modified(past).unwrap();

    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["cp", "-r", "vol.img:/tree", "back"]).success();
    bench.weft(&["cp", "-r", "vol.img:/tree", "vol.img:/copy"]).success();
    bench.weft(&["cp", "-r", "vol.img:/copy", "back2"]).success();
    for back in ["back", "back2"] {
        let same = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([bench.path("tree"), bench.path(back)])
            .status()
            .unwrap();
        assert!(same.success(), "{back}");
        let meta = |name: &str| std::fs::symlink_metadata(bench.path(&format!("{back}/{name}"))).unwrap();
        assert_eq!(meta("small").mode() & 0o7777, 0o604);
        assert_eq!(meta("sub").mode() & 0o7777, 0o711);
        assert_eq!(meta("small").modified().unwrap(), past);
        assert_eq!(meta("small").ino(), meta("sub/again").ino());
        assert_eq!(
            std::fs::read_link(bench.path(&format!("{back}/dangling"))).unwrap().to_str(),
            Some("/nowhere")
        );
    }
}

#[test]
fn a_copy_over_an_earlier_one_has_the_same_hard_links() {
    let bench = Bench::with_volume();
    bench.file("tree/a", "one");
    std::fs::create_dir(bench.path("tree/d")).unwrap();
    std::fs::hard_link(bench.path("tree/a"), bench.path("tree/d/again")).unwrap();
    for (from, to, there) in [("tree", "vol.img:/", "vol.img:/tree"), ("vol.img:/tree", "back", "back")] {
        bench.weft(&["cp", "-r", from, to]).success();
        // Over itself, and over names of other files.
        bench.weft(&["cp", "-r", &format!("{from}/."), there]).success();
        bench.file("other", "other");
        bench.weft(&["cp", "other", &format!("{there}/d/again")]).success();
        bench.weft(&["cp", "-r", &format!("{from}/."), there]).success();
    }
    let inode = |name: &str| std::fs::metadata(bench.path(name)).unwrap().ino();
    assert_eq!(inode("back/a"), inode("back/d/again"));
    assert_eq!(std::fs::read_to_string(bench.path("back/d/again")).unwrap(), "one");
}

#[test]
fn an_image_may_be_called_by_several_names() {
    let bench = Bench::with_volume();
    symlink("vol.img", bench.path("other.img")).unwrap();
    bench.file("a", "content");
    bench.weft(&["cp", "a", "vol.img:/a"]).success();
    bench.weft(&["cp", "other.img:/a", "./vol.img:/b"]).success();
    assert_eq!(bench.stdout(&["cat", "vol.img:/b"]), "content");
    bench.weft(&["cp", "other.img:/a", "./vol.img:/a"]).failure().stderr(contains("same file"));
}

#[test]
fn holes_stay_holes() {
    let bench = Bench::with_volume();
    let path = bench.file("sparse", "");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(200 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 100 << 20).unwrap();
    bench.weft(&["cp", "sparse", "vol.img:/sparse"]).success();
    bench.weft(&["cp", "vol.img:/sparse", "back"]).success();
    let back = std::fs::metadata(bench.path("back")).unwrap();
    assert_eq!(back.len(), 200 << 20);
    assert!(back.blocks() * 512 < 10 << 20, "{}", back.blocks());
    let mut at = [0; 13];
    let file = std::fs::File::open(bench.path("back")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut at, 100 << 20).unwrap();
    assert_eq!(&at, b"in the middle");
}

#[test]
fn volumes_exchange_files() {
    let bench = Bench::with_volume();
    bench.weft(&["format", "-q", "--size", "64M", "other.img"]).success();
    bench.file("f", "across");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    bench.weft(&["cp", "vol.img:/f", "other.img:/g"]).success();
    assert_eq!(bench.stdout(&["cat", "other.img:/g"]), "across");
    bench.weft(&["mv", "vol.img:/f", "other.img:/f"]).code(1).stderr(contains("two volumes"));
}

#[test]
fn what_would_copy_a_thing_onto_or_into_itself_is_refused() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    bench.weft(&["cp", "vol.img:/f", "vol.img:/f"]).code(1).stderr(contains("same file"));
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "content");
    bench.weft(&["mkdir", "vol.img:/d"]).success();
    bench.weft(&["cp", "-r", "vol.img:/d", "vol.img:/d/e"]).code(1).stderr(contains("into itself"));
    bench.weft(&["cp", "vol.img:/d", "out"]).code(1).stderr(contains("-r"));
    bench.weft(&["cp", "f", "f", "vol.img:/missing"]).code(1).stderr(contains("not a directory"));
}

#[test]
fn a_full_volume_says_so_and_stays_usable() {
    let bench = Bench::with_volume();
    bench.file("big", noise(70 << 20, 9));
    bench.weft(&["cp", "big", "vol.img:/big"]).code(1).stderr(contains("No space left"));
    let longer = format!("vol.img:/{}", "longer".repeat(40));
    bench.weft(&["mv", "vol.img:/big", &longer]).success();
    bench.weft(&["rm", &longer]).success();
    bench.file("small", "fits");
    bench.weft(&["cp", "small", "vol.img:/small"]).success();
    assert_eq!(bench.stdout(&["cat", "vol.img:/small"]), "fits");
    bench.weft(&["fsck", "vol.img"]).success();
}

/// Sets an extended attribute of a file on the host, or tells that its file system keeps none.
fn set_xattr(path: &std::path::Path, name: &str, value: &[u8]) -> bool {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: both are C strings, and the value is as long as it says.
    unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) == 0 }
}

fn xattr(path: &std::path::Path, name: &str) -> Vec<u8> {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    let mut out = vec![0; 70_000];
    // SAFETY: as above; `out` has room for as many bytes as it says.
    let len = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), out.as_mut_ptr().cast(), out.len()) };
    out.truncate(usize::try_from(len).unwrap());
    out
}

#[test]
fn extended_attributes_go_along_in_every_direction() {
    let bench = Bench::with_volume();
    bench.file("tree/f", "content");
    if !set_xattr(&bench.path("tree/f"), "user.note", b"\0any\xff") {
        return;
    }
    set_xattr(&bench.path("tree"), "user.of-directory", b"");
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["cp", "-r", "vol.img:/tree", "vol.img:/copy"]).success();
    bench.weft(&["cp", "-r", "vol.img:/copy", "back"]).success();
    assert_eq!(xattr(&bench.path("back/f"), "user.note"), b"\0any\xff");
    assert_eq!(xattr(&bench.path("back"), "user.of-directory"), b"");
}

#[test]
fn a_copy_keeps_the_capabilities_of_a_file() {
    let bench = Bench::with_volume();
    bench.file("capable", "content");
    // cap_net_raw, permitted and effective, as version 2 has it.
    let capability = [[1, 0, 0, 2], [0, 0x20, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
    if !set_xattr(&bench.path("capable"), "security.capability", &capability) {
        return;
    }
    bench.weft(&["cp", "capable", "vol.img:/"]).success();
    bench.weft(&["cp", "vol.img:/capable", "back"]).success();
    assert_eq!(xattr(&bench.path("back"), "security.capability"), capability);
    bench.weft(&["export", "vol.img", "all.tar"]).success();
    bench.weft(&["import", "vol.img:/again", "all.tar"]).success();
    bench.weft(&["cp", "vol.img:/again/capable", "third"]).success();
    assert_eq!(xattr(&bench.path("third"), "security.capability"), capability);
}

#[test]
fn a_symlink_keeps_its_own_times() {
    let bench = Bench::with_volume();
    std::fs::create_dir(bench.path("tree")).unwrap();
    symlink("target", bench.path("tree/link")).unwrap();
    let past = ["-h", "-d", "@1234567890", "link"];
    let touched = std::process::Command::new("touch").args(past).current_dir(bench.path("tree")).status();
    assert!(touched.unwrap().success());
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["cp", "-r", "vol.img:/tree", "back"]).success();
    assert_eq!(std::fs::symlink_metadata(bench.path("back/link")).unwrap().mtime(), 1_234_567_890);
}

#[test]
fn what_is_copied_to_nowhere_is_told_with_the_name_of_the_target() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    for (target, told) in [
        ("vol.img:/none/f", "copy to vol.img:/none/: No such file"),
        ("vol.img:/none/", "copy to vol.img:/none/: No such file"),
        ("none/f", "copy to none/: No such file"),
    ] {
        bench.weft(&["cp", "f", target]).code(1).stderr(contains(told));
    }
    bench.weft(&["cp", "f", "g"]).success();
    bench.weft(&["cp", "-r", "f", "vol.img:/g"]).success();
    std::fs::create_dir(bench.path("d")).unwrap();
    bench.weft(&["cp", "-r", "d", "vol.img:/d/"]).success();
    bench.weft(&["cp", "f", "vol.img:/g/h"]).code(1).stderr(contains("vol.img:/g/"));
}

#[test]
fn a_copy_to_a_device_or_a_pipe_gives_it_the_content_and_nothing_else() {
    let bench = Bench::with_volume();
    bench.file("f", noise(300_000, 4));
    std::os::unix::fs::chown(bench.path("f"), Some(0), Some(0)).ok();
    std::fs::set_permissions(bench.path("f"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::File::options().append(true).open(bench.path("f")).unwrap().set_len(400_000).unwrap();
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    assert!(std::process::Command::new("mkfifo").arg(bench.path("pipe")).status().unwrap().success());
    std::fs::set_permissions(bench.path("pipe"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .unwrap();
    let before = std::fs::metadata(bench.path("pipe")).unwrap();
    let pipe = bench.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    bench.weft(&["cp", "vol.img:/f", "pipe"]).success();
    assert!(reader.join().unwrap() == std::fs::read(bench.path("f")).unwrap(), "with its hole as zeros");
    let after = std::fs::metadata(bench.path("pipe")).unwrap();
    assert_eq!((after.mode(), after.uid()), (before.mode(), before.uid()));
    let null = std::fs::metadata("/dev/null").unwrap();
    bench.weft(&["cp", "vol.img:/f", "/dev/null"]).success();
    let after = std::fs::metadata("/dev/null").unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (null.mode(), null.uid(), null.gid()));
}
