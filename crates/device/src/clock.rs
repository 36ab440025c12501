//! Device time: when each command would have completed on the modelled flash.
//!
//! Each LUN carries out one operation at a time, in the order of arrival, and is busy until a known moment. A channel
//! is shared by its LUNs and carries one transfer at a time, in the first gap from the moment when the transfer is
//! ready; so a long erase on one LUN does not block its neighbours. Host and device exchange bytes at the rate of the
//! link, each direction for itself.
//!
//! - A write is complete when its bytes are in the device and every program unit that it filled has gone over the
//!   channel to a LUN that was free to take it; the program itself goes on behind. So writes that outrun the flash
//!   feel it.
//! - A read senses its pages (all planes of a LUN at once), then transfers them. Blocks that are still in the write
//!   buffer cost the link only.
//! - A reset erases the zone's blocks, all planes of a LUN at once.
//! - A flush waits for the commands under way. It programs nothing: the write buffer survives a loss of power.
//!
//! Time is virtual: it is moved by commands alone. The host is a closed loop with a bounded queue; when the queue is
//! full, the clock goes to the oldest completion, and a flush takes it to the last. With one thread the result is the
//! same on every machine. In real time the clock also follows the wall, and [`Completion::wait`] sleeps.

use crate::geometry::Geometry;
use crate::host_queue::HostQueue;
use crate::path::Path;
use crate::timing::{Timing, nanos_of};
use parking_lot::Mutex;
use std::ops::Range;
use std::time::{Duration, Instant};
use weft_core::hist::{Histogram, Summary};
use weft_core::{BLOCK_BYTES, Nanos};

/// Latencies of a device in device time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Latencies {
    /// Reads, without those that others made directly.
    pub read: Summary,
    /// Writes, appends and finishes.
    pub write: Summary,
    /// Flushes.
    pub flush: Summary,
    /// Resets.
    pub reset: Summary,
}

/// What the [`Latencies`] of a device are summed up from.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    pub read: Histogram,
    pub write: Histogram,
    pub flush: Histogram,
    pub reset: Histogram,
}

impl Latency {
    /// The latencies so far.
    pub fn summary(&self) -> Latencies {
        Latencies {
            read: self.read.summary(),
            write: self.write.summary(),
            flush: self.flush.summary(),
            reset: self.reset.summary(),
        }
    }
}

/// Where the program units of a zone lie.
#[derive(Clone, Copy, Debug)]
struct Placement {
    luns: u64,
    channels: u64,
    groups: u64,
    /// Groups of a zone that take turns: the most that divide the zone evenly.
    width: u64,
    pages_per_block: u64,
}

impl Placement {
    fn new(geometry: &Geometry) -> Placement {
        let (luns, groups) = (u64::from(geometry.luns()), geometry.groups_per_zone());
        let width = (1..=luns.min(groups)).rev().find(|w| groups.is_multiple_of(*w)).unwrap_or(1);
        let pages_per_block = u64::from(geometry.pages_per_block);
        Placement { luns, channels: u64::from(geometry.channels), groups, width, pages_per_block }
    }

    fn lun_of_group(&self, zone: u32, group: u64) -> usize {
        ((u64::from(zone) * self.groups + group) % self.luns) as usize
    }

    fn lun_of_unit(&self, zone: u32, unit: u64) -> usize {
        let row_units = self.width * self.pages_per_block;
        self.lun_of_group(zone, unit / row_units * self.width + unit % row_units % self.width)
    }

    fn channel(&self, lun: usize) -> usize {
        lun % self.channels as usize
    }
}

#[derive(Debug)]
struct State {
    /// The host; its clock is that of the device.
    host: HostQueue,
    luns: Vec<u64>,
    channels: Vec<Path>,
    to_device: Path,
    to_host: Path,
}

impl State {
    fn now(&self) -> u64 {
        self.host.now().0
    }
}

/// The device's clock and what is busy until when.
#[derive(Debug)]
pub struct Clock {
    timing: Timing,
    placement: Placement,
    unit_bytes: u64,
    planes: u64,
    state: Mutex<State>,
    /// Where the clock stood when real time began, and the moment that it was; `None` in virtual time.
    real: Option<(u64, Instant)>,
    latency: Latency,
}

/// When a command completes.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    at: Option<Instant>,
}

impl Completion {
    /// In real time, sleeps until the command completes. To be called without a lock.
    pub fn wait(self) {
        if let Some(left) = self.at.map(|at| at.saturating_duration_since(Instant::now()))
            && !left.is_zero()
        {
            std::thread::sleep(left);
        }
    }
}

impl Clock {
    /// A clock that stands at `now` nanoseconds, with nothing busy.
    pub fn new(geometry: &Geometry, now: u64) -> Clock {
        let state = State {
            host: HostQueue::new(geometry.timing.queue_depth as usize, Nanos(now)),
            luns: vec![0; geometry.luns() as usize],
            channels: vec![Path::default(); geometry.channels as usize],
            to_device: Path::default(),
            to_host: Path::default(),
        };
        Clock {
            timing: geometry.timing,
            placement: Placement::new(geometry),
            unit_bytes: geometry.unit_bytes(),
            planes: u64::from(geometry.planes),
            state: Mutex::new(state),
            real: None,
            latency: Latency::default(),
        }
    }

    /// Follows the wall from now on, or stops doing so.
    pub fn set_real_time(&mut self, on: bool) {
        self.real = on.then(|| (self.now(), Instant::now()));
    }

    /// Where the clock stands, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.state.lock().now()
    }

    /// The latencies so far.
    pub fn latencies(&self) -> Latencies {
        self.latency.summary()
    }

    /// A write of `bytes` that filled these program units of the zone.
    pub fn write(&self, zone: u32, bytes: u64, units: Range<u64>) -> Completion {
        self.command(&self.latency.write, |clock, s| {
            let now = s.now();
            let buffered = s.to_device.transfer(now, now, nanos_of(bytes, clock.timing.host_bytes_per_s));
            let transfer = nanos_of(clock.unit_bytes, clock.timing.channel_bytes_per_s);
            let mut done = buffered;
            for unit in units {
                let lun = clock.placement.lun_of_unit(zone, unit);
                let ready = buffered.max(s.luns[lun]);
                let taken = s.channels[clock.placement.channel(lun)].transfer(now, ready, transfer);
                s.luns[lun] = taken + clock.timing.program_ns;
                done = done.max(taken);
            }
            done
        })
    }

    /// A read of these bytes of the zone, of which those below `programmed` are in flash.
    pub fn read(&self, zone: u32, bytes: Range<u64>, programmed: u64) -> Completion {
        self.command(&self.latency.read, |clock, s| {
            let now = s.now();
            let mut sensed = now;
            let mut at = bytes.start;
            let flash_end = bytes.end.min(programmed);
            while at < flash_end {
                let unit = at / clock.unit_bytes;
                let end = flash_end.min((unit + 1) * clock.unit_bytes);
                let lun = clock.placement.lun_of_unit(zone, unit);
                let ready = s.luns[lun].max(now) + clock.timing.page_read_ns;
                let transfer = nanos_of(end - at, clock.timing.channel_bytes_per_s);
                let moved = s.channels[clock.placement.channel(lun)].transfer(now, ready, transfer);
                s.luns[lun] = moved;
                sensed = sensed.max(moved);
                at = end;
            }
            let link = nanos_of(bytes.end - bytes.start, clock.timing.host_bytes_per_s);
            s.to_host.transfer(now, sensed, link)
        })
    }

    /// A reset of the zone, with or without an erase of its blocks.
    pub fn reset(&self, zone: u32, erased: bool) -> Completion {
        self.command(&self.latency.reset, |clock, s| {
            let groups = if erased { clock.placement.groups } else { 0 };
            let now = s.now();
            let mut done = now;
            for group in 0..groups {
                let lun = clock.placement.lun_of_group(zone, group);
                s.luns[lun] = s.luns[lun].max(now) + clock.timing.erase_ns;
                done = done.max(s.luns[lun]);
            }
            done
        })
    }

    /// A flush: the clock goes to the last completion.
    pub fn flush(&self) -> Completion {
        let mut s = self.state.lock();
        self.follow_wall(&mut s);
        let begun = s.now();
        let done = s.host.drain().0;
        self.latency.flush.record(done - begun);
        self.completion(done)
    }

    /// Reads that others made directly: their pages are spread evenly over the LUNs, and the clock goes on by the time
    /// that a queue of them takes. They are over by the time they are counted.
    pub fn direct_reads(&self, reads: u64, bytes: u64) {
        let page_bytes = self.unit_bytes / self.planes;
        let pages = bytes.div_ceil(page_bytes).max(reads);
        if pages == 0 {
            return;
        }
        let mut s = self.state.lock();
        self.follow_wall(&mut s);
        let at_once = pages.min(self.placement.luns).min(u64::from(self.timing.queue_depth));
        let transfer = nanos_of(bytes / pages, self.timing.channel_bytes_per_s);
        let sensing = pages.div_ceil(at_once) * (self.timing.page_read_ns + transfer);
        let channels = at_once.min(self.placement.channels);
        let moving = nanos_of(bytes / channels, self.timing.channel_bytes_per_s);
        let link = nanos_of(bytes, self.timing.host_bytes_per_s);
        let now = s.now();
        s.host.wait_until(Nanos(now + sensing.max(moving).max(link)));
        // Each LUN and channel has had its share of the work, and what was queued on it comes after.
        let per_lun = pages * (self.timing.page_read_ns + transfer) / self.placement.luns;
        for lun in &mut s.luns {
            *lun = (*lun).max(now) + per_lun;
        }
        let per_channel = nanos_of(bytes / self.placement.channels, self.timing.channel_bytes_per_s);
        for channel in &mut s.channels {
            channel.transfer(now, now, per_channel);
        }
    }

    fn command(&self, latencies: &Histogram, run: impl FnOnce(&Clock, &mut State) -> u64) -> Completion {
        let mut s = self.state.lock();
        self.follow_wall(&mut s);
        let issued = s.host.admit().0;
        let done = run(self, &mut s);
        latencies.record(done - issued);
        s.host.issued(Nanos(done));
        self.completion(done)
    }

    fn follow_wall(&self, s: &mut State) {
        if let Some((base, begun)) = self.real {
            s.host.wait_until(Nanos(base + begun.elapsed().as_nanos() as u64));
        }
    }

    fn completion(&self, at: u64) -> Completion {
        Completion {
            at: self.real.map(|(base, begun)| begun + Duration::from_nanos(at.saturating_sub(base))),
        }
    }
}

/// Program units that a write from one byte of a zone to another fills.
pub fn units_filled(from_bytes: u64, to_bytes: u64, unit_bytes: u64) -> Range<u64> {
    from_bytes / unit_bytes..to_bytes / unit_bytes
}

/// Bytes of `blocks` blocks.
pub fn bytes_of(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two channels of two LUNs; four groups of one 4 KiB-page block to a zone.
    fn geometry() -> Geometry {
        let timing = Timing {
            page_read_ns: 40_000,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            channel_bytes_per_s: 409_600_000, // 10 us a page
            host_bytes_per_s: 4_096_000_000,  // 1 us a page
            queue_depth: 4,
        };
        Geometry {
            channels: 2,
            luns_per_channel: 2,
            pages_per_block: 4,
            zone_bytes: 64 << 10,
            zone_capacity_bytes: 64 << 10,
            total_bytes: 1 << 20,
            timing,
            ..Geometry::bbssd()
        }
    }

    const PAGE: u64 = 4096;

    fn max_us(summary: Summary) -> u64 {
        summary.max_ns / 1000
    }

    #[test]
    fn units_go_round_the_luns_and_channels() {
        let p = Placement::new(&geometry());
        assert_eq!((0..6).map(|u| p.lun_of_unit(0, u)).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1]);
        assert_eq!((0..4).map(|l| p.channel(l)).collect::<Vec<_>>(), [0, 1, 0, 1]);
        // Six groups on four LUNs: two rows of three, the second row once the first is full.
        let six = Geometry { zone_bytes: 96 << 10, zone_capacity_bytes: 96 << 10, ..geometry() };
        let p = Placement::new(&six);
        assert_eq!((0..4).map(|u| p.lun_of_unit(0, u)).collect::<Vec<_>>(), [0, 1, 2, 0]);
        assert_eq!((12..16).map(|u| p.lun_of_unit(0, u)).collect::<Vec<_>>(), [3, 0, 1, 3]);
        assert_eq!(p.lun_of_unit(1, 0), 2);
    }

    #[test]
    fn a_read_takes_sensing_channel_and_link() {
        let clock = Clock::new(&geometry(), 0);
        clock.read(0, 0..PAGE, 1 << 20).wait();
        assert_eq!(max_us(clock.latencies().read), 40 + 10 + 1);
        clock.flush().wait();
        assert_eq!(clock.now(), 51_000);
        let buffered = Clock::new(&geometry(), 0);
        buffered.read(0, 0..PAGE, 0).wait();
        assert_eq!(max_us(buffered.latencies().read), 1);
    }

    #[test]
    fn reads_of_different_luns_overlap_and_of_one_lun_queue() {
        let four = Clock::new(&geometry(), 0);
        four.read(0, 0..4 * PAGE, 1 << 20).wait();
        // The two LUNs of a channel sense together and transfer one after the other.
        assert_eq!(max_us(four.latencies().read), 40 + 20 + 4);
        let same = Clock::new(&geometry(), 0);
        same.read(0, 0..PAGE, 1 << 20).wait();
        same.read(0, 0..PAGE, 1 << 20).wait();
        assert_eq!(max_us(same.latencies().read), 2 * 50 + 1);
    }

    #[test]
    fn a_write_that_outruns_the_flash_waits_for_the_program_before_it() {
        let clock = Clock::new(&geometry(), 0);
        clock.write(0, PAGE, 0..1).wait();
        assert_eq!(max_us(clock.latencies().write), 1 + 10);
        clock.write(0, PAGE, 4..5).wait();
        assert_eq!(max_us(clock.latencies().write), 11 + 200 + 10);
    }

    #[test]
    fn an_erase_blocks_its_lun_and_not_the_neighbour_on_the_channel() {
        let one = Geometry { zone_bytes: 16 << 10, zone_capacity_bytes: 16 << 10, ..geometry() };
        let clock = Clock::new(&one, 0);
        clock.reset(0, true).wait();
        clock.read(2, 0..PAGE, 1 << 20).wait();
        assert_eq!(max_us(clock.latencies().read), 51);
        clock.read(0, 0..PAGE, 1 << 20).wait();
        assert_eq!(max_us(clock.latencies().read), 2_051);
        clock.reset(1, false).wait();
        assert_eq!(clock.latencies().reset.count, 2);
        assert_eq!(max_us(clock.latencies().reset), 2_000);
    }

    #[test]
    fn the_clock_moves_when_the_queue_is_full_and_on_a_flush() {
        let clock = Clock::new(&geometry(), 0);
        for _ in 0..4 {
            clock.read(0, 0..PAGE, 1 << 20).wait();
        }
        assert_eq!(clock.now(), 0);
        clock.read(0, 0..PAGE, 1 << 20).wait();
        assert_eq!(clock.now(), 51_000);
        clock.flush().wait();
        assert_eq!(clock.now(), 251_000);
    }

    #[test]
    fn direct_reads_take_the_time_of_a_queue_of_them() {
        let clock = Clock::new(&geometry(), 0);
        clock.direct_reads(8, 8 * PAGE);
        assert_eq!(clock.now(), 2 * 50_000);
        clock.direct_reads(0, 0);
        assert_eq!(clock.now(), 100_000);
    }

    #[test]
    fn in_real_time_a_completion_is_no_earlier_than_modelled() {
        let mut clock = Clock::new(&geometry(), 0);
        clock.set_real_time(true);
        let begun = Instant::now();
        clock.reset(0, true).wait();
        assert!(begun.elapsed() >= Duration::from_millis(2));
    }
}
