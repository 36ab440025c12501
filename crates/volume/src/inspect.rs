//! Statistics and zones of a mounted volume, for reports.

use crate::mount::{Mounted, Store};
use crate::report::{CacheClass, CoreFacts, ProgramView, Snapshot, Space, Stream, VolumeFacts, Zone, Zones};
use std::collections::BTreeMap;
use weft_core::{BLOCK_BYTES, StreamId};
use weft_lfs::{ZoneCondition, ZoneContent, ZoneView};
use weft_tags::ClassReport;

/// What a report says of a class of pages, if the cache has seen any.
fn cache_class(report: &ClassReport) -> Option<CacheClass> {
    let ClassReport { class, resident, hits, misses, evictions } = *report;
    (resident + hits + misses + evictions > 0).then(|| CacheClass {
        class: class.to_string(),
        resident_bytes: resident * BLOCK_BYTES as u64,
        hits,
        misses,
        evictions,
    })
}

impl Mounted {
    /// What the volume has counted so far; what programs saw is the front's to tell.
    pub fn snapshot(&self, programs: ProgramView) -> Snapshot {
        let (core, engine) = (self.core(), &self.engine);
        let stats = core.core_stats();
        let room = core.statfs().unwrap_or_default();
        let mut streams: BTreeMap<u16, Stream> = BTreeMap::new();
        for ((stream, _), group) in &stats.groups {
            let of = streams.entry(*stream).or_insert_with(|| Stream {
                id: *stream,
                name: self.stream_name(StreamId(*stream)),
                ..Stream::default()
            });
            of.files += group.files;
            of.bytes += group.bytes_written;
            of.gc_bytes += group.gc_bytes;
            of.zones += group.segments_held;
            of.live_bytes += group.live_bytes;
            of.groups += 1;
        }
        for told in engine.streams() {
            let of =
                streams.entry(told.id.0).or_insert_with(|| Stream { id: told.id.0, ..Stream::default() });
            of.name = told.name;
            of.deleted = told.lifetime.deaths;
            of.lifetime = told.lifetime;
        }
        let mut snapshot = Snapshot {
            volume: VolumeFacts {
                name: self.name.clone(),
                mode: engine.mode().to_string(),
                policy: engine.policy_name().to_string(),
                ..VolumeFacts::default()
            },
            space: Space { total_bytes: room.total_bytes, free_bytes: room.free_bytes, inodes: room.inodes },
            core: CoreFacts {
                user_bytes: stats.volume_bytes,
                cleaned_zones: stats.cleaned_segments,
                whole_zone_deaths: stats.whole_segment_deaths,
                checksum_errors: stats.checksum_errors,
                stalls: stats.stalls,
            },
            streams: streams.into_values().collect(),
            programs,
            ..Snapshot::default()
        };
        if let Store::TagFs(tagfs) = &self.store {
            snapshot.volume.device_bytes = room.total_bytes;
            snapshot.cache = tagfs.cache_report().iter().filter_map(cache_class).collect();
        }
        if let Store::Lfs { lfs, device } = &self.store {
            let info = device.info();
            snapshot.volume.zones = info.zones;
            snapshot.volume.zone_bytes = u64::from(info.zone_capacity) * BLOCK_BYTES as u64;
            snapshot.volume.open_zones_max = info.open_max;
            snapshot.volume.device_bytes = info.capacity_bytes();
            snapshot.device = device.counters();
            snapshot.buffered_bytes = device.buffered_bytes();
            snapshot.device_latency = device.latencies();
            snapshot.zones = count(&lfs.zones());
        }
        snapshot
    }

    /// A stream's name; those of earlier mounts are known by their number only when a directory's or suffix's stream has
    /// not come up again.
    fn stream_name(&self, id: StreamId) -> String {
        match self.engine.stream_name(id) {
            Some(name) => name.to_string(),
            None if id == StreamId(0) => "(directories)".to_string(),
            None => format!("(stream {id}, earlier)"),
        }
    }

    /// Up to `max` zones from a number on, and where to go on (0 = that was all); none of a volume without a device.
    pub fn zones(&self, from: u64, max: usize) -> (Vec<Zone>, u64) {
        let all = self.lfs().map(|lfs| lfs.zones()).unwrap_or_default();
        let part = all.iter().skip(from as usize).take(max);
        let part: Vec<Zone> = part
            .map(|z| Zone {
                zone: z.zone.0,
                state: z.state,
                kind: z.kind,
                stream: match z.kind {
                    ZoneContent::Data => self.stream_name(z.tag.stream),
                    _ => String::new(),
                },
                stream_id: z.tag.stream.0,
                group: z.tag.group.0,
                written_bytes: u64::from(z.write_pointer) * BLOCK_BYTES as u64,
                live_bytes: z.live_bytes,
            })
            .collect();
        let next = from + part.len() as u64;
        (part, if next < all.len() as u64 { next } else { 0 })
    }
}

fn count(zones: &[ZoneView]) -> Zones {
    let mut counts = Zones::default();
    for zone in zones {
        *match (zone.state, zone.kind) {
            (ZoneCondition::Free, _) => &mut counts.free,
            (ZoneCondition::Dying, _) => &mut counts.dying,
            (ZoneCondition::Bad, _) => &mut counts.bad,
            (_, ZoneContent::Metadata) => &mut counts.metadata,
            (ZoneCondition::Open, _) => &mut counts.open,
            (ZoneCondition::Parked, _) => &mut counts.parked,
            (ZoneCondition::Full, _) => &mut counts.full,
        } += 1;
    }
    counts
}
