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

#[test]
fn who_seeks_data_under_the_library_finds_what_the_process_has_stored_to_its_map() {
    let bench = Bench::with_volume();
    let script = "
import mmap, os
file = os.open('/weft/f', os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
map = mmap.mmap(file, 1 << 20)
map[5 << 16] = 7
other = os.open('/weft/f', os.O_RDONLY)
print(os.lseek(other, 0, os.SEEK_DATA) >> 16, os.lseek(other, 5 << 16, os.SEEK_HOLE) >> 16)
";
    let found = bench.stdout(&["run", "--quiet", "--volume", "vol.img", "--", "python3", "-c", script]);
    assert_eq!(found, "5 5\n");
}

#[test]
fn each_change_of_an_inode_is_durable_with_sync() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &["-o", "sync"]) else { return };
    let file = fs::File::create(mount.dir.join("f")).unwrap();
    file.set_len(77).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    mount.child.kill().unwrap();
    mount.child.wait().unwrap();
    drop(file);
    wait_for("umount", || Command::new("umount").arg(&mount.dir).status().unwrap().success());
    let listed = bench.stdout(&["ls", "-l", "vol.img:/f"]);
    assert!(listed.starts_with("-rw-------") && listed.contains(" 77 "), "{listed}");
}

#[test]
fn who_makes_what_another_removes_at_once_has_made_it() {
    let bench = Bench::with_volume();
    let Some(mut mount) = Mounted::new(&bench, &[]) else { return };
    let remover = "
import os
while not os.path.exists('/weft/stop'):
    for remove, name in [(os.rmdir, '/weft/d'), (os.unlink, '/weft/l'), (os.unlink, '/weft/p')]:
        try:
            remove(name)
        except FileNotFoundError:
            pass
";
    let maker = "
import os, sys
os.chdir(sys.argv[1])
for _ in range(3000):
    for make in [lambda: os.mkdir('d'), lambda: os.symlink('x', 'l'), lambda: os.mkfifo('p')]:
        try:
            make()
        except FileExistsError:
            pass
open('stop', 'w').close()
";
    let removes =
        bench.process(&["run", "--quiet", "--volume", "vol.img", "--", "python3", "-c", remover]).spawn();
    let made = Command::new("python3").args(["-c", maker]).arg(&mount.dir).output().unwrap();
    fs::File::create(mount.dir.join("stop")).unwrap();
    assert!(removes.unwrap().wait().unwrap().success());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(mount.stop(), 0);
}
