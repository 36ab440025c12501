//! What a ring holds while it cannot be stored, and who may hold a write lock for how long.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use super::*;
use std::sync::atomic::AtomicBool;
use weft_core::Tag;
use weft_vfs::{CreateArgs, MemFs, NewNode};

const CLIENT: u32 = 7;

struct Rig {
    fs: Arc<MemFs>,
    inodes: Inodes,
}

impl Rig {
    /// A core with room for so many bytes.
    fn new(bytes: u64) -> Rig {
        let control = Arc::new(ControlMemory::create().unwrap());
        let maps = Arc::new(Maps::new(control.clone()).unwrap());
        let fs = Arc::new(MemFs::with_capacity(bytes));
        Rig { inodes: Inodes::new(control, maps, fs.clone(), None, Arc::default()).unwrap(), fs }
    }

    fn open(&self, name: &[u8]) -> Arc<OpenInode> {
        let args =
            CreateArgs { node: NewNode::File, perm: 0o600, uid: 0, gid: 0, tag: Tag::default(), open: true };
        self.inodes.acquire(&self.fs.create(Ino::ROOT, name, &args).unwrap()).unwrap()
    }

    /// What a client does that has a ring.
    fn append(&self, open: &OpenInode, bytes: &[u8]) {
        let shared = self.inodes.shared(open.slot);
        let ring = shared.ring.load(Relaxed).checked_sub(1).expect("there is a ring");
        let size = shared.size.load(Relaxed) as usize;
        assert!(size % RING_BYTES + bytes.len() <= RING_BYTES, "in one piece");
        // SAFETY: within the ring, which nobody else uses.
        unsafe {
            let at =
                self.inodes.ring_memory().as_ptr::<u8>().add(ring as usize * RING_BYTES + size % RING_BYTES);
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        shared.size.store((size + bytes.len()) as u64, Release);
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
    rig.inodes.revoke_ring(&file);
    rig.inodes.revoke_ring(&other);
    assert!(rig.content(file.ino) == [&accepted[..], b", and on"].concat());
    assert_eq!(rig.content(other.ino), b"somebody else's");
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
