//! A server of flash that is killed again and again while applications write: what it has answered is there.
//!
//! The test's own program is started again as the server, with the image's path in the environment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::{Random, geometry};
use weft_core::{Nanos, Tag};
use weft_device::gc::VictimPolicy;
use weft_device::nand::{FlashSetup, OpenChannel, Unreadable};
use weft_flash::function::Mapping;
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    FunctionLevel, GrantBlock, GrantRequest, LevelError, Monitor, MonitorSetup, PolicyLevel, PolicySetup,
    RangeMapping, RangePolicy, RawLevel,
};

const T: Nanos = Nanos(0);
const IMAGE: &str = "WEFT_TEST_IMAGE";
const PAGES: u64 = 100;

fn request(name: &str) -> GrantRequest {
    GrantRequest { name: name.into(), bytes: 1, over_provisioning_permille: 70 }
}

/// Not a test of its own: the server.
#[test]
fn other_server() {
    let Ok(image) = std::env::var(IMAGE) else { return };
    let device = OpenChannel::open(Path::new(&image)).unwrap();
    let _server = MonitorServer::start(
        Monitor::open(Arc::new(device)).unwrap(),
        &Path::new(&image).with_extension("sock"),
    )
    .unwrap();
    println!("serving");
    std::thread::sleep(Duration::from_secs(3600));
}

fn serve(image: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["other_server", "--exact", "--nocapture"])
        .env(IMAGE, image)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("serving")), "the server ended");
    child
}

/// A page whose content tells which write it is of.
fn page_of(number: u64) -> Vec<u8> {
    let mut page = vec![number as u8; 4096];
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

/// The only reason for a missing answer is that the server is gone.
fn gone(error: &LevelError) {
    assert!(matches!(error, LevelError::Connection(_)), "{error}");
}

/// An application: checks what it was promised, then goes on until the server is gone.
trait Application: Send {
    fn run(&mut self, socket: &Path);

    /// Writes acknowledged so far.
    fn writes(&self) -> u64;
}

/// Writes pages of a range; a page is what was acknowledged last, or what was under way.
struct Pages {
    acknowledged: HashMap<u64, u64>,
    under_way: Option<(u64, u64)>,
    number: u64,
    random: Random,
}

impl Application for Pages {
    fn writes(&self) -> u64 {
        self.number
    }

    fn run(&mut self, socket: &Path) {
        let Ok(grant) = share::attach(socket, "pages") else { return };
        let level = match PolicyLevel::open(grant, PolicySetup::default()) {
            Ok(level) => level,
            Err(error) => return gone(&error),
        };
        for page in 0..PAGES {
            let mut data = [0; 4096];
            if let Err(error) = level.ftl_read(T, page, &mut data) {
                return gone(&error);
            }
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            let wanted = self.acknowledged.get(&page).copied().unwrap_or(0);
            let may = self.under_way == Some((page, found));
            assert!(found == wanted || may, "page {page}: {found} instead of {wanted}");
            assert!(found == 0 || data[..] == page_of(found)[..]);
            self.acknowledged.insert(page, found);
        }
        loop {
            (self.number, self.under_way) =
                (self.number + 1, Some((self.random.below(PAGES), self.number + 1)));
            let (page, number) = self.under_way.unwrap();
            match level.ftl_write(T, page, &page_of(number), Tag::default()) {
                Ok(_) => drop(self.acknowledged.insert(page, number)),
                Err(error) => return gone(&error),
            }
        }
    }
}

/// Fills blocks in order and erases them: pages of a block are those of its last filling, as many as were acknowledged at least.
struct Blocks {
    /// By block: the number of the filling, and pages acknowledged.
    acknowledged: Vec<(u64, u32)>,
    erasing: Option<u32>,
    filling: u64,
    random: Random,
}

impl Application for Blocks {
    fn writes(&self) -> u64 {
        self.filling
    }

    fn run(&mut self, socket: &Path) {
        let Ok(grant) = share::attach(socket, "blocks") else { return };
        let level = RawLevel::new(grant);
        let at = |block: u32| GrantBlock { channel: 0, lun: 0, block };
        for (block, (filling, pages)) in self.acknowledged.iter_mut().enumerate() {
            let block = block as u32;
            let mut data = [0; 4096];
            for page in 0..8 {
                if page >= *pages {
                    break;
                }
                match level.page_read(T, at(block).page(page), 0, &mut data, &mut []) {
                    Ok(_) => assert!(data[..] == page_of(*filling)[..], "block {block}, page {page}"),
                    Err(LevelError::NotProgrammed { .. }) if self.erasing == Some(block) => *pages = 0,
                    // It was announced, and had not ended.
                    Err(LevelError::Unreadable { why: Unreadable::HalfErased, .. })
                        if self.erasing == Some(block) =>
                    {
                        *pages = 0;
                    }
                    Err(error) => return gone(&error),
                }
            }
        }
        loop {
            let block = self.random.below(self.acknowledged.len() as u64) as u32;
            self.erasing = Some(block);
            if let Err(error) = level.block_erase(T, at(block)) {
                return gone(&error);
            }
            self.erasing = None;
            self.filling += 1;
            self.acknowledged[block as usize] = (self.filling, 0);
            for page in 0..self.random.below(9) as u32 {
                match level.page_write(T, at(block).page(page), &page_of(self.filling), &[]) {
                    Ok(_) => self.acknowledged[block as usize].1 = page + 1,
                    Err(error) => return gone(&error),
                }
            }
        }
    }
}

/// Takes blocks of the function level under labels, fills them and gives them back.
struct Labels {
    /// By label: pages acknowledged.
    acknowledged: HashMap<u64, u32>,
    giving_back: Option<u64>,
    next: u64,
}

impl Application for Labels {
    fn writes(&self) -> u64 {
        self.next
    }

    fn run(&mut self, socket: &Path) {
        let Ok(grant) = share::attach(socket, "labels") else { return };
        let level = match FunctionLevel::open(grant) {
            Ok(level) => level,
            Err(error) => return gone(&error),
        };
        let mut blocks: HashMap<u64, GrantBlock> =
            level.mapped_blocks().into_iter().map(|found| (found.label, found.block)).collect();
        if let Some(label) = self.giving_back.take().filter(|label| !blocks.contains_key(label)) {
            self.acknowledged.remove(&label);
        }
        for (label, pages) in &self.acknowledged {
            let mut data = [0; 4096];
            for page in 0..*pages {
                match level.flash_read(T, blocks[label], page, 0, &mut data) {
                    Ok(_) => assert!(data[..] == page_of(*label)[..], "label {label}, page {page}"),
                    Err(error) => return gone(&error),
                }
            }
        }
        loop {
            self.next += 1;
            let label = self.next;
            match level.address_mapper(T, 0, Mapping::Block, label) {
                Ok(mapped) => {
                    blocks.insert(label, mapped.block);
                    for page in 0..1 + label as u32 % 8 {
                        match level.flash_write(T, mapped.block, page, &page_of(label)) {
                            Ok(_) => drop(self.acknowledged.insert(label, page + 1)),
                            Err(error) => return gone(&error),
                        }
                    }
                }
                Err(LevelError::NoFreeBlock { .. }) => {}
                Err(error) => return gone(&error),
            }
            while let Some(label) = blocks.keys().min().copied().filter(|_| blocks.len() > 20) {
                self.giving_back = Some(label);
                let given = level.flash_trim(blocks[&label]).and_then(|()| level.flush(T));
                if let Err(error) = given {
                    return gone(&error);
                }
                self.giving_back = None;
                blocks.remove(&label);
                self.acknowledged.remove(&label);
            }
        }
    }
}

#[test]
fn what_a_server_has_answered_is_there_however_often_it_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("flash.img");
    let device = OpenChannel::create(&image, &FlashSetup::new(geometry(1, 3, 64, 8)), false).unwrap();
    let monitor = Monitor::format(Arc::new(device), MonitorSetup::default()).unwrap();
    let level =
        PolicyLevel::create(monitor.allocate(&request("pages")).unwrap(), PolicySetup::default()).unwrap();
    let (mapping, gc) = (RangeMapping::Page, VictimPolicy::Greedy);
    level
        .ftl_ioctl(&RangePolicy { start: 0, pages: PAGES, mapping, gc, over_provisioning_permille: 70 })
        .unwrap();
    for name in ["blocks", "labels"] {
        monitor.allocate(&request(name)).unwrap();
    }
    let blocks = monitor.attach("blocks").unwrap().geometry().blocks_per_lun as usize;
    drop((level, monitor));
    let mut applications: [Box<dyn Application>; 3] = [
        Box::new(Pages { acknowledged: HashMap::new(), under_way: None, number: 0, random: Random(1) }),
        Box::new(Blocks { acknowledged: vec![(0, 0); blocks], erasing: None, filling: 0, random: Random(2) }),
        Box::new(Labels { acknowledged: HashMap::new(), giving_back: None, next: 0 }),
    ];
    let rounds = if support::campaign() { 100 } else { 8 };
    let mut random = Random(9);
    let (mut done, mut writes) = (0, [0; 3]);
    // On a busy machine a round does little: more of them do as much.
    while done < rounds || done < 20 * rounds && writes.iter().any(|writes| *writes <= 10 * rounds) {
        let mut server = serve(&image);
        std::thread::scope(|scope| {
            for application in &mut applications {
                let socket = image.with_extension("sock");
                scope.spawn(move || application.run(&socket));
            }
            std::thread::sleep(Duration::from_millis(20 + random.below(200)));
            server.kill().unwrap();
            server.wait().unwrap();
        });
        done += 1;
        writes = std::array::from_fn(|at| applications[at].writes());
    }
    assert!(writes.iter().all(|writes| *writes > 10 * rounds), "{writes:?} in {done} rounds");
    OpenChannel::open(&image).unwrap().verify_identity().unwrap();
}
