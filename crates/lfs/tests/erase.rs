//! Secure deletion leaves nothing on the device, in no zone, no checkpoint and no log of it, whenever the power fails or the process ends.
//!
//! By default a slice of the campaign runs; `WEFT_CAMPAIGN=1` runs it whole.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use rig::{options, small};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use weft_conformance::erase::{Campaign, EraseRig, run};
use weft_core::markers::Markers;
use weft_core::random::SplitMix;
use weft_core::{Ino, Tag, ZoneId};
use weft_device::{DeviceError, PowerCut, ZonedDevice, ZonedModel};
use weft_lfs::{FormatOptions, Lfs, LfsError, fsck};
use weft_vfs::{CreateArgs, FLAGS_XATTR, FileSystem, FsError, FsResult, InodeFlags, NewNode, XattrMode};

const BYTES: u64 = 32 << 20;
const ZONE_BYTES: u64 = 512 << 10;

fn failed(error: LfsError) -> FsError {
    FsError::Device(error.to_string())
}

/// A device in memory that loses what was not flushed.
struct Memory(Arc<PowerCut>);

impl EraseRig for Memory {
    fn mount(&mut self, operations: u64) -> FsResult<Box<dyn FileSystem>> {
        if operations != u64::MAX {
            self.0.cut_after(operations);
        }
        Ok(Box::new(Lfs::mount(self.0.clone(), options()).map_err(failed)?))
    }

    fn lose(&mut self, fs: Box<dyn FileSystem>, seed: u64) {
        drop(fs);
        self.lose_mount(seed);
    }

    fn lose_mount(&mut self, seed: u64) {
        self.0 = Arc::new(self.0.reopen(seed).unwrap());
        let report = fsck::check(self.0.clone()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }

    fn raw(&self, show: &mut dyn FnMut(&[u8])) {
        self.0.device().raw(show).unwrap();
    }
}

/// A device that does so many commands that change it, and then none.
struct Limited {
    inner: ZonedModel,
    left: AtomicU64,
}

impl Limited {
    fn change(&self) -> Result<&ZonedModel, DeviceError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(|_| &self.inner).map_err(|_| DeviceError::PowerLost)
    }

    fn look(&self) -> Result<&ZonedModel, DeviceError> {
        Ok(&self.inner)
    }

    fn erases(&self) -> Result<&ZonedModel, DeviceError> {
        self.change()
    }
}

impl ZonedDevice for Limited {
    pass_on! {
        look => shape report read;
        change => write append open close finish reset flush;
    }

    fn erases(&self) -> bool {
        self.inner.erases()
    }

    fn erase(&self, zones: &[ZoneId]) -> Result<(), DeviceError> {
        self.erases()?.erase(zones)
    }
}

/// A device in an image, of which the process ends.
struct Image {
    path: PathBuf,
    device: Option<Arc<Limited>>,
}

impl EraseRig for Image {
    fn mount(&mut self, operations: u64) -> FsResult<Box<dyn FileSystem>> {
        let device = ZonedModel::open(&self.path).map_err(|error| FsError::Device(error.to_string()))?;
        let device = Arc::new(Limited { inner: device, left: AtomicU64::new(operations) });
        self.device = Some(device.clone());
        Ok(Box::new(Lfs::mount(device, options()).map_err(failed)?))
    }

    fn lose(&mut self, fs: Box<dyn FileSystem>, seed: u64) {
        drop(fs);
        self.lose_mount(seed);
    }

    fn lose_mount(&mut self, _seed: u64) {
        self.device = None;
    }

    fn raw(&self, show: &mut dyn FnMut(&[u8])) {
        // As another process reads it: all of the file.
        show(&std::fs::read(&self.path).unwrap());
    }
}

fn campaign_on(rig: &mut dyn EraseRig, seed: u64) -> Campaign {
    let whole = std::env::var_os("WEFT_CAMPAIGN").is_some_and(|value| value != "0");
    let done = run(rig, seed, if whole { 10_000 } else { 300 });
    println!("seed {seed}: {done:?}");
    assert!(done.erased > 100 && done.left > 20 && done.recoveries > 3, "{done:?}");
    done
}

#[test]
fn nothing_of_what_was_deleted_securely_is_on_a_zoned_device() {
    for seed in 1..=2 {
        let device = Arc::new(PowerCut::new(&small(BYTES, ZONE_BYTES)).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        campaign_on(&mut Memory(device), seed);
    }
}

#[test]
fn a_full_volume_erases_what_is_deleted_of_it_and_takes_as_much_again() {
    let mut device = Arc::new(PowerCut::new(&small(BYTES, ZONE_BYTES)).unwrap());
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    let mut fs = Lfs::mount(device.clone(), options()).unwrap();
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let args = CreateArgs { xattrs: &xattrs, ..CreateArgs::new(NewNode::File, 0o644) };
    let mut random = SplitMix::new(5, &[]);
    let mut markers = Markers::default();
    let mut counts = Vec::new();
    for round in 0..4u32 {
        let mut files = 0u32;
        // Ends of files, which are packed, and whole blocks.
        loop {
            let len = [700, 3_000, 30_000, 100_000][files as usize % 4];
            let bytes: Vec<u8> = (0..len / 8).flat_map(|_| random.next().to_le_bytes()).collect();
            let made = fs.create(Ino::ROOT, format!("{round} {files}").as_bytes(), &args);
            let Ok(ino) = made.map(|attr| attr.ino) else { break };
            if fs.write(ino, 0, &bytes).is_err() {
                fs.unlink(Ino::ROOT, format!("{round} {files}").as_bytes()).unwrap();
                break;
            }
            if files.is_multiple_of(2) {
                markers.add(&bytes);
            }
            files += 1;
        }
        fs.sync().unwrap();
        counts.push(files);
        // A mount after a crash erases, and finds room for that.
        drop(fs);
        device = Arc::new(device.reopen(round.into()).unwrap());
        fs = Lfs::mount(device.clone(), options()).unwrap();
        // Every other file, so that each zone has something that lives.
        for file in (0..files).step_by(2) {
            fs.unlink(Ino::ROOT, format!("{round} {file}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        let mut found = 0;
        device.device().raw(&mut |bytes| markers.find(bytes, |_, _| found += 1)).unwrap();
        assert_eq!(found, 0, "round {round}");
        for file in (1..files).step_by(2) {
            fs.unlink(Ino::ROOT, format!("{round} {file}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.recount(), [""; 0]);
    }
    assert!(counts[0] > 500 && counts.iter().all(|count| count.abs_diff(counts[0]) < 20), "{counts:?}");
    fs.unmount().unwrap();
    rig::assert_sound(&device);
}

#[test]
fn nothing_of_what_was_deleted_securely_is_in_the_file_of_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let device = ZonedModel::create(&path, &small(BYTES, ZONE_BYTES), false, &mut |_, _| {}).unwrap();
    Lfs::format(Arc::new(device), &FormatOptions::default()).unwrap();
    campaign_on(&mut Image { path, device: None }, 3);
}

#[test]
fn what_a_file_held_when_it_got_the_flag_is_erased_after_a_power_cut_in_its_deletion() {
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let mut erased_late = 0;
    for cut in 0..60 {
        let mut device = Arc::new(PowerCut::new(&small(BYTES, ZONE_BYTES)).unwrap());
        Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let plain = CreateArgs::new(NewNode::File, 0o644);
        // The volume has had the flag before: then no checkpoint tells of another file that gets it.
        fs.create(Ino::ROOT, b"early", &CreateArgs { xattrs: &xattrs, ..plain }).unwrap();
        let mut random = SplitMix::new(cut, &[]);
        let mut markers = Markers::default();
        let bytes: Vec<u8> = (0..150_000).flat_map(|_| random.next().to_le_bytes()).collect();
        markers.add(&bytes);
        let late = fs.create(Ino::ROOT, b"late", &plain).unwrap().ino;
        fs.write(late, 0, &bytes).unwrap();
        let other = fs.create(Ino::ROOT, b"other", &plain).unwrap().ino;
        fs.write(other, 0, &vec![7; 2 << 20]).unwrap();
        fs.unmount().unwrap();
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        fs.setxattr(late, FLAGS_XATTR, &value, XattrMode::Any).unwrap();
        fs.unlink(Ino::ROOT, b"late").unwrap();
        device.cut_after(cut);
        let was_erased = fs.fsync(Ino::ROOT).is_ok();
        drop(fs);
        device = Arc::new(device.reopen(cut).unwrap());
        let fs = Lfs::mount(device.clone(), options()).unwrap();
        let mut found = 0;
        device.device().raw(&mut |bytes| markers.find(bytes, |_, _| found += 1)).unwrap();
        match fs.lookup(Ino::ROOT, b"late") {
            Ok(_) => assert!(found > 0, "cut {cut}"),
            Err(error) => {
                assert!(
                    matches!(error, FsError::NotFound) && found == 0,
                    "cut {cut}: {error:?}, {found} found"
                );
                erased_late += u32::from(!was_erased);
            }
        }
    }
    assert!(erased_late > 5, "{erased_late}");
}

/// A device of which a long write waits, when that is asked for.
struct Waiting {
    inner: ZonedModel,
    /// Whether the next long write waits; it tells when it does, and goes on with the second meeting.
    waits: AtomicBool,
    meeting: Barrier,
}

impl Waiting {
    fn look(&self) -> Result<&ZonedModel, DeviceError> {
        Ok(&self.inner)
    }
}

impl ZonedDevice for Waiting {
    pass_on! {
        look => shape report read append open close finish reset flush;
    }

    fn write(&self, zone: ZoneId, block: u32, data: &[u8], tag: &Tag) -> Result<(), DeviceError> {
        if data.len() > 1 << 15 && self.waits.swap(false, Ordering::SeqCst) {
            self.meeting.wait();
            self.meeting.wait();
        }
        self.inner.write(zone, block, data, tag)
    }

    fn erases(&self) -> bool {
        self.inner.erases()
    }

    fn erase(&self, zones: &[ZoneId]) -> Result<(), DeviceError> {
        self.inner.erase(zones)
    }
}

#[test]
fn what_was_being_written_to_a_file_when_it_was_removed_is_erased() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let device = ZonedModel::create(&path, &small(BYTES, ZONE_BYTES), false, &mut |_, _| {}).unwrap();
    let device = Waiting { inner: device, waits: AtomicBool::new(false), meeting: Barrier::new(2) };
    let device = Arc::new(device);
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    let fs = Lfs::mount(device.clone(), options()).unwrap();
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let args = CreateArgs { xattrs: &xattrs, ..CreateArgs::new(NewNode::File, 0o644) };
    let ino = fs.create(Ino::ROOT, b"file", &args).unwrap().ino;
    let mut random = SplitMix::new(8, &[]);
    let mut bytes: Vec<u8> = (0..1 << 13).flat_map(|_| random.next().to_le_bytes()).collect();
    // The zone is open from here on.
    fs.write_through(ino, 0, &bytes).unwrap();
    bytes.reverse();
    let mut markers = Markers::default();
    markers.add(&bytes);
    device.waits.store(true, Ordering::SeqCst);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write_through(ino, 1 << 16, &bytes));
        device.meeting.wait();
        fs.unlink(Ino::ROOT, b"file").unwrap();
        device.meeting.wait();
        writer.join().unwrap()
    });
    assert!(matches!(written, Err(FsError::Stale)), "{written:?}");
    let found = || {
        let mut found = 0;
        markers.find(&std::fs::read(&path).unwrap(), |_, _| found += 1);
        found
    };
    assert!(found() > 0);
    fs.fsync(Ino::ROOT).unwrap();
    assert_eq!(found(), 0);
}

#[test]
fn an_fsync_erases_once_after_something_was_given_up_and_not_after_appends_and_new_names() {
    let device = Arc::new(PowerCut::new(&small(BYTES, ZONE_BYTES)).unwrap());
    Lfs::format(device.clone(), &FormatOptions::default()).unwrap();
    let fs = Lfs::mount(device, options()).unwrap();
    let value = InodeFlags::SECURE_DELETE.to_value();
    let xattrs: [(&[u8], &[u8]); 1] = [(FLAGS_XATTR, &value)];
    let make = |dir, name: &[u8], node| {
        let args = CreateArgs { xattrs: &xattrs, ..CreateArgs::new(node, 0o755) };
        fs.create(dir, name, &args).unwrap().ino
    };
    let dir = make(Ino::ROOT, b"dir", NewNode::Directory);
    let file = make(dir, b"file", NewNode::File);
    let erases = |act: &dyn Fn(), ino| {
        act();
        let before = fs.stats().checkpoints;
        fs.fsync(ino).unwrap();
        fs.stats().checkpoints > before
    };
    let add = |round| {
        make(dir, &[b'a' + round], NewNode::File);
    };
    let append = || fs.write(file, fs.getattr(file).unwrap().size, &[7; 5_000]).unwrap();
    for round in 0..3 {
        assert!(!erases(&append, file), "round {round}: an append");
        assert!(!erases(&|| add(round), dir), "round {round}: a new name");
        assert!(erases(&|| fs.write(file, 10, b"other").unwrap(), file), "round {round}: an overwrite");
        assert!(!erases(&append, file), "round {round}: an append after it");
        assert!(erases(&|| fs.unlink(dir, &[b'a' + round]).unwrap(), dir), "round {round}: a name that goes");
    }
}
