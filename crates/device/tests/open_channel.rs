//! The open-channel presentation: its rules, its time, its failures and its power cuts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weft_core::Nanos;
use weft_device::nand::{
    BitErrors, BlockAddr, BlockState, Done, Fault, FlashError, FlashSetup, Keep, LunAddr, OpenChannel,
    PageProgram, PageRead, PageTimes, Pairing, Refusal,
};
use weft_device::{FaultPlan, Geometry, Timing};

const PAGE: usize = 4096;
const READ: u64 = 40_000;
const PROGRAM: u64 = 200_000;
const ERASE: u64 = 2_000_000;
/// 4096 bytes at 409.6 MB/s.
const MOVE: u64 = 10_000;

/// Two channels of two LUNs of two planes; four blocks of eight pages in each plane.
fn setup() -> FlashSetup {
    FlashSetup::new(Geometry {
        channels: 2,
        luns_per_channel: 2,
        planes: 2,
        pages_per_block: 8,
        total_bytes: 2 * 2 * 2 * 4 * 8 * PAGE as u64,
        endurance: 0,
        timing: Timing {
            page_read_ns: READ,
            program_ns: PROGRAM,
            erase_ns: ERASE,
            channel_bytes_per_s: 409_600_000,
            ..Geometry::bbssd().timing
        },
        ..Geometry::bbssd()
    })
}

fn device() -> OpenChannel {
    OpenChannel::memory(&setup()).unwrap()
}

fn block(channel: u32, lun: u32, plane: u32, block: u32) -> BlockAddr {
    BlockAddr { channel, lun, plane, block }
}

fn data(byte: u8) -> Vec<u8> {
    vec![byte; PAGE]
}

fn done(began: u64, moved: u64, done: u64) -> Done {
    Done { began: Nanos(began), moved: Nanos(moved), done: Nanos(done) }
}

fn read(device: &OpenChannel, block: BlockAddr, page: u32) -> Result<u8, FlashError> {
    let mut bytes = data(0);
    device.read(Nanos(0), block.page(page), 0, &mut bytes, &mut [])?;
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    Ok(bytes[0])
}

fn refusal<T: std::fmt::Debug>(result: Result<T, FlashError>) -> Refusal {
    result.unwrap_err().refusal().unwrap()
}

#[test]
fn what_was_programmed_is_read_back_with_its_out_of_band_bytes() {
    let device = device();
    let a = block(1, 1, 1, 3);
    device.program(Nanos(0), a.page(0), &data(7), b"first").unwrap();
    device.program(Nanos(0), a.page(1), &data(8), &[9; 64]).unwrap();
    let (mut part, mut oob) = ([0; 10], [1; 64]);
    device.read(Nanos(0), a.page(0), 4086, &mut part, &mut oob).unwrap();
    assert_eq!((part, &oob[..5]), ([7; 10], &b"first"[..]));
    assert!(oob[5..].iter().all(|b| *b == 0), "zeros follow");
    device.read(Nanos(0), a.page(1), 0, &mut [], &mut oob).unwrap();
    assert_eq!(oob, [9; 64]);
    device.erase(Nanos(0), a).unwrap();
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    assert_eq!(read(&device, a, 0).unwrap(), 1);
    device.verify_identity().unwrap();
}

#[test]
fn each_broken_rule_has_its_own_error_and_its_own_count() {
    let device = device();
    let a = block(0, 0, 0, 0);
    let program = |page: u32| device.program(Nanos(0), a.page(page), &data(1), b"");
    assert_eq!(refusal(program(1)), Refusal::OutOfOrder);
    program(0).unwrap();
    assert_eq!(refusal(program(0)), Refusal::AlreadyProgrammed);
    assert_eq!(refusal(read(&device, a, 1)), Refusal::NotProgrammed);
    for wrong in [block(2, 0, 0, 0), block(0, 2, 0, 0), block(0, 0, 2, 0), block(0, 0, 0, 4)] {
        assert_eq!(refusal(device.erase(Nanos(0), wrong)), Refusal::NoSuchAddress);
    }
    assert_eq!(refusal(program(8)), Refusal::NoSuchAddress);
    assert_eq!(refusal(device.program(Nanos(0), a.page(1), &[0; 100], b"")), Refusal::WrongLength);
    assert_eq!(refusal(device.program(Nanos(0), a.page(1), &data(1), &[0; 65])), Refusal::WrongLength);
    assert_eq!(refusal(device.read(Nanos(0), a.page(0), 4090, &mut [0; 7], &mut [])), Refusal::WrongLength);
    let planes = |blocks: &[BlockAddr]| refusal(device.erase_planes(Nanos(0), blocks));
    assert_eq!(planes(&[a, block(0, 1, 1, 0)]), Refusal::PlaneMismatch);
    assert_eq!(planes(&[a, block(0, 0, 0, 1)]), Refusal::PlaneMismatch);
    assert_eq!(planes(&[]), Refusal::VectorLength);
    assert_eq!(refusal(device.erase_vector(Nanos(0), &[a; 65])), Refusal::VectorLength);
    device.inject(Fault::Erase(block(0, 0, 1, 0))).unwrap();
    device.erase(Nanos(0), block(0, 0, 1, 0)).unwrap_err();
    assert_eq!(refusal(device.erase(Nanos(0), block(0, 0, 1, 0))), Refusal::BadBlock);
    device.cut_after(0, seed_that(torn_erase));
    assert!(matches!(device.erase(Nanos(0), block(1, 0, 0, 0)), Err(FlashError::PowerLost)));
    assert!(matches!(program(0), Err(FlashError::PowerLost)), "without power nothing is judged");
    device.power_on();
    let half = device.program(Nanos(0), block(1, 0, 0, 0).page(0), &data(1), b"");
    assert_eq!(refusal(half), Refusal::EraseIncomplete);

    let counters = device.counters();
    let expected = [
        (Refusal::NoSuchAddress, 5),
        (Refusal::WrongLength, 3),
        (Refusal::BadBlock, 1),
        (Refusal::EraseIncomplete, 1),
        (Refusal::OutOfOrder, 1),
        (Refusal::AlreadyProgrammed, 1),
        (Refusal::NotProgrammed, 1),
        (Refusal::PlaneMismatch, 2),
        (Refusal::VectorLength, 2),
    ];
    assert_eq!(counters.refused, expected.into_iter().collect());
    assert_eq!(counters.pages_programmed, 1, "what is refused changes nothing");
    device.verify_identity().unwrap();
}

#[test]
fn errors_name_the_address_and_the_remedy() {
    let device = device();
    let a = block(1, 0, 1, 2);
    let error = device.program(Nanos(0), a.page(3), &data(1), b"").unwrap_err().to_string();
    assert_eq!(
        error,
        "channel 1 LUN 0 plane 1 block 2 page 3: pages are programmed in order and page 0 is next; program that one"
    );
}

#[test]
fn operations_of_one_lun_follow_each_other_to_the_nanosecond() {
    let device = device();
    let a = block(0, 0, 0, 0);
    let at = Nanos(1_000);
    assert_eq!(
        device.program(at, a.page(0), &data(1), b"").unwrap(),
        done(1_000, 1_000 + MOVE, 1_000 + MOVE + PROGRAM)
    );
    // The out-of-band bytes go over the channel too: 64 bytes are 156.25 ns.
    let first = 1_000 + MOVE + PROGRAM;
    let second = first + (PAGE as u64 + 64) * 1_000_000_000 / 409_600_000;
    assert_eq!(second - first, MOVE + 156);
    assert_eq!(
        device.program(at, a.page(1), &data(1), &[0; 64]).unwrap(),
        done(first, second, second + PROGRAM)
    );
    let third = second + PROGRAM;
    let read = device.read(at, a.page(0), 0, &mut data(0), &mut []).unwrap();
    assert_eq!(read, done(third, third + READ + MOVE, third + READ + MOVE));
    let fourth = third + READ + MOVE;
    assert_eq!(device.erase(at, block(0, 0, 1, 0)).unwrap(), done(fourth, fourth, fourth + ERASE));
    // An idle LUN begins a command at its time of issue.
    let late = Nanos(9_000_000);
    assert_eq!(device.touch(late, a.page(1), 512).unwrap(), {
        let end = 9_000_000 + READ + 512 * 1_000_000_000 / 409_600_000;
        done(9_000_000, end, end)
    });
    assert_eq!(device.now(), Nanos(9_000_000 + READ + 1_250));
}

#[test]
fn a_moment_beyond_all_time_counts_as_the_last_one() {
    let device = device();
    let a = block(0, 0, 0, 0);
    let last = 1 << 59;
    let wanted = done(last, last + MOVE, last + MOVE + PROGRAM);
    assert_eq!(device.program(Nanos(u64::MAX), a.page(0), &data(1), b"").unwrap(), wanted);
    assert_eq!(device.erase(Nanos(u64::MAX), a).unwrap().began, wanted.done);
}

#[test]
fn luns_overlap_and_their_channel_does_not() {
    let device = device();
    let at = Nanos(0);
    let program = |b: BlockAddr| device.program(at, b.page(0), &data(1), b"").unwrap();
    // Both LUNs of channel 0, then one of channel 1.
    assert_eq!(program(block(0, 0, 0, 0)), done(0, MOVE, MOVE + PROGRAM));
    assert_eq!(program(block(0, 1, 0, 0)), done(0, 2 * MOVE, 2 * MOVE + PROGRAM));
    assert_eq!(program(block(1, 0, 0, 0)), done(0, MOVE, MOVE + PROGRAM));
    // Reads: both LUNs sense at the same time, the transfers queue.
    let later = Nanos(1_000_000);
    let first = device.touch(later, block(0, 0, 0, 0).page(0), 4096).unwrap();
    let second = device.touch(later, block(0, 1, 0, 0).page(0), 4096).unwrap();
    assert_eq!(first, done(1_000_000, 1_000_000 + READ + MOVE, 1_000_000 + READ + MOVE));
    assert_eq!(second, done(1_000_000, 1_000_000 + READ + 2 * MOVE, 1_000_000 + READ + 2 * MOVE));
    // An erase keeps its LUN, not the channel; a transfer that has to wait for it leaves the gap before to others.
    let then = Nanos(2_000_000);
    device.erase(then, block(0, 0, 1, 1)).unwrap();
    let behind = device.program(then, block(0, 0, 0, 0).page(1), &data(1), b"").unwrap();
    assert_eq!(behind.moved, Nanos(2_000_000 + ERASE + MOVE));
    let beside = device.program(then, block(0, 1, 0, 0).page(1), &data(1), b"").unwrap();
    assert_eq!(beside, done(2_000_000, 2_000_000 + MOVE, 2_000_000 + MOVE + PROGRAM));
    let busy = 2 * (MOVE + PROGRAM)
        + (MOVE + PROGRAM)
        + (READ + MOVE)
        + (READ + 2 * MOVE)
        + ERASE
        + 2 * (MOVE + PROGRAM)
        + MOVE;
    assert_eq!(device.counters().lun_busy_ns, busy);
}

#[test]
fn several_planes_take_one_operation_of_the_array_and_one_transfer_each() {
    let device = device();
    let (a, b) = (block(0, 0, 0, 1), block(0, 0, 1, 3));
    let (one, two) = (data(1), data(2));
    let pages = [
        PageProgram { page: a.page(0), data: &one, oob: b"" },
        PageProgram { page: b.page(0), data: &two, oob: b"" },
    ];
    assert_eq!(device.program_planes(Nanos(0), &pages).unwrap(), done(0, 2 * MOVE, 2 * MOVE + PROGRAM));
    let at = 2 * MOVE + PROGRAM;
    let (mut x, mut y) = (data(0), data(0));
    let mut reads = [
        PageRead { page: a.page(0), offset: 0, data: &mut x, oob: &mut [] },
        PageRead { page: b.page(0), offset: 0, data: &mut y, oob: &mut [] },
    ];
    let end = at + READ + 2 * MOVE;
    assert_eq!(device.read_planes(Nanos(0), &mut reads).unwrap(), done(at, end, end));
    assert_eq!((x[0], y[0]), (1, 2));
    assert_eq!(device.erase_planes(Nanos(0), &[a, b]).unwrap(), done(end, end, end + ERASE));
    let counters = device.counters();
    assert_eq!((counters.multi_plane, counters.blocks_erased, counters.pages_programmed), (3, 2, 2));
    // Refused as a whole.
    device.program(Nanos(0), b.page(0), &two, b"").unwrap();
    assert_eq!(refusal(device.program_planes(Nanos(0), &pages)), Refusal::AlreadyProgrammed);
    assert_eq!(device.block_info(a).unwrap().programmed, 0);
    device.verify_identity().unwrap();
}

#[test]
fn a_vector_works_on_all_luns_at_once_and_tells_of_each_address() {
    let device = device();
    let page = data(3);
    let blocks: Vec<BlockAddr> = (0..4).map(|lun| device.shape().lun_at(lun).block(0, 0)).collect();
    let mut pages: Vec<PageProgram> =
        blocks.iter().map(|b| PageProgram { page: b.page(0), data: &page, oob: b"" }).collect();
    pages.push(PageProgram { page: blocks[0].page(5), data: &page, oob: b"" });
    let results = device.program_vector(Nanos(0), &pages).unwrap();
    let moved = |lun: usize| results[lun].as_ref().unwrap().moved.0;
    assert_eq!([moved(0), moved(1), moved(2), moved(3)], [MOVE, MOVE, 2 * MOVE, 2 * MOVE]);
    assert!(matches!(results[4], Err(FlashError::OutOfOrder { next: 1, .. })));
    let mut buffers = vec![data(0); 4];
    let mut reads: Vec<PageRead> = buffers
        .iter_mut()
        .zip(&blocks)
        .map(|(data, b)| PageRead { page: b.page(0), offset: 0, data, oob: &mut [] })
        .collect();
    assert!(device.read_vector(Nanos(0), &mut reads).unwrap().iter().all(Result::is_ok));
    assert!(buffers.iter().all(|data| data[0] == 3));
    assert!(device.erase_vector(Nanos(0), &blocks).unwrap().iter().all(Result::is_ok));
    assert_eq!(device.counters().blocks_erased, 4);
}

#[test]
fn lsb_and_msb_pages_take_their_own_times() {
    let pairing = Pairing {
        stride: 2,
        lsb: PageTimes { read_ns: 1_000, program_ns: 10_000 },
        msb: PageTimes { read_ns: 2_000, program_ns: 40_000 },
    };
    let device = OpenChannel::memory(&FlashSetup { pairing: Some(pairing), ..setup() }).unwrap();
    let a = block(0, 0, 0, 0);
    let mut at = 0;
    for (page, takes) in [(0, 10_000), (1, 10_000), (2, 40_000), (3, 40_000), (4, 10_000)] {
        let end = device.program(Nanos(0), a.page(page), &data(1), b"").unwrap().done.0;
        assert_eq!(end - at, MOVE + takes, "page {page}");
        at = end;
    }
    assert_eq!(device.touch(Nanos(0), a.page(2), 0).unwrap().done.0, at + 2_000);
}

#[test]
fn a_failed_program_leaves_a_block_that_can_be_read_and_nothing_else() {
    let device = device();
    let a = block(0, 1, 0, 2);
    device.program(Nanos(0), a.page(0), &data(5), b"").unwrap();
    device.inject(Fault::Program(a.page(1))).unwrap();
    let failed = device.program(Nanos(0), a.page(1), &data(6), b"");
    assert!(matches!(failed, Err(FlashError::ProgramFailed { .. })));
    assert_eq!(read(&device, a, 0).unwrap(), 5);
    assert!(matches!(read(&device, a, 1), Err(FlashError::Uncorrectable { .. })));
    assert_eq!(refusal(device.program(Nanos(0), a.page(2), &data(6), b"")), Refusal::BadBlock);
    assert_eq!(refusal(device.erase(Nanos(0), a)), Refusal::BadBlock);
    assert_eq!(device.block_info(a).unwrap().state, BlockState::ReadOnly);
    assert_eq!(device.bad_blocks(), [a]);
    device.verify_identity().unwrap();
}

#[test]
fn a_block_stands_as_many_erases_as_its_endurance() {
    let worn = FlashSetup::new(Geometry { endurance: 3, ..setup().geometry });
    let device = OpenChannel::memory(&worn).unwrap();
    let a = block(0, 0, 0, 0);
    for _ in 0..3 {
        device.erase(Nanos(0), a).unwrap();
    }
    let end = device.erase(Nanos(0), a);
    assert!(matches!(end, Err(FlashError::EraseFailed { erases: 3, worn_out: true, .. })));
    assert_eq!(device.block_info(a).unwrap().state, BlockState::Dead);
    assert_eq!(refusal(read(&device, a, 0)), Refusal::BadBlock);
    device.verify_identity().unwrap();
}

#[test]
fn planned_failures_come_as_often_as_planned_and_the_same_for_the_same_seed() {
    let plan = FaultPlan {
        seed: 4,
        program_failures: 20_000,
        erase_failures: 50_000,
        factory_bad_blocks: 30_000,
        ..FaultPlan::default()
    };
    let big = FlashSetup::new(Geometry::bbssd().with_size(2 << 30)).keeping(Keep::Nothing);
    let run = |plan: FaultPlan| {
        let device = OpenChannel::memory(&big).unwrap().with_faults(plan);
        let factory = device.bad_blocks().len();
        let mut failed = [0; 2];
        for b in device.shape().all_blocks() {
            if device.block_info(b).unwrap().state.is_bad() {
                continue;
            }
            failed[0] += u32::from(device.program(Nanos(0), b.page(0), b"", b"").is_err());
            failed[1] += u32::from(device.erase(Nanos(0), b).is_err_and(|e| e.refusal().is_none()));
        }
        device.verify_identity().unwrap();
        (factory, failed, device.bad_blocks())
    };
    let (factory, failed, bad) = run(plan);
    // Of 2048 blocks.
    assert!((40..85).contains(&factory), "{factory}");
    assert!((22..62).contains(&failed[0]), "{failed:?}");
    assert!((70..130).contains(&failed[1]), "{failed:?}");
    assert_eq!(bad.len(), factory + failed[0] as usize + failed[1] as usize);
    assert_eq!(run(plan).2, bad);
    assert_ne!(run(FaultPlan { seed: 5, ..plan }).2, bad);
}

#[test]
fn reads_disturb_a_block_until_it_is_erased() {
    let plan = BitErrors { per_read: 0.5, correctable: 4, ..BitErrors::default() };
    let device = device().with_bit_errors(plan);
    let a = block(0, 0, 0, 0);
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    let good = (0..100).take_while(|_| read(&device, a, 0).is_ok()).count();
    assert!((8..=10).contains(&good), "{good}");
    assert!(device.counters().bits_corrected >= 16);
    assert_eq!(device.counters().uncorrectable_reads, 1);
    device.erase(Nanos(0), a).unwrap();
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    read(&device, a, 0).unwrap();
}

#[test]
fn data_fades_with_device_time() {
    let plan = BitErrors { per_hour: 1.0, correctable: 7, ..BitErrors::default() };
    let device = device().with_bit_errors(plan);
    let a = block(0, 0, 0, 0);
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    let hour = 3_600_000_000_000;
    device.touch(Nanos(6 * hour), a.page(0), 0).unwrap();
    let faded = device.touch(Nanos(9 * hour), a.page(0), 0);
    assert!(matches!(faded, Err(FlashError::Uncorrectable { .. })));
}

/// Whether a cut with this seed tears the operation that it meets.
fn torn_erase(seed: u64) -> bool {
    let device = device();
    device.cut_after(0, seed);
    device.erase(Nanos(0), block(0, 0, 0, 0)).unwrap_err();
    device.power_on();
    device.block_info(block(0, 0, 0, 0)).unwrap().state == BlockState::EraseIncomplete
}

fn seed_that(does: impl Fn(u64) -> bool) -> u64 {
    (0..100).find(|seed| does(*seed)).unwrap()
}

#[test]
fn a_cut_in_a_program_leaves_it_undone_torn_or_done() {
    let mut seen = [0; 3];
    for seed in 0..60 {
        let device = device();
        let a = block(0, 0, 0, 0);
        device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
        device.cut_after(1, seed);
        device.program(Nanos(0), a.page(1), &data(2), b"").unwrap();
        assert!(matches!(device.program(Nanos(0), a.page(2), &data(3), b""), Err(FlashError::PowerLost)));
        assert!(device.is_cut());
        assert!(matches!(read(&device, a, 0), Err(FlashError::PowerLost)));
        device.power_on();
        assert_eq!((read(&device, a, 0).unwrap(), read(&device, a, 1).unwrap()), (1, 2));
        let outcome = match read(&device, a, 2) {
            Err(FlashError::NotProgrammed { .. }) => 0,
            Err(FlashError::Uncorrectable { .. }) => 1,
            Ok(3) => 2,
            other => panic!("{other:?}"),
        };
        seen[outcome] += 1;
        // The block can be used on after the torn page.
        let next = device.block_info(a).unwrap().programmed;
        device.program(Nanos(0), a.page(next), &data(4), b"").unwrap();
        device.verify_identity().unwrap();
    }
    assert!(seen.iter().all(|n| *n >= 8), "{seen:?}");
}

#[test]
fn a_cut_in_an_msb_program_takes_the_lsb_page_along() {
    let pairing = Pairing::even(4, &setup().geometry.timing);
    let device = OpenChannel::memory(&FlashSetup { pairing: Some(pairing), ..setup() }).unwrap();
    let a = block(0, 0, 0, 0);
    for page in 0..5 {
        device.program(Nanos(0), a.page(page), &data(page as u8), b"").unwrap();
    }
    device.cut_after(0, seed_that(torn_erase));
    device.program(Nanos(0), a.page(5), &data(5), b"").unwrap_err();
    device.power_on();
    let readable: Vec<bool> = (0..6).map(|page| read(&device, a, page).is_ok()).collect();
    assert_eq!(readable, [true, false, true, true, true, false]);
    device.erase(Nanos(0), a).unwrap();
    for page in 0..6 {
        device.program(Nanos(0), a.page(page), &data(9), b"").unwrap();
        assert_eq!(read(&device, a, page).unwrap(), 9);
    }
}

#[test]
fn a_half_erased_block_has_lost_its_pages_and_has_to_be_erased_again() {
    let device = device();
    let a = block(0, 0, 0, 0);
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    device.cut_after(0, seed_that(torn_erase));
    device.erase(Nanos(0), a).unwrap_err();
    device.power_on();
    assert!(matches!(read(&device, a, 0), Err(FlashError::Uncorrectable { .. })));
    assert_eq!(refusal(device.program(Nanos(0), a.page(0), &data(1), b"")), Refusal::EraseIncomplete);
    device.erase(Nanos(0), a).unwrap();
    device.program(Nanos(0), a.page(0), &data(2), b"").unwrap();
    assert_eq!(read(&device, a, 0).unwrap(), 2);
    device.verify_identity().unwrap();
}

#[test]
fn a_cut_in_a_vector_finds_each_lun_at_a_place_of_its_own() {
    let page = data(1);
    let mut ways = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let device = device();
        let blocks: Vec<BlockAddr> = (0..4).map(|lun| device.shape().lun_at(lun).block(0, 0)).collect();
        // Two pages on each LUN.
        let pages: Vec<PageProgram> = (0..8)
            .map(|i| PageProgram { page: blocks[i % 4].page(i as u32 / 4), data: &page, oob: b"" })
            .collect();
        device.cut_after(2, seed);
        let results = device.program_vector(Nanos(0), &pages).unwrap();
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 2);
        device.power_on();
        let left: Vec<u32> = blocks.iter().map(|b| device.block_info(*b).unwrap().programmed).collect();
        assert!(left[0] >= 1 && left[1] >= 1, "what was reported is there");
        assert!(read(&device, blocks[0], 0).is_ok() && read(&device, blocks[1], 0).is_ok());
        ways.insert(left);
        device.verify_identity().unwrap();
    }
    assert!(ways.len() > 10, "{ways:?}");
}

#[test]
fn a_fork_goes_its_own_way() {
    let device = device();
    let a = block(0, 0, 0, 0);
    device.program(Nanos(0), a.page(0), &data(1), b"").unwrap();
    let fork = device.fork().unwrap();
    fork.erase(Nanos(0), a).unwrap();
    fork.program(Nanos(0), a.page(0), &data(2), b"").unwrap();
    assert_eq!((read(&device, a, 0).unwrap(), read(&fork, a, 0).unwrap()), (1, 2));
    assert_eq!((device.counters().blocks_erased, fork.counters().blocks_erased), (0, 1));
    fork.verify_identity().unwrap();
}

#[test]
fn threads_on_their_own_luns_do_not_disturb_each_other() {
    let device = OpenChannel::memory(&setup().keeping(Keep::Oob)).unwrap();
    std::thread::scope(|scope| {
        for index in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let lun = device.shape().lun_at(index);
                for round in 0..200u32 {
                    for page in 0..8 {
                        let oob = [index as u8, round as u8, page as u8];
                        device.program(Nanos(0), lun.block(1, 2).page(page), b"", &oob).unwrap();
                        let mut back = [0; 3];
                        device.read(Nanos(0), lun.block(1, 2).page(page), 0, &mut [], &mut back).unwrap();
                        assert_eq!(back, oob);
                    }
                    device.erase(Nanos(0), lun.block(1, 2)).unwrap();
                }
            });
        }
    });
    assert_eq!(device.counters().pages_programmed, 4 * 200 * 8);
    assert_eq!(device.lun_counters(LunAddr { channel: 1, lun: 1 }).unwrap().blocks_erased, 200);
    device.verify_identity().unwrap();
}

#[test]
fn a_setup_that_cannot_be_is_refused_with_the_remedy() {
    let msb = PageTimes { read_ns: 1, program_ns: u64::MAX };
    let endless = Pairing { stride: 1, msb, ..Pairing::mlc() };
    let cases = [
        (FlashSetup::new(Geometry { total_bytes: 4096, ..setup().geometry }), "give at least that"),
        (FlashSetup { oob_bytes: 1 << 20, ..setup() }, "oob_bytes is 1048576"),
        (FlashSetup { pairing: Some(Pairing { stride: 3, ..Pairing::mlc() }), ..setup() }, "choose a stride"),
        (FlashSetup { pairing: Some(endless), ..setup() }, "a minute"),
        (FlashSetup::new(Geometry { planes: 0, ..setup().geometry }), "planes is 0"),
    ];
    for (setup, says) in cases {
        let error = OpenChannel::memory(&setup).unwrap_err().to_string();
        assert!(error.contains(says), "'{error}' does not say '{says}'");
    }
}
