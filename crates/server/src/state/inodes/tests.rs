//! What rings and areas hold while it cannot be stored, what a broken client leaves in them, and who may hold a write lock for how
//! long.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use super::super::open_files::{NewFile, Opener};
use super::super::processes::Peer;
use super::super::volume::Volume;
use super::exclusion::{Holder, WRITE_LOCK_PATIENCE};
use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weft_client::shared::overwrites::Area;
use weft_client::shared::volume::STUCK;
use weft_tagfs::{FormatOptions, MountOptions, TagFs};
use weft_tags::MemoryStore;
use weft_vfs::{CreateArgs, MemFs, NewNode, QUOTA_XATTR, XattrMode};

const CLIENT: u32 = 7;

struct Rig<F = MemFs> {
    fs: Arc<F>,
    inodes: Inodes,
}

impl Rig {
    /// A core with room for so many bytes.
    fn new(bytes: u64) -> Rig {
        Rig::on(MemFs::with_capacity(bytes))
    }
}

impl<F: FileSystem + 'static> Rig<F> {
    fn on(fs: F) -> Rig<F> {
        let control = Arc::new(ControlMemory::create().unwrap());
        let maps = Arc::new(Maps::new(control.clone(), 1 << 16).unwrap());
        let fs = Arc::new(fs);
        let locks = Arc::new(Locks::new(control.clone()));
        Rig { inodes: Inodes::new((control, maps), fs.clone(), None, Arc::default(), locks).unwrap(), fs }
    }

    fn open(&self, name: &[u8]) -> Arc<OpenInode> {
        self.open_in(Ino::ROOT, name)
    }

    fn open_in(&self, dir: Ino, name: &[u8]) -> Arc<OpenInode> {
        let args = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o600) };
        self.inodes.acquire(&self.fs.create(dir, name, &args).unwrap()).unwrap()
    }

    /// What a client does that has a ring.
    fn append(&self, open: &OpenInode, bytes: &[u8]) {
        let shared = self.inodes.shared(open.slot);
        let ring = shared.ring.load(Relaxed).checked_sub(1).expect("there is a ring");
        let size = shared.size.load(Relaxed) as usize;
        assert!(size % RING_BYTES + bytes.len() <= RING_BYTES, "in one piece");
        // SAFETY: within the ring, which nobody else uses.
        unsafe {
            let at = self
                .inodes
                .ring_memory()
                .memory()
                .as_ptr::<u8>()
                .add(ring as usize * RING_BYTES + size % RING_BYTES);
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        shared.size.store((size + bytes.len()) as u64, Release);
    }

    /// Gives the file an area.
    fn area(&self, open: &Arc<OpenInode>) -> Area<'_> {
        for _ in 0..2 {
            self.inodes.overwritten(open, 1);
        }
        let number = self.inodes.shared(open.slot).overwrites.load(Relaxed);
        self.inodes.rings.area(number.checked_sub(1).expect("there is an area"))
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let len = self.fs.read(ino, 0, &mut out).unwrap();
        out.truncate(len);
        out
    }
}

#[test]
fn a_ring_that_cannot_be_stored_is_kept_with_what_it_holds_until_it_can() {
    let rig = Rig::new(8 << 20);
    let file = rig.open(b"log");
    assert!(rig.inodes.lease(&file));
    let accepted: Vec<u8> = (0..100_000u32).map(|n| (n / 3) as u8).collect();
    rig.append(&file, &accepted);
    let hog = rig.open(b"hog");
    let free = rig.fs.statfs().unwrap().free_bytes;
    rig.fs.write(hog.ino, 0, &vec![1; free as usize]).unwrap();

    rig.inodes.keep_headroom();
    let shared = rig.inodes.shared(file.slot);
    assert_eq!(shared.ring.load(Relaxed), 0, "no more is accepted");
    let heard = ErrorCursor::default();
    assert_eq!(file.errors.check_and_advance(&heard), Some(libc::ENOSPC), "the next fsync tells");
    assert_eq!((shared.head.load(Relaxed), rig.inodes.size(&file)), (0, 100_000), "all of it is in the ring");
    // Nobody else gets the ring meanwhile, and its owner none in its place.
    let other = rig.open(b"other");
    assert!(!rig.inodes.lease(&other) && !rig.inodes.lease(&file));

    let none = weft_vfs::SetAttr { size: Some(0), ..Default::default() };
    rig.fs.setattr(hog.ino, &none).unwrap();
    assert!(rig.inodes.lease(&other) && rig.inodes.lease(&file));
    rig.append(&other, b"somebody else's");
    rig.append(&file, b", and on");
    rig.inodes.revoke_rings(&file);
    rig.inodes.revoke_rings(&other);
    assert!(rig.content(file.ino) == [&accepted[..], b", and on"].concat());
    assert_eq!(rig.content(other.ino), b"somebody else's");
}

#[test]
fn a_ring_whose_quota_could_not_hold_it_once_more_is_not_filled_again() {
    let medium = Arc::new(MemoryStore::new());
    let format = FormatOptions { capacity_bytes: 256 << 20, ..FormatOptions::default() };
    TagFs::format(Box::new(medium.clone()), &format).unwrap();
    let rig = Rig::on(TagFs::mount(Box::new(medium), MountOptions::default()).unwrap());
    let dir = rig.fs.create(Ino::ROOT, b"q", &CreateArgs::new(NewNode::Directory, 0o755)).unwrap().ino;
    rig.fs.setxattr(dir, QUOTA_XATTR, b"bytes=4M", XattrMode::Any).unwrap();
    let file = rig.open_in(dir, b"file");
    let shared = rig.inodes.shared(file.slot);
    assert!(rig.inodes.lease(&file));
    for (left, goes_on) in [(3 << 20, true), (2 << 20, false)] {
        rig.append(&file, &[7; RING_BYTES]);
        rig.inodes.drain(&file, true).unwrap();
        assert_eq!(rig.fs.quota_room(file.ino).unwrap().unwrap().free_bytes, left);
        assert_eq!(shared.ring.load(Relaxed) != 0, goes_on, "{left} bytes are left");
    }
    assert!(!rig.inodes.lease(&file) && !rig.inodes.lease(&rig.open_in(dir, b"other")));
    let outside = rig.open(b"outside");
    assert!(rig.inodes.lease(&outside), "others are not concerned");
    rig.inodes.keep_headroom();
    assert!(file.ring.lock().has_none() && !outside.ring.lock().has_none());
    // With room again it gets one.
    rig.fs.setxattr(dir, QUOTA_XATTR, b"bytes=8M", XattrMode::Any).unwrap();
    assert!(rig.inodes.lease(&file));
}

/// What a client does that has an area.
fn overwrite(area: Area<'_>, block: u32, byte: u8) -> usize {
    let before = area.find(block).unwrap().map(|(page, _)| page);
    let page = area.writable(block).unwrap();
    area.take(page);
    area.write(page, 0, &[byte; BLOCK_BYTES]);
    area.publish(page, block, before);
    page
}

/// A file of so many blocks that no client has written to.
fn filled(rig: &Rig, name: &[u8], blocks: usize) -> Arc<OpenInode> {
    let file = rig.open(name);
    rig.fs.write(file.ino, 0, &vec![1; blocks * BLOCK_BYTES]).unwrap();
    rig.inodes.size_changed(&file, (blocks * BLOCK_BYTES) as u64);
    file
}

#[test]
fn overwritten_blocks_reach_the_core_and_are_kept_while_they_cannot() {
    let rig = Rig::new(8 << 20);
    let file = filled(&rig, b"data", 40);
    let area = rig.area(&file);
    for block in 0..40 {
        overwrite(area, block, 2);
        overwrite(area, block, 3);
    }
    assert!(rig.inodes.has_overwritten(&file, 39..=100) && !rig.inodes.has_overwritten(&file, 40..=100));
    assert!(rig.content(file.ino).iter().all(|byte| *byte == 1));
    rig.inodes.drain(&file, false).unwrap();
    assert!(!rig.inodes.has_overwritten(&file, 0..=100), "all are clean");
    assert!(rig.content(file.ino).iter().all(|byte| *byte == 3));
    assert!(area.find(7).unwrap().is_some(), "and are still read there");
    drop(rig.inodes.exclude_and_drain(&file).unwrap());
    assert!(area.find(7).unwrap().is_none(), "until the core's content changes");

    // Of a hole, which takes space that is not there.
    let none = weft_vfs::SetAttr { size: Some(0), ..Default::default() };
    rig.fs.setattr(file.ino, &none).unwrap();
    let whole = weft_vfs::SetAttr { size: Some(40 * BLOCK_BYTES as u64), ..Default::default() };
    rig.fs.setattr(file.ino, &whole).unwrap();
    overwrite(area, 5, 4);
    let hog = rig.open(b"hog");
    let free = rig.fs.statfs().unwrap().free_bytes;
    rig.fs.write(hog.ino, 0, &vec![1; free as usize]).unwrap();
    rig.inodes.keep_headroom();
    let shared = rig.inodes.shared(file.slot);
    let heard = ErrorCursor::default();
    assert_eq!(file.errors.check_and_advance(&heard), Some(libc::ENOSPC), "the next fsync tells");
    assert!(rig.inodes.has_overwritten(&file, 5..=5) && shared.overwrites.load(Relaxed) != 0, "it is kept");
    assert_eq!(shared.by_call.load(Relaxed), STUCK, "no more is accepted");
    rig.fs.setattr(hog.ino, &none).unwrap();
    rig.inodes.revoke_rings(&file);
    assert_eq!((shared.overwrites.load(Relaxed), shared.by_call.load(Relaxed)), (0, 0));
    assert_eq!(rig.content(file.ino)[5 * BLOCK_BYTES..][..BLOCK_BYTES], [4; BLOCK_BYTES]);
}

#[test]
fn what_a_broken_client_leaves_in_an_area_harms_nobody_else() {
    let rig = Rig::new(8 << 20);
    let file = filled(&rig, b"data", 4);
    let area = rig.area(&file);
    overwrite(area, 2, 2);
    overwrite(area, 4, 9);
    overwrite(area, u32::MAX, 9);
    rig.inodes.drain(&file, true).unwrap();
    let heard = ErrorCursor::default();
    assert_eq!(file.errors.check_and_advance(&heard), Some(libc::EIO), "the next fsync tells");
    let content = rig.content(file.ino);
    assert_eq!(content.len(), 4 * BLOCK_BYTES);
    assert_eq!(content[2 * BLOCK_BYTES..][..BLOCK_BYTES], [2; BLOCK_BYTES]);
    // Killed before it freed the page of before: of two, the newer counts, whichever page it is in.
    for byte in 100..103 {
        let page = area.writable(1).unwrap();
        area.take(page);
        area.write(page, 0, &[byte; BLOCK_BYTES]);
        area.publish(page, 1, None);
        rig.inodes.drain(&file, true).unwrap();
        assert_eq!(rig.content(file.ino)[BLOCK_BYTES..][..BLOCK_BYTES], [byte; BLOCK_BYTES]);
    }
    overwrite(area, 1, 119);
    rig.inodes.drain(&file, true).unwrap();
    assert_eq!(rig.content(file.ino)[BLOCK_BYTES..][..BLOCK_BYTES], [119; BLOCK_BYTES]);
}

#[test]
fn what_a_killed_client_left_in_two_pages_is_never_read_from_the_older_one() {
    let rig = Rig::new(64 << 20);
    let file = filled(&rig, b"data", 600);
    let area = rig.area(&file);
    overwrite(area, 9, 1);
    overwrite(area, 9, 2);
    rig.inodes.drain(&file, true).unwrap();
    // The page of before is clean, and one that is looked at later.
    let page = area.writable(9).unwrap();
    area.take(page);
    area.write(page, 0, &[3; BLOCK_BYTES]);
    area.publish(page, 9, None);
    rig.inodes.drain(&file, true).unwrap();
    for block in (0..600).filter(|block| *block != 9) {
        if area.writable(block).is_none() {
            rig.inodes.drain(&file, true).unwrap();
        }
        overwrite(area, block, 7);
        if let Some((page, _)) = area.find(9).unwrap() {
            let mut byte = [0];
            area.read(page, 0, &mut byte);
            assert_eq!(byte, [3], "after an overwrite of block {block}");
        }
    }
    rig.inodes.drain(&file, true).unwrap();
    assert_eq!(rig.content(file.ino)[9 * BLOCK_BYTES], 3);
}

#[test]
fn an_area_whose_content_is_lost_is_nobodys_when_another_file_gets_it() {
    let rig = Rig::new(8 << 20);
    let file = filled(&rig, b"data", 4);
    let whole = weft_vfs::SetAttr { size: Some(0), ..Default::default() };
    rig.fs.setattr(file.ino, &whole).unwrap();
    let whole = weft_vfs::SetAttr { size: Some(4 * BLOCK_BYTES as u64), ..Default::default() };
    rig.fs.setattr(file.ino, &whole).unwrap();
    let area = rig.area(&file);
    overwrite(area, 1, 5);
    let hog = rig.open(b"hog");
    let free = rig.fs.statfs().unwrap().free_bytes;
    rig.fs.write(hog.ino, 0, &vec![1; free as usize]).unwrap();
    let cursor = ErrorCursor::default();
    assert_eq!(rig.inodes.release(&file, Some(&cursor)), Some(libc::ENOSPC));
    assert_eq!(rig.inodes.shared(file.slot).overwrites.load(Relaxed), 0);
}

#[test]
fn memory_that_a_stopped_client_may_still_write_to_is_not_used_again() {
    let rig = Rig::new(64 << 20);
    let file = filled(&rig, b"data", 4);
    assert!(rig.inodes.lease(&file));
    let area = rig.area(&file);
    let shared = rig.inodes.shared(file.slot);
    let lost = [shared.ring.load(Relaxed), shared.overwrites.load(Relaxed)];
    overwrite(area, 1, 7);
    assert!(shared.write_lock.lock(CLIENT, || true));
    drop(rig.inodes.exclude_writers(&file));
    assert_eq!([shared.ring.load(Relaxed), shared.overwrites.load(Relaxed)], [0, 0]);
    assert_eq!(rig.content(file.ino)[BLOCK_BYTES..][..BLOCK_BYTES], [7; BLOCK_BYTES]);
    for number in 0..20 {
        let other = filled(&rig, format!("other{number}").as_bytes(), 1);
        assert!(rig.inodes.lease(&other));
        rig.area(&other);
        let shared = rig.inodes.shared(other.slot);
        let given = [shared.ring.load(Relaxed), shared.overwrites.load(Relaxed)];
        assert!(given.iter().all(|number| *number != 0 && !lost.contains(number)), "{given:?} of {lost:?}");
        rig.inodes.release(&other, None);
    }
}

#[test]
fn a_client_that_stopped_with_a_write_lock_loses_it() {
    let rig = Rig::new(8 << 20);
    let file = rig.open(b"log");
    let shared = rig.inodes.shared(file.slot);
    assert!(shared.write_lock.lock(CLIENT, || true));
    drop(rig.inodes.exclude_writers(&file));
    assert_eq!(shared.write_lock.holder(), 0);
    // When it goes on at last it takes nothing from whoever has the lock now.
    let guard = rig.inodes.exclude_writers(&file);
    shared.write_lock.unlock(CLIENT);
    assert_eq!(shared.write_lock.holder(), lock::SERVER);
    drop(guard);
}

#[test]
fn who_loses_a_write_lock_is_named_with_the_file() {
    struct Client;
    impl Peer for Client {
        fn pid(&self) -> Option<u32> {
            Some(4711)
        }
    }
    let mounted = weft_volume::mount_memfs(Arc::default(), &weft_volume::MountChoice::default()).unwrap();
    let volume = Volume::new(Arc::new(mounted)).unwrap();
    let process = volume.begin_process("db".into(), b"/weft".to_vec(), None, Arc::new(Client)).unwrap();
    let args = CreateArgs { open: true, ..CreateArgs::new(NewNode::File, 0o600) };
    let open = volume.inodes.acquire(&volume.fs.create(Ino::ROOT, b"log", &args).unwrap()).unwrap();
    let (holder, named) = (process.id + 1, |holder| volume.inodes.name_holder(&open, holder));
    let who = || (Some("db".to_string()), Some(4711));
    let holding = |(program, pid), path: Option<&str>| Holder { program, pid, path: path.map(Into::into) };
    assert_eq!(named(holder), holding(who(), None));
    let new = NewFile {
        flags: libc::O_RDWR,
        path: b"/log".to_vec(),
        name: None,
        opener: Opener::default(),
        volume_errors_seen: ErrorCursor::default(),
    };
    volume.files.add(open.clone(), new).unwrap();
    assert_eq!(named(holder), holding(who(), Some("/log")));
    assert_eq!(named(holder + 1), holding((None, None), Some("/log")), "a process that has ended");
}

#[test]
fn a_client_that_goes_on_appending_keeps_its_write_lock_however_long() {
    let rig = Rig::new(8 << 20);
    let file = rig.open(b"log");
    let shared = rig.inodes.shared(file.slot);
    assert!(shared.write_lock.lock(CLIENT, || true));
    let gave_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = rig.inodes.exclude_writers(&file);
            assert!(gave_up.load(SeqCst), "the lock was taken from a client that went on");
            drop(guard);
        });
        let begun = Instant::now();
        while begun.elapsed() < 3 * WRITE_LOCK_PATIENCE {
            shared.size.fetch_add(1, Relaxed);
            std::thread::sleep(WRITE_LOCK_PATIENCE / 100);
        }
        assert_eq!(shared.write_lock.holder(), CLIENT);
        gave_up.store(true, SeqCst);
        shared.write_lock.unlock(CLIENT);
    });
}
