//! What placement says of a file, and whose it is, is the tag of the file in the core, through whatever a program does with it.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::{Rig, connect, is_superuser};
use weft_client::{AttrChange, FileRef};
use weft_core::{DataClass, Ino, Tag, TagFlags};

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
