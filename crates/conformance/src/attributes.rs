//! Attributes: modes, owners, times, extended attributes, tags.

use super::Make;
use super::fixture::{Fixture, args, assert_fails, bytes, let_the_clock_move};
use weft_core::{DataClass, Ino, LifetimeGroup, StreamId, Tag, TagFlags};
use weft_vfs::{
    ACCESS_XATTR, Attr, CreateArgs, DEFAULT_XATTR, FLAGS_XATTR, FallocateMode, FileSystem, FsError,
    InodeFlags, Marks, NewNode, RenameFlags, SetAttr, TimeSpec, XATTR_VALUE_MAX, XattrMode,
};

const ROOT: Ino = Ino::ROOT;
/// A moment long ago, that no operation sets by itself.
const LONG_AGO: TimeSpec = TimeSpec(1_000_000_000_123_456_789);

/// `setattr` changes the given attributes, leaves the rest, and returns what `getattr` then returns.
pub fn setattr_changes_what_it_is_told(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    let before = fs.attr(ino);
    let after = fs.setattr(ino, &SetAttr { perm: Some(0o7510), ..SetAttr::default() }).unwrap();
    assert_eq!(after, Attr { perm: 0o7510, ctime: after.ctime, ..before });
    assert_eq!(fs.attr(ino), after);
    let owned = fs.setattr(ino, &SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() }).unwrap();
    assert_eq!(owned, Attr { uid: 7, gid: 8, ctime: owned.ctime, ..after });
    assert_eq!(fs.lookup(ROOT, b"file").unwrap(), owned);
}

/// Directories and symlinks have modes and owners, too.
pub fn setattr_works_on_directories_and_symlinks(make: Make<'_>) {
    let fs = &*make();
    let symlink = fs.make(ROOT, b"symlink", NewNode::Symlink(b"x"));
    for ino in [ROOT, fs.dir("dir"), symlink] {
        let set = SetAttr { perm: Some(0o1700), uid: Some(9), mtime: Some(LONG_AGO), ..SetAttr::default() };
        let attr = fs.setattr(ino, &set).unwrap();
        assert_eq!((attr.perm, attr.uid, attr.mtime), (0o1700, 9, LONG_AGO));
        assert_eq!(fs.attr(ino), attr);
    }
}

/// Times are kept to the nanosecond, before 1970 as well.
pub fn times_are_kept_to_the_nanosecond(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    for time in
        [LONG_AGO, TimeSpec(0), TimeSpec(-1), TimeSpec(-2_000_000_000_000_000_001), TimeSpec(i64::MAX)]
    {
        let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
        fs.setattr(ino, &set).unwrap();
        let attr = fs.attr(ino);
        assert_eq!((attr.atime, attr.mtime), (time, time));
    }
}

/// Of the reads that are noted, an access time tells the first after each change, and no other.
pub fn the_first_noted_read_after_a_change_sets_the_access_time(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    fs.setattr(ino, &SetAttr { atime: Some(LONG_AGO), mtime: Some(LONG_AGO), ..SetAttr::default() }).unwrap();
    let before = fs.attr(ino);
    fs.read(ino, 0, &mut [0; 3]).unwrap();
    assert_eq!(fs.attr(ino), before);
    let after = |ns: i64| TimeSpec(before.ctime.0 + ns);
    for (noted, told) in [(1, 1), (2, 1), (86_400_000_000_001, 1), (86_400_000_000_002, 86_400_000_000_002)] {
        fs.note_read(ino, after(noted));
        assert_eq!(fs.attr(ino), Attr { atime: after(told), ..before }, "{noted}");
    }
    let future = TimeSpec(i64::MAX);
    fs.setattr(ino, &SetAttr { atime: Some(future), ..SetAttr::default() }).unwrap();
    fs.note_read(ino, after(0));
    assert_eq!(fs.attr(ino).atime, future);
}

/// Access and modification times are set apart from each other.
pub fn access_and_modification_times_are_set_apart(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let before = fs.attr(ino);
    fs.setattr(ino, &SetAttr { atime: Some(LONG_AGO), ..SetAttr::default() }).unwrap();
    assert_eq!((fs.attr(ino).atime, fs.attr(ino).mtime), (LONG_AGO, before.mtime));
    fs.setattr(ino, &SetAttr { mtime: Some(TimeSpec(5)), ..SetAttr::default() }).unwrap();
    assert_eq!((fs.attr(ino).atime, fs.attr(ino).mtime), (LONG_AGO, TimeSpec(5)));
}

/// A new node's times are the moment of its creation.
pub fn a_new_node_has_the_times_of_its_creation(make: Make<'_>) {
    let fs = &*make();
    let from = TimeSpec::now();
    let inos = [fs.file("file"), fs.dir("dir"), fs.make(ROOT, b"symlink", NewNode::Symlink(b"x"))];
    let to = TimeSpec::now();
    for ino in inos {
        let attr = fs.attr(ino);
        for time in [attr.atime, attr.mtime, attr.ctime, attr.btime] {
            assert!(from <= time && time <= to, "{from:?} <= {time:?} <= {to:?}");
        }
    }
}

/// Runs `change` and tells whether it set the modification time and moved the change time of `ino`.
fn times_set<T>(fs: &dyn FileSystem, ino: Ino, change: impl FnOnce() -> T) -> (bool, bool) {
    fs.setattr(ino, &SetAttr { mtime: Some(LONG_AGO), ..SetAttr::default() }).unwrap();
    let before = fs.attr(ino);
    let_the_clock_move();
    change();
    let after = fs.attr(ino);
    assert_eq!(after.btime, before.btime, "the creation time never changes");
    (after.mtime != LONG_AGO, after.ctime > before.ctime)
}

/// Writing and resizing set the modification and change times.
pub fn a_change_of_the_content_sets_mtime_and_ctime(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &bytes(1, 20_000));
    assert_eq!(times_set(fs, ino, || fs.write(ino, 5, b"x").unwrap()), (true, true));
    assert_eq!(times_set(fs, ino, || fs.write_through(ino, 0, &[1; 8192]).unwrap()), (true, true));
    assert_eq!(
        times_set(fs, ino, || fs.fallocate(ino, FallocateMode::PunchHole, 0, 9).unwrap()),
        (true, true)
    );
    for size in [10, 100] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        assert_eq!(times_set(fs, ino, || fs.setattr(ino, &set).unwrap()), (true, true));
    }
}

/// Reading and syncing set neither.
pub fn reading_and_syncing_set_neither_mtime_nor_ctime(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    fs.sync().unwrap();
    let unchanged = times_set(fs, ino, || {
        fs.content(ino);
        fs.lookup(ROOT, b"file").unwrap();
        fs.open(ino).unwrap();
        fs.write_back(ino).unwrap();
        fs.fsync(ino).unwrap();
        fs.release(ino);
    });
    assert_eq!(unchanged, (false, false));
}

/// A write's time is the write's, not that of the write-back later.
pub fn writing_back_later_does_not_change_mtime(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    let written = fs.attr(ino).mtime;
    let_the_clock_move();
    fs.write_back(ino).unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(fs.attr(ino).mtime, written);
}

/// Times of a write that comes late are the program's.
pub fn what_comes_late_changed_the_file_when_it_was_written(make: Make<'_>) {
    let fs = &*make();
    for through in [false, true] {
        let ino = fs.file_with(&format!("late-{through}"), b"");
        let when = TimeSpec(fs.attr(ino).ctime.0 + 1);
        let_the_clock_move();
        fs.write_late(ino, 0, &[7; 10_000], through, when).unwrap();
        assert_eq!((fs.attr(ino).mtime, fs.attr(ino).ctime), (when, when));
        fs.fsync(ino).unwrap();
        assert_eq!((fs.attr(ino).mtime, fs.attr(ino).ctime), (when, when));
        // A change of attributes since is not undone.
        let changed = fs.setattr(ino, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap().ctime;
        let later = TimeSpec(when.0 + 1);
        fs.write_late(ino, 5_000, &[8; 10_000], through, later).unwrap();
        assert_eq!((fs.attr(ino).mtime, fs.attr(ino).ctime, fs.attr(ino).size), (later, changed, 15_000));
    }
}

/// Modes, names and extended attributes set the change time alone.
pub fn a_change_of_the_inode_sets_ctime_alone(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    assert_eq!(times_set(fs, ino, || fs.setattr(ino, &chmod).unwrap()), (false, true));
    assert_eq!(times_set(fs, ino, || fs.link(ino, ROOT, b"link").unwrap()), (false, true));
    assert_eq!(times_set(fs, ino, || fs.unlink(ROOT, b"link").unwrap()), (false, true));
    let set = || fs.setxattr(ino, b"user.a", b"1", XattrMode::Any).unwrap();
    assert_eq!(times_set(fs, ino, set), (false, true));
    assert_eq!(times_set(fs, ino, || fs.removexattr(ino, b"user.a").unwrap()), (false, true));
}

/// A directory's times change with its entries.
pub fn a_change_of_the_entries_sets_the_directorys_times(make: Make<'_>) {
    let fs = &*make();
    let (dir, other) = (fs.dir("dir"), fs.dir("other"));
    let both = (true, true);
    assert_eq!(times_set(fs, dir, || fs.make(dir, b"a", NewNode::File)), both);
    assert_eq!(times_set(fs, dir, || fs.make(dir, b"sub", NewNode::Directory)), both);
    assert_eq!(times_set(fs, dir, || fs.rmdir(dir, b"sub").unwrap()), both);
    assert_eq!(times_set(fs, dir, || fs.rename(dir, b"a", dir, b"b", RenameFlags::empty()).unwrap()), both);
    assert_eq!(
        times_set(fs, other, || fs.rename(dir, b"b", other, b"c", RenameFlags::empty()).unwrap()),
        both
    );
    assert_eq!(times_set(fs, dir, || fs.rename(other, b"c", dir, b"d", RenameFlags::empty()).unwrap()), both);
    assert_eq!(times_set(fs, dir, || fs.unlink(dir, b"d").unwrap()), both);
    assert_eq!(times_set(fs, dir, || fs.lookup(dir, b"d")), (false, false));
    assert_eq!(times_set(fs, dir, || fs.entries(dir, 0, 9)), (false, false));
}

/// Setting the size and the modification time at once leaves the given time.
pub fn a_given_mtime_wins_over_the_truncate_beside_it(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    let attr =
        fs.setattr(ino, &SetAttr { size: Some(1), mtime: Some(LONG_AGO), ..SetAttr::default() }).unwrap();
    assert_eq!((attr.size, attr.mtime), (1, LONG_AGO));
}

/// A `setattr` that fails changes nothing.
pub fn a_setattr_that_fails_changes_nothing(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", b"abc");
    let before = fs.attr(ino);
    let set = SetAttr { size: Some(u64::MAX), perm: Some(0), uid: Some(99), ..SetAttr::default() };
    assert_fails!(fs.setattr(ino, &set), FsError::TooLarge);
    assert_eq!(fs.attr(ino), before);
}

/// A file's blocks are the space that its data takes, once it is stored.
pub fn blocks_count_the_space_of_the_data(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file_with("file", &bytes(1, 1 << 20));
    fs.fsync(ino).unwrap();
    let space = fs.attr(ino).blocks * 512;
    assert!((1 << 20..2 << 20).contains(&space), "1 MiB takes {space} bytes");
    fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(fs.attr(ino).blocks, 0);
}

/// Extended attributes of files, directories and symlinks come back as they were set.
pub fn extended_attributes_come_back(make: Make<'_>) {
    let fs = &*make();
    let symlink = fs.make(ROOT, b"symlink", NewNode::Symlink(b"x"));
    for ino in [fs.file("file"), fs.dir("dir"), symlink] {
        assert!(fs.listxattr(ino).unwrap().is_empty());
        let values: [(&[u8], &[u8]); 4] =
            [(b"user.a", b"1"), (b"user.empty", b""), (b"trusted.b", b"\0\xff\0"), (b"user.A", b"2")];
        for (name, value) in values {
            fs.setxattr(ino, name, value, XattrMode::Any).unwrap();
        }
        for (name, value) in values {
            assert_eq!(fs.getxattr(ino, name).unwrap(), value);
        }
        let mut names = fs.listxattr(ino).unwrap();
        names.sort();
        assert_eq!(names, [&b"trusted.b"[..], b"user.A", b"user.a", b"user.empty"]);
        fs.setxattr(ino, b"user.a", b"another, longer value", XattrMode::Any).unwrap();
        assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), b"another, longer value");
        fs.removexattr(ino, b"user.a").unwrap();
        assert_fails!(fs.getxattr(ino, b"user.a"), FsError::NoAttribute);
        assert_eq!(fs.listxattr(ino).unwrap().len(), 3);
    }
}

/// An attribute that is not there is `NoAttribute`.
pub fn a_missing_extended_attribute_is_no_attribute(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    assert_fails!(fs.getxattr(ino, b"user.a"), FsError::NoAttribute);
    assert_fails!(fs.removexattr(ino, b"user.a"), FsError::NoAttribute);
}

/// `Create` refuses to replace, `Replace` to create.
pub fn xattr_modes_refuse_to_replace_or_to_create(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    assert_fails!(fs.setxattr(ino, b"user.a", b"1", XattrMode::Replace), FsError::NoAttribute);
    fs.setxattr(ino, b"user.a", b"1", XattrMode::Create).unwrap();
    assert_fails!(fs.setxattr(ino, b"user.a", b"2", XattrMode::Create), FsError::Exists);
    assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), b"1");
    fs.setxattr(ino, b"user.a", b"2", XattrMode::Replace).unwrap();
    assert_eq!(fs.getxattr(ino, b"user.a").unwrap(), b"2");
}

/// A value has up to 64 KiB, a name up to 255 bytes; more is `AttributeTooLarge`.
pub fn extended_attributes_have_up_to_64_kib(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    let largest = bytes(1, XATTR_VALUE_MAX);
    fs.setxattr(ino, b"user.large", &largest, XattrMode::Any).unwrap();
    assert!(fs.getxattr(ino, b"user.large").unwrap() == largest);
    let too_large = bytes(1, XATTR_VALUE_MAX + 1);
    assert_fails!(fs.setxattr(ino, b"user.large", &too_large, XattrMode::Any), FsError::AttributeTooLarge);
    assert!(fs.getxattr(ino, b"user.large").unwrap() == largest);
    let longest = vec![b'n'; 255];
    fs.setxattr(ino, &longest, b"v", XattrMode::Any).unwrap();
    assert_eq!(fs.getxattr(ino, &longest).unwrap(), b"v");
    assert_fails!(fs.setxattr(ino, &[b'n'; 256], b"v", XattrMode::Any), FsError::AttributeTooLarge);
}

/// An inode has a hundred extended attributes as well as one.
pub fn an_inode_has_many_extended_attributes(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    for n in 0..100 {
        fs.setxattr(ino, format!("user.{n}").as_bytes(), &bytes(n, 50 + n as usize), XattrMode::Create)
            .unwrap();
    }
    for n in (0..100).step_by(3) {
        fs.removexattr(ino, format!("user.{n}").as_bytes()).unwrap();
    }
    assert_eq!(fs.listxattr(ino).unwrap().len(), 66);
    assert_eq!(fs.getxattr(ino, b"user.98").unwrap(), bytes(98, 148));
}

/// Extended attributes belong to the inode: all its names show them, and they go with it.
pub fn extended_attributes_belong_to_the_inode(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("a");
    fs.setxattr(ino, b"user.a", b"1", XattrMode::Any).unwrap();
    fs.link(ino, ROOT, b"b").unwrap();
    fs.rename(ROOT, b"a", ROOT, b"c", RenameFlags::empty()).unwrap();
    assert_eq!(fs.getxattr(fs.ino("b").unwrap(), b"user.a").unwrap(), b"1");
    fs.unlink(ROOT, b"b").unwrap();
    fs.unlink(ROOT, b"c").unwrap();
    let again = fs.file("a");
    assert_fails!(fs.getxattr(again, b"user.a"), FsError::NoAttribute);
}

/// Attributes and extended ones change together or, when one of them cannot, not at all.
pub fn attributes_and_extended_ones_change_in_one_step(make: Make<'_>) {
    let fs = &*make();
    let ino = fs.file("file");
    fs.setxattr(ino, b"user.a", b"1", XattrMode::Any).unwrap();
    let set = SetAttr { perm: Some(0o604), mtime: Some(LONG_AGO), ..SetAttr::default() };
    let changes: [(&[u8], Option<&[u8]>); 3] =
        [(b"user.a", None), (b"user.b", Some(b"2")), (b"user.none", None)];
    let before = fs.attr(ino);
    let after = fs.set_with_xattrs(ino, &set, &changes).unwrap();
    assert_eq!(after, Attr { perm: 0o604, mtime: LONG_AGO, ctime: after.ctime, ..before });
    assert_eq!(fs.attr(ino), after);
    assert_eq!(fs.listxattr(ino).unwrap(), [b"user.b"]);
    assert_eq!(fs.getxattr(ino, b"user.b").unwrap(), b"2");
    let too_large = bytes(1, XATTR_VALUE_MAX + 1);
    let set = SetAttr { perm: Some(0), ..SetAttr::default() };
    assert_fails!(
        fs.set_with_xattrs(ino, &set, &[(b"user.c", Some(&too_large))]),
        FsError::AttributeTooLarge
    );
    let sized = SetAttr { size: Some(9), ..set };
    assert_fails!(fs.set_with_xattrs(ino, &sized, &[]), FsError::Invalid(_));
    assert_eq!(fs.attr(ino), after);
    assert_eq!(fs.listxattr(ino).unwrap(), [b"user.b"]);
}

/// What is made can have extended attributes at once.
pub fn an_inode_begins_with_extended_attributes(make: Make<'_>) {
    let fs = &*make();
    let xattrs: [(&[u8], &[u8]); 2] = [(b"user.a", b"1"), (DEFAULT_XATTR, b"2")];
    for (name, node) in [(&b"dir"[..], NewNode::Directory), (b"file", NewNode::File)] {
        let made = fs.create(ROOT, name, &CreateArgs { xattrs: &xattrs, ..args(node) }).unwrap();
        assert!(made.marks.has_default_acl && !made.marks.has_acl);
        assert_eq!(fs.attr(made.ino), made);
        for (name, value) in xattrs {
            assert_eq!(fs.getxattr(made.ino, name).unwrap(), value);
        }
    }
    let made = fs
        .create_unnamed(Ino::ROOT, &CreateArgs { xattrs: &xattrs[..1], ..args(NewNode::File) }, true)
        .unwrap();
    assert_eq!(fs.getxattr(made.ino, b"user.a").unwrap(), b"1");
    fs.release(made.ino);
}

/// Attributes tell which lists an inode has, and its flags.
pub fn marks_are_what_extended_attributes_say(make: Make<'_>) {
    let fs = &*make();
    for ino in [fs.file("file"), fs.dir("dir")] {
        assert_eq!(fs.attr(ino).marks, Marks::default());
        fs.setxattr(ino, b"user.a", b"1", XattrMode::Any).unwrap();
        assert_eq!(fs.attr(ino).marks, Marks::default());
        let flags = InodeFlags::APPEND | InodeFlags::DIR_SYNC;
        fs.setxattr(ino, FLAGS_XATTR, &flags.to_value(), XattrMode::Any).unwrap();
        assert_eq!(fs.attr(ino).marks, Marks { flags, ..Marks::default() });
        fs.setxattr(ino, ACCESS_XATTR, b"list", XattrMode::Any).unwrap();
        assert_eq!(fs.attr(ino).marks, Marks { flags, has_acl: true, has_default_acl: false });
        fs.removexattr(ino, ACCESS_XATTR).unwrap();
        fs.removexattr(ino, FLAGS_XATTR).unwrap();
        assert_eq!(fs.attr(ino).marks, Marks::default());
    }
}

/// An inode with the flag of secure deletion has it in its tag, from its beginning or from when the flag is set, and until it is removed.
pub fn the_flag_of_secure_deletion_is_in_the_tag_whatever_sets_the_tag(make: Make<'_>) {
    let fs = &*make();
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let plain = Tag { stream: StreamId(3), class: DataClass::Log, ..Tag::default() };
    let secure = Tag { flags: TagFlags::SECURE_DELETE, ..plain };
    for (name, node) in
        [("file", NewNode::File), ("dir", NewNode::Directory), ("symlink", NewNode::Symlink(b"to"))]
    {
        let args = CreateArgs { xattrs: &xattrs, tag: plain, ..args(node) };
        let ino = fs.create(ROOT, name.as_bytes(), &args).unwrap().ino;
        assert_eq!(fs.tag(ino).unwrap(), secure);
        fs.set_tag(ino, plain).unwrap();
        assert_eq!(fs.tag(ino).unwrap(), secure, "a new tag does not take the class away");
        fs.setxattr(ino, FLAGS_XATTR, &InodeFlags::SYNC.to_value(), XattrMode::Any).unwrap();
        assert_eq!(fs.tag(ino).unwrap(), plain);
        fs.set_with_xattrs(ino, &SetAttr::default(), &[(FLAGS_XATTR, Some(&value))]).unwrap();
        assert_eq!(fs.tag(ino).unwrap(), secure);
        fs.set_with_xattrs(ino, &SetAttr::default(), &[(FLAGS_XATTR, None)]).unwrap();
        assert_eq!(fs.tag(ino).unwrap(), plain);
    }
}

/// A file has the tag that it was created with until it is set.
pub fn a_file_carries_its_tag(make: Make<'_>) {
    let fs = &*make();
    let tag = Tag {
        death: 1 << 33,
        owner: 1000,
        stream: StreamId(3),
        group: LifetimeGroup(2),
        class: DataClass::Log,
        flags: TagFlags::SECURE_DELETE,
        ..Tag::default()
    };
    let args = CreateArgs { tag, ..CreateArgs::new(NewNode::File, 0o644) };
    let ino = fs.create(ROOT, b"file", &args).unwrap().ino;
    assert_eq!(fs.tag(ino).unwrap(), tag);
    let other = Tag { stream: StreamId(4), class: DataClass::Immutable, ..tag };
    fs.write(ino, 0, b"under the first tag").unwrap();
    fs.set_tag(ino, other).unwrap();
    assert_eq!(fs.tag(ino).unwrap(), other);
    fs.write(ino, 19, b", under the second").unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(fs.content(ino), b"under the first tag, under the second");
    let plain = fs.file("plain");
    assert_eq!(fs.tag(plain).unwrap(), Tag::default());
}
