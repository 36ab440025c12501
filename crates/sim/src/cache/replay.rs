//! Plays a trace through a cache on a modelled device: hit ratios by class, and modelled times.

use super::frames::Cache;
use super::web::{SMALL_FILE_BYTES, WebTrace};
use weft_core::Nanos;
use weft_tags::{DataClass, PAGE_BYTES, PageClass, PagePart};

/// Bytes of a file's node with its attributes: so many share a page.
const ATTRIBUTES_BYTES: u64 = 256;
/// Entries of directories in a page.
const ENTRIES: u64 = 64;
/// Numbers of metadata pages begin here.
const METADATA: u64 = 1 << 62;

/// What a page costs. Nothing else takes time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceModel {
    /// Time until the first byte of a read.
    pub access: Nanos,
    /// Time for a page.
    pub page: Nanos,
    /// Time for a page that is in the cache.
    pub hit: Nanos,
}

impl DeviceModel {
    /// A disk of 7,200 turns a minute: 8.3 ms to a place, 150 MB/s.
    pub const DISK: DeviceModel =
        DeviceModel { access: Nanos(8_300_000), page: Nanos(27_300), hit: Nanos(500) };
    /// A solid-state drive behind a bus: 90 us to a place, 500 MB/s.
    pub const SSD: DeviceModel = DeviceModel { access: Nanos(90_000), page: Nanos(8_200), hit: Nanos(500) };
}

/// What a replay found.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The cache as it was at the end. It counts all requests that were measured.
    pub small: Option<f64>,
    /// Hit ratio of large files.
    pub large: Option<f64>,
    /// Hit ratio of metadata.
    pub metadata: Option<f64>,
    /// Hit ratio of all pages.
    pub all: Option<f64>,
    /// The part of the cache that small files and metadata have at the end.
    pub preferred: f64,
    /// Modelled time of all requests, one after the other.
    pub elapsed: Nanos,
    /// Modelled times of the requests, in their order of size.
    pub times: Vec<Nanos>,
}

impl Replay {
    /// The part of requests that were over within a time.
    pub fn within(&self, time: Nanos) -> f64 {
        self.times.partition_point(|other| *other <= time) as f64 / self.times.len().max(1) as f64
    }

    /// The time that this part of requests does not exceed.
    pub fn quantile(&self, part: f64) -> Nanos {
        let at = (part * self.times.len() as f64) as usize;
        self.times.get(at.min(self.times.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

fn nodes(data: DataClass) -> PageClass {
    PageClass { data, part: PagePart::Nodes }
}

/// The class of a file by its size.
pub(super) fn class_of(bytes: u64) -> PageClass {
    nodes(if bytes <= SMALL_FILE_BYTES { DataClass::Small } else { DataClass::Immutable })
}

/// Plays so many requests. Each reads the pages of the directory entry and of the attributes, then the whole file.
pub fn replay(trace: &mut WebTrace, requests: u64, cache: &mut Cache, device: DeviceModel) -> Replay {
    let mut times = Vec::with_capacity(requests as usize);
    let metadata = nodes(DataClass::Metadata);
    for _ in 0..requests {
        let (file, bytes) = trace.request();
        let mut time = 0;
        let attributes = file / (PAGE_BYTES as u64 / ATTRIBUTES_BYTES);
        for page in [METADATA | (file / ENTRIES) << 1, METADATA | attributes << 1 | 1] {
            time += if cache.access(page, metadata) { device.hit.0 } else { device.access.0 + device.page.0 };
        }
        let mut is_reading = false;
        for page in 0..bytes.div_ceil(PAGE_BYTES as u64) {
            let hit = cache.access(file << 20 | page, class_of(bytes));
            // Pages that lie one after the other are read together.
            let seeks = !hit && !is_reading;
            is_reading = !hit;
            time += match (hit, seeks) {
                (true, _) => device.hit.0,
                (false, true) => device.access.0 + device.page.0,
                (false, false) => device.page.0,
            };
        }
        times.push(Nanos(time));
    }
    let elapsed = Nanos(times.iter().map(|time| time.0).sum());
    times.sort_unstable_by_key(|time| time.0);
    let resident = cache.resident();
    let preferred = resident[metadata] + resident[nodes(DataClass::Small)];
    Replay {
        small: cache.hit_ratio(nodes(DataClass::Small)),
        large: cache.hit_ratio(nodes(DataClass::Immutable)),
        metadata: cache.hit_ratio(metadata),
        all: cache.hit_ratio_of_all(),
        preferred: preferred as f64 / resident.sum().max(1) as f64,
        elapsed,
        times,
    }
}
