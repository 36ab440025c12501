//! Images that may not be written, lie where nothing can be written, or were cut short.

use crate::volume::{Bench, noise};
use std::process::{Command, Output};

/// What changes nothing.
const LOOKS: [&[&str]; 11] = [
    &["ls", "-lR", "vol.img:/"],
    &["stat", "vol.img:/dir/f"],
    &["cat", "vol.img:/dir/f"],
    &["df", "vol.img"],
    &["stats", "vol.img"],
    &["zones", "vol.img"],
    &["export", "vol.img"],
    &["fsck", "vol.img"],
    &["salvage", "--dry-run", "vol.img"],
    &["run", "-q", "--read-only", "--volume", "vol.img", "--", "cat", "/weft/dir/f"],
    &["run", "-q", "--read-only", "--volume", "vol.img", "--", "sh", "-c", "! touch /weft/g"],
];
/// What would change the volume.
const CHANGES: [&[&str]; 8] = [
    &["cp", "f", "vol.img:/g"],
    &["rm", "vol.img:/dir/f"],
    &["mkdir", "vol.img:/d"],
    &["mv", "vol.img:/dir/f", "vol.img:/g"],
    &["import", "vol.img", "f.tar"],
    &["run", "-q", "--volume", "vol.img", "--", "true"],
    &["serve", "--volume", "vol.img"],
    &["format", "--force", "--size", "64M", "vol.img"],
];

fn filled() -> Bench {
    let bench = Bench::with_volume();
    bench.file("dir/f", noise(300_000, 3));
    bench.file("f", noise(10_000, 4));
    bench.weft(&["cp", "-r", "dir", "vol.img:/"]).success();
    bench.weft(&["export", "vol.img:/dir", "f.tar"]).success();
    bench
}

fn image(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.path("vol.img")).unwrap()
}

/// Runs the command behind others, which end by executing what follows.
fn behind(bench: &Bench, before: &[&str], args: &[&str]) -> Output {
    let weft = bench.command();
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).arg(weft.get_program()).args(args).current_dir(bench.dir());
    command.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("WEFT_LOG");
    command.output().unwrap()
}

/// What looks works, and what would change something says why not and what to do.
fn only_looks_work(bench: &Bench, before: &[&str], why: &str) {
    let image_before = image(bench);
    for args in LOOKS {
        let done = behind(bench, before, args);
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        if args.contains(&"cat") {
            assert!(done.stdout == noise(300_000, 3), "{args:?}");
        }
    }
    for args in CHANGES {
        let done = behind(bench, before, args);
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{args:?}");
        assert!(told.contains("vol.img") && told.contains(why), "{args:?}: {told}");
        assert!(args[0] == "format" || told.contains("weft run --read-only"), "{args:?}: {told}");
    }
    assert!(image(bench) == image_before, "the image was changed");
}

#[test]
fn an_image_that_its_user_may_not_write_can_be_looked_at_and_says_so_to_others() {
    let bench = filled();
    let mut rights = std::fs::metadata(bench.path("vol.img")).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(bench.path("vol.img"), rights).unwrap();
    // The superuser may write all the same, unless it gives its powers up.
    let powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];
    // SAFETY: a system call without arguments.
    let before = if unsafe { libc::geteuid() } == 0 { &powerless[..] } else { &["env"] };
    only_looks_work(&bench, before, "Permission denied");
}

#[test]
fn an_image_on_a_file_system_that_is_mounted_read_only_can_be_looked_at_and_says_so_to_others() {
    let bench = filled();
    let run = tempfile::tempdir().unwrap();
    let runtime = format!("XDG_RUNTIME_DIR={}", run.path().display());
    let script = "mount --bind . . && mount -o remount,bind,ro . && cd \"$PWD\" && exec \"$@\"";
    // SAFETY: a system call without arguments.
    let spaces = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-Urm" };
    let before = ["unshare", spaces, "sh", "-c", script, "sh", "env", &runtime];
    if !Command::new("unshare")
        .args([spaces, "sh", "-c", "mount -t tmpfs none /mnt"])
        .output()
        .unwrap()
        .status
        .success()
    {
        return;
    }
    only_looks_work(&bench, &before, "Read-only file system");
}

#[test]
fn a_sparse_image_on_a_full_file_system_says_so_and_is_whole_when_there_is_room_again() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.path("small")).unwrap();
    // SAFETY: a system call without arguments.
    let spaces = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-Urm" };
    let script = r#"
        mount -t tmpfs -o size=80m none small && cd small || exit 77
        "$1" format --quiet --size 64M vol.img && fallocate -d vol.img && head -c 70M /dev/zero >room || exit 77
        run() { "$weft" run -q --volume vol.img -- sh -c "$1"; echo "status $?"; }
        weft=$1
        run 'echo kept >/weft/f; sync; dd if=/dev/urandom of=/weft/big bs=64k count=400 conv=fsync status=none'
        rm room
        run 'cat /weft/f; echo more >>/weft/f; sync; cat /weft/f'
        "$weft" fsck vol.img >fsck; echo "status $?""#;
    let mut within = Command::new("unshare");
    let weft = bench.command();
    within.args([spaces, "sh", "-c", script, "sh"]).arg(weft.get_program());
    within.envs(weft.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = within.current_dir(bench.dir()).output().unwrap();
    let told = String::from_utf8(done.stderr).unwrap();
    if done.status.code() == Some(77) || told.contains("unshare failed") {
        return;
    }
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        "status 1\nkept\nkept\nmore\nstatus 0\nstatus 0\n",
        "{told}"
    );
    let why = "vol.img: no space is left on the file system of the image";
    let ends = told.lines().find(|line| line.starts_with("weft: ")).unwrap_or_default();
    assert!(ends.contains(why) && ends.contains("free some there"), "{told}");
    assert!(told.contains("dd: "), "{told}");
}

#[test]
fn an_image_that_was_cut_short_anywhere_reads_right_or_says_so_and_is_never_written() {
    let bench = filled();
    let whole = image(&bench);
    let len = whole.len();
    let cuts = (0..40).map(|n| n * n * len / 1600).chain([1, 100, 4095, 4096, 8192, len - 4096, len - 1]);
    let (mut read, mut salvaged) = (0, 0);
    for cut in cuts {
        std::fs::write(bench.path("vol.img"), &whole[..cut]).unwrap();
        for args in
            [&["cat", "vol.img:/dir/f"][..], &["fsck", "vol.img"], &["salvage", "--dry-run", "vol.img"]]
        {
            let done = bench.command().args(args).output().unwrap();
            let told = String::from_utf8_lossy(&done.stderr);
            assert!(told.contains("cut short") || told.contains("damaged"), "{cut}, {args:?}: {told}");
            assert!(done.status.code().is_some_and(|code| code < 3), "{cut}, {args:?}: {told}");
            assert!(!told.contains("makes a"), "{cut}, {args:?}: {told}");
            assert!(args[0] != "fsck" || !done.status.success(), "{cut}: sound");
            match (done.status.success(), args[0]) {
                (true, "cat") => {
                    assert!(done.stdout == noise(300_000, 3), "{cut}");
                    read += 1;
                }
                (true, "salvage") => salvaged += 1,
                (false, "cat") => assert!(noise(300_000, 3).starts_with(&done.stdout), "{cut}"),
                _ => {}
            }
        }
        for args in CHANGES.iter().filter(|args| args[0] != "format") {
            let told = bench.weft(args).failure().get_output().stderr.clone();
            let told = String::from_utf8_lossy(&told);
            assert!(
                told.contains("vol.img") && (told.contains("cut short") || told.contains("damaged")),
                "{cut}: {told}"
            );
        }
        assert!(image(&bench) == whole[..cut], "{cut}: the image was changed");
    }
    assert!(read > 20 && salvaged > 20, "{read} read, {salvaged} salvaged");
}
