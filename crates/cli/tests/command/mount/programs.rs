//! Compound operations beside a mount.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counts on in two files, which it expects to be alike, and makes both longer.
const COUNT: &str = r#"
[[op]]
do = "open"
name = "a"
path = "/a"
access = "read_write"
[[op]]
do = "open"
name = "b"
path = "/b"
access = "read_write"
[[op]]
do = "read"
name = "bytes"
file = "$a"
offset = 0
len = 8
[[op]]
do = "read"
name = "others"
file = "$b"
offset = 0
len = 8
[[op]]
do = "expect"
that = ["$bytes", "==", "$others"]
[[op]]
do = "unpack"
name = "count"
bytes = "$bytes"
from = 0
width = 8
[[op]]
do = "arith"
name = "next"
arith = "add"
left = "$count"
right = 1
[[op]]
do = "pack"
name = "new"
num = "$next"
width = 8
[[op]]
do = "write"
file = "$a"
at = 0
data = "$new"
[[op]]
do = "write"
file = "$b"
at = 0
data = "$new"
[[op]]
do = "write"
file = "$a"
at = "end"
data = "more"
[[op]]
do = "write"
file = "$b"
at = "end"
data = "more"
"#;

#[test]
fn who_reads_by_a_mount_sees_a_program_whole_or_not_at_all() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let paths = ["a", "b"].map(|name| mount.dir.join(name));
    for path in &paths {
        fs::write(path, 0u64.to_le_bytes()).unwrap();
    }
    fs::write(bench.path("count.toml"), COUNT).unwrap();
    let rounds = if std::env::var_os("WEFT_CAMPAIGN").is_some() { 2000u64 } else { 40 };
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let count_of = |path: &std::path::Path| {
        let mut bytes = vec![0; 64 << 10];
        // One call: of two, the second may see more.
        let len = fs::File::open(path).unwrap().read_at(&mut bytes, 0).unwrap();
        let count = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert_eq!(len as u64, 8 + 4 * count, "half of a step in one file");
        count
    };
    std::thread::scope(|scope| {
        for by_size in [false, true] {
            let (stop, looks, paths) = (&stop, &looks, &paths);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let seen = paths.each_ref().map(|path| match by_size {
                        true => (fs::metadata(path).unwrap().len() - 8) / 4,
                        false => count_of(path),
                    });
                    // What is looked at later is not older.
                    assert!(seen[0] <= seen[1], "{seen:?}");
                    looks.fetch_add(1, Relaxed);
                }
            });
        }
        // Whatever comes of them, the readers end.
        let all_done =
            (0..rounds).all(|_| bench.weft(&["do", "vol.img", "count.toml"]).try_success().is_ok());
        stop.store(true, Relaxed);
        assert!(all_done);
    });
    assert!(looks.load(Relaxed) > rounds);
    assert_eq!(paths.each_ref().map(|path| count_of(path)), [rounds; 2]);
    assert_eq!(mount.stop(), 0);
    bench.weft(&["fsck", "vol.img"]).success();
}
