//! A drive for tests: strict as a real one, and with a fault where a test wants it.

use super::access::{DriveInfo, Opening, RawZone, ZoneAccess};
use crate::zoned::{ZoneState, ZonedInfo};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use weft_core::BLOCK_BYTES;
use weft_sys::aligned::is_aligned;

/// Shape of the fake drive: capacity below size, few zones open.
pub const INFO: ZonedInfo =
    ZonedInfo { zones: 8, zone_blocks: 32, zone_capacity: 24, open_max: 3, active_max: 4 };

/// Most blocks of a command.
pub const COMMAND_BLOCKS: u32 = 4;

/// A command that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Write,
    Read,
    Open,
    Close,
    Finish,
    Reset,
    Flush,
}

/// What happens to the next command of a kind.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It fails with a number, after so many blocks were written.
    Fails { errno: i32, after: u32 },
    /// It fails and the zone is in another state from then on.
    Kills { errno: i32, state: ZoneState },
    /// Only so many blocks are written, without an error.
    Short(u32),
}

#[derive(Debug)]
struct FakeZone {
    state: ZoneState,
    data: Vec<u8>,
    blocks: u32,
}

#[derive(Debug)]
struct Disk {
    zones: Vec<FakeZone>,
    faults: Vec<(Command, Fault)>,
    flushes: u32,
}

/// The drive; clones are the same one.
#[derive(Clone, Debug)]
pub struct FakeDrive(Arc<Mutex<Disk>>, DriveInfo);

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl FakeDrive {
    /// An empty drive.
    pub fn new() -> FakeDrive {
        let zone = || FakeZone {
            state: ZoneState::Empty,
            data: vec![0; INFO.zone_capacity as usize * BLOCK_BYTES],
            blocks: 0,
        };
        let zones = (0..INFO.zones).map(|_| zone()).collect();
        let info = DriveInfo { path: "(fake)".into(), zoned: INFO, command_blocks_max: COMMAND_BLOCKS };
        FakeDrive(Arc::new(Mutex::new(Disk { zones, faults: Vec::new(), flushes: 0 })), info)
    }

    /// The next command of this kind does not succeed.
    pub fn fail(&self, command: Command, fault: Fault) {
        self.0.lock().faults.push((command, fault));
    }

    /// Whether every fault has happened.
    pub fn is_past_its_faults(&self) -> bool {
        self.0.lock().faults.is_empty()
    }

    /// A zone's state and the blocks written in it, as the drive has them.
    pub fn zone(&self, zone: u32) -> (ZoneState, u32) {
        let disk = self.0.lock();
        let zone = &disk.zones[zone as usize];
        (zone.state, zone.blocks)
    }

    /// Puts blocks into a zone behind the back of whoever has opened the drive.
    pub fn plant(&self, zone: u32, state: ZoneState, data: &[u8]) {
        let mut disk = self.0.lock();
        let zone = &mut disk.zones[zone as usize];
        zone.data.fill(0);
        zone.data[..data.len()].copy_from_slice(data);
        (zone.state, zone.blocks) = (state, (data.len() / BLOCK_BYTES) as u32);
    }
}

impl Disk {
    fn fault(&mut self, command: Command) -> Option<Fault> {
        let at = self.faults.iter().position(|(of, _)| *of == command)?;
        Some(self.faults.remove(at).1)
    }

    /// Takes a fault of a command that is done whole or not at all.
    fn meet(&mut self, command: Command, zone: u32) -> io::Result<()> {
        match self.fault(command) {
            None => Ok(()),
            Some(Fault::Kills { errno: code, state }) => {
                self.zones[zone as usize].state = state;
                Err(errno(code))
            }
            Some(Fault::Fails { errno: code, .. }) => Err(errno(code)),
            Some(Fault::Short(_)) => panic!("{command:?} cannot be short"),
        }
    }

    /// Opens a zone as a write or a command does. A drive could close others; this one refuses.
    fn open(&mut self, zone: u32, state: ZoneState) -> io::Result<()> {
        let now = self.zones[zone as usize].state;
        let count = |of: fn(ZoneState) -> bool| self.zones.iter().filter(|z| of(z.state)).count() as u32;
        if !now.is_active() && count(ZoneState::is_active) >= INFO.active_max {
            return Err(errno(libc::EOVERFLOW));
        }
        if !now.is_open() && count(ZoneState::is_open) >= INFO.open_max {
            return Err(errno(libc::ETOOMANYREFS));
        }
        if !matches!(now, ZoneState::Empty | ZoneState::Closed) && !now.is_open() {
            return Err(errno(libc::EIO));
        }
        if now != ZoneState::ExplicitlyOpen {
            self.zones[zone as usize].state = state;
        }
        Ok(())
    }
}

impl ZoneAccess for FakeDrive {
    fn drive(&self) -> &DriveInfo {
        &self.1
    }

    fn report_all(&self) -> io::Result<Vec<RawZone>> {
        (0..INFO.zones).map(|zone| self.report(zone)).collect()
    }

    fn report(&self, zone: u32) -> io::Result<RawZone> {
        let (state, blocks) = self.zone(zone);
        let known = !matches!(state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
        Ok(RawZone { state, write_pointer: known.then_some(blocks) })
    }

    fn write(&self, zone: u32, at: u32, data: &[u8]) -> io::Result<usize> {
        assert!(is_aligned(data), "direct I/O takes aligned data only");
        assert!(data.len() <= COMMAND_BLOCKS as usize * BLOCK_BYTES, "a command that would be split");
        let mut disk = self.0.lock();
        disk.open(zone, ZoneState::ImplicitlyOpen)?;
        assert_eq!(at, disk.zones[zone as usize].blocks, "a write elsewhere than at the write pointer");
        let fault = disk.fault(Command::Write);
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        let done = match fault {
            None | Some(Fault::Kills { .. }) => blocks,
            Some(Fault::Fails { after, .. }) => after.min(blocks),
            Some(Fault::Short(count)) => count.min(blocks),
        };
        let of = &mut disk.zones[zone as usize];
        let done = if matches!(fault, Some(Fault::Kills { .. })) { 0 } else { done };
        let start = at as usize * BLOCK_BYTES;
        let bytes = done as usize * BLOCK_BYTES;
        of.data[start..start + bytes].copy_from_slice(&data[..bytes]);
        of.blocks += done;
        if of.blocks == INFO.zone_capacity {
            of.state = ZoneState::Full;
        }
        match fault {
            Some(Fault::Fails { errno: code, .. }) => Err(errno(code)),
            Some(Fault::Kills { errno: code, state }) => {
                of.state = state;
                Err(errno(code))
            }
            _ => Ok(bytes),
        }
    }

    fn read(&self, zone: u32, at: u32, out: &mut [u8]) -> io::Result<usize> {
        assert!(is_aligned(out), "direct I/O takes aligned buffers only");
        let mut disk = self.0.lock();
        disk.meet(Command::Read, zone)?;
        let start = at as usize * BLOCK_BYTES;
        out.copy_from_slice(&disk.zones[zone as usize].data[start..start + out.len()]);
        Ok(out.len())
    }

    fn open(&self, zone: u32, how: Opening) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.meet(Command::Open, zone)?;
        match how {
            Opening::ForWrite => Ok(()),
            Opening::Explicit => disk.open(zone, ZoneState::ExplicitlyOpen),
        }
    }

    fn close(&self, zone: u32) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.meet(Command::Close, zone)?;
        let zone = &mut disk.zones[zone as usize];
        assert!(zone.state.is_open(), "a close of a zone that is {}", zone.state);
        zone.state = ZoneState::Closed;
        Ok(())
    }

    fn release(&self, _: u32) {}

    fn finish(&self, zone: u32) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.meet(Command::Finish, zone)?;
        let zone = &mut disk.zones[zone as usize];
        assert!(zone.state.is_active(), "a finish of a zone that is {}", zone.state);
        zone.state = ZoneState::Full;
        Ok(())
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.meet(Command::Reset, zone)?;
        let zone = &mut disk.zones[zone as usize];
        if matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(errno(libc::EIO));
        }
        zone.data.fill(0);
        (zone.state, zone.blocks) = (ZoneState::Empty, 0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.meet(Command::Flush, 0)?;
        disk.flushes += 1;
        Ok(())
    }
}
