use crate::volume::{Bench, noise};
use predicates::str::contains;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

fn tar(bench: &Bench, args: &[&str]) {
    let ran = Command::new("tar").current_dir(bench.dir()).args(args).output().unwrap();
    assert!(ran.status.success(), "tar {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn same(bench: &Bench, a: &str, b: &str) {
    let args = ["-r", "--no-dereference"];
    let said = Command::new("diff").args(args).args([bench.path(a), bench.path(b)]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

fn tree(bench: &Bench) {
    bench.file("tree/empty", "");
    bench.file("tree/small", "a few bytes");
    bench.file(&format!("tree/sub/{}", "long".repeat(50)), noise(3_000_000, 5));
    bench.file("tree/sub/odd name\n", noise(4097, 6));
    symlink("sub/odd name\n", bench.path("tree/link")).unwrap();
    symlink("x".repeat(300), bench.path("tree/dangling")).unwrap();
    std::fs::hard_link(bench.path("tree/small"), bench.path("tree/sub/again")).unwrap();
    let sparse = std::fs::File::create(bench.path("tree/sparse")).unwrap();
    sparse.set_len(200 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 100 << 20).unwrap();
    for (name, mode) in [("tree/small", 0o604), ("tree/sub", 0o711)] {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let past = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    for name in ["tree/small", "tree/sub"] {
        std::fs::File::open(bench.path(name)).unwrap().set_modified(past).unwrap();
    }
}

#[test]
fn an_archive_never_takes_the_place_of_its_volume() {
    let bench = Bench::with_volume();
    tree(&bench);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    std::os::unix::fs::symlink("vol.img", bench.path("other-name")).unwrap();
    for name in ["vol.img", "./vol.img", "other-name"] {
        bench
            .weft(&["export", "--force", "vol.img", name])
            .code(1)
            .stderr(contains("is the volume that is exported"));
    }
    bench.weft(&["cp", "-r", "vol.img:/tree", "back"]).success();
    same(&bench, "tree", "back");
}

#[test]
fn what_was_exported_is_imported_and_read_by_tar() {
    let bench = Bench::with_volume();
    tree(&bench);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["export", "vol.img:/tree", "vol.tar"]).success();
    assert!(std::fs::metadata(bench.path("vol.tar")).unwrap().len() < 10 << 20, "holes are in the archive");
    // By others.
    std::fs::create_dir(bench.path("by-tar")).unwrap();
    tar(&bench, &["-xf", "vol.tar", "-C", bench.path("by-tar").to_str().unwrap(), "--sparse"]);
    same(&bench, "tree", "by-tar");
    // By ourselves, to another place.
    bench.weft(&["import", "vol.img:/a/b", "vol.tar"]).success();
    bench.weft(&["cp", "-r", "vol.img:/a/b", "back"]).success();
    same(&bench, "tree", "back");
    for back in ["by-tar", "back"] {
        let meta = |name: &str| std::fs::symlink_metadata(bench.path(&format!("{back}/{name}"))).unwrap();
        let of = |name: &str| std::fs::symlink_metadata(bench.path(&format!("tree/{name}"))).unwrap();
        for name in ["small", "sub"] {
            assert_eq!(meta(name).mode(), of(name).mode(), "{back}/{name}");
            assert_eq!(meta(name).modified().unwrap(), of(name).modified().unwrap(), "{back}/{name}");
        }
        assert_eq!(meta("small").ino(), meta("sub/again").ino());
        assert!(meta("sparse").blocks() * 512 < 10 << 20);
    }
}

/// A file of a TiB with a few bytes of data: nobody could wait until all of it was read.
fn vast(bench: &Bench, name: &str) {
    let file = std::fs::File::create(bench.path(name)).unwrap();
    file.set_len(1 << 40).unwrap();
    for at in [0, 5 << 30, (700 << 30) + 1234, (1 << 40) - 3] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"abc", at).unwrap();
    }
}

/// What of a file is data, and it.
fn data(bench: &Bench, name: &str) -> Vec<(u64, Vec<u8>)> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(bench.path(name)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 40);
    // SAFETY: a system call on a file that is open.
    let seek = |at: i64, whence| unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    let (mut found, mut end) = (Vec::new(), 0);
    loop {
        let begin = seek(end, libc::SEEK_DATA);
        if begin < 0 {
            return found;
        }
        end = seek(begin, libc::SEEK_HOLE);
        assert!(end - begin < 1 << 20, "{name}: {} bytes of data at {begin}", end - begin);
        let mut bytes = vec![0; (end - begin) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, begin as u64).unwrap();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        found.push((begin as u64 + first as u64, bytes[first..=last].to_vec()));
    }
}

#[test]
fn holes_are_passed_over_and_stay_holes() {
    let bench = Bench::with_volume();
    vast(&bench, "vast");
    bench.weft(&["cp", "vast", "vol.img:/vast"]).success();
    bench.weft(&["cp", "vol.img:/vast", "copied"]).success();
    bench.weft(&["export", "vol.img", "vol.tar"]).success();
    let piped = bench.weft(&["export", "vol.img"]).success().get_output().stdout.clone();
    assert!(piped == std::fs::read(bench.path("vol.tar")).unwrap() && piped.len() < 1 << 20);
    bench.command().args(["import", "vol.img:/again"]).write_stdin(piped).assert().success();
    bench.weft(&["cp", "vol.img:/again/vast", "imported"]).success();
    std::fs::create_dir(bench.path("by-tar")).unwrap();
    tar(&bench, &["-xf", "vol.tar", "-C", "by-tar"]);
    tar(&bench, &["--sparse", "-cf", "by-tar.tar", "-C", "by-tar", "vast"]);
    bench.weft(&["import", "vol.img:/from-tar", "by-tar.tar"]).success();
    bench.weft(&["cp", "vol.img:/from-tar/vast", "from-tar"]).success();
    for name in ["copied", "imported", "by-tar/vast", "from-tar"] {
        assert!(data(&bench, name) == data(&bench, "vast"), "{name}");
    }
}

#[test]
fn archives_of_tar_in_each_of_its_forms_are_imported() {
    let bench = Bench::with_volume();
    tree(&bench);
    for (number, form) in
        ["--format=gnu", "--format=posix", "--format=gnu --sparse", "--format=posix --sparse"]
            .iter()
            .enumerate()
    {
        let mut args: Vec<&str> = form.split(' ').collect();
        args.extend(["-cf", "made.tar", "-C", "tree", "."]);
        tar(&bench, &args);
        let archive = std::fs::read(bench.path("made.tar")).unwrap();
        let target = format!("vol.img:/{number}");
        bench.command().args(["import", &target]).write_stdin(archive).assert().success();
        let back = format!("back{number}");
        bench.weft(&["cp", "-r", &target, &back]).success();
        same(&bench, "tree", &back);
        bench.weft(&["rm", "-r", &target]).success();
    }
}

#[test]
fn nothing_lands_outside_the_directory_that_was_named() {
    let bench = Bench::with_volume();
    bench.file("evil/x", "evil");
    symlink("/precious", bench.path("evil/way")).unwrap();
    tar(&bench, &["-cf", "evil.tar", "-P", "--transform=s,^x$,../../precious/x,", "-C", "evil", "way", "x"]);
    tar(&bench, &["-rf", "evil.tar", "-P", "--transform=s,^x$,way/x,", "-C", "evil", "x"]);
    bench.file("f", "good");
    bench.weft(&["mkdir", "vol.img:/precious"]).success();
    bench.weft(&["cp", "f", "vol.img:/precious/x"]).success();
    let import = bench.weft(&["import", "vol.img:/in", "evil.tar"]);
    import.code(1).stderr(contains("has .. in it")).stderr(contains("on the way to it is no directory"));
    assert_eq!(bench.stdout(&["cat", "vol.img:/precious/x"]), "good");
}

/// The header of a member in the POSIX form.
fn header(kind: u8, size: usize) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[0] = b'x';
    for number in [100, 108, 116] {
        block[number..number + 8].copy_from_slice(b"0000644\0");
    }
    block[136..148].copy_from_slice(b"00000000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

#[test]
fn a_path_of_a_million_directories_is_refused_and_what_follows_is_imported() {
    let bench = Bench::with_volume();
    let path = "a/".repeat(1_000_000);
    let record = |len: usize| format!("{len} path={path}x\n");
    let record = record(record(1_000_000).len());
    let mut archive = header(b'x', record.len());
    archive.extend(record.as_bytes());
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(header(b'0', 0));
    archive.extend(header(b'0', 0));
    bench.file("deep.tar", &archive);
    bench.weft(&["import", "vol.img:/", "deep.tar"]).code(1).stderr(contains("its path has 2000001 bytes"));
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "x\n");
}

#[test]
fn what_is_no_archive_is_refused_before_anything_is_made() {
    let bench = Bench::with_volume();
    bench.file("text", "no archive ".repeat(100));
    bench.file("empty", "");
    bench.file("f", noise(2000, 1));
    tar(&bench, &["-czf", "f.tgz", "f"]);
    bench
        .weft(&["import", "vol.img:/d", "text"])
        .failure()
        .stderr(contains("not the header of a tar archive"));
    bench
        .weft(&["import", "vol.img:/d", "empty"])
        .failure()
        .stderr(contains("not the header of a tar archive"));
    bench.weft(&["import", "vol.img:/d", "f.tgz"]).failure().stderr(contains("gzip -dc f.tgz | weft import"));
    bench.weft(&["import", "vol.img:/d", "none"]).failure().stderr(contains("read none: No such file"));
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "");
    // One that was cut: the files before the cut are there, and the user gets an error.
    tar(&bench, &["-cf", "f.tar", "text", "f"]);
    let whole = std::fs::read(bench.path("f.tar")).unwrap();
    std::fs::write(bench.path("cut.tar"), &whole[..3500]).unwrap();
    bench.weft(&["import", "vol.img:/d", "cut.tar"]).failure().stderr(contains("ends at byte 3500"));
    assert_eq!(bench.stdout(&["cat", "vol.img:/d/text"]), "no archive ".repeat(100));
}

#[test]
fn an_archive_that_exists_is_kept_unless_said_otherwise() {
    let bench = Bench::with_volume();
    bench.file("vol.tar", "mine");
    bench.weft(&["export", "vol.img", "vol.tar"]).failure().stderr(contains("vol.tar exists"));
    assert_eq!(std::fs::read(bench.path("vol.tar")).unwrap(), b"mine");
    bench.weft(&["export", "-f", "vol.img", "vol.tar"]).success();
    tar(&bench, &["-tf", "vol.tar"]);
    bench
        .weft(&["export", "vol.img:/none", "new.tar"])
        .failure()
        .stderr(contains("vol.img:/none: No such file"));
    let names = std::fs::read_dir(bench.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tar")).collect();
    assert_eq!(left, ["vol.tar"]);
}

#[test]
fn an_export_removes_what_killed_ones_left_of_the_same_archive() {
    let bench = Bench::with_volume();
    tree(&bench);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    let written = std::fs::File::open(bench.file("vol.tar.unfinished-2", "by one that is alive")).unwrap();
    assert!(weft_sys::file::try_lock(&written).unwrap());
    bench.file("vol.tar.unfinished-1", "left");
    for others in ["vol.tar.unfinished-x", "other.tar.unfinished-1", "vol.tar.unfinished"] {
        bench.file(others, "of somebody else");
    }
    bench.weft(&["export", "vol.img", "vol.tar"]).success();
    let left = std::fs::read_dir(bench.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.filter(|name| name.as_encoded_bytes().starts_with(b"vol.tar")).collect();
    left.sort();
    assert_eq!(left, ["vol.tar", "vol.tar.unfinished", "vol.tar.unfinished-2", "vol.tar.unfinished-x"]);
    assert!(bench.path("other.tar.unfinished-1").exists());
    tar(&bench, &["-tf", "vol.tar"]);
}

#[test]
fn an_archive_that_was_cut_short_replaces_no_file_by_a_part_of_one() {
    let bench = Bench::with_volume();
    bench.file("old/f", "as it was");
    bench.file("new/f", noise(100_000, 8));
    bench.weft(&["cp", "old/f", "vol.img:/f"]).success();
    tar(&bench, &["-C", "new", "-cf", "new.tar", "f"]);
    let whole = std::fs::read(bench.path("new.tar")).unwrap();
    bench.file("cut.tar", &whole[..50_000]);
    bench.weft(&["import", "vol.img", "cut.tar"]).code(1);
    assert_eq!(bench.stdout(&["cat", "vol.img:/f"]), "as it was");
    bench.weft(&["import", "vol.img:/fresh", "cut.tar"]).code(1);
    assert_eq!(bench.stdout(&["ls", "vol.img:/fresh"]), "");
    bench.weft(&["import", "vol.img", "new.tar"]).success();
    bench.weft(&["cp", "vol.img:/f", "back"]).success();
    assert!(std::fs::read(bench.path("back")).unwrap() == noise(100_000, 8));
    assert_eq!(bench.stdout(&["ls", "vol.img:/"]), "f\nfresh\nlost+found\n".replace("lost+found\n", ""));
}

#[test]
fn a_closed_standard_output_is_an_error_when_there_is_something_to_write() {
    let bench = Bench::with_volume();
    bench.file("f", "content");
    bench.weft(&["cp", "f", "vol.img:/f"]).success();
    for (args, code) in
        [("export vol.img", 1), ("cat vol.img:/f", 1), ("ls vol.img:/", 1), ("mkdir vol.img:/d", 0)]
    {
        let script = format!("exec {} {args} >&-", assert_cmd::cargo::cargo_bin("weft").display());
        let mut shell = Command::new("sh");
        let weft = bench.command();
        shell.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(bench.dir());
        let ended = shell.args(["-c", &script]).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{args}: {told}");
        assert!(code == 0 || told.contains("standard output"), "{args}: {told}");
    }
}

#[test]
fn an_archive_goes_into_a_pipe_and_behind_a_symlink() {
    let bench = Bench::with_volume();
    tree(&bench);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.file("vol.tar", "old");
    symlink("vol.tar", bench.path("link.tar")).unwrap();
    bench.weft(&["export", "-f", "vol.img", "link.tar"]).success();
    assert!(bench.path("link.tar").is_symlink());
    tar(&bench, &["-tf", "vol.tar"]);
    let made = Command::new("mkfifo").arg(bench.path("pipe.tar")).status().unwrap();
    assert!(made.success());
    let pipe = bench.path("pipe.tar");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    bench.weft(&["export", "-f", "vol.img", "pipe.tar"]).success();
    bench.file("read.tar", reader.join().unwrap());
    tar(&bench, &["-tf", "read.tar"]);
    assert!(!bench.path("pipe.tar").is_file(), "the pipe stays");
}

#[test]
fn the_status_of_a_command_names_the_signal_that_ended_it() {
    let bench = Bench::with_volume();
    bench.file("tree/large", noise(3_000_000, 5));
    bench.file("tree/other", noise(3_000_000, 6));
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["export", "vol.img:/tree", "vol.tar"]).success();
    let archive = std::fs::read(bench.path("vol.tar")).unwrap();
    // More than a pipe holds, so that the command reads.
    let (some, rest) = archive.split_at(1 << 20);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut import = Command::new(assert_cmd::cargo::cargo_bin("weft"));
        import.args(["import", "-q", "vol.img:/again"]).current_dir(bench.dir());
        let mut import = import.env("XDG_RUNTIME_DIR", bench.dir()).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = import.stdin.take().unwrap();
        input.write_all(some).unwrap();
        // SAFETY: a system call on numbers; the child is not yet waited for.
        unsafe { libc::kill(import.id() as i32, signal) };
        // It may have ended.
        let _ = input.write_all(rest);
        drop(input);
        assert_eq!(import.wait().unwrap().code(), Some(128 + signal), "import");

        for args in [&["export", "-q", "vol.img:/tree", "-"][..], &["cat", "vol.img:/tree/large"]] {
            let mut export = bench.spawn(args);
            let mut output = export.stdout.take().unwrap();
            output.read_exact(&mut [0; 1]).unwrap();
            // SAFETY: as above.
            unsafe { libc::kill(export.id() as i32, signal) };
            std::io::copy(&mut output, &mut std::io::sink()).unwrap();
            assert_eq!(export.wait().unwrap().code(), Some(128 + signal), "{args:?}");
        }
    }
}

#[test]
fn a_symlink_that_leads_nowhere_is_exported_by_its_name() {
    let bench = Bench::with_volume();
    tree(&bench);
    bench.weft(&["cp", "-r", "tree", "vol.img:/"]).success();
    bench.weft(&["export", "vol.img:/tree/dangling", "vol.tar"]).success();
    bench.weft(&["export", "vol.img:/missing", "no.tar"]).code(1).stderr(contains("No such file"));
    bench.file("back/here", "");
    tar(&bench, &["-C", "back", "-xf", "vol.tar"]);
    assert_eq!(std::fs::read_link(bench.path("back/dangling")).unwrap().to_str().unwrap(), "x".repeat(300));
}
