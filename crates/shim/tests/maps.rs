//! Writable shared maps across processes, kills and servers.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;
use support::{Served, probe};

/// A process with one file and one map of it, which executes commands from the test.
struct Mapper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Mapper {
    /// A process that has opened `file`.
    fn start(served: &Served, file: &str) -> Mapper {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let mut command = served.command(PROGRAM.get_or_init(|| probe("mapper")));
        let mut child = command.arg("/weft").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut mapper = Mapper { child, input, output };
        assert_eq!(mapper.tell(&format!("open {file}")), "opened");
        mapper
    }

    /// A process that has mapped the first `len` bytes of `file`.
    fn mapping(served: &Served, file: &str, len: usize) -> Mapper {
        let mut mapper = Mapper::start(served, file);
        assert_eq!(mapper.tell(&format!("map {len}")), "mapped");
        mapper
    }

    fn begin(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, line: &str) -> String {
        self.begin(line);
        self.answer()
    }

    /// Bytes that it has read by system calls.
    fn bytes_read(&self) -> u64 {
        let counts = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap();
        counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by itself, without a signal.
    fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn stores_of_one_process_are_seen_by_another() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut one = Mapper::start(&served, "f");
        assert_eq!(one.tell("truncate 8192"), "0");
        assert_eq!(one.tell("map 8192"), "mapped");
        let mut two = Mapper::mapping(&served, "f", 8192);
        one.tell("store 5000 one");
        assert_eq!(two.tell("show 5000 4"), "one.");
        assert_eq!(two.tell("read 5000 4"), "one.");
        two.tell("write 5001 two");
        assert_eq!(one.tell("show 5000 5"), "otwo.");
        one.end();
        two.end();
    }
}

#[test]
fn what_a_process_without_a_map_writes_is_seen_by_those_that_have_one() {
    let served = Served::new(true);
    let mut writer = Mapper::start(&served, "f");
    assert_eq!(writer.tell(&format!("write 0 {}", "X".repeat(1000))), "1000");
    writer.tell("fsync");
    let mut mapper = Mapper::mapping(&served, "f", 1000);
    mapper.tell("store 500 old");
    assert_eq!(writer.tell(&format!("write 0 {}", "Y".repeat(600))), "600");
    assert_eq!(mapper.tell("show 498 6"), "YYYYYY", "what was stored before is written over");
    // The same bytes as before the write: a store all the same.
    mapper.tell("store 0 XXZ");
    assert_eq!(writer.tell("map 1000"), "mapped");
    assert_eq!(writer.tell("show 0 4"), "XXZY");
    writer.tell("store 10 XXZ");
    assert_eq!(writer.tell("msync"), "0");
    mapper.end();
    writer.end();
    let mut reader = Mapper::start(&served, "f");
    assert_eq!(reader.tell("read 0 14"), "XXZYYYYYYYXXZY");
    assert_eq!(reader.tell("read 498 6"), "YYYYYY");
    assert_eq!(reader.tell("read 598 4"), "YYXX");

    // Cut off and grown again: zeros.
    let mut mapper = Mapper::mapping(&served, "f", 1000);
    mapper.tell("store 900 kept");
    assert_eq!(reader.tell("truncate 902"), "0");
    assert_eq!(reader.tell("truncate 1000"), "0");
    assert_eq!(mapper.tell("show 900 4"), "ke..");
    mapper.end();
    assert_eq!(reader.tell("read 900 4"), "ke..");
    reader.end();
}

#[test]
fn maps_show_that_their_file_was_truncated_by_its_path() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f");
        assert_eq!(mapper.tell(&format!("write 0 {}", "X".repeat(2000))), "2000");
        assert_eq!(mapper.tell("truncate 10000"), "0");
        assert_eq!(mapper.tell("map 10000"), "mapped");
        mapper.tell("store 9000 old");
        let mut other = Mapper::start(&served, "g");
        for who in ["itself", "another"] {
            let by = if who == "itself" { &mut mapper } else { &mut other };
            assert_eq!(by.tell("truncate-path f 1000"), "0");
            assert_eq!(by.tell("truncate-path f 10000"), "0");
            assert_eq!(mapper.tell("show 998 4"), "XX..", "{who}");
            assert_eq!(mapper.tell("show 9000 3"), "...", "{who}");
            mapper.tell("store 9000 new");
            assert_eq!(mapper.tell("msync"), "0");
            let by = if who == "itself" { &mut mapper } else { &mut other };
            assert_eq!(by.tell("empty f"), "0");
            assert_eq!(by.tell("truncate-path f 10000"), "0");
            assert_eq!(mapper.tell("show 9000 3"), "...", "{who}");
            assert_eq!(mapper.tell(&format!("write 0 {}", "X".repeat(2000))), "2000");
            assert_eq!(mapper.tell("show 1998 4"), "XX..", "{who}");
            mapper.tell("store 9000 old");
        }
        mapper.end();
        other.end();
        let mut reader = Mapper::start(&served, "f");
        assert_eq!(reader.tell("read 8998 7"), "..old..");
        reader.end();
    }
}

#[test]
fn a_forked_child_goes_on_with_the_pages_that_others_map() {
    let served = Served::new(true);
    let mut parent = Mapper::start(&served, "f");
    parent.tell("truncate 4096");
    parent.tell("map 4096");
    parent.tell("store 0 parent");
    assert_eq!(parent.tell("fork"), "forked");
    let mut child = parent;
    let mut other = Mapper::mapping(&served, "f", 4096);
    assert_eq!(other.tell("show 0 6"), "parent");
    child.tell("store 0 child.");
    assert_eq!(other.tell("show 0 6"), "child.");
    other.tell("store 100 other");
    assert_eq!(child.tell("show 100 5"), "other");
    child.end();
    other.end();
    assert_eq!(Mapper::start(&served, "f").tell("read 100 5"), "other");
}

#[test]
fn stores_of_a_killed_process_are_seen_by_whoever_opens_the_file_next() {
    for leases in [true, false] {
        let served = Served::new(leases);
        for round in 0..20 {
            let mut killed = Mapper::start(&served, "f");
            killed.tell("truncate 1048576");
            killed.tell("map 1048576");
            killed.tell(&format!("store 1000000 round{round}."));
            // Another that is there before; it begins to read by opening the file.
            let mut reader = Mapper::start(&served, "other");
            killed.kill();
            assert_eq!(reader.tell("open f"), "opened");
            let there = format!("round{round}.");
            assert_eq!(reader.tell(&format!("read 1000000 {}", there.len())), there, "leases {leases}");
        }
    }
}

#[test]
fn what_was_written_after_a_process_was_killed_is_not_undone_by_what_it_had_stored() {
    let served = Served::new(true);
    let mut killed = Mapper::start(&served, "f");
    killed.tell("truncate 12288");
    killed.tell("map 12288");
    for at in [0, 100, 5000, 9000] {
        killed.tell(&format!("store {at} stored"));
    }
    killed.kill();
    let mut writer = Mapper::start(&served, "f");
    assert_eq!(writer.tell("write 0 writer"), "6");
    assert_eq!(writer.tell("truncate 9003"), "0");
    let mut next = Mapper::mapping(&served, "f", 12288);
    assert_eq!(next.tell("show 0 7"), "writer.");
    for at in [100, 5000] {
        assert_eq!(next.tell(&format!("show {at} 7")), "stored.");
        assert_eq!(writer.tell(&format!("read {at} 7")), "stored.");
    }
    assert_eq!(next.tell("show 9000 6"), "sto...");
    assert_eq!(next.tell("size"), "9003");
}

#[test]
fn what_a_killed_process_stored_is_there_when_another_server_serves() {
    let mut served = Served::new(true);
    let mut killed = Mapper::start(&served, "f");
    killed.tell("truncate 4096");
    killed.tell("map 4096");
    killed.tell("store 7 stored");
    killed.kill();
    served.restart();
    let mut next = Mapper::mapping(&served, "f", 4096);
    assert_eq!(next.tell("show 7 6"), "stored");
    assert_eq!(next.tell("read 7 6"), "stored");
}

#[test]
fn pages_of_a_server_that_is_gone_are_not_joined() {
    let mut served = Served::new(true);
    let mut old = Mapper::start(&served, "f");
    old.tell("truncate 4096");
    old.tell("map 4096");
    old.tell("store 0 old");
    assert_eq!(old.tell("msync"), "0");
    served.restart();
    assert_eq!(Mapper::start(&served, "f").tell("write 0 new"), "3");
    let mut one = Mapper::mapping(&served, "f", 4096);
    assert_eq!(one.tell("show 0 3"), "new");
    // Its memory is left to it, and nothing else.
    assert_eq!(old.tell("show 0 3"), "old");
    old.tell("store 0 OLD");
    assert_eq!(old.tell("msync"), "EIO");
    assert_eq!(old.tell("map 4096"), "EIO");
    assert_eq!(one.tell("show 0 3"), "new");
    // Nor does its end take the names of the new pages away.
    old.end();
    one.tell("store 10 one");
    let mut two = Mapper::mapping(&served, "f", 4096);
    assert_eq!(two.tell("show 10 3"), "one");
    two.tell("store 20 two");
    assert_eq!(one.tell("show 20 3"), "two");
    one.end();
    two.end();
    let mut last = Mapper::start(&served, "f");
    assert_eq!(last.tell("read 0 3"), "new");
    assert_eq!(last.tell("read 10 13"), "one.......two");
}

#[test]
fn a_file_that_has_become_shorter_under_another_server_leaves_old_maps_whole() {
    let mut served = Served::new(true);
    let mut old = Mapper::start(&served, "f");
    old.tell("truncate 16384");
    old.tell("map 16384");
    old.tell("store 12000 old");
    served.restart();
    let mut next = Mapper::start(&served, "f");
    assert_eq!(next.tell("truncate 100"), "0");
    assert_eq!(next.tell("map 4096"), "mapped");
    assert_eq!(next.tell("size"), "100");
    assert_eq!(old.tell("show 12000 3"), "old");
}

/// Whether the kernel tells the shim what is stored to a map: since Linux 6.7, where `userfaultfd` is allowed.
fn stores_are_told() -> bool {
    // SAFETY: a system call without memory; the descriptor is nobody else's.
    let told = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1);
        let mut api = [0xaau64, 1 << 15, 0];
        fd >= 0 && libc::ioctl(fd as i32, 0xc018_aa3f, api.as_mut_ptr()) == 0 && libc::close(fd as i32) == 0
    };
    if !told {
        eprintln!("left out: this kernel does not tell what is stored to a map");
    }
    told
}

#[test]
fn a_write_back_looks_at_what_was_stored_to_and_not_at_all_that_is_mapped() {
    const MIB: usize = 1 << 20;
    if !stores_are_told() {
        return;
    }
    let served = Served::new(true);
    let looked_at = |mib: usize| {
        let mut mapper = Mapper::start(&served, &format!("f{mib}"));
        assert_eq!(mapper.tell(&format!("fill {}", mib * MIB)), "0");
        mapper.tell(&format!("map {}", mib * MIB));
        ["msync", "fsync", "write 5000 beside", "read 0 1", "unmap"].map(|how| {
            if how != "read 0 1" {
                mapper.tell(&format!("store {} x{how:.1}", mib * MIB / 2 + 40960));
            }
            let before = mapper.bytes_read();
            mapper.tell(how);
            mapper.bytes_read() - before
        })
    };
    let (few, many) = (looked_at(2), looked_at(20));
    assert_eq!(few, many, "bytes read in a map of 2 MiB, and of 20");
    assert!(many.iter().all(|bytes| *bytes < 100_000), "{many:?}");
}

#[test]
fn a_map_of_a_sparse_file_costs_its_data() {
    // Two tebibytes: whoever went through them would not come to an end.
    const LEN: u64 = 2 << 40;
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f");
        assert_eq!(mapper.tell(&format!("truncate {LEN}")), "0");
        let places = [0, 5_000_000_000, LEN / 2, LEN - 5000];
        for at in places {
            assert_eq!(mapper.tell(&format!("write {at} data")), "4");
        }
        for how in ["private", "map", "private-half"] {
            assert_eq!(mapper.tell(&format!("{how} {LEN}")), "mapped");
            for at in places.into_iter().filter(|at| how != "private-half" || *at < LEN / 5 * 2) {
                assert_eq!(mapper.tell(&format!("show {at} 5")), "data.", "leases {leases}, {how}, at {at}");
            }
            if how == "map" {
                mapper.tell("store 300000000000 stored");
                assert_eq!(mapper.tell("msync"), "0");
                assert_eq!(mapper.tell("allocate 4096 4096"), "0");
                assert_eq!(mapper.tell("read 300000000000 7"), "stored.");
            }
            assert_eq!(mapper.tell("unmap"), "0");
        }
        assert_eq!(mapper.tell("offset"), "0", "nobody moved it");
    }
}

#[test]
fn stores_move_with_the_pages_of_a_file_and_go_with_them() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f");
        mapper.tell("fill 65536");
        mapper.tell("map 65536");
        assert_eq!(mapper.tell("msync"), "0");
        assert_eq!(mapper.tell("sync-map"), "EOPNOTSUPP");
        for at in [100, 12288, 40960] {
            mapper.tell(&format!("store {at} s{at}"));
        }
        assert_eq!(mapper.tell("collapse 8192 8192"), "0");
        for (at, there) in [(100, "s100"), (8192, "ffff"), (32768, "s40960")] {
            let len = there.len();
            assert_eq!(mapper.tell(&format!("show {at} {len}")), there, "leases {leases}, at {at}");
            assert_eq!(mapper.tell(&format!("read {at} {len}")), there, "leases {leases}, at {at}");
        }
        mapper.tell("store 32768 t");
        assert_eq!(mapper.tell("insert 4096 4096"), "0");
        assert_eq!(mapper.tell("show 36864 6"), "t40960");
        assert_eq!(mapper.tell("read 36864 6"), "t40960");
        // Of a page that was stored to, and of one that never was.
        mapper.tell("store 20480 stored");
        for at in [20480, 28672] {
            assert_eq!(mapper.tell(&format!("remove-at {at} 4096")), "0");
            assert_eq!(mapper.tell(&format!("show {at} 6")), "......", "leases {leases}");
            assert_eq!(mapper.tell(&format!("read {at} 6")), "......", "leases {leases}");
        }
        assert_eq!(mapper.tell("remove-at 20481 4096"), "EINVAL");
        mapper.tell("store 20482 a");
        mapper.end();
        let mut other = Mapper::start(&served, "f");
        assert_eq!(other.tell("read 20480 5"), "..a..", "leases {leases}");
        assert_eq!(other.tell("read 24576 4"), "ffff", "leases {leases}");
        assert_eq!(other.tell("read 28672 6"), "......", "leases {leases}");
        assert_eq!(other.tell("read 36864 6"), "t40960", "leases {leases}");
    }
}

#[test]
fn stores_to_a_map_that_was_unmapped_unseen_are_found() {
    for (reuse, how) in [("", "read 3000000 6"), ("", "msync"), ("g", "read 3000000 6"), ("g", "msync")] {
        let served = Served::new(true);
        let mut mapper = Mapper::start(&served, "f");
        mapper.tell("fill 4194304");
        mapper.tell("map 4194304");
        assert_eq!(mapper.tell("msync"), "0");
        mapper.tell("store 3000000 before");
        mapper.tell("store 300000 before");
        assert_eq!(mapper.tell(&format!("unmap-unseen {reuse}")), "0", "{reuse}");
        mapper.tell(how);
        mapper.end();
        let mut other = Mapper::start(&served, "f");
        assert_eq!(other.tell("read 3000000 6"), "before", "{reuse}, {how}");
        assert_eq!(other.tell("read 300000 6"), "before", "{reuse}, {how}");
        if reuse == "g" {
            assert_eq!(Mapper::start(&served, "g").tell("read 4096 5"), "other", "{how}");
        }
    }
}

#[test]
fn stores_that_the_kernel_no_longer_tells_are_found() {
    let served = Served::new(true);
    let mut mapper = Mapper::start(&served, "f");
    mapper.tell("fill 4194304");
    mapper.tell("map 4194304");
    assert_eq!(mapper.tell("msync"), "0");
    for (round, how) in ["dontneed", "move", "remove", "protect"].into_iter().enumerate() {
        mapper.tell(&format!("store 3000000 before{round}"));
        assert_eq!(mapper.tell(how), "0", "{how}");
        let there = if how == "remove" { "......." } else { &format!("before{round}") };
        assert_eq!(mapper.tell("read 3000000 7"), there, "{how}");
        mapper.tell(&format!("store 3000000 after{round}"));
        assert_eq!(mapper.tell("read 3000000 6"), format!("after{round}"), "{how}");
    }
}

#[test]
fn stores_of_others_are_written_back_by_whoever_syncs() {
    let served = Served::new(true);
    let mut one = Mapper::start(&served, "f");
    one.tell("fill 1048576");
    one.tell("map 1048576");
    one.tell("store 0 one");
    assert_eq!(one.tell("msync"), "0");
    // By one that came later, by one that was killed, and by one that was forked.
    let mut two = Mapper::mapping(&served, "f", 1_048_576);
    let mut outside = Mapper::start(&served, "f");
    two.tell("store 100000 two");
    assert_eq!(one.tell("fsync"), "0");
    assert_eq!(outside.tell("read 100000 3"), "two");
    two.tell("store 200000 killed");
    two.kill();
    assert_eq!(one.tell("fsync"), "0");
    assert_eq!(outside.tell("read 200000 6"), "killed");
    assert_eq!(one.tell("stores-of-a-child 300000"), "0");
    assert_eq!(one.tell("fsync"), "0");
    assert_eq!(outside.tell("read 300000 5"), "child");
    // And by itself again, when it is alone.
    one.tell("store 400000 again");
    assert_eq!(one.tell("fsync"), "0");
    assert_eq!(outside.tell("read 400000 5"), "again");
}

#[test]
fn a_map_of_a_descriptor_that_appends_is_written_in_place() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f 1");
        mapper.tell("truncate 4096");
        mapper.tell("map 4096");
        mapper.tell("store 3 inside");
        assert_eq!(mapper.tell("msync"), "0");
        assert_eq!(mapper.tell("size"), "4096");
        assert_eq!(Mapper::start(&served, "f").tell("read 0 10"), "...inside.");
    }
}

#[test]
fn writes_are_not_undone_by_stores_of_another_process_on_the_same_page() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut writer = Mapper::start(&served, "f");
        writer.tell("truncate 4096");
        writer.tell("map 4096");
        let mut storer = Mapper::mapping(&served, "f", 4096);
        storer.begin("stores 2000");
        assert_eq!(writer.tell("writes 2000"), "0", "leases {leases}: writes that were undone");
        assert_eq!(storer.answer(), "0");
    }
}

#[test]
fn stores_around_what_another_process_wrote_without_a_map_leave_it_there() {
    for leases in [true, false] {
        for how in ["msync", "fsync", "unmap"] {
            let served = Served::new(leases);
            let mut storer = Mapper::start(&served, "f");
            storer.tell("truncate 16384");
            storer.tell("map 16384");
            let mut writer = Mapper::start(&served, "f");
            for at in [4097, 5000, 8190] {
                writer.tell(&format!("write {at} other"));
            }
            assert_eq!(writer.tell("fsync"), "0");
            for at in [4096, 5005, 8195, 12000] {
                storer.tell(&format!("store {at} x"));
            }
            assert_eq!(storer.tell(how), "0", "leases {leases}: {how}");
            for (at, there) in [(4096, "xother"), (5000, "otherx"), (8190, "otherx"), (12000, "x.")] {
                let read = writer.tell(&format!("read {at} {}", there.len()));
                assert_eq!(read, there, "leases {leases}: {how}");
            }
        }
    }
}

#[test]
fn what_a_process_that_was_killed_while_it_wrote_back_had_stored_last_is_there() {
    let served = Served::new(true);
    let mut killed = Mapper::start(&served, "f");
    killed.tell("truncate 4096");
    killed.tell("map 4096");
    killed.tell("store 0 first");
    let [pages, base] = served.memory_files().try_into().unwrap();
    // Held, so that the server does not bring the store to the volume by itself.
    let held = std::fs::File::open(&pages).unwrap();
    held.lock_shared().unwrap();
    killed.kill();
    assert!(served.is_idle_soon());
    // As if the kill had come between the volume's write and the base's: the volume has the first store, the pages the
    // next, the base none, and the header says where somebody was at work.
    assert_eq!(Mapper::start(&served, "f").tell("write 0 first"), "5");
    let write = |path, bytes: &[u8], at| {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    };
    write(pages, b"later", 0);
    write(base, &[0u64, 4096].map(u64::to_le_bytes).concat(), 16);
    drop(held);
    let mut next = Mapper::mapping(&served, "f", 4096);
    assert_eq!(next.tell("show 0 5"), "later");
    assert_eq!(next.tell("read 0 5"), "later");
    next.end();
    assert_eq!(served.memory_files(), [""; 0].map(PathBuf::from));
}

#[test]
fn where_a_killed_process_was_at_work_is_known_after_another_one_has_written_back_elsewhere() {
    let served = Served::new(true);
    let mut lives = Mapper::start(&served, "f");
    lives.tell("truncate 8192");
    lives.tell("map 8192");
    // From now on, the kernel tells what is stored to both pages.
    lives.tell("store 100 one");
    lives.tell("store 5000 two");
    assert_eq!(lives.tell("msync"), "0");
    let mut writer = Mapper::start(&served, "f");
    assert_eq!(writer.tell("write 8 first"), "5");
    writer.end();
    let [pages, base] = served.memory_files().try_into().unwrap();
    // As above. The process that lives has stored to the other page alone.
    let write = |path, bytes: &[u8], at| {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    };
    write(&pages, b"later", 8);
    write(&base, &[0; 8], 4096 + 8);
    write(&base, &[10u64, 14].map(u64::to_le_bytes).concat(), 16);
    lives.tell("store 5000 other");
    assert_eq!(lives.tell("msync"), "0");
    lives.kill();
    assert!(served.is_idle_soon());
    let mut reader = Mapper::start(&served, "f");
    assert_eq!(reader.tell("read 8 5"), "later");
    assert_eq!(reader.tell("read 5000 5"), "other");
    reader.end();
}

#[test]
fn pages_that_somebody_else_has_laid_in_memory_are_not_used() {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("left out: only the superuser can make files of others");
        return;
    }
    for what in ["file", "directory"] {
        let served = Served::new(true);
        let mut mapper = Mapper::start(&served, "f");
        mapper.tell("truncate 4096");
        assert_eq!(mapper.tell("map 4096"), "mapped");
        let [pages, _] = served.memory_files().try_into().unwrap();
        assert_eq!(mapper.tell("unmap"), "0");
        let dir = pages.parent().unwrap();
        std::fs::create_dir(dir).unwrap();
        let theirs = if what == "file" { pages.as_path() } else { dir };
        if what == "file" {
            std::fs::write(theirs, "").unwrap();
        }
        std::os::unix::fs::chown(theirs, Some(1), Some(1)).unwrap();
        assert_eq!(mapper.tell("map 4096"), "EACCES", "{what}");
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!(mapper.tell("map 4096"), "mapped");
    }
}

/// Fills the volume to the last block.
fn fill(served: &Served) {
    let filled = served.shell(
        "cat /dev/zero 2>&1 > /weft/ballast; for i in 1 2 3; do dd if=/dev/zero bs=4096 2>&1 >> /weft/ballast; sync; done",
    );
    assert!(filled.contains("No space left on device"), "{filled}");
}

/// Waits until the server has looked through what killed processes left.
fn memory_is_empty_soon(served: &Served) -> bool {
    let begun = std::time::Instant::now();
    while !served.memory_files().is_empty() {
        if begun.elapsed() > std::time::Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    true
}

#[test]
fn stores_to_allocated_and_to_written_blocks_are_there_on_a_full_volume() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f");
        mapper.tell("truncate 1048576");
        assert_eq!(mapper.tell("allocate 0 524288"), "0");
        mapper.tell("write 600000 written");
        // A last block that is packed with others.
        let mut small = Mapper::start(&served, "small");
        small.tell("write 0 before");
        fill(&served);
        assert_eq!(mapper.tell("map 1048576"), "mapped");
        assert_eq!(small.tell("map 6"), "mapped");
        mapper.tell("store 7 allocated");
        mapper.tell("store 524000 at-its-end");
        mapper.tell("store 600001 rewritten");
        small.tell("store 0 after.");
        for one in [&mut mapper, &mut small] {
            for call in ["msync", "unmap", "fsync", "close"] {
                assert_eq!(one.tell(call), "0", "leases {leases}: {call}");
            }
        }
        let mut other = Mapper::start(&served, "f");
        assert_eq!(other.tell("read 7 9"), "allocated", "leases {leases}");
        assert_eq!(other.tell("read 524000 10"), "at-its-end", "leases {leases}");
        assert_eq!(other.tell("read 600000 10"), "wrewritten", "leases {leases}");
        assert_eq!(Mapper::start(&served, "small").tell("read 0 6"), "after.", "leases {leases}");
    }
}

#[test]
fn a_full_volume_that_does_not_take_stores_says_so_and_has_them_as_soon_as_there_is_room() {
    for leases in [true, false] {
        let served = Served::new(leases);
        let mut mapper = Mapper::start(&served, "f");
        mapper.tell("truncate 1048576");
        mapper.tell("write 4096 written");
        let mut other = Mapper::start(&served, "f");
        fill(&served);
        assert_eq!(mapper.tell("map 1048576"), "mapped");
        mapper.tell("store 4000 hole");
        mapper.tell("store 4097 beside");
        assert_eq!(mapper.tell("msync"), "ENOSPC", "leases {leases}");
        assert_eq!(other.tell("read 4096 10"), "wbeside...", "what has room is not kept from it");
        assert_eq!(other.tell("fsync"), "ENOSPC", "leases {leases}: every open file hears of it");
        assert_eq!(other.tell("fsync"), "0", "leases {leases}: once");
        assert_eq!(other.tell("syncfs"), "ENOSPC", "leases {leases}: and of the volume's");
        assert_eq!(mapper.tell("fsync"), "ENOSPC", "leases {leases}: tried again");
        assert_eq!(mapper.tell("unmap"), "0");
        assert_eq!(mapper.tell("close"), "ENOSPC", "leases {leases}");
        assert_eq!(other.tell("close"), "ENOSPC", "leases {leases}");
        assert!(served.notes().iter().any(|note| note.contains("shared mapping")), "{:?}", served.notes());
        drop(other);
        // Closed by all, and everybody has heard.
        let mut again = Mapper::start(&served, "f");
        assert_eq!(again.tell("fsync"), "0");
        served.shell("rm /weft/ballast; sync");
        assert!(memory_is_empty_soon(&served), "{:?}", served.memory_files());
        assert_eq!(again.tell("read 4000 4"), "hole", "leases {leases}");
        assert_eq!(again.tell("fsync"), "0");
    }
}

#[test]
fn what_the_end_of_a_process_could_not_store_is_told_to_whoever_opens_the_file_next() {
    let served = Served::new(true);
    let mut mapper = Mapper::start(&served, "f");
    mapper.tell("truncate 1048576");
    fill(&served);
    mapper.tell("map 1048576");
    mapper.tell("store 0 hole");
    mapper.end();
    let mut next = Mapper::start(&served, "f");
    assert_eq!(next.tell("fsync"), "ENOSPC");
    assert_eq!(next.tell("fsync"), "0");
    served.shell("rm /weft/ballast; sync");
    assert!(memory_is_empty_soon(&served), "{:?}", served.memory_files());
    assert_eq!(next.tell("read 0 4"), "hole");
}

#[test]
fn killed_processes_leave_nothing_in_memory_and_their_stores_in_the_file() {
    let served = Served::new(true);
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some_and(|v| v != "0") { 200 } else { 24 };
    for round in 0..rounds {
        let file = format!("f{}", round % 5);
        let mut killed = Mapper::start(&served, &file);
        killed.tell("truncate 100000");
        killed.tell("map 100000");
        killed.tell(&format!("store 50000 round{round:04}"));
        let removed = round % 2 == 0;
        if removed {
            killed.tell(&format!("unlink {file}"));
        }
        killed.kill();
        if !removed && round % 4 == 1 {
            assert!(memory_is_empty_soon(&served), "round {round}: {:?}", served.memory_files());
            let read = Mapper::start(&served, &file).tell("read 50000 9");
            assert_eq!(read, format!("round{round:04}"));
        }
    }
    assert!(memory_is_empty_soon(&served), "{:?}", served.memory_files());
}
