//! What is known of a file arrives with its data at the device, however the data gets there: written back, written through, packed
//! with that of other files, relocated by the cleaner, and after a restart.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

mod rig;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rig::{fresh, options, small};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use weft_core::{DataClass, Ino, LifetimeGroup, Origin, StreamId, Tag, TagFlags, ZoneId};
use weft_device::{DeviceError, PowerCut, ZonedDevice};
use weft_lfs::Lfs;
use weft_vfs::{BlockMap, CreateArgs, FileSystem, MapEntry, NewNode};

const BLOCK: usize = 4096;
const FILE_BLOCKS: u64 = 96;

/// One for each property, all of them at once, and none.
fn tags() -> [Tag; 7] {
    let none = Tag::default();
    let secure = TagFlags::SECURE_DELETE;
    [
        Tag { class: DataClass::Log, ..none },
        Tag { owner: 1000, ..none },
        Tag { flags: secure, ..none },
        Tag { death: 1 << 40, ..none },
        Tag { stream: StreamId(3), group: LifetimeGroup(700), ..none },
        Tag { class: DataClass::Temporary, owner: u32::MAX, flags: secure, death: 9, ..none },
        none,
    ]
}

/// A device that remembers the tag of each block that it has taken.
struct Tagged {
    inner: Arc<PowerCut>,
    tags: Mutex<HashMap<(ZoneId, u32), Tag>>,
    /// Places that were announced and not yet read.
    announced: Mutex<Vec<(ZoneId, u32, u32)>>,
    /// Reads that were not announced.
    sudden: Mutex<usize>,
}

impl Tagged {
    fn inner(&self) -> Result<&dyn ZonedDevice, DeviceError> {
        Ok(&*self.inner)
    }

    fn keep(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) {
        let mut tags = self.tags.lock().unwrap();
        for block in at..at + (data.len() / BLOCK) as u32 {
            tags.insert((zone, block), *tag);
        }
    }

    /// The tag of the block at a byte address of the device.
    fn tag_at(&self, address: u64) -> Tag {
        let (block, zone_blocks) = (address / BLOCK as u64, u64::from(self.info().zone_blocks));
        let place = (ZoneId((block / zone_blocks) as u32), (block % zone_blocks) as u32);
        *self.tags.lock().unwrap().get(&place).unwrap()
    }
}

impl ZonedDevice for Tagged {
    crate::pass_on! {
        inner => shape report open close finish reset flush;
    }

    fn write(&self, zone: ZoneId, at: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        self.keep(zone, at, data, tag);
        self.inner.write(zone, at, data, tag)
    }
    fn read(&self, zone: ZoneId, at: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let place = (zone, at, (out.len() / BLOCK) as u32);
        let mut announced = self.announced.lock().unwrap();
        match announced.iter().position(|announced| *announced == place) {
            Some(found) => drop(announced.swap_remove(found)),
            None => *self.sudden.lock().unwrap() += 1,
        }
        self.inner.read(zone, at, out)
    }
    fn will_read(&self, places: &[(ZoneId, u32, u32)]) {
        self.announced.lock().unwrap().extend_from_slice(places);
        self.inner.will_read(places);
    }
    fn append(&self, zone: ZoneId, data: &[u8], tag: &Tag) -> Result<u32, DeviceError> {
        let at = self.inner.append(zone, data, tag)?;
        self.keep(zone, at, data, tag);
        Ok(at)
    }
}

fn mounted() -> (Arc<Tagged>, Lfs) {
    let (inner, fs) = fresh(&small(16 << 20, 512 << 10));
    fs.unmount().unwrap();
    let device = Arc::new(Tagged {
        inner,
        tags: Mutex::default(),
        announced: Mutex::default(),
        sudden: Mutex::default(),
    });
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    (device, fs)
}

fn create(fs: &Lfs, name: &str, tag: Tag) -> Ino {
    let args = CreateArgs { tag, ..CreateArgs::new(NewNode::File, 0o644) };
    fs.create(Ino::ROOT, name.as_bytes(), &args).unwrap().ino
}

/// The tags of the blocks that hold a file's data.
fn tags_of(device: &Tagged, fs: &Lfs, file: Ino, blocks: u64) -> Vec<Tag> {
    let mut entries = vec![MapEntry::HOLE; blocks as usize];
    fs.watch(file, 0, &mut entries).unwrap();
    fs.unwatch(file);
    entries.iter().map(|entry| device.tag_at(entry.location().unwrap().0)).collect()
}

/// Checks the tag of each block of these files. Returns how many the cleaner has written.
fn check(device: &Tagged, fs: &Lfs, files: &[Ino]) -> usize {
    fs.sync().unwrap();
    let mut copies = 0;
    for (file, tag) in files.iter().zip(tags()) {
        assert_eq!(fs.tag(*file).unwrap(), tag);
        for found in tags_of(device, fs, *file, FILE_BLOCKS) {
            assert_eq!(Tag { origin: Origin::Host, ..found }, tag);
            copies += usize::from(found.origin == Origin::Gc);
        }
    }
    copies
}

/// Overwrites blocks of another file until the cleaner has copied some blocks of the files.
fn let_the_cleaner_work(device: &Tagged, fs: &Lfs, files: &[Ino], churn: Ino, rng: &mut StdRng) {
    let blocks = fs.getattr(churn).unwrap().size / BLOCK as u64;
    let before = fs.stats().gc_bytes;
    for round in 0..40 {
        for _ in 0..blocks {
            let at = rng.random_range(0..blocks);
            fs.write(churn, at * BLOCK as u64, &[round; BLOCK]).unwrap();
        }
        if check(device, fs, files) > files.len() && fs.stats().gc_bytes > before {
            return;
        }
    }
    panic!("the cleaner has copied nothing of the files");
}

#[test]
fn every_block_of_a_file_has_its_tag_when_written_when_copied_and_after_a_restart() {
    let (device, fs) = mounted();
    let mut rng = StdRng::seed_from_u64(3);
    let files: Vec<Ino> =
        tags().iter().enumerate().map(|(number, tag)| create(&fs, &number.to_string(), *tag)).collect();
    let churn = create(&fs, "churn", Tag { stream: StreamId(9), ..Tag::default() });
    // Block by block in turns, so that zones hold blocks of many files; half of the blocks past the write buffer.
    for block in 0..FILE_BLOCKS {
        for file in &files {
            let (at, data) = (block * BLOCK as u64, [block as u8; BLOCK]);
            if block % 2 == 0 {
                fs.write(*file, at, &data).unwrap();
            } else {
                fs.write_through(*file, at, &data).unwrap();
            }
            fs.write(churn, fs.getattr(churn).unwrap().size, &data).unwrap();
        }
    }
    check(&device, &fs, &files);
    while fs.statfs().unwrap().free_bytes > 2 << 20 {
        fs.write(churn, fs.getattr(churn).unwrap().size, &[7; 16 * BLOCK]).unwrap();
    }
    let_the_cleaner_work(&device, &fs, &files, churn, &mut rng);

    fs.unmount().unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    check(&device, &fs, &files);
    for file in &files {
        fs.write(*file, 0, &[1; FILE_BLOCKS as usize * BLOCK]).unwrap();
    }
    check(&device, &fs, &files);
    let_the_cleaner_work(&device, &fs, &files, churn, &mut rng);
}

#[test]
fn a_device_learns_of_all_pieces_of_a_read_before_the_first_is_read() {
    let (device, fs) = mounted();
    let file = create(&fs, "file", Tag::default());
    let end = FILE_BLOCKS as usize * BLOCK;
    // Written backwards, so that no block lies behind the one before it; and a piece of a block at the end.
    for block in (0..FILE_BLOCKS).rev() {
        fs.write_through(file, block * BLOCK as u64, &[block as u8; BLOCK]).unwrap();
    }
    fs.write(file, end as u64, b"end").unwrap();
    fs.sync().unwrap();
    // Reads, and counts what of that the device was not told before.
    let sudden = |offset: usize, bytes: usize| {
        *device.sudden.lock().unwrap() = 0;
        let mut out = vec![0; bytes];
        assert_eq!(fs.read(file, offset as u64, &mut out).unwrap(), bytes);
        for (at, byte) in (offset..).zip(&out) {
            let wanted = if at < end { (at / BLOCK) as u8 } else { b"end"[at - end] };
            assert_eq!(*byte, wanted, "at {at}");
        }
        assert_eq!(*device.announced.lock().unwrap(), [], "announced, and not read");
        *device.sudden.lock().unwrap()
    };
    assert_eq!(sudden(0, end + 3), 0);
    assert_eq!(sudden(100, 2 * BLOCK), 0);
    assert_eq!(sudden(BLOCK, BLOCK), 1, "one piece is no news");
}

#[test]
fn a_block_with_the_ends_of_several_files_has_the_flags_of_each() {
    let (device, fs) = mounted();
    let secure = Tag { flags: TagFlags::SECURE_DELETE, owner: 7, ..Tag::default() };
    let plain = Tag { owner: 7, class: DataClass::Small, ..Tag::default() };
    let files = [create(&fs, "plain", plain), create(&fs, "secure", secure)];
    for file in files {
        fs.write(file, 0, &[1; 100]).unwrap();
    }
    fs.sync().unwrap();
    let expected = Tag { class: DataClass::Unknown, ..secure };
    for file in files {
        assert_eq!(tags_of(&device, &fs, file, 1), [expected]);
    }

    // The cleaner packs them again.
    let churn = create(&fs, "churn", Tag::default());
    while fs.statfs().unwrap().free_bytes > 2 << 20 {
        fs.write(churn, fs.getattr(churn).unwrap().size, &[7; 16 * BLOCK]).unwrap();
    }
    let blocks = fs.getattr(churn).unwrap().size / BLOCK as u64;
    let mut rng = StdRng::seed_from_u64(4);
    let is_copied = || files.iter().all(|file| tags_of(&device, &fs, *file, 1)[0].origin == Origin::Gc);
    for _ in 0..40 * blocks {
        fs.write(churn, rng.random_range(0..blocks) * BLOCK as u64, &[3; BLOCK]).unwrap();
        if is_copied() {
            break;
        }
    }
    for file in files {
        let found = tags_of(&device, &fs, file, 1)[0];
        assert_eq!((found.flags, found.origin), (TagFlags::SECURE_DELETE, Origin::Gc));
    }
}
