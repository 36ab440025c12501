//! One tag through all layers: what `chattr +s` and the class say of a file of a mount is on the file's s-node, beside each of its pages on the
//! flash, and in the erase of their blocks.

use super::*;
use crate::volume::noise;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use weft_client::sys;
use weft_core::Nanos;
use weft_device::nand::{OpenChannel, PageRead};

const VOLUME: &str = "policy:nand.img";
/// `chattr +s`, and the request that sets flags.
const SECURE: u32 = 1;
const SET_FLAGS: u64 = 0x4008_6602;
/// Bytes at the end of a page's out-of-band bytes that are its tag.
const TAG: usize = 24;

/// A page of the flash, and what its tag says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Told {
    owner: u32,
    stream: u16,
    class: u8,
    is_secure: bool,
}

fn told(oob: &[u8]) -> Told {
    let tag = &oob[oob.len() - TAG..];
    Told {
        owner: u32::from_le_bytes(tag[8..12].try_into().unwrap()),
        stream: u16::from_le_bytes(tag[12..14].try_into().unwrap()),
        class: tag[16],
        is_secure: tag[18] & 1 != 0,
    }
}

/// The pages in which pieces of a content are, whoever they belong to: how often their block was erased, and their tags.
fn pages_of(bench: &Bench, content: &[u8]) -> (BTreeMap<u64, u32>, BTreeSet<Told>) {
    let pieces: BTreeSet<&[u8]> = content.chunks_exact(16).collect();
    let device = OpenChannel::open(&bench.path("nand.img")).unwrap();
    let shape = device.shape();
    let (mut blocks, mut tags) = (BTreeMap::new(), BTreeSet::new());
    for number in 0..shape.blocks() {
        let block = shape.block_at(number);
        let info = device.block_info(block).unwrap();
        for page in 0..info.programmed {
            let (mut data, mut oob) = (vec![0; shape.page_bytes as usize], vec![0; shape.oob_bytes as usize]);
            let mut read = PageRead { page: block.page(page), offset: 0, data: &mut data, oob: &mut oob };
            let _ = device.read_planes(Nanos(0), std::slice::from_mut(&mut read));
            if data.windows(16).any(|window| pieces.contains(window)) {
                blocks.insert(number, info.erases);
                tags.insert(told(&oob));
            }
        }
    }
    (blocks, tags)
}

fn chattr(path: &Path, flags: u32) {
    let file = fs::File::open(path).unwrap();
    let mut argument = u64::from(flags).to_le_bytes();
    sys::ioctl(file.as_raw_fd(), SET_FLAGS as u32, &mut argument).unwrap();
}

#[test]
fn a_tag_goes_from_a_file_of_a_mount_to_the_erase_of_its_flash() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "512M", "nand.img"]).success();
    bench.weft(&["format", "--core", "tagfs", "--size", "150M", VOLUME]).success();
    let Some(mut mount) = Mounted::of(&bench, VOLUME, &[]) else { return };
    let (secret, plain) = (noise(100 << 10, 11), noise(100 << 10, 23));
    let dir = mount.dir.join("secrets");
    fs::create_dir(&dir).unwrap();
    chattr(&dir, SECURE);
    for (path, content) in [(dir.join("a.log"), &secret), (mount.dir.join("b.log"), &plain)] {
        let mut file = fs::File::create(&path).unwrap();
        chown(&path, Some(1234), None).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
    }
    let ino = fs::metadata(dir.join("a.log")).unwrap().ino();
    assert_eq!(mount.stop(), 0);
    drop(mount);

    // The s-node of the file.
    let snodes = bench.json(&["tags", "snode", "--json", VOLUME]);
    let snode =
        snodes["snodes"].as_array().unwrap().iter().find(|snode| snode["snode"] == ino).unwrap().clone();
    assert_eq!((&snode["secure_delete"], &snode["owner"]), (&true.into(), &1234.into()), "{snode}");
    assert_eq!(snode["class"], "log");
    // Its pages, and those of the other file, which lie in another stream.
    let (of_secret, tags) = pages_of(&bench, &secret);
    let secret_tag = Told { owner: 1234, stream: 2 + 2 * 2 + 1, class: 2, is_secure: true };
    assert_eq!(tags, BTreeSet::from([secret_tag]));
    let (of_plain, tags) = pages_of(&bench, &plain);
    assert_eq!(tags, BTreeSet::from([Told { stream: 2 + 2 * 2, is_secure: false, ..secret_tag }]));
    assert!(of_secret.keys().all(|block| !of_plain.contains_key(block)), "{of_secret:?} {of_plain:?}");

    let mut mount = Mounted::of(&bench, VOLUME, &[]).unwrap();
    for path in [mount.dir.join("secrets/a.log"), mount.dir.join("b.log")] {
        fs::remove_file(path).unwrap();
    }
    fs::File::open(&mount.dir).unwrap().sync_all().unwrap();
    assert_eq!(mount.stop(), 0);
    drop(mount);
    let (left, _) = pages_of(&bench, &secret);
    assert!(left.is_empty(), "what is left of the file: blocks {left:?}");
    let device = OpenChannel::open(&bench.path("nand.img")).unwrap();
    for (block, erases) in of_secret {
        let now = device.block_info(device.shape().block_at(block)).unwrap().erases;
        assert!(now > erases, "block {block}");
    }
    drop(device);
    let (left, _) = pages_of(&bench, &plain);
    assert!(!left.is_empty(), "a file that is only removed stays on the flash for now");
    bench.weft(&["fsck", VOLUME]).success().stdout(contains("no problems"));
}
