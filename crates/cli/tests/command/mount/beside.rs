//! What the kernel does by itself on a mount.

use super::*;

#[test]
fn who_seeks_data_finds_what_a_program_has_stored_to_its_map() {
    let bench = Bench::with_volume();
    let mut ways = vec![vec![], vec!["-o", "writeback"]];
    ways.extend(by_io_uring().map(|way| way.to_vec()));
    for way in ways {
        let Some(mut mount) = Mounted::new(&bench, &way) else { return };
        let script = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(file, 1 << 24)
map = mmap.mmap(file, 1 << 24)
other = os.open(sys.argv[1], os.O_RDONLY)
for at in [5 << 20, 9 << 20]:
    map[at] = 7
    assert os.lseek(other, 0, os.SEEK_DATA) <= 5 << 20
    found = os.lseek(other, at, os.SEEK_DATA)
    assert found == at, (found, at)
map.flush()
try:
    os.lseek(other, 1 << 24, os.SEEK_DATA)
    sys.exit('data behind the end')
except OSError as error:
    assert error.errno == 6, error
";
        let done = Command::new("python3").args(["-c", script]).arg(mount.dir.join("f")).status().unwrap();
        assert!(done.success(), "{way:?}");
        assert_eq!(mount.stop(), 0);
        drop(mount);
        fs::remove_dir(bench.dir().join("mnt")).unwrap();
    }
}
