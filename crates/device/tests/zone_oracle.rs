//! The device against an oracle of a few lines, which knows the figure of the specification as a table and the limits
//! as counts over a list. Random commands go to the oracle, to a device in memory and to one on an image that is
//! closed and opened now and then; all three have to agree on every result, every zone and every block.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use weft_core::{BLOCK_BYTES, Origin, Tag, ZoneId};
use weft_device::{DeviceError, Geometry, ZoneState, ZonedDevice, ZonedModel};

const ZONES: u32 = 6;
const CAPACITY: u32 = 12;
const OPEN_MAX: usize = 2;
const ACTIVE_MAX: usize = 3;

fn geometry() -> Geometry {
    // Zones of 16 blocks, of which 12 can be written; pages of two blocks.
    Geometry {
        total_bytes: u64::from(ZONES) * (64 << 10),
        zone_bytes: 64 << 10,
        zone_capacity_bytes: 48 << 10,
        pages_per_block: 2,
        page_bytes: 8 << 10,
        open_max: OPEN_MAX as u32,
        active_max: ACTIVE_MAX as u32,
        ..Geometry::bbssd()
    }
}

#[derive(Clone, Debug)]
enum Command {
    Write { zone: u32, at: u32, blocks: u32 },
    Append { zone: u32, blocks: u32 },
    Read { zone: u32, at: u32, blocks: u32 },
    Open(u32),
    Close(u32),
    Finish(u32),
    Reset(u32),
    Flush,
    Reopen,
}

fn command() -> impl Strategy<Value = Command> {
    // One zone more than there are, and blocks beyond the end, so that these are refused as well.
    let zone = || 0..ZONES + 1;
    prop_oneof![
        4 => (zone(), 0..17u32, 1..14u32).prop_map(|(zone, at, blocks)| Command::Write { zone, at, blocks }),
        8 => (zone(), 1..9u32).prop_map(|(zone, blocks)| Command::Append { zone, blocks }),
        4 => (zone(), 0..17u32, 1..5u32).prop_map(|(zone, at, blocks)| Command::Read { zone, at, blocks }),
        2 => zone().prop_map(Command::Open),
        2 => zone().prop_map(Command::Close),
        2 => zone().prop_map(Command::Finish),
        4 => zone().prop_map(Command::Reset),
        1 => Just(Command::Flush),
        1 => Just(Command::Reopen),
    ]
}

#[derive(Clone, Debug)]
struct OracleZone {
    state: ZoneState,
    stamps: Vec<u8>,
}

struct Oracle {
    zones: Vec<OracleZone>,
    opened_by_write: Vec<usize>,
}

/// What a command came to: data for a read, the place for a write, else nothing; or the name of the status.
type Outcome = Result<Vec<u8>, &'static str>;

impl Oracle {
    fn new() -> Oracle {
        let zone = OracleZone { state: ZoneState::Empty, stamps: Vec::new() };
        Oracle { zones: vec![zone; ZONES as usize], opened_by_write: Vec::new() }
    }

    fn room(&mut self, zone: usize) -> Result<(), &'static str> {
        let count = |f: fn(ZoneState) -> bool| self.zones.iter().filter(|z| f(z.state)).count();
        if !self.zones[zone].state.is_active() && count(ZoneState::is_active) == ACTIVE_MAX {
            return Err("TooManyActiveZones");
        }
        if count(ZoneState::is_open) == OPEN_MAX {
            let oldest =
                self.opened_by_write.iter().position(|z| self.zones[*z].state == ZoneState::ImplicitlyOpen);
            let closed = self.opened_by_write.remove(oldest.ok_or("TooManyOpenZones")?);
            self.zones[closed].state = ZoneState::Closed;
        }
        Ok(())
    }

    fn write(&mut self, zone: usize, at: Option<usize>, blocks: usize, stamp: u8) -> Outcome {
        use ZoneState::*;
        if zone >= self.zones.len() || at.unwrap_or(0) + blocks > 16 {
            return Err("OutOfRange");
        }
        let pointer = self.zones[zone].stamps.len();
        if self.zones[zone].state == Full {
            return Err("ZoneFull");
        }
        if at.is_some_and(|at| at != pointer) {
            return Err("ZoneInvalidWrite");
        }
        if pointer + blocks > CAPACITY as usize {
            return Err("ZoneBoundary");
        }
        if !self.zones[zone].state.is_open() {
            self.room(zone)?;
            self.zones[zone].state = ImplicitlyOpen;
            self.opened_by_write.retain(|z| *z != zone);
            self.opened_by_write.push(zone);
        }
        let zone = &mut self.zones[zone];
        zone.stamps.extend(vec![stamp; blocks]);
        if zone.stamps.len() == CAPACITY as usize {
            zone.state = Full;
        }
        Ok(vec![pointer as u8])
    }

    fn run(&mut self, command: &Command, stamp: u8) -> Outcome {
        use ZoneState::*;
        let state = |zone: u32| self.zones.get(zone as usize).map(|z| z.state).ok_or("OutOfRange");
        match *command {
            Command::Write { zone, at, blocks } => {
                self.write(zone as usize, Some(at as usize), blocks as usize, stamp).map(|_| vec![])
            }
            Command::Append { zone, blocks } => self.write(zone as usize, None, blocks as usize, stamp),
            Command::Read { zone, at, blocks } => {
                state(zone)?;
                if at + blocks > 16 {
                    return Err("OutOfRange");
                }
                let stamps = self.zones[zone as usize].stamps.get(at as usize..(at + blocks) as usize);
                stamps.map(<[u8]>::to_vec).ok_or("ReadBeyondWritePointer")
            }
            Command::Open(zone) => {
                match state(zone)? {
                    Full => return Err("InvalidTransition"),
                    Empty | Closed => self.room(zone as usize)?,
                    _ => {}
                }
                self.zones[zone as usize].state = ExplicitlyOpen;
                Ok(vec![])
            }
            Command::Close(zone) => {
                if matches!(state(zone)?, Empty | Full) {
                    return Err("InvalidTransition");
                }
                self.zones[zone as usize].state = Closed;
                Ok(vec![])
            }
            Command::Finish(zone) => {
                state(zone)?;
                self.zones[zone as usize].state = Full;
                Ok(vec![])
            }
            Command::Reset(zone) => {
                state(zone)?;
                self.zones[zone as usize] = OracleZone { state: Empty, stamps: Vec::new() };
                Ok(vec![])
            }
            Command::Flush => Ok(vec![]),
            Command::Reopen => {
                for zone in &mut self.zones {
                    if zone.state.is_active() {
                        zone.state = if zone.stamps.is_empty() { Empty } else { Closed };
                    }
                }
                self.opened_by_write.clear();
                Ok(vec![])
            }
        }
    }
}

fn status(error: DeviceError) -> &'static str {
    match error {
        DeviceError::ZoneBoundary { .. } => "ZoneBoundary",
        DeviceError::ZoneFull(_) => "ZoneFull",
        DeviceError::ZoneInvalidWrite { .. } => "ZoneInvalidWrite",
        DeviceError::TooManyActiveZones { .. } => "TooManyActiveZones",
        DeviceError::TooManyOpenZones { .. } => "TooManyOpenZones",
        DeviceError::InvalidTransition { .. } => "InvalidTransition",
        DeviceError::OutOfRange { .. } => "OutOfRange",
        DeviceError::ReadBeyondWritePointer { .. } => "ReadBeyondWritePointer",
        other => panic!("{other}"),
    }
}

fn run(device: &ZonedModel, command: &Command, stamp: u8) -> Outcome {
    let tag = Tag { origin: Origin::ALL[stamp as usize % 3], ..Tag::default() };
    let data = |blocks: u32| vec![stamp; blocks as usize * BLOCK_BYTES];
    let done = |result: Result<(), DeviceError>| result.map(|()| vec![]).map_err(status);
    match *command {
        Command::Write { zone, at, blocks } => done(device.write(ZoneId(zone), at, &data(blocks), &tag)),
        Command::Append { zone, blocks } => {
            device.append(ZoneId(zone), &data(blocks), &tag).map(|at| vec![at as u8]).map_err(status)
        }
        Command::Read { zone, at, blocks } => {
            let mut out = data(blocks);
            device.read(ZoneId(zone), at, &mut out).map_err(status)?;
            assert!(out.chunks(BLOCK_BYTES).all(|block| block.iter().all(|b| *b == block[0])));
            Ok(out.chunks(BLOCK_BYTES).map(|block| block[0]).collect())
        }
        Command::Open(zone) => done(device.open(ZoneId(zone))),
        Command::Close(zone) => done(device.close(ZoneId(zone))),
        Command::Finish(zone) => done(device.finish(ZoneId(zone))),
        Command::Reset(zone) => done(device.reset(ZoneId(zone))),
        Command::Flush => done(device.flush()),
        Command::Reopen => Ok(vec![]),
    }
}

/// The whole device as others see it.
fn view(device: &ZonedModel) -> Vec<(ZoneState, Vec<u8>)> {
    (0..ZONES)
        .map(|zone| {
            let report = device.report(ZoneId(zone)).unwrap();
            let mut out = vec![0; report.write_pointer as usize * BLOCK_BYTES];
            device.read(ZoneId(zone), 0, &mut out).unwrap();
            (report.state, out.chunks(BLOCK_BYTES).map(|block| block[0]).collect())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_device_does_what_the_table_of_the_specification_says(commands in prop::collection::vec(command(), 1..80)) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("image");
        let mut oracle = Oracle::new();
        let memory = ZonedModel::memory(&geometry()).unwrap();
        let mut image = ZonedModel::create(&path, &geometry(), false, &mut |_, _| ()).unwrap();
        let mut reopened = false;
        let mut refused = 0;
        for (n, command) in commands.iter().enumerate() {
            let stamp = n as u8 + 1;
            if matches!(command, Command::Reopen) {
                let counters = image.counters();
                drop(image);
                image = ZonedModel::open(&path).unwrap();
                prop_assert_eq!(image.counters(), counters);
                reopened = true;
            }
            let expected = oracle.run(command, stamp);
            refused += u64::from(expected.is_err());
            prop_assert_eq!(&run(&image, command, stamp), &expected, "{}: {:?} on the image", n, command);
            let zones: Vec<_> = oracle.zones.iter().map(|z| (z.state, z.stamps.clone())).collect();
            for (zone, (state, stamps)) in zones.iter().enumerate() {
                let report = image.report(ZoneId(zone as u32)).unwrap();
                prop_assert_eq!((report.state, report.write_pointer as usize), (*state, stamps.len()));
            }
            // Memory has no life after its process; it is compared as long as the image had none either.
            if !reopened {
                prop_assert_eq!(&run(&memory, command, stamp), &expected, "{}: {:?} in memory", n, command);
                prop_assert_eq!(memory.counters(), image.counters());
            }
        }
        prop_assert_eq!(image.counters().refused, refused);
        let zones: Vec<_> = oracle.zones.into_iter().map(|z| (z.state, z.stamps)).collect();
        prop_assert_eq!(view(&image), zones);
        image.verify_identity().unwrap();
        memory.verify_identity().unwrap();
        prop_assert!(image.counters().open_high_water as usize <= OPEN_MAX);
        prop_assert!(image.counters().active_high_water as usize <= ACTIVE_MAX);
    }
}
