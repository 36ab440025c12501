//! Each address of a vectored command has the result that it has alone, and no address that is refused keeps another one from its
//! place: at the raw level and the function level, in this process and over a socket.
//!
//! Each vector has a refused address at each of its positions in turn. The same commands, one by one on a device that is equal, say what
//! is right.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use weft_core::{Nanos, StreamId, Tag};
use weft_device::nand::{Done, FlashSetup, OpenChannel};
use weft_flash::function::{BlockRead, BlockWrite, Mapping};
use weft_flash::raw::{RawRead, RawWrite};
use weft_flash::share::{self, MonitorServer};
use weft_flash::{
    FunctionLevel, Grant, GrantBlock, GrantPage, GrantRequest, LevelError, Monitor, MonitorSetup, RawLevel,
};

const T: Nanos = Nanos(0);
const PAGE: usize = 4096;
const PAGES: u32 = 4;

/// A grant of all LUNs, and what serves it.
struct World {
    grant: Option<Grant>,
    _served: Option<(MonitorServer, tempfile::TempDir)>,
}

impl World {
    fn new(planes: u32, remote: bool) -> World {
        let mut geometry = support::geometry(2, 2, 16, PAGES);
        geometry.planes = planes;
        let geometry = geometry.with_size(u64::from(4 * planes * 16 * PAGES) * PAGE as u64);
        let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry)).unwrap());
        let monitor = Monitor::format(device, MonitorSetup::default()).unwrap();
        let bytes = 4 * monitor.lun_bytes();
        let request = GrantRequest { name: "a".into(), bytes, over_provisioning_permille: 0 };
        if !remote {
            return World { grant: Some(monitor.allocate(&request).unwrap()), _served: None };
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = MonitorServer::start(monitor, &socket).unwrap();
        let grant = Some(share::allocate(&socket, &request).unwrap());
        World { grant, _served: Some((server, folder)) }
    }

    fn grant(&mut self) -> Grant {
        self.grant.take().unwrap()
    }
}

/// Every kind of device and of connection.
fn worlds() -> impl Iterator<Item = (u32, bool)> {
    [(1, false), (2, false), (1, true), (2, true)].into_iter()
}

fn told(result: &Result<Done, LevelError>) -> String {
    result.as_ref().map_or_else(LevelError::to_string, |_| "ok".into())
}

fn told_all(results: &[Result<Done, LevelError>]) -> Vec<String> {
    results.iter().map(told).collect()
}

fn block(channel: u32, lun: u32, block: u32) -> GrantBlock {
    GrantBlock { channel, lun, block }
}

fn outside() -> [GrantBlock; 4] {
    [block(9, 0, 0), block(0, 9, 0), block(1, 1, 9999), block(u32::MAX, u32::MAX, u32::MAX)]
}

/// The vector with one more at each position.
fn with_each<T: Clone>(vector: &[T], one: &T) -> Vec<Vec<T>> {
    let with = |at| [&vector[..at], std::slice::from_ref(one), &vector[at..]].concat();
    (0..=vector.len()).map(with).collect()
}

/// A page with what is written to it.
type Write = (GrantPage, Vec<u8>, Vec<u8>);

#[test]
fn a_raw_vector_gives_each_address_its_own_result_with_a_refused_one_anywhere() {
    let page = |value: u8| vec![value; PAGE];
    let (a, b, c) = (block(0, 0, 0), block(0, 0, 1), block(1, 1, 3));
    let good: Vec<Write> = [(a, 0), (b, 0), (a, 1), (c, 0), (c, 1)]
        .into_iter()
        .zip(1..)
        .map(|((block, at), value)| (block.page(at), page(value), vec![value; 3]))
        .collect();
    let mut refused: Vec<Write> =
        outside().map(|block| (block.page(0), page(9), Vec::new())).into_iter().collect();
    refused.push((a.page(PAGES), page(9), Vec::new()));
    refused.push((b.page(3), page(9), Vec::new()));
    refused.push((block(0, 0, 2).page(0), vec![9; 5], Vec::new()));
    refused.push((block(0, 0, 2).page(0), vec![9; PAGE + 1], Vec::new()));
    refused.push((block(0, 0, 2).page(0), page(9), vec![9; 1000]));
    for (planes, remote) in worlds() {
        for (writes, bad) in
            refused.iter().flat_map(|bad| with_each(&good, bad).into_iter().map(move |w| (w, bad)))
        {
            let (mut one, mut other) = (World::new(planes, remote), World::new(planes, remote));
            let (at_once, one_by_one) = (RawLevel::new(one.grant()), RawLevel::new(other.grant()));
            let raw = |(page, data, oob): &Write| {
                // Of equal life: written through the call alone.
                (*page, data.clone(), oob.clone())
            };
            let owned: Vec<Write> = writes.iter().map(raw).collect();
            let pages: Vec<RawWrite> = owned
                .iter()
                .map(|(page, data, oob)| RawWrite { page: *page, data, oob, tag: Tag::default() })
                .collect();
            let results = at_once.page_write_vector(T, &pages).unwrap();
            let wanted: Vec<_> = pages.iter().map(|write| one_by_one.page_write_tagged(T, write)).collect();
            assert_eq!(told_all(&results), told_all(&wanted), "{planes} {remote} {:?}", bad.0);
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), good.len());

            // Reads: the written pages, and the refused one where it was.
            let mut buffers: Vec<(Vec<u8>, Vec<u8>)> =
                writes.iter().map(|(_, data, oob)| (vec![0; data.len()], vec![0; oob.len()])).collect();
            let mut reads: Vec<RawRead> = writes
                .iter()
                .zip(&mut buffers)
                .map(|(write, (data, oob))| RawRead { page: write.0, offset: 0, data, oob })
                .collect();
            let results = at_once.page_read_vector(T, &mut reads).unwrap();
            let wanted: Vec<_> = writes
                .iter()
                .map(|(page, data, oob)| {
                    let (mut data, mut oob) = (vec![0; data.len()], vec![0; oob.len()]);
                    one_by_one.page_read(T, *page, 0, &mut data, &mut oob)
                })
                .collect();
            assert_eq!(told_all(&results), told_all(&wanted));
            for ((result, (_, data, oob)), found) in results.iter().zip(&writes).zip(&buffers) {
                assert!(result.is_err() || *found == (data.clone(), oob.clone()));
            }

            let blocks: Vec<GrantBlock> = writes.iter().map(|write| write.0.block).collect();
            let results = at_once.block_erase_vector(T, &blocks).unwrap();
            let wanted: Vec<_> = blocks.iter().map(|block| one_by_one.block_erase(T, *block)).collect();
            assert_eq!(told_all(&results), told_all(&wanted));
            assert!([a, b, c].into_iter().all(|block| at_once.look(block).unwrap().programmed == 0));
        }
    }
}

/// The blocks of a level that was made in the same way each time: a row that is written by place, and one by number.
fn blocks_of(level: &FunctionLevel) -> Vec<GrantBlock> {
    let mut blocks = level.address_mapper_row(T, 2, Mapping::Block, 1).unwrap();
    blocks.truncate(2);
    blocks.push(level.address_mapper(T, 0, Mapping::Page, 2).unwrap().block);
    blocks.push(level.address_mapper(T, 0, Mapping::Block, 3).unwrap().block);
    let free = level.address_mapper(T, 1, Mapping::Block, 4).unwrap().block;
    level.flash_trim(free).unwrap();
    blocks.push(free);
    blocks
}

/// Which of [`blocks_of`], or one that the grant does not have.
#[derive(Clone, Copy, Debug)]
enum Named {
    Taken(usize),
    Outside(GrantBlock),
}

#[test]
fn a_function_vector_gives_each_address_its_own_result_and_counts_what_is_programmed() {
    use Named::{Outside, Taken};
    // By number one block, until it is full.
    let good: Vec<(Named, u32, usize)> = [(0, 0), (2, 3), (0, 1), (1, 0), (2, 3), (2, 0), (1, 1), (2, 1)]
        .map(|(at, page)| (Taken(at), page, PAGE))
        .into();
    let mut refused: Vec<(Named, u32, usize)> = outside().map(|block| (Outside(block), 0, PAGE)).into();
    for at in [0, 2, 3] {
        refused.push((Taken(at), PAGES, PAGE));
        refused.push((Taken(at), u32::MAX, PAGE));
    }
    // Not next, of a wrong length, not mapped.
    refused.push((Taken(3), 3, PAGE));
    for bytes in [0, 5, PAGE + 1] {
        refused.push((Taken(2), 2, bytes));
        refused.push((Taken(3), 0, bytes));
    }
    refused.push((Taken(4), 0, PAGE));
    for (planes, remote) in worlds() {
        for writes in refused.iter().flat_map(|bad| with_each(&good, bad)) {
            let what = format!("{planes} planes, remote {remote}: {writes:?}");
            let (mut one, mut other) = (World::new(planes, remote), World::new(planes, remote));
            let at_once = FunctionLevel::open(one.grant()).unwrap();
            let one_by_one = FunctionLevel::open(other.grant()).unwrap();
            let blocks = blocks_of(&at_once);
            assert_eq!(blocks, blocks_of(&one_by_one));
            let data: Vec<Vec<u8>> =
                writes.iter().zip(1..).map(|((_, _, bytes), value)| vec![value; *bytes]).collect();
            let named = |named: Named| match named {
                Taken(at) => blocks[at],
                Outside(block) => block,
            };
            let tag = Tag { stream: StreamId(5), ..Tag::default() };
            let pages: Vec<BlockWrite> = writes
                .iter()
                .zip(&data)
                .map(|((block, page, _), data)| BlockWrite { block: named(*block), page: *page, data, tag })
                .collect();
            let results = at_once.flash_write_vector(T, &pages);
            let wanted: Vec<_> = pages.iter().map(|write| one_by_one.flash_write_tagged(T, write)).collect();
            assert_eq!(told_all(&results), told_all(&wanted), "{what}");
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), good.len(), "{what}");
            assert_eq!(at_once.mapped_blocks(), one_by_one.mapped_blocks(), "{what}");

            let mut buffers: Vec<Vec<u8>> = writes.iter().map(|_| vec![0; PAGE]).collect();
            let mut reads: Vec<BlockRead> = pages
                .iter()
                .zip(&mut buffers)
                .map(|(write, data)| BlockRead { block: write.block, page: write.page, offset: 0, data })
                .collect();
            let results = at_once.flash_read_vector(T, &mut reads);
            let mut single = vec![0; PAGE];
            for ((write, result), found) in pages.iter().zip(&results).zip(&buffers) {
                let wanted = one_by_one.flash_read(T, write.block, write.page, 0, &mut single);
                assert_eq!(told(result), told(&wanted), "{what}");
                assert!(wanted.is_err() || *found == single, "{what}");
            }

            // What was counted wrong would be found by the next page, and when the level is opened again.
            let next = at_once.flash_write(T, blocks[0], 2, &[7; PAGE]);
            assert_eq!(told(&next), "ok", "{what}");
            let full = at_once.flash_write(T, blocks[2], 0, &[7; PAGE]);
            assert!(matches!(full, Err(LevelError::BlockFull(_))), "{what}: {full:?}");
            let known: Vec<_> =
                at_once.mapped_blocks().into_iter().filter(|found| found.written > 0).collect();
            let level = FunctionLevel::open(at_once.into_grant()).unwrap();
            let found = level.mapped_blocks();
            assert_eq!(found, known, "{what}");
        }
    }
}
