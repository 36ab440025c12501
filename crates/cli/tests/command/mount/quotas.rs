//! Quotas on a mount: whoever exceeds one is told, and no plain user lifts it.

use super::*;

/// A mount of a volume with a quota of its directory `q`; none where this user cannot mount.
fn with_quota(bench: &Bench, options: &[&str], limits: &[&str]) -> Option<Mounted> {
    bench.weft(&["format", "--quiet", "--core", "tagfs", "--size", "150M", "vol.img"]).success();
    let mount = Mounted::new(bench, options)?;
    fs::set_permissions(bench.dir(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(mount.dir.join("q")).unwrap();
    fs::set_permissions(mount.dir.join("q"), PermissionsExt::from_mode(0o777)).unwrap();
    bench.weft(&[&["quota", "set", "mnt/q"], limits].concat()).success();
    Some(mount)
}

fn errno_of<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_mount_takes_no_more_than_a_quota_and_no_plain_user_lifts_it() {
    let bench = Bench::empty();
    let Some(mut mount) = with_quota(&bench, &[], &["--bytes", "5M", "--files", "3"]) else { return };
    let dir = mount.dir.join("q");
    let mut file = fs::File::create(dir.join("f")).unwrap();
    let failed = (0..2000).find_map(|_| file.write_all(&[7; 10_000]).err());
    assert_eq!(failed.unwrap().raw_os_error(), Some(libc::EDQUOT), "the write says so");
    file.sync_all().unwrap();
    let usage = &bench.json(&["quota", "show", "--json", "mnt/q"])[0];
    let (bytes, len) = (usage["bytes"].as_u64().unwrap(), file.metadata().unwrap().len());
    assert_eq!((bytes, usage["files"].as_u64()), (len.next_multiple_of(4096), Some(1)), "{usage}");
    assert!((4 << 20..=5 << 20).contains(&bytes), "{usage}");
    assert_eq!(bytes, 512 * file.metadata().unwrap().blocks());
    drop(file);

    fs::write(mount.dir.join("free"), "free").unwrap();
    assert_eq!(errno_of(fs::rename(mount.dir.join("free"), dir.join("free"))), Some(libc::EXDEV));
    assert_eq!(errno_of(fs::hard_link(dir.join("f"), mount.dir.join("link"))), Some(libc::EXDEV));
    fs::rename(&dir, mount.dir.join("moved")).unwrap();
    fs::rename(mount.dir.join("moved"), &dir).unwrap();
    symlink("target", dir.join("s")).unwrap();
    fs::create_dir(dir.join("d")).unwrap();
    assert_eq!(errno_of(fs::create_dir(dir.join("d/d"))), Some(libc::EDQUOT));
    assert_eq!(errno_of(fs::write(dir.join("d/f"), "")), Some(libc::EDQUOT));
    let mut unnamed = fs::OpenOptions::new();
    unnamed.write(true).custom_flags(libc::O_TMPFILE);
    assert_eq!(errno_of(unnamed.open(dir.join("d"))), Some(libc::EDQUOT));

    // Another user sees what is left, and changes no limit.
    // It becomes that user by itself: not every user may execute every python3.
    let script = "import os\n\
        os.setgroups([]); os.setresgid(*3 * [54321]); os.setresuid(*3 * [54321])\n\
        q = 'q'\n\
        print(os.getxattr(q, 'user.weft.usage').decode())\n\
        def errno_of(act, *args):\n\
        \x20   try: act(*args)\n\
        \x20   except OSError as error: return error.errno\n\
        print(errno_of(os.setxattr, q, 'trusted.weft.quota', b'bytes=1G'))\n\
        print(errno_of(os.removexattr, q, 'trusted.weft.quota'))\n\
        print(errno_of(os.setxattr, q, 'user.weft.usage', b'bytes=0'))\n\
        print(os.listxattr(q))\n";
    let told = Command::new("python3").args(["-c", script]).current_dir(&mount.dir).output().unwrap();
    let told = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
    let wanted = format!("bytes={bytes} files=3 bytes_max={} files_max=3\n1\n1\n1\n[]\n", 5 << 20);
    assert_eq!(told, wanted);
    bench.weft(&["quota", "lift", "mnt/q"]).success();
    fs::write(dir.join("d/f"), vec![1; 1 << 20]).unwrap();
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success().stdout(contains("no problems"));
}

#[test]
fn what_the_kernel_kept_beyond_a_quota_is_told_by_the_sync() {
    let bench = Bench::empty();
    let Some(mut mount) = with_quota(&bench, &["-o", "writeback"], &["--bytes", "3M"]) else { return };
    let path = mount.dir.join("q/f");
    let mut file = fs::File::create(&path).unwrap();
    let failed = (0..200).find_map(|_| file.write_all(&[7; 100_000]).and_then(|()| file.sync_data()).err());
    assert_eq!(failed.unwrap().raw_os_error(), Some(libc::EDQUOT));
    let usage = &bench.json(&["quota", "show", "--json", "mnt/q"])[0];
    assert!((2 << 20..=3 << 20).contains(&usage["bytes"].as_u64().unwrap()), "{usage}");
    fs::remove_file(&path).unwrap();
    drop(file);
    mount.stop();
    bench.weft(&["fsck", "vol.img"]).success().stdout(contains("no problems"));
}
