//! `weft run --hints`.

use crate::volume::Bench;
use predicates::str::contains;
use std::process::Command;

/// A program that reads back the hints of files, since only a program that calls `fcntl` can.
const SHOW: &str = "\
import fcntl, os, struct, sys
F_GET_RW_HINT, F_SET_RW_HINT = 1035, 1036
def hint(fd):
    return struct.unpack('Q', fcntl.fcntl(fd, F_GET_RW_HINT, struct.pack('Q', 0)))[0]
os.chdir(sys.argv[1])
for name in ['IDENTITY', '000005.blob', 'MANIFEST-000003', 'x.sst']:
    fd = os.open(name, os.O_CREAT | os.O_WRONLY)
    print(name, hint(fd))
    # Rubbish behind the four bytes, as RocksDB before 9.2 has it.
    try:
        fcntl.fcntl(fd, F_SET_RW_HINT, struct.pack('II', 4, 0x7f7f))
        print('set', hint(fd))
    except OSError as e:
        print('refused', e.errno)
print('read', hint(os.open('x.sst', os.O_RDONLY)))
";

#[test]
fn files_get_the_lifetimes_of_their_streams_and_a_programs_broken_hint_is_repaired() {
    let bench = Bench::empty();
    bench.file("show.py", SHOW);
    std::fs::create_dir(bench.path("alone")).unwrap();
    std::fs::create_dir(bench.path("db")).unwrap();
    let natively = Command::new("python3").current_dir(bench.dir()).args(["show.py", "alone"]).output();
    let natively = String::from_utf8(natively.unwrap().stdout).unwrap();
    assert!(natively.contains("000005.blob 0\nrefused 22\n"), "{natively}");

    let ran = bench.command().args(["run", "--hints", "--", "python3", "show.py", "db"]).output().unwrap();
    let (out, report) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success(), "{report}");
    // A file of RocksDB's kind tells whose directory it is; from then on all that is made there is RocksDB's.
    assert!(out.contains("000005.blob 5\nset 4\n"), "{out}\n{report}");
    assert!(out.contains("MANIFEST-000003 4\nset 4\n"), "{out}\n{report}");
    assert!(out.contains("x.sst 3\nset 4\n"), "{out}\n{report}");
    assert!(out.ends_with("read 4\n"), "what is opened to be read keeps its hint: {out}");
    assert!(report.contains("rocksdb.blob") && report.contains("extreme"), "{report}");
}

#[test]
fn hints_and_a_volume_exclude_each_other() {
    let bench = Bench::empty();
    bench.weft(&["run", "--hints", "--volume", "mem:64M", "--", "true"]).code(125);
    bench.weft(&["run", "--", "true"]).code(125).stderr(contains("--volume"));
}
