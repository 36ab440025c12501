//! Open references: inodes that live without a name.

use super::Make;
use super::fixture::{Fixture, OWNER, args, assert_fails, assert_same, bytes};
use weft_core::Ino;
use weft_vfs::{CreateArgs, FileKind, FsError, NewNode, SetAttr, XattrMode};

const ROOT: Ino = Ino::ROOT;

/// An unlinked file that is open is read and written as before, and goes with its last reference.
pub fn an_unlinked_open_file_lives_until_it_is_released(make: Make<'_>) {
    let fs = &*make();
    let mut data = bytes(1, 10_000);
    let ino = fs.file_with("file", &data);
    fs.open(ino).unwrap();
    fs.unlink(ROOT, b"file").unwrap();
    assert_fails!(fs.ino("file"), FsError::NotFound);
    assert_eq!(fs.attr(ino).links, 0);
    fs.write(ino, 10_000, b"after the unlink").unwrap();
    data.extend(b"after the unlink");
    assert_same(&fs.content(ino), &data, "unlinked");
    fs.fsync(ino).unwrap();
    fs.write_back(ino).unwrap();
    assert_same(&fs.content(ino), &data, "unlinked and synced");
    fs.setattr(ino, &SetAttr { size: Some(5), ..SetAttr::default() }).unwrap();
    fs.setxattr(ino, b"user.a", b"1", XattrMode::Any).unwrap();
    fs.release(ino);
    assert_fails!(fs.getattr(ino), FsError::Stale);
}

/// References are counted.
pub fn each_open_takes_a_release(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    for _ in 0..3 {
        fs.open(ino).unwrap();
    }
    fs.unlink(ROOT, b"file").unwrap();
    fs.release(ino);
    fs.release(ino);
    assert_eq!(fs.content(ino), b"abc");
    fs.open(ino).unwrap();
    fs.release(ino);
    assert_eq!(fs.content(ino), b"abc");
    fs.release(ino);
    assert_fails!(fs.getattr(ino), FsError::Stale);
}

/// A file that has a name does not go with its last reference.
pub fn a_released_file_with_a_name_stays(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    fs.open(ino).unwrap();
    fs.release(ino);
    assert_eq!(fs.content(ino), b"abc");
}

/// `create` with `open` takes a reference in the same step.
pub fn a_file_can_be_created_open(make: Make<'_>) {
    let fs = &*make();
    let created = fs.create(ROOT, b"file", &CreateArgs { open: true, ..args(NewNode::File) }).unwrap();
    assert_eq!(created.links, 1);
    fs.unlink(ROOT, b"file").unwrap();
    fs.write(created.ino, 0, b"abc").unwrap();
    assert_eq!(fs.content(created.ino), b"abc");
    fs.release(created.ino);
    assert_fails!(fs.getattr(created.ino), FsError::Stale);
}

/// A name that was given again is another file than the open one that had it.
pub fn an_unlinked_open_file_and_its_successor_are_two(make: Make<'_>) {
    let fs = &*make();
    let old = fs.file_with("file", b"old");
    fs.open(old).unwrap();
    fs.unlink(ROOT, b"file").unwrap();
    let new = fs.file_with("file", b"new");
    assert_ne!(old, new);
    assert_eq!((fs.content(old), fs.content(new)), (b"old".to_vec(), b"new".to_vec()));
    fs.release(old);
    assert_eq!(fs.content(new), b"new");
}

/// A file without a name is open, unlisted, and goes when it is released.
pub fn an_unnamed_file_goes_when_it_is_released(make: Make<'_>) {
    let fs = &*make();
    let attr = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), true).unwrap();
    assert_eq!((attr.kind, attr.links, attr.size, attr.uid), (FileKind::File, 0, 0, OWNER));
    assert!(fs.list(ROOT).is_empty());
    fs.write(attr.ino, 0, b"scratch").unwrap();
    assert_eq!(fs.content(attr.ino), b"scratch");
    fs.release(attr.ino);
    assert_fails!(fs.getattr(attr.ino), FsError::Stale);
}

/// A file without a name can be given one, and stays.
pub fn an_unnamed_file_can_be_given_a_name(make: Make<'_>) {
    let fs = &*make();
    let data = bytes(8, 9_000);
    let ino = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), true).unwrap().ino;
    fs.write(ino, 0, &data).unwrap();
    assert_eq!(fs.link(ino, ROOT, b"named").unwrap().links, 1);
    fs.release(ino);
    assert_eq!(fs.ino("named").unwrap(), ino);
    assert_same(&fs.content(ino), &data, "by its name");
    fs.unlink(ROOT, b"named").unwrap();
    assert_fails!(fs.getattr(ino), FsError::Stale);
}

/// A file that has lost its last name, or was made without one, gets no other name. The error for a name that exists comes first.
pub fn a_file_that_has_lost_its_names_gets_none_again(make: Make<'_>) {
    let fs = &*make();
    let file = fs.file_with("file", b"file");
    let named = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), true).unwrap().ino;
    let never = fs.create_unnamed(Ino::ROOT, &args(NewNode::File), false).unwrap().ino;
    fs.open(file).unwrap();
    fs.link(named, ROOT, b"named").unwrap();
    fs.link(named, ROOT, b"again").unwrap();
    for name in [&b"file"[..], b"named", b"again"] {
        fs.unlink(ROOT, name).unwrap();
    }
    fs.file_with("other", b"");
    for ino in [file, named, never] {
        assert_fails!(fs.link(ino, ROOT, b"other"), FsError::Exists);
        assert_fails!(fs.link(ino, ROOT, b"new"), FsError::NotFound);
        assert_eq!(fs.getattr(ino).unwrap().links, 0);
        fs.release(ino);
        assert_fails!(fs.getattr(ino), FsError::Stale);
    }
}

/// A hundred unlinked files stay distinct.
pub fn many_unlinked_open_files_keep_their_own_bytes(make: Make<'_>) {
    let fs = &*make();
    let inos: Vec<Ino> = (0..100)
        .map(|n| {
            let ino = fs.file_with("temporary", &bytes(n, 1000 + n as usize));
            fs.open(ino).unwrap();
            fs.unlink(ROOT, b"temporary").unwrap();
            ino
        })
        .collect();
    fs.sync().unwrap();
    for (n, ino) in inos.iter().enumerate() {
        assert_same(&fs.content(*ino), &bytes(n as u64, 1000 + n), &format!("file {n}"));
        fs.release(*ino);
        assert_fails!(fs.getattr(*ino), FsError::Stale);
    }
}
