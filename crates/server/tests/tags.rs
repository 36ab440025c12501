//! What placement says of a file, and whose it is, is the tag of the file in the core, through whatever a program does with it.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Rig, connect, is_superuser};
use weft_client::{AttrChange, FileRef};
use weft_core::markers::Markers;
use weft_core::{DataClass, Ino, Tag, TagFlags};
use weft_vfs::InodeFlags;

const USER: u32 = 1000;

#[test]
fn a_file_keeps_its_owner_and_its_flags_whoever_writes_renames_or_hints() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::rules(64 << 20);
    let root = rig.client();
    root.set_attr(FileRef::ROOT, b"/", 0, &AttrChange { mode: Some(0o777), ..AttrChange::default() })
        .unwrap();
    let path = rig.path.clone();
    let ino = rig.as_user(USER, || {
        let client = connect(&path);
        let flags = libc::O_RDWR | libc::O_CREAT;
        let file = client.open(FileRef::ROOT, b"/000012.log", flags, 0o666).unwrap().file;
        client.fstat(file).unwrap().ino
    });
    let ino = weft_core::Ino(ino);
    let fs = rig.mounted.core();
    let made = fs.tag(ino).unwrap();
    assert_eq!((made.owner, made.class), (USER, DataClass::Log), "{made:?}");
    assert!(made.stream.0 != 0);

    let secure = TagFlags::SECURE_DELETE;
    fs.set_tag(ino, Tag { flags: secure, ..made }).unwrap();
    let check = |class: DataClass, owner: u32| {
        let tag = fs.tag(ino).unwrap();
        assert_eq!((tag.class, tag.owner, tag.flags), (class, owner, secure), "{tag:?}");
        tag
    };
    // Other classes of files, by name: the file is placed anew.
    root.rename(FileRef::ROOT, b"/000012.log", FileRef::ROOT, b"/000012.db", 0).unwrap();
    let renamed = check(DataClass::InPlace, USER);
    assert_ne!(renamed.stream, made.stream);
    // It was opened for writing under another name than it has.
    fs.set_tag(ino, Tag { flags: secure, ..made }).unwrap();
    let opened = root.open(FileRef::ROOT, b"/000012.db", libc::O_RDWR, 0).unwrap();
    check(DataClass::InPlace, USER);
    root.set_hint(opened.file, 2).unwrap();
    let owner = fs.tag(ino).unwrap();
    assert_eq!((owner.owner, owner.flags), (USER, secure));
    let chown = AttrChange { uid: Some(7), ..AttrChange::default() };
    root.set_attr(FileRef::ROOT, b"/000012.db", 0, &chown).unwrap();
    assert_eq!(fs.tag(ino).unwrap(), Tag { owner: 7, ..owner });
}

#[test]
fn a_log_that_is_removed_before_it_has_to_be_durable_is_never_written_to_the_device() {
    let rig = Rig::rules(64 << 20);
    let client = rig.client();
    let write_and_remove = |name: &[u8]| {
        let file = client.open(FileRef::ROOT, name, libc::O_RDWR | libc::O_CREAT, 0o666).unwrap().file;
        let tag = rig.mounted.core().tag(Ino(client.fstat(file).unwrap().ino)).unwrap();
        let written = || {
            let groups = rig.mounted.core().core_stats().groups;
            groups
                .iter()
                .filter(|(key, _)| key.0 == tag.stream.0)
                .map(|(_, group)| group.bytes_written)
                .sum::<u64>()
        };
        let before = written();
        // As RocksDB does with its logs: more room than is needed, given back at the end.
        client.fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 0, 3 << 20).unwrap();
        for piece in 0..4 {
            client.pwrite(file, &[7; 128 << 10], piece << 17).unwrap();
        }
        let mut out = vec![0; 512 << 10];
        assert_eq!(client.pread(file, &mut out, 0), Ok(out.len()));
        assert!(out.iter().all(|byte| *byte == 7));
        client.ftruncate(file, 512 << 10).unwrap();
        let attr = client.fstat(file).unwrap();
        assert_eq!((attr.size, attr.blocks), (512 << 10, 1024));
        client.close(file).unwrap();
        client.unlink(FileRef::ROOT, name, 0).unwrap();
        (tag.class, written() - before)
    };
    // Old data is written back, and a machine may be as slow as that.
    assert!((0..8).any(|_| write_and_remove(b"/000012.log") == (DataClass::Log, 0)));
    assert_eq!(write_and_remove(b"/000012.sst"), (DataClass::Immutable, 512 << 10));
}

#[test]
fn secure_deletion_is_the_owners_to_set_is_inherited_and_leaves_nothing_after_an_fsync_of_the_directory() {
    if !is_superuser() {
        return;
    }
    let rig = Rig::new(64 << 20);
    let root = rig.client();
    let fs = rig.mounted.core();
    let secure = InodeFlags::SECURE_DELETE.bits();
    root.mkdir(FileRef::ROOT, b"/d", 0o777).unwrap();
    let dir = root.open(FileRef::ROOT, b"/d", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
    let path = rig.path.clone();
    let refused = rig.as_user(USER, || {
        let client = connect(&path);
        let dir = client.open(FileRef::ROOT, b"/d", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap().file;
        client.set_inode_flags(dir, secure, secure)
    });
    assert_eq!(refused, Err(libc::EPERM));
    root.set_inode_flags(dir, secure, secure).unwrap();
    let marker: Vec<u8> = (0..100_000u32).flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let name = b"/d/a name of sixteen letters and more";
    let file = root.open(FileRef::ROOT, name, libc::O_RDWR | libc::O_CREAT, 0o644).unwrap().file;
    let (_, flags) = root.stat_with_flags(file, b"", libc::AT_EMPTY_PATH).unwrap();
    assert_eq!(flags, InodeFlags::SECURE_DELETE);
    assert_eq!(fs.tag(Ino(root.fstat(file).unwrap().ino)).unwrap().flags, TagFlags::SECURE_DELETE);
    // Appended and made durable, overwritten and made durable, as programs do it that need no server for it.
    for at in [0, 0, 200_000, 4_096] {
        root.pwrite(file, &marker, at).unwrap();
        root.fsync(file).unwrap();
    }
    let mut markers = Markers::default();
    markers.add(&marker);
    markers.add(name);
    let found = || {
        let mut count = 0;
        let model = rig.device().model().unwrap();
        model.raw(&mut |bytes| markers.find(bytes, |_, _| count += 1)).unwrap();
        count
    };
    assert!(found() > 1_000);
    root.close(file).unwrap();
    root.unlink(FileRef::ROOT, name, 0).unwrap();
    root.fsync(dir).unwrap();
    assert_eq!(found(), 0);
}
