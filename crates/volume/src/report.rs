//! What a volume has counted at one moment. It is what the server tells about itself, what `weft stats --json` prints,
//! and what reports are made of; its JSON is described in docs/formats/report-json.md and only grows.

use serde::{Deserialize, Serialize};
use weft_core::hist::Summary;
use weft_device::clock::Latencies;
use weft_device::zoned::DeviceCounters;
use weft_lfs::{ZoneCondition, ZoneContent};
use weft_placement::LifetimeSummary;

/// What a volume has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// What and how.
    pub volume: VolumeFacts,
    /// Room.
    pub space: Space,
    /// The device's counters since the format.
    pub device: DeviceCounters,
    /// Bytes that stand in the device's write buffer now and will be programmed, unless they die there.
    pub buffered_bytes: i64,
    /// Latencies in device time since the mount.
    pub device_latency: Latencies,
    /// Zones now.
    pub zones: Zones,
    /// What the file core did since the mount.
    pub core: CoreFacts,
    /// Streams that have or had files since the mount.
    pub streams: Vec<Stream>,
    /// The cache of a tag store, by the classes of its pages; those of which it has seen none are left out.
    #[serde(default)]
    pub cache: Vec<CacheClass>,
    /// What programs saw since the mount, those that run among them.
    pub programs: ProgramView,
}

/// What the volume is and how it is mounted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// The image, or `mem:SIZE`.
    pub name: String,
    /// Placement mode.
    pub mode: String,
    /// Policy, or `auto`.
    pub policy: String,
    /// Zones of the device.
    pub zones: u32,
    /// Writable bytes of a zone.
    pub zone_bytes: u64,
    /// Zones that may be open at once.
    pub open_zones_max: u32,
    /// Writable bytes of the device.
    pub device_bytes: u64,
}

/// Room on the volume.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// Bytes that programs can store in all.
    pub total_bytes: u64,
    /// Bytes that programs can still store.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// Zones now.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Zones {
    /// Free.
    pub free: u32,
    /// Open for data.
    pub open: u32,
    /// Of metadata.
    pub metadata: u32,
    /// Partly written with data, and not open.
    #[serde(default)]
    pub parked: u32,
    /// Full of data.
    #[serde(default)]
    pub full: u32,
    /// Without anything that lives, waiting for their reset.
    #[serde(default)]
    pub dying: u32,
    /// That the device can no longer write.
    #[serde(default)]
    pub bad: u32,
}

/// What the file core did since the mount.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CoreFacts {
    /// Bytes that programs wrote since the format, whether or not they reached the device.
    pub user_bytes: u64,
    /// Zones that the cleaner emptied.
    pub cleaned_zones: u64,
    /// Zones that died whole: reset without a copy.
    pub whole_zone_deaths: u64,
    /// Blocks read whose checksum did not match.
    pub checksum_errors: u64,
    /// Device time that writes waited for cleaning and write-back.
    pub stalls: Summary,
}

/// What the cache of a tag store did with the pages of a class since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheClass {
    /// The class of the data, with `-edges` behind it for pages of edges.
    pub class: String,
    /// Pages in the cache now, in bytes.
    pub resident_bytes: u64,
    /// Accesses to pages that were in memory.
    pub hits: u64,
    /// Pages that were read from the medium.
    pub misses: u64,
    /// Pages that left the cache for others.
    pub evictions: u64,
}

/// What programs saw, those that run and those that have ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProgramView {
    /// Latency of reads.
    pub reads: Summary,
    /// Latency of writes.
    pub writes: Summary,
    /// Latency of fsync and its kin.
    pub syncs: Summary,
    /// Reads served without the server.
    pub direct_reads: u64,
    /// Bytes of device blocks read without the server.
    pub direct_bytes: u64,
    /// Bytes appended without the server.
    pub ring_bytes: u64,
    /// Calls that the server answered.
    pub calls: u64,
    /// Memory that the server shares with them.
    #[serde(default)]
    pub shared: SharedUse,
    /// What was asked for and refused, with how often.
    pub notes: Vec<(String, u64)>,
    /// Names of the programs that run, sorted; of those that have ended the figures above tell, too.
    #[serde(default)]
    pub running: Vec<String>,
}

/// Memory that a server shares with programs, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SharedUse {
    /// What it may be at most; 0 when nothing is shared.
    pub limit_bytes: u64,
    /// Open files, inodes and record locks.
    pub open_bytes: u64,
    /// Block maps, listings of directories, copies of blocks.
    pub map_bytes: u64,
    /// Append rings and overwrite areas.
    pub ring_bytes: u64,
    /// Names and attributes.
    pub name_bytes: u64,
}

impl SharedUse {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.open_bytes + self.map_bytes + self.ring_bytes + self.name_bytes
    }
}

/// One stream since the mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stream {
    /// Its number in tags.
    pub id: u16,
    /// `policy.stream`.
    pub name: String,
    /// Files created in it, or opened for writing again.
    pub files: u64,
    /// Files deleted.
    pub deleted: u64,
    /// Bytes written to the device for it.
    pub bytes: u64,
    /// Bytes of it that the cleaner copied.
    pub gc_bytes: u64,
    /// Zones that it holds now.
    pub zones: u32,
    /// Live bytes in them.
    pub live_bytes: u64,
    /// Lifetime groups that were used.
    pub groups: u32,
    /// How long its files lived, in bytes that the volume took meanwhile.
    pub lifetime: LifetimeSummary,
}

impl Snapshot {
    /// The difference: what was counted after `before` was taken. What stands (space, zones, lifetimes, latencies,
    /// programs) is as it is now.
    pub fn since(&self, before: &Snapshot) -> Snapshot {
        // Counters only grow, unless another server has taken over meanwhile: then there is no difference to tell.
        let less = |now: u64, before: u64| now.saturating_sub(before);
        let now = self.clone();
        let (d, b) = (&now.device, &before.device);
        let device = DeviceCounters {
            host_bytes: less(d.host_bytes, b.host_bytes),
            gc_bytes: less(d.gc_bytes, b.gc_bytes),
            metadata_bytes: less(d.metadata_bytes, b.metadata_bytes),
            media_bytes: less(d.media_bytes, b.media_bytes),
            read_bytes: less(d.read_bytes, b.read_bytes),
            reads: less(d.reads, b.reads),
            writes: less(d.writes, b.writes),
            flushes: less(d.flushes, b.flushes),
            resets: less(d.resets, b.resets),
            erases: less(d.erases, b.erases),
            refused: less(d.refused, b.refused),
            open_high_water: d.open_high_water,
            active_high_water: d.active_high_water,
            now: weft_core::Nanos(less(d.now.0, b.now.0)),
        };
        let buffered_bytes = now.buffered_bytes - before.buffered_bytes;
        let (c, b) = (&now.core, &before.core);
        let core = CoreFacts {
            user_bytes: less(c.user_bytes, b.user_bytes),
            cleaned_zones: less(c.cleaned_zones, b.cleaned_zones),
            whole_zone_deaths: less(c.whole_zone_deaths, b.whole_zone_deaths),
            checksum_errors: less(c.checksum_errors, b.checksum_errors),
            stalls: c.stalls,
        };
        let streams = now.streams.iter().map(|s| s.since(before.streams.iter().find(|b| b.id == s.id)));
        let streams =
            streams.filter(|s| s.files > 0 || s.bytes > 0 || s.gc_bytes > 0 || s.zones > 0).collect();
        let cache = now.cache.iter().map(|c| c.since(before.cache.iter().find(|b| b.class == c.class)));
        let cache = cache.collect();
        Snapshot { device, buffered_bytes, core, streams, cache, ..now }
    }

    /// Write amplification of the device: what was programmed, or stands in its buffer to be, over what was written for
    /// programs; 1 when nothing was.
    pub fn waf(&self) -> f64 {
        let programmed = self.device.media_bytes as f64 + self.buffered_bytes as f64;
        if self.device.host_bytes == 0 { 1.0 } else { programmed / self.device.host_bytes as f64 }
    }

    /// Write amplification by cleaning alone: what was written for programs and relocated, over what was written for
    /// programs; 1 when nothing was.
    pub fn data_waf(&self) -> f64 {
        let d = &self.device;
        if d.host_bytes == 0 { 1.0 } else { (d.host_bytes + d.gc_bytes) as f64 / d.host_bytes as f64 }
    }
}

impl CacheClass {
    /// The part of accesses that found their page in memory; `None` where there were none.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }

    fn since(&self, before: Option<&CacheClass>) -> CacheClass {
        let Some(b) = before else { return self.clone() };
        CacheClass {
            hits: self.hits.saturating_sub(b.hits),
            misses: self.misses.saturating_sub(b.misses),
            evictions: self.evictions.saturating_sub(b.evictions),
            ..self.clone()
        }
    }
}

impl Stream {
    fn since(&self, before: Option<&Stream>) -> Stream {
        let Some(b) = before else { return self.clone() };
        Stream {
            files: self.files.saturating_sub(b.files),
            deleted: self.deleted.saturating_sub(b.deleted),
            bytes: self.bytes.saturating_sub(b.bytes),
            gc_bytes: self.gc_bytes.saturating_sub(b.gc_bytes),
            ..self.clone()
        }
    }
}

/// One zone, for `weft zones`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Zone {
    /// Its number.
    pub zone: u32,
    /// What it is to the core.
    pub state: ZoneCondition,
    /// What it holds.
    pub kind: ZoneContent,
    /// Stream of its first data; empty when there is none.
    pub stream: String,
    /// The stream's number in tags.
    #[serde(default)]
    pub stream_id: u16,
    /// Lifetime group of its first data.
    pub group: u16,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes of them that are live.
    pub live_bytes: u64,
}
