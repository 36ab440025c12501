//! Conventional and FDP drives: their data, their write amplification, their time, and what an FDP drive reports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weft_core::Nanos;
use weft_device::gc::{VictimPolicy, waf};
use weft_device::nand::{BitErrors, FlashSetup, Keep};
use weft_device::ssd::{FdpEvent, Isolation, Ssd, SsdError, SsdSetup};
use weft_device::{FaultPlan, Geometry, Timing};

const BLOCK: usize = 4096;

/// Vigna's xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let next = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((next >> 32) * bound) >> 32
    }
}

/// Flash of 4 channels of 2 LUNs of 2 planes, with pages of 8 KiB.
fn small(blocks_per_plane: u64, keep: Keep) -> FlashSetup {
    FlashSetup::new(Geometry {
        channels: 4,
        luns_per_channel: 2,
        planes: 2,
        pages_per_block: 8,
        page_bytes: 2 * BLOCK as u32,
        total_bytes: 4 * 2 * 2 * blocks_per_plane * 8 * 2 * BLOCK as u64,
        endurance: 0,
        ..Geometry::bbssd()
    })
    .keeping(keep)
}

/// What a block holds in its nth version.
fn content(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![(block ^ version) as u8; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Writes, reads and deallocates at random and holds every read against what was written last.
fn exercise(drive: &Ssd, steps: u64, seed: u64) {
    let capacity = drive.capacity_blocks();
    let handles = drive.setup().handles.len() as u64;
    let mut versions = vec![0; capacity as usize];
    let mut random = Random(seed);
    let mut now = Nanos(0);
    let expected = |versions: &[u64], block: u64| match versions[block as usize] {
        0 => vec![0; BLOCK],
        version => content(block, version),
    };
    for step in 1..=steps {
        let blocks = 1 + random.below(9).min(random.below(9));
        let block = random.below(capacity - blocks);
        match random.below(10) {
            0 => {
                drive.deallocate(now, block, blocks).unwrap();
                versions[block as usize..][..blocks as usize].fill(0);
            }
            1..5 => {
                let mut out = vec![1; blocks as usize * BLOCK];
                now = drive.read(now, block, blocks, &mut out).unwrap();
                for (at, got) in (block..).zip(out.chunks(BLOCK)) {
                    assert!(got == expected(&versions, at), "block {at} at step {step}");
                }
            }
            _ => {
                let data: Vec<u8> = (block..block + blocks).flat_map(|at| content(at, step)).collect();
                let handle = (handles > 0).then(|| random.below(handles) as u16);
                now = drive.write(now, block, blocks, &data, handle).unwrap();
                versions[block as usize..][..blocks as usize].fill(step);
            }
        }
    }
    let mut out = vec![1; BLOCK];
    for block in 0..capacity {
        drive.read(now, block, 1, &mut out).unwrap();
        assert!(out == expected(&versions, block), "block {block} in the end");
    }
    drive.verify_identity().unwrap();
}

#[test]
fn a_drive_gives_back_what_was_written_last() {
    use Isolation::{Initially, Persistently};
    for (number, (luns, own, handles)) in [
        (1, false, vec![]),
        (2, true, vec![]),
        (8, true, vec![]),
        (2, true, vec![Initially, Persistently, Initially]),
    ]
    .into_iter()
    .enumerate()
    {
        let setup = SsdSetup {
            luns_per_unit: Some(luns),
            own_relocation_unit: own,
            handles,
            ..SsdSetup::conventional(small(16, Keep::All), 0.4)
        };
        let setup = SsdSetup { reserve_units: if luns == 8 { 1 } else { 2 }, ..setup };
        let drive = Ssd::new(&setup).unwrap();
        exercise(&drive, 6_000, 77 + number as u64);
        assert!(drive.mapper_counts().relocated > 1_000, "the drive has cleaned");
    }
}

#[test]
fn failing_flash_costs_spare_blocks_and_no_data() {
    let setup = SsdSetup {
        luns_per_unit: Some(2),
        spare_blocks_per_plane: 4,
        handles: vec![Isolation::Initially; 2],
        ..SsdSetup::conventional(small(20, Keep::All), 0.5)
    };
    let plan = FaultPlan {
        seed: 9,
        program_failures: 1_500,
        erase_failures: 4_000,
        factory_bad_blocks: 20_000,
        ..FaultPlan::default()
    };
    let drive = Ssd::with_faults(&setup, plan, BitErrors::default()).unwrap();
    exercise(&drive, 6_000, 3);
    let flash = drive.flash_counters();
    assert!(flash.program_failures >= 5 && flash.erase_failures >= 3, "{flash:?}");
    assert_eq!(flash.refused_total(), 0, "the drive breaks no rule of flash");
}

#[test]
fn a_drive_without_spares_wears_out_and_can_still_be_read() {
    let flash = small(16, Keep::All);
    let worn = FlashSetup { geometry: Geometry { endurance: 30, ..flash.geometry }, ..flash };
    let setup = SsdSetup { luns_per_unit: Some(1), ..SsdSetup::conventional(worn, 0.3) };
    let drive = Ssd::new(&setup).unwrap();
    let mut versions = vec![0; drive.capacity_blocks() as usize];
    let mut random = Random(5);
    let error = loop {
        let block = random.below(drive.capacity_blocks());
        let version = versions[block as usize] + 1;
        match drive.write(Nanos(0), block, 1, &content(block, version), None) {
            Ok(_) => versions[block as usize] = version,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SsdError::WornOut(_)), "{error}");
    assert!(drive.wear().unwrap().erases_max == 30);
    let mut out = vec![0; BLOCK];
    for (block, version) in (0..).zip(versions).filter(|(_, version)| *version > 0) {
        drive.read(Nanos(0), block, 1, &mut out).unwrap();
        assert!(out == content(block, version), "block {block}");
    }
    drive.verify_identity().unwrap();
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_until_it_is_written_again() {
    let plan = FaultPlan { seed: 2, uncorrectable_reads: 30_000, ..FaultPlan::default() };
    let setup = SsdSetup { luns_per_unit: Some(1), ..SsdSetup::conventional(small(16, Keep::All), 0.3) };
    let drive = Ssd::with_faults(&setup, plan, BitErrors::default()).unwrap();
    let capacity = drive.capacity_blocks();
    let mut random = Random(8);
    let mut versions = vec![0; capacity as usize];
    for version in 1..20_000 {
        let block = random.below(capacity);
        drive.write(Nanos(0), block, 1, &content(block, version), None).unwrap();
        versions[block as usize] = version;
    }
    let mut lost = Vec::new();
    let mut out = vec![0; BLOCK];
    for block in (0..capacity).filter(|block| versions[*block as usize] > 0) {
        match drive.read(Nanos(0), block, 1, &mut out) {
            Ok(_) => assert!(out == content(block, versions[block as usize]), "block {block}"),
            Err(SsdError::Unreadable { block: told }) => {
                assert_eq!(told, block);
                lost.push(block);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost.len() > 30, "{}", lost.len());
    // What was lost when the drive moved it stays lost, and never comes back as other data.
    drive.write(Nanos(0), lost[0], 1, &content(lost[0], 1), None).unwrap();
    drive.read(Nanos(0), lost[0], 1, &mut out).unwrap();
    assert!(out == content(lost[0], 1));
    drive.verify_identity().unwrap();
}

/// A drive of 64 Ki blocks whose alpha is `1 + op`, without data.
fn measured(victim: VictimPolicy, op: f64) -> Ssd {
    let geometry = Geometry {
        channels: 4,
        luns_per_channel: 2,
        pages_per_block: 64,
        total_bytes: 1024 * 64 * BLOCK as u64,
        ..Geometry::bbssd()
    };
    let flash = FlashSetup::new(geometry).keeping(Keep::Nothing);
    let setup = SsdSetup { victim, luns_per_unit: Some(1), ..SsdSetup::conventional(flash, op) };
    // What the drive has for itself is more than what the reserve and the open units take.
    let room = Ssd::new(&setup).unwrap().alpha() / (1.0 + op);
    let drive = Ssd::new(&SsdSetup { over_provisioning: (1.0 + op) / room - 1.0, ..setup }).unwrap();
    assert!((drive.alpha() - 1.0 - op).abs() < 1e-3, "{}", drive.alpha());
    drive
}

/// Write amplification between two moments, by what the drive reports.
fn settled(drive: &Ssd, mut next: impl FnMut() -> (u64, Option<u16>), settle: u64, measure: u64) -> f64 {
    let mut now = Nanos(0);
    let capacity = drive.capacity_blocks();
    for block in 0..capacity {
        now = drive.write(now, block, 1, &[], None).unwrap();
    }
    for _ in 0..settle * capacity {
        let (block, handle) = next();
        now = drive.write(now, block, 1, &[], handle).unwrap();
    }
    let before = drive.fdp_statistics();
    for _ in 0..measure * capacity {
        let (block, handle) = next();
        now = drive.write(now, block, 1, &[], handle).unwrap();
    }
    let after = drive.fdp_statistics();
    drive.verify_identity().unwrap();
    (after.mbmw - before.mbmw) as f64 / (after.hbmw - before.hbmw) as f64
}

#[test]
fn the_whole_drive_has_the_write_amplification_of_theory() {
    for op in [0.07, 0.125, 0.25, 0.5] {
        let run = |victim| {
            let drive = measured(victim, op);
            let mut random = Random(0x1234_5678);
            let capacity = drive.capacity_blocks();
            settled(&drive, || (random.below(capacity), None), 5, 6)
        };
        let fifo = run(VictimPolicy::Fifo);
        let random = run(VictimPolicy::Random);
        let greedy = run(VictimPolicy::Greedy);
        let theory = waf::fifo(1.0 + op);
        println!("OP {op}: FIFO {fifo:.3} of {theory:.3}, random {random:.3}, greedy {greedy:.3}");
        assert!((fifo / theory - 1.0).abs() <= 0.01, "OP {op}: FIFO {fifo}");
        assert!((random / waf::random(1.0 + op) - 1.0).abs() <= 0.01, "OP {op}: random {random}");
        assert!(greedy <= fifo && greedy >= 0.75 * theory, "OP {op}: greedy {greedy}");
    }
}

#[test]
fn handles_that_keep_two_logs_apart_take_the_write_amplification_away() {
    let geometry = Geometry {
        channels: 4,
        luns_per_channel: 2,
        pages_per_block: 64,
        total_bytes: 512 * 64 * BLOCK as u64,
        ..Geometry::bbssd()
    };
    let flash = FlashSetup::new(geometry).keeping(Keep::Nothing);
    let run = |handles: Vec<Isolation>| {
        let separate = handles.len() > 1;
        let setup =
            SsdSetup { handles, luns_per_unit: Some(1), ..SsdSetup::conventional(flash.clone(), 0.15) };
        let drive = Ssd::new(&setup).unwrap();
        let capacity = drive.capacity_blocks();
        // Two logs that go round and round, one in a twentieth of the drive and one in the rest, in turns.
        let short = capacity / 20;
        let mut at = 0;
        let next = || {
            at += 1;
            match at % 2 {
                0 => (at / 2 % short, separate.then_some(0)),
                _ => (short + at / 2 % (capacity - short), separate.then_some(1)),
            }
        };
        (settled(&drive, next, 6, 6), drive)
    };
    let (mixed, _) = run(vec![]);
    let (separated, drive) = run(vec![Isolation::Initially; 2]);
    println!("two logs: conventional {mixed:.3}, two handles {separated:.3}");
    assert!(mixed > 1.2 && separated < 1.01, "{mixed} {separated}");
    let usage = drive.handle_usage();
    let counters = drive.counters();
    assert_eq!(usage[0].host_bytes + usage[1].host_bytes, counters.host_bytes);
    assert_eq!(drive.fdp_statistics().hbmw, counters.host_bytes);
    assert_eq!(drive.fdp_statistics().mbe, counters.erases * 64 * BLOCK as u64);
}

#[test]
fn persistent_isolation_keeps_moved_data_of_handles_apart() {
    let run = |isolation| {
        let setup = SsdSetup {
            handles: vec![isolation; 2],
            luns_per_unit: Some(1),
            ..SsdSetup::conventional(small(16, Keep::Nothing), 0.4)
        };
        let drive = Ssd::new(&setup).unwrap();
        let mut random = Random(4);
        for _ in 0..30_000 {
            let block = random.below(drive.capacity_blocks());
            drive.write(Nanos(0), block, 1, &[], Some((block % 2) as u16)).unwrap();
        }
        drive.verify_identity().unwrap();
        drive
    };
    for isolation in [Isolation::Initially, Isolation::Persistently] {
        let drive = run(isolation);
        let mut handles_in = std::collections::HashMap::<_, [u32; 2]>::new();
        for block in 0..drive.capacity_blocks() {
            if let Some(page) = drive.page_of(block).unwrap() {
                handles_in.entry(page.block).or_default()[block as usize % 2] += 1;
            }
        }
        let mixed = handles_in.values().filter(|blocks| blocks[0] > 0 && blocks[1] > 0).count();
        assert_eq!(mixed > 0, isolation == Isolation::Initially, "{isolation:?}: {mixed}");

        let events = drive.fdp_events();
        assert_eq!(events.len(), 1024, "the log keeps the last events");
        assert!(drive.media_reallocated_events() > 1024);
        let is_of = |event: &&FdpEvent, wanted: fn(Option<u16>) -> bool| match event {
            FdpEvent::MediaReallocated { handle, blocks, .. } => *blocks > 0 && wanted(*handle),
            _ => false,
        };
        assert!(events.iter().any(|event| is_of(&event, |handle| handle.is_none())), "moved once more");
        assert!(events.iter().any(|event| is_of(&event, |handle| handle == Some(1))));
    }
}

#[test]
fn a_handle_can_be_given_another_unit_and_a_wrong_one_is_refused_and_logged() {
    let setup = SsdSetup { luns_per_unit: Some(2), ..SsdSetup::fdp(small(32, Keep::All), 0.4, 3) };
    let drive = Ssd::new(&setup).unwrap();
    let unit = u64::from(drive.units().1);
    assert_eq!(unit, 2 * 2 * 8 * 2);
    drive.write(Nanos(0), 0, 5, &[7; 5 * BLOCK], Some(2)).unwrap();
    assert_eq!(drive.handle_usage()[2].available_bytes, (unit - 5) * BLOCK as u64);
    drive.update_handle(Nanos(0), 2).unwrap();
    assert_eq!(drive.handle_usage()[2].available_bytes, 0);
    // Five blocks fill one program unit of four and a padded one.
    assert_eq!(drive.fdp_statistics().mbmw, 8 * BLOCK as u64);
    let mut out = vec![0; 5 * BLOCK];
    drive.read(Nanos(0), 0, 5, &mut out).unwrap();
    assert_eq!(out, [7; 5 * BLOCK]);
    let wrong = drive.write(Nanos(0), 0, 1, &[0; BLOCK], Some(3));
    assert!(matches!(wrong, Err(SsdError::NoSuchHandle { handle: 3, handles: 3 })));
    assert_eq!(
        drive.fdp_events(),
        [
            FdpEvent::UnitNotFull { handle: 2, left_bytes: (unit - 5) * BLOCK as u64 },
            FdpEvent::InvalidPlacement { handle: 3 },
        ]
    );
    assert_eq!(drive.counters().refused, 1);
    drive.verify_identity().unwrap();
}

#[test]
fn the_time_of_a_command_is_that_of_the_link_and_of_the_flash_behind_it() {
    let timing = Timing {
        page_read_ns: 40_000,
        program_ns: 200_000,
        erase_ns: 2_000_000,
        channel_bytes_per_s: 409_600_000, // 10 us for 4 KiB
        host_bytes_per_s: 4_096_000_000,  // 1 us for 4 KiB
        queue_depth: 64,
    };
    let flash = small(32, Keep::Nothing);
    let flash = FlashSetup { geometry: Geometry { timing, ..flash.geometry }, ..flash };
    let setup = SsdSetup { luns_per_unit: Some(8), reserve_units: 1, ..SsdSetup::conventional(flash, 0.4) };
    let drive = Ssd::new(&setup).unwrap();
    let us = |n: u64| Nanos(n * 1_000);
    let write = |block, blocks| drive.write(Nanos(0), block, blocks, &[], None).unwrap();
    // Three blocks stay in the buffer; the fourth fills a program unit of two planes of two blocks.
    assert_eq!(write(0, 3), us(3));
    assert_eq!(write(3, 1), us(4 + 40));
    // The next units go to the other seven LUNs: LUN 1 to 3 have channels of their own, LUN 4 shares that of LUN 0.
    assert_eq!(write(4, 4), us(8 + 40));
    assert_eq!(write(8, 8), us(16 + 40));
    assert_eq!(write(16, 4), us(44 + 40));
    // LUN 0 again, after its program: 44 + 200, then the transfer.
    assert_eq!(write(20, 16), us(44 + 200 + 40));
    // A read senses both planes' pages one after the other: each is an operation of the LUN.
    let at = us(10_000);
    assert_eq!(drive.read(at, 0, 1, &mut []).unwrap(), us(10_000 + 40 + 10 + 1));
    assert_eq!(drive.read(us(20_000), 0, 2, &mut []).unwrap(), us(20_000 + 40 + 20 + 2));
    // Blocks 2 and 3 are in the other plane, 4 to 7 on LUN 1.
    assert_eq!(drive.read(us(30_000), 0, 8, &mut []).unwrap(), us(30_000 + 2 * (40 + 20) + 8));
    // What was never written costs the link alone.
    assert_eq!(drive.read(us(40_000), 300, 4, &mut []).unwrap(), us(40_004));
    assert_eq!(drive.latencies().read.count, 4);
    assert_eq!(drive.deallocate(us(50_000), 0, 8).unwrap(), us(50_000));
    drive.verify_identity().unwrap();
}

#[test]
fn commands_that_cannot_be_are_refused_and_counted() {
    let drive = Ssd::new(&SsdSetup::conventional(small(64, Keep::All), 0.3)).unwrap();
    let end = drive.capacity_blocks();
    for error in [
        drive.write(Nanos(0), end, 1, &[0; BLOCK], None).unwrap_err(),
        drive.write(Nanos(0), u64::MAX, 2, &[0; 2 * BLOCK], None).unwrap_err(),
        drive.write(Nanos(0), 0, 1, &[0; 100], None).unwrap_err(),
        drive.write(Nanos(0), 0, 1, &[], None).unwrap_err(),
        drive.write(Nanos(0), 0, 1, &[0; BLOCK], Some(0)).unwrap_err(),
        drive.read(Nanos(0), end - 1, 2, &mut [0; 2 * BLOCK]).unwrap_err(),
        drive.read(Nanos(0), 0, 2, &mut [0; BLOCK]).unwrap_err(),
        drive.deallocate(Nanos(0), 1, end).unwrap_err(),
    ] {
        assert!(error.is_refusal(), "{error}");
    }
    assert_eq!(drive.counters().refused, 8);
    let says = |setup: SsdSetup, what: &str| {
        let error = Ssd::new(&setup).unwrap_err().to_string();
        assert!(error.contains(what), "'{error}' does not say '{what}'");
    };
    let good = || SsdSetup::conventional(small(64, Keep::All), 0.3);
    says(SsdSetup { over_provisioning: -0.1, ..good() }, "over_provisioning is -0.1");
    says(SsdSetup { over_provisioning: 0.0, ..good() }, "give more blocks or fewer pages");
    says(SsdSetup { luns_per_unit: Some(3), ..good() }, "luns_per_unit is 3");
    says(SsdSetup { spare_blocks_per_plane: 64, ..good() }, "keep fewer");
    says(SsdSetup { handles: vec![Isolation::Initially; 200], ..good() }, "200 placement handles");
}
