//! Names come and go: lookup, create, unlink, rmdir.

use super::Make;
use super::fixture::{Fixture, OWNER, args, assert_fails};
use weft_core::{Ino, Tag};
use weft_vfs::{CreateArgs, FileKind, FsError, NAME_MAX, NewNode, PATH_MAX};

/// The root of an empty volume is a directory with two links.
pub fn the_root_is_a_directory_that_is_its_own_parent(make: Make<'_>) {
    let fs = &*make();
    let root = fs.attr(Ino::ROOT);
    assert_eq!((root.ino, root.kind, root.links), (Ino::ROOT, FileKind::Directory, 2));
    assert_eq!(fs.parent(Ino::ROOT).unwrap(), Ino::ROOT);
}

/// A fresh volume has nothing in it.
pub fn a_new_volume_is_empty(make: Make<'_>) {
    let fs = &*make();
    assert!(fs.list(Ino::ROOT).is_empty());
}

/// A name that nothing has is `NotFound`.
pub fn a_missing_name_is_not_found(make: Make<'_>) {
    let fs = &*make();
    assert_fails!(fs.lookup(Ino::ROOT, b"missing"), FsError::NotFound);
    assert_fails!(fs.unlink(Ino::ROOT, b"missing"), FsError::NotFound);
    assert_fails!(fs.rmdir(Ino::ROOT, b"missing"), FsError::NotFound);
}

/// What `create` returns is what `lookup` and `getattr` return.
pub fn a_created_file_is_found_by_its_name(make: Make<'_>) {
    let fs = &*make();
    let created = fs.create(Ino::ROOT, b"file", &args(NewNode::File)).unwrap();
    assert_ne!(created.ino, Ino::ROOT);
    assert_ne!(created.ino, Ino(0));
    assert_eq!(fs.lookup(Ino::ROOT, b"file").unwrap(), created);
    assert_eq!(fs.getattr(created.ino).unwrap(), created);
}

/// A new file is empty, has one name, and the mode and owner that were asked for.
pub fn a_new_file_has_the_attributes_it_was_created_with(make: Make<'_>) {
    let fs = &*make();
    let wanted = CreateArgs { uid: 12, gid: 34, ..CreateArgs::new(NewNode::File, 0o4751) };
    let attr = fs.create(Ino::ROOT, b"file", &wanted).unwrap();
    assert_eq!(attr.kind, FileKind::File);
    assert_eq!((attr.perm, attr.uid, attr.gid), (0o4751, 12, 34));
    assert_eq!((attr.links, attr.size, attr.blocks), (1, 0, 0));
    assert_eq!(attr.mode(), libc::S_IFREG | 0o4751);
}

/// Two files are two inodes.
pub fn different_names_are_different_inodes(make: Make<'_>) {
    let fs = &*make();
    let (a, b) = (fs.file("a"), fs.file("b"));
    assert_ne!(a, b);
    assert_eq!((fs.ino("a").unwrap(), fs.ino("b").unwrap()), (a, b));
}

/// A taken name is `Exists`, whatever has it and whatever wants it, and stays with what has it.
pub fn a_taken_name_cannot_be_created_again(make: Make<'_>) {
    let fs = &*make();
    let (file, dir) = (fs.file("file"), fs.dir("dir"));
    for node in
        [NewNode::File, NewNode::Directory, NewNode::Symlink(b"x"), NewNode::Special(FileKind::Fifo, 0)]
    {
        assert_fails!(fs.create(Ino::ROOT, b"file", &args(node)), FsError::Exists);
        assert_fails!(fs.create(Ino::ROOT, b"dir", &args(node)), FsError::Exists);
    }
    assert_eq!((fs.ino("file").unwrap(), fs.ino("dir").unwrap()), (file, dir));
    assert_eq!(fs.attr(Ino::ROOT).links, 3);
}

/// What is no directory has no entries.
pub fn only_directories_have_entries(make: Make<'_>) {
    let fs = &*make();
    let file = fs.file("file");
    let link = fs.make(Ino::ROOT, b"symlink", NewNode::Symlink(b"."));
    for ino in [file, link] {
        assert_fails!(fs.lookup(ino, b"x"), FsError::NotDirectory);
        assert_fails!(fs.create(ino, b"x", &args(NewNode::File)), FsError::NotDirectory);
        assert_fails!(fs.unlink(ino, b"x"), FsError::NotDirectory);
        assert_fails!(fs.rmdir(ino, b"x"), FsError::NotDirectory);
        assert_fails!(fs.readdir(ino, 0, &mut |_| true), FsError::NotDirectory);
        assert_fails!(fs.parent(ino), FsError::NotDirectory);
        assert_fails!(fs.link(file, ino, b"x"), FsError::NotDirectory);
    }
}

/// A directory starts empty, with two links, and knows its parent.
pub fn a_new_directory_is_empty_and_knows_its_parent(make: Make<'_>) {
    let fs = &*make();
    let outer = fs.dir("outer");
    let inner = fs.make(outer, b"inner", NewNode::Directory);
    assert_eq!(fs.attr(inner).kind, FileKind::Directory);
    assert_eq!(fs.attr(inner).links, 2);
    assert!(fs.list(inner).is_empty());
    assert_eq!(fs.parent(inner).unwrap(), outer);
    assert_eq!(fs.parent(outer).unwrap(), Ino::ROOT);
}

/// A directory has two links and one for each subdirectory; files in it do not count.
pub fn a_directory_has_a_link_from_each_subdirectory(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    fs.make(dir, b"file", NewNode::File);
    for n in 0..5u32 {
        fs.make(dir, format!("sub{n}").as_bytes(), NewNode::Directory);
        assert_eq!(fs.attr(dir).links, 3 + n);
    }
    fs.rmdir(dir, b"sub2").unwrap();
    assert_eq!(fs.attr(dir).links, 6);
}

/// `..` is not an entry that a listing or a lookup shows.
pub fn dot_and_dot_dot_are_not_entries(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    fs.make(dir, b"...", NewNode::File);
    assert_eq!(fs.list(dir), ["..."]);
}

/// Names are bytes: not UTF-8, not case-folded, not normalised.
pub fn names_are_bytes(make: Make<'_>) {
    let fs = &*make();
    let mut names: Vec<Vec<u8>> = vec![
        b"name".to_vec(),
        b"Name".to_vec(),
        b" name".to_vec(),
        b"name ".to_vec(),
        b"-".to_vec(),
        "\u{e9}".into(),
        "e\u{301}".into(),
        vec![0xff, 0xfe],
        b"a\nb".to_vec(),
        vec![1],
    ];
    let inos: Vec<Ino> = names.iter().map(|name| fs.make(Ino::ROOT, name, NewNode::File)).collect();
    for (name, ino) in names.iter().zip(inos) {
        assert_eq!(fs.lookup(Ino::ROOT, name).unwrap().ino, ino, "{name:?}");
    }
    let mut listed: Vec<Vec<u8>> =
        fs.entries(Ino::ROOT, 0, usize::MAX).into_iter().map(|entry| entry.0).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
}

/// 255 bytes are a name, 256 are `NameTooLong` everywhere.
pub fn names_have_up_to_255_bytes(make: Make<'_>) {
    let fs = &*make();
    let longest = vec![b'n'; NAME_MAX];
    let ino = fs.make(Ino::ROOT, &longest, NewNode::File);
    assert_eq!(fs.lookup(Ino::ROOT, &longest).unwrap().ino, ino);
    assert_eq!(fs.entries(Ino::ROOT, 0, 9)[0].0, longest);
    let mut sibling = longest.clone();
    sibling[NAME_MAX - 1] = b'm';
    assert_fails!(fs.lookup(Ino::ROOT, &sibling), FsError::NotFound);
    fs.rename(Ino::ROOT, &longest, Ino::ROOT, &sibling, Default::default()).unwrap();
    fs.unlink(Ino::ROOT, &sibling).unwrap();

    let too_long = vec![b'n'; NAME_MAX + 1];
    let file = fs.file("file");
    assert_fails!(fs.lookup(Ino::ROOT, &too_long), FsError::NameTooLong);
    for node in [NewNode::File, NewNode::Directory, NewNode::Symlink(b"x")] {
        assert_fails!(fs.create(Ino::ROOT, &too_long, &args(node)), FsError::NameTooLong);
    }
    assert_fails!(fs.link(file, Ino::ROOT, &too_long), FsError::NameTooLong);
    assert_fails!(
        fs.rename(Ino::ROOT, b"file", Ino::ROOT, &too_long, Default::default()),
        FsError::NameTooLong
    );
    assert_eq!(fs.list(Ino::ROOT), ["file"]);
}

/// A removed name is free again; its inode is gone when nothing refers to it.
pub fn unlink_removes_the_name_and_the_inode(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"content");
    fs.unlink(Ino::ROOT, b"file").unwrap();
    assert_fails!(fs.lookup(Ino::ROOT, b"file"), FsError::NotFound);
    assert_fails!(fs.getattr(ino), FsError::Stale);
    assert!(fs.list(Ino::ROOT).is_empty());
    let again = fs.file("file");
    assert_eq!(fs.attr(again).size, 0);
    assert!(fs.content(again).is_empty());
}

/// `unlink` is not for directories.
pub fn unlink_refuses_directories(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    assert_fails!(fs.unlink(Ino::ROOT, b"dir"), FsError::IsDirectory);
    assert_eq!(fs.ino("dir").unwrap(), dir);
}

/// `rmdir` is for directories only.
pub fn rmdir_refuses_what_is_no_directory(make: Make<'_>) {
    let fs = &*make();
    let file = fs.file("file");
    fs.make(Ino::ROOT, b"symlink", NewNode::Symlink(b"file"));
    assert_fails!(fs.rmdir(Ino::ROOT, b"file"), FsError::NotDirectory);
    assert_fails!(fs.rmdir(Ino::ROOT, b"symlink"), FsError::NotDirectory);
    assert_eq!(fs.ino("file").unwrap(), file);
}

/// A directory goes only when nothing is in it.
pub fn rmdir_refuses_a_directory_that_is_not_empty(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    fs.make(dir, b"file", NewNode::File);
    assert_fails!(fs.rmdir(Ino::ROOT, b"dir"), FsError::NotEmpty);
    fs.unlink(dir, b"file").unwrap();
    fs.make(dir, b"sub", NewNode::Directory);
    assert_fails!(fs.rmdir(Ino::ROOT, b"dir"), FsError::NotEmpty);
    fs.rmdir(dir, b"sub").unwrap();
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    assert_fails!(fs.getattr(dir), FsError::Stale);
    assert_eq!(fs.attr(Ino::ROOT).links, 2);
}

/// A removed directory that is still open is there but takes no names.
pub fn a_removed_directory_takes_no_new_names(make: Make<'_>) {
    let fs = &*make();
    let dir = fs.dir("dir");
    let file = fs.file("file");
    fs.open(dir).unwrap();
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    assert_eq!(fs.attr(dir).links, 0);
    assert_fails!(fs.create(dir, b"x", &args(NewNode::File)), FsError::NotFound);
    assert_fails!(fs.create(dir, b"x", &args(NewNode::Directory)), FsError::NotFound);
    assert_fails!(fs.link(file, dir, b"x"), FsError::NotFound);
    assert_fails!(fs.rename(Ino::ROOT, b"file", dir, b"x", Default::default()), FsError::NotFound);
    assert_fails!(fs.lookup(dir, b"x"), FsError::NotFound);
    assert!(fs.entries(dir, 0, 9).is_empty());
    fs.release(dir);
    assert_fails!(fs.getattr(dir), FsError::Stale);
}

/// A symlink gives back its target, byte by byte, and its size is the target's length.
pub fn a_symlink_gives_back_its_target(make: Make<'_>) {
    let fs = &*make();
    let longest = vec![b't'; PATH_MAX - 1];
    for (name, target) in [("short", &b"x"[..]), ("odd", b"../a//b/./\xff"), ("long", &longest)] {
        let ino = fs.make(Ino::ROOT, name.as_bytes(), NewNode::Symlink(target));
        let attr = fs.attr(ino);
        assert_eq!((attr.kind, attr.size, attr.links), (FileKind::Symlink, target.len() as u64, 1));
        assert_eq!(fs.readlink(ino).unwrap(), target);
    }
    let too_long = vec![b't'; PATH_MAX];
    assert_fails!(fs.create(Ino::ROOT, b"no", &args(NewNode::Symlink(&too_long))), FsError::NameTooLong);
    assert_fails!(fs.ino("no"), FsError::NotFound);
}

/// Only symlinks have a target.
pub fn readlink_refuses_what_is_no_symlink(make: Make<'_>) {
    let fs = &*make();
    let (file, dir) = (fs.file("file"), fs.dir("dir"));
    assert_fails!(fs.readlink(file), FsError::Invalid(_));
    assert_fails!(fs.readlink(dir), FsError::Invalid(_));
}

/// Fifos, sockets and devices are names with a kind and a device number.
pub fn special_files_keep_their_kind_and_device_number(make: Make<'_>) {
    let fs = &*make();
    let kinds = [
        ("fifo", FileKind::Fifo, 0),
        ("socket", FileKind::Socket, 0),
        ("char", FileKind::CharDevice, 0x0103),
        ("block", FileKind::BlockDevice, 0xffff_ffff_0000_0801),
    ];
    for (name, kind, rdev) in kinds {
        let ino = fs.make(Ino::ROOT, name.as_bytes(), NewNode::Special(kind, rdev));
        let attr = fs.attr(ino);
        assert_eq!((attr.kind, attr.rdev, attr.links, attr.size), (kind, rdev, 1, 0), "{name}");
        assert_eq!(attr.uid, OWNER);
        assert_eq!(fs.entries(Ino::ROOT, 0, 9).iter().find(|e| e.1 == ino).unwrap().2, kind);
    }
    fs.unlink(Ino::ROOT, b"char").unwrap();
    assert_eq!(fs.list(Ino::ROOT), ["block", "fifo", "socket"]);
}

/// Every operation on an inode that never was, or is gone, is `Stale`.
pub fn an_inode_that_is_gone_is_stale(make: Make<'_>) {
    let fs = &*make();
    fs.file("there");
    let gone = fs.file("gone");
    fs.unlink(Ino::ROOT, b"gone").unwrap();
    for ino in [gone, Ino(0), Ino(1 << 40), Ino(u64::MAX)] {
        assert_fails!(fs.getattr(ino), FsError::Stale);
        assert_fails!(fs.setattr(ino, &Default::default()), FsError::Stale);
        assert_fails!(fs.lookup(ino, b"x"), FsError::Stale);
        assert_fails!(fs.create(ino, b"x", &args(NewNode::File)), FsError::Stale);
        assert_fails!(fs.unlink(ino, b"x"), FsError::Stale);
        assert_fails!(fs.rmdir(ino, b"x"), FsError::Stale);
        assert_fails!(fs.link(ino, Ino::ROOT, b"x"), FsError::Stale);
        assert_fails!(fs.rename(ino, b"x", Ino::ROOT, b"y", Default::default()), FsError::Stale);
        assert_fails!(fs.rename(Ino::ROOT, b"there", ino, b"y", Default::default()), FsError::Stale);
        assert_fails!(fs.readlink(ino), FsError::Stale);
        assert_fails!(fs.parent(ino), FsError::Stale);
        assert_fails!(fs.readdir(ino, 0, &mut |_| true), FsError::Stale);
        assert_fails!(fs.open(ino), FsError::Stale);
        assert_fails!(fs.read(ino, 0, &mut [0; 8]), FsError::Stale);
        assert_fails!(fs.write(ino, 0, b"x"), FsError::Stale);
        assert_fails!(fs.write_through(ino, 0, b"x"), FsError::Stale);
        assert_fails!(fs.write_back(ino), FsError::Stale);
        assert_fails!(fs.fsync(ino), FsError::Stale);
        assert_fails!(fs.fallocate(ino, weft_vfs::FallocateMode::Allocate, 0, 1), FsError::Stale);
        assert_fails!(fs.seek(ino, 0, weft_vfs::SeekTarget::Data), FsError::Stale);
        assert_fails!(fs.getxattr(ino, b"user.x"), FsError::Stale);
        assert_fails!(fs.setxattr(ino, b"user.x", b"", weft_vfs::XattrMode::Any), FsError::Stale);
        assert_fails!(fs.listxattr(ino), FsError::Stale);
        assert_fails!(fs.removexattr(ino, b"user.x"), FsError::Stale);
        assert_fails!(fs.tag(ino), FsError::Stale);
        assert_fails!(fs.set_tag(ino, Tag::default()), FsError::Stale);
        fs.release(ino);
    }
}
