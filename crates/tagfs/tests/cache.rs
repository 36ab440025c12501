//! Classes of data: who gives them, and what stays in the cache by them.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_core::{DataClass, Ino, Tag};
use weft_tagfs::{CLASS_XATTR as CLASS, FormatOptions, MountOptions, TagFs};
use weft_tags::{
    ClassPriorities, ClassReport, ClassShare, EvictionPolicy, MemoryStore, PageClass, PagePart, Sieve,
};
use weft_vfs::{CreateArgs, FileSystem, FsError, NewNode, RenameFlags, XattrMode};

const MIB: u64 = 1 << 20;

fn fresh(capacity_bytes: u64) -> Arc<MemoryStore> {
    let medium = Arc::new(MemoryStore::new());
    let options = FormatOptions { capacity_bytes, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &options).unwrap();
    medium
}

fn mount(medium: &Arc<MemoryStore>, eviction: Option<Arc<dyn EvictionPolicy>>) -> TagFs {
    let cache_bytes = MountOptions::CACHE_BYTES_MIN;
    let options = MountOptions { cache_bytes, eviction, ..MountOptions::default() };
    TagFs::mount(Box::new(medium.clone()), options).unwrap()
}

fn make(fs: &TagFs, dir: Ino, name: &str, node: NewNode<'_>) -> Ino {
    fs.create(dir, name.as_bytes(), &CreateArgs::new(node, 0o755)).unwrap().ino
}

fn class_of(fs: &TagFs, ino: Ino) -> Option<Vec<u8>> {
    match fs.getxattr(ino, CLASS) {
        Ok(class) => Some(class),
        Err(FsError::NoAttribute) => None,
        Err(error) => panic!("{error}"),
    }
}

fn report(fs: &TagFs, data: DataClass, part: PagePart) -> Option<ClassReport> {
    fs.cache_report().into_iter().find(|report| report.class == PageClass { data, part })
}

#[test]
fn a_file_begins_with_the_class_of_its_directory_and_keeps_it() {
    let medium = fresh(64 * MIB);
    let fs = mount(&medium, None);
    let dir = make(&fs, Ino::ROOT, "dir", NewNode::Directory);
    let refused = fs.setxattr(dir, CLASS, b"smal", XattrMode::Any);
    assert!(matches!(refused, Err(FsError::Invalid(_))), "{refused:?}");
    fs.setxattr(dir, CLASS, b"temporary", XattrMode::Any).unwrap();
    let below = make(&fs, dir, "below", NewNode::Directory);
    let (file, link) =
        (make(&fs, below, "file", NewNode::File), make(&fs, below, "link", NewNode::Symlink(b"x")));
    let other = make(&fs, Ino::ROOT, "other", NewNode::File);
    let wanted = Some(b"temporary".to_vec());
    assert_eq!(
        [dir, below, file].map(|ino| class_of(&fs, ino)),
        [wanted.clone(), wanted.clone(), wanted.clone()]
    );
    assert_eq!([link, other].map(|ino| class_of(&fs, ino)), [None, None]);
    // Neither a placement's tag nor another directory takes it away.
    fs.set_tag(file, Tag { class: DataClass::Log, ..Tag::default() }).unwrap();
    fs.rename(below, b"file", Ino::ROOT, b"file", RenameFlags::empty()).unwrap();
    fs.write(file, 0, &[7; 20_000]).unwrap();
    fs.write(make(&fs, dir, "large", NewNode::File), 0, &[7; 200_000]).unwrap();
    fs.unmount().unwrap();
    let fs = mount(&medium, None);
    assert_eq!(class_of(&fs, file), wanted);
    let mut out = vec![0; 20_000];
    assert_eq!(fs.read(file, 0, &mut out).unwrap(), 20_000);
    let of = report(&fs, DataClass::Temporary, PagePart::Nodes).unwrap();
    assert!(of.misses >= 5, "five pages of the file, among others: {of:?}");
    assert_eq!(report(&fs, DataClass::Log, PagePart::Nodes), None);
    let large = fs.lookup(dir, b"large").unwrap().ino;
    assert_eq!(fs.read(large, 100_000, &mut out).unwrap(), 20_000);
    let of = report(&fs, DataClass::Temporary, PagePart::Large).unwrap();
    assert!((5..=7).contains(&of.misses), "{of:?}");
    // Without the attribute the tag's class holds again.
    fs.removexattr(dir, CLASS).unwrap();
    assert_eq!(class_of(&fs, make(&fs, dir, "later", NewNode::File)), None);
    fs.unmount().unwrap();
    let problems = TagFs::check(Box::new(medium)).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

/// Reads small files once more after large ones have come through the cache, and returns the pages of the small ones that were read again.
fn read_again(eviction: Option<Arc<dyn EvictionPolicy>>) -> u64 {
    let medium = fresh(256 * MIB);
    let fs = mount(&medium, None);
    let dir = make(&fs, Ino::ROOT, "small", NewNode::Directory);
    fs.setxattr(dir, CLASS, b"small", XattrMode::Any).unwrap();
    let small: Vec<Ino> = (0..400)
        .map(|n| {
            let file = make(&fs, dir, &n.to_string(), NewNode::File);
            fs.write(file, 0, &[n as u8; 16_000]).unwrap();
            file
        })
        .collect();
    let large = make(&fs, Ino::ROOT, "large", NewNode::File);
    (0..48).for_each(|n| fs.write(large, n * MIB, &vec![n as u8; MIB as usize]).unwrap());
    fs.unmount().unwrap();
    let fs = mount(&medium, eviction);
    let mut out = vec![0; MIB as usize];
    let mut read_small = || {
        for (n, file) in small.iter().enumerate() {
            assert_eq!(fs.read(*file, 0, &mut out[..16_000]).unwrap(), 16_000);
            assert!(out[..16_000].iter().all(|byte| *byte == n as u8));
        }
        report(&fs, DataClass::Small, PagePart::Nodes).unwrap().misses
    };
    let first = read_small();
    assert!(first >= 1_600, "{first} pages");
    for n in 0..48 {
        fs.read(large, n * MIB, &mut vec![0; MIB as usize]).unwrap();
    }
    read_small() - first
}

#[test]
fn small_files_stay_in_the_cache_while_a_large_one_passes_through_if_the_mount_says_so() {
    let nodes = |data| PageClass { data, part: PagePart::Nodes };
    let mut priorities = ClassPriorities::default();
    priorities.set(nodes(DataClass::Small), ClassShare { priority: 1, ..ClassShare::default() });
    assert_eq!(read_again(Some(Arc::new(priorities))), 0);
    let mut sieve = Sieve::default();
    sieve.set(nodes(DataClass::Small), 8);
    assert_eq!(read_again(Some(Arc::new(sieve))), 0);
    let without = read_again(None);
    assert!(without > 1_000, "{without} pages were read again");
    // Without an attribute: what lies in large nodes goes first.
    let mut priorities = ClassPriorities::default();
    let large = PageClass { data: DataClass::Unknown, part: PagePart::Large };
    PageClass::all().filter(|class| *class != large).for_each(|class| {
        priorities.set(class, ClassShare { priority: 1, ..ClassShare::default() });
    });
    assert_eq!(read_again(Some(Arc::new(priorities))), 0);
}
