//! Another server goes on with a mount when its server is killed.

use super::*;

/// The process that serves a mount: the child of the one that keeps it.
fn server_of(keeper: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Kills the server of a mount, and waits until another one answers.
fn kill_server(mount: &Mounted) {
    let server = server_of(mount.child.id()).unwrap();
    assert!(Command::new("kill").args(["-KILL", &server.to_string()]).status().unwrap().success());
    wait_for("another server", || server_of(mount.child.id()).is_some_and(|now| now != server));
}

#[test]
fn programs_go_on_when_the_server_of_a_mount_is_killed() {
    for options in ["restart", "restart,writeback"] {
        let bench = Bench::with_volume();
        let Some(mut mount) = Mounted::new(&bench, &["-o", options]) else { return };
        let passes_on = options == "restart";
        let at = |name: &str| mount.dir.join(name);
        let open = |name: &str| {
            fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(at(name)).unwrap()
        };
        let (synced, written, locked, beside) =
            (open("synced"), open("written"), open("locked"), open("locked"));
        fs::create_dir(at("dir")).unwrap();
        let below = open("dir/below");
        below.write_all_at(b"below", 0).unwrap();
        below.sync_all().unwrap();
        drop(below);
        let unnamed =
            fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(at("dir"));
        let unnamed = unnamed.unwrap();
        synced.write_all_at(b"synced", 0).unwrap();
        synced.sync_all().unwrap();
        locked.write_all_at(b"x", 0).unwrap();
        locked.try_lock().unwrap();
        locked.sync_all().unwrap();
        unnamed.write_all_at(b"x", 0).unwrap();
        let dir = fs::File::open(at("dir")).unwrap();
        dir.sync_all().unwrap();
        written.sync_all().unwrap();
        written.write_all_at(b"may be lost", 0).unwrap();
        kill_server(&mount);
        // What the kernel keeps itself is not lost, unless it has passed it on.
        let told = errno(written.sync_all());
        assert!(told == Some(libc::EIO) || told.is_none() && !passes_on, "{told:?}");
        let mut bytes = [0; 6];
        synced.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"synced");
        synced.write_all_at(b"S", 0).unwrap();
        synced.sync_all().unwrap();
        written.write_all_at(b"written again", 0).unwrap();
        written.sync_all().unwrap();
        let lock = |file: &fs::File| match file.try_lock() {
            Ok(()) => None,
            Err(fs::TryLockError::WouldBlock) => Some(libc::EAGAIN),
            Err(fs::TryLockError::Error(error)) => error.raw_os_error(),
        };
        // The next server has taken it again, or the kernel has kept it.
        assert_eq!(
            (lock(&beside), lock(&open("locked")), lock(&locked)),
            (Some(libc::EAGAIN), Some(libc::EAGAIN), None)
        );
        locked.unlock().unwrap();
        assert_eq!((lock(&beside), lock(&locked)), (None, Some(libc::EAGAIN)));
        beside.write_all_at(b"y", 0).unwrap();
        assert_eq!(errno(unnamed.sync_all()), Some(libc::EIO));
        assert_eq!(fs::read_to_string(at("dir/below")).unwrap(), "below");
        assert_eq!(dir.metadata().unwrap().ino(), fs::metadata(at("dir")).unwrap().ino());
        // Not the number of a file that is gone.
        let gone = unnamed.metadata().map_or(0, |meta| meta.ino());
        let new = open("new");
        assert!(new.metadata().unwrap().ino() > gone);
        drop((synced, written, locked, beside, unnamed, dir, new));
        kill_server(&mount);
        assert_eq!(fs::read_to_string(at("synced")).unwrap(), "Synced");
        assert_eq!(fs::read_to_string(at("written")).unwrap(), "written again");
        assert_eq!(mount.stop(), 0);
        bench.weft(&["fsck", "vol.img"]).success();
    }
}

#[test]
fn locks_are_held_on_when_the_server_of_a_mount_is_killed() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "restart"]) else { return };
    let path = mount.dir.join("db");
    let (path, other) = (path.to_str().unwrap(), mount.dir.join("lock"));
    let said = |ask: &str| {
        let output = Command::new("sqlite3").args(["-cmd", ".timeout 0", path, ask]).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert_eq!(said("create table t(a); insert into t values(1)"), "");
    fs::File::create(&other).unwrap().sync_all().unwrap();
    let held = holder(
        Command::new("sqlite3").arg(path),
        "pragma synchronous=extra;\nbegin immediate;\nselect 'held';\n",
    );
    let mut flock = Command::new("flock");
    let whole = holder(flock.arg(&other).args(["sh", "-c", "echo held; read line"]), "");
    let try_whole = || Command::new("flock").args(["-n"]).arg(&other).arg("true").status().unwrap().code();
    for _ in 0..2 {
        kill_server(&mount);
        assert!(said("insert into t values(3)").contains("database is locked"));
        assert_eq!(said("select count(*) from t"), "1\n", "readers go on");
        assert_eq!(try_whole(), Some(1));
    }
    // Who waits goes on to wait, and gets it.
    let waits =
        Command::new("flock").arg(&other).args(["echo", "had"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    kill_server(&mount);
    release(whole, "\n");
    assert_eq!(waits.wait_with_output().unwrap().stdout, b"had\n");
    assert_eq!(try_whole(), Some(0));
    release(held, "insert into t values(2);\ncommit;\n");
    kill_server(&mount);
    assert_eq!(said("insert into t values(3); select sum(a) from t"), "6\n", "nothing is held any more");
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}

#[test]
fn an_fsync_tells_once_of_every_change_that_was_lost_with_a_server() {
    for options in ["restart", "restart,writeback"] {
        let bench = Bench::with_volume();
        let Some(mut mount) = Mounted::new(&bench, &["-o", options]) else { return };
        let at = |name: &str| mount.dir.join(name);
        let open = |name: &str| fs::OpenOptions::new().read(true).write(true).open(at(name)).unwrap();
        for dir in ["from", "to", "kept"] {
            fs::create_dir(at(dir)).unwrap();
        }
        for file in ["cut", "mode", "closed", "sync", "from/f", "list"] {
            fs::write(at(file), file).unwrap();
            open(file).sync_all().unwrap();
        }
        for dir in ["", "from", "to", "kept"] {
            fs::File::open(at(dir)).unwrap().sync_all().unwrap();
        }
        let sync = fs::OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(at("sync")).unwrap();
        sync.write_all_at(b"SYNC", 0).unwrap();
        let cut = fs::OpenOptions::new().write(true).truncate(true).open(at("cut")).unwrap();
        let mode = open("mode");
        mode.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("closed"), "never synced").unwrap();
        let list = open("list");
        set_capability(&list);
        let dirs = ["from", "to", "kept"].map(|dir| fs::File::open(at(dir)).unwrap());
        fs::rename(at("from/f"), at("to/f")).unwrap();
        kill_server(&mount);
        let closed = open("closed");
        // A new process closes what it has inherited, and tells nobody what close returns.
        assert!(Command::new("true").status().unwrap().success());
        for (name, file) in [("cut", &cut), ("mode", &mode), ("list", &list), ("closed", &closed)] {
            let told = errno(file.sync_all());
            // What the kernel had kept is not lost, nor what was made durable meanwhile, as it is now and then.
            let is_there = match name {
                "cut" => file.metadata().unwrap().len() == 0,
                "mode" => file.metadata().unwrap().mode() & 0o777 == 0o600,
                "closed" => fs::read(at(name)).unwrap() == b"never synced",
                _ => has_capability(file),
            };
            let stored = fs::read(at(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(
                told == Some(libc::EIO) || told.is_none() && is_there,
                "{options}: {name}: {told:?}, {stored:?}"
            );
            assert_eq!(errno(file.sync_all()), None, "{options}: {name} again");
        }
        assert_eq!(errno(sync.sync_all()), None, "{options}");
        let told = dirs.each_ref().map(|dir| errno(dir.sync_all()));
        let is_there = at("to/f").exists() && !at("from/f").exists();
        assert!(
            told == [Some(libc::EIO), Some(libc::EIO), None] || told == [None; 3] && is_there,
            "{told:?}"
        );
        assert_eq!(dirs.each_ref().map(|dir| errno(dir.sync_all())), [None; 3]);
        // Another thread or process may have lost a name there, too, and opens the directory only now.
        let other = |dir: &fs::File| {
            let again = || [0; 2].map(|_| errno(fs::File::open(at("to")).and_then(|dir| dir.sync_all())));
            (errno(dir.sync_all()), again())
        };
        let of_thread = std::thread::scope(|scope| scope.spawn(|| other(&dirs[0])).join().unwrap());
        assert_eq!(of_thread, (told[0], [told[1], None]));
        for (dir, told) in ["from", "to", "kept"].iter().zip(told) {
            let synced = Command::new("sync").arg(at(dir)).stderr(Stdio::null()).status().unwrap();
            assert_eq!(synced.success(), told.is_none(), "{options}: {dir}");
        }
        // The kernel shows what there is.
        let there = fs::read_to_string(at("from/f")).or_else(|_| fs::read_to_string(at("to/f")));
        assert_eq!(there.unwrap(), "from/f");
        let shown = fs::metadata(at("mode")).unwrap().permissions().mode();
        drop((cut, mode, list, closed, sync, dirs));
        assert_eq!(mount.stop(), 0);
        let stored = bench.weft(&["ls", "-l", "vol.img:/mode"]).success().get_output().stdout.clone();
        let stored = String::from_utf8(stored).unwrap();
        assert_eq!(stored.starts_with("-rw-------"), shown & 0o777 == 0o600, "{options}: {stored}");
        bench.weft(&["fsck", "vol.img"]).success();
    }
}

fn has_capability(file: &fs::File) -> bool {
    let name = c"security.capability".as_ptr();
    let raw = std::os::fd::AsRawFd::as_raw_fd(file);
    // SAFETY: the descriptor is open, the name a C string, and nothing is written.
    unsafe { libc::fgetxattr(raw, name, std::ptr::null_mut(), 0) > 0 }
}

#[test]
fn nothing_that_was_synced_is_lost_when_the_server_of_a_mount_is_killed_again_and_again() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "restart"]) else { return };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let kept = std::sync::atomic::AtomicU64::new(0);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 500 } else { 8 };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (dir, stop, kept) = (&mount.dir, &stop, &kept);
                // Returns what was promised: the last number of each file.
                scope.spawn(move || {
                    let (mut promised, mut refused) = (Vec::new(), 0);
                    let mut number = 0u64;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let path = dir.join(format!("f-{worker}-{}", number / 50));
                        let work = || -> std::io::Result<()> {
                            let mut options = fs::OpenOptions::new();
                            let file = options.create(true).truncate(false).write(true).open(&path)?;
                            file.write_all_at(&number.to_le_bytes(), number % 50 * 8)?;
                            file.sync_all()?;
                            fs::File::open(dir)?.sync_all()
                        };
                        match work() {
                            Ok(()) => {
                                promised.push(number);
                                kept.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                                refused += 1;
                            }
                        }
                        number += 1;
                    }
                    (promised, refused)
                })
            })
            .collect();
        for round in 0..rounds {
            // Now and then long enough not to be given up.
            let pause = if round % 10 == 9 { 1100 } else { 30 + round * 7 % 200 };
            let before = kept.load(std::sync::atomic::Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(pause));
            // Mostly somebody has come to something since the last kill, however busy the machine is.
            if round % 4 != 3 {
                wait_for("a promise", || kept.load(std::sync::atomic::Ordering::Relaxed) > before);
            }
            kill_server(&mount);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(kept.load(std::sync::atomic::Ordering::Relaxed) > 0);
        for (worker, thread) in workers.into_iter().enumerate() {
            let (promised, refused) = thread.join().unwrap();
            // Of a file and of its directory, and now and then a call that was half done.
            assert!(refused <= 3 * rounds, "{} kept, {refused} refused", promised.len());
            for number in promised {
                let bytes = fs::read(mount.dir.join(format!("f-{worker}-{}", number / 50))).unwrap();
                let at = (number % 50 * 8) as usize;
                assert_eq!(bytes[at..at + 8], number.to_le_bytes(), "worker {worker}, {number}");
            }
        }
    });
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}
