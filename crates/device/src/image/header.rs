//! The header page and the session page of an image.

use crate::geometry::Geometry;
use crate::image::log::log_bytes;
use crate::image::slot::RECORD_BYTES;
use crate::timing::Timing;
use weft_core::BLOCK_BYTES;
use weft_core::codec::{Reader, Truncated, put, seal_page, unseal};

/// First bytes of an image.
pub const MAGIC: [u8; 8] = *b"WEFTZNS\0";
/// The format's version. A reader refuses another one.
pub const VERSION: u32 = 4;
/// The version before, whose images have no append log.
const VERSION_WITHOUT_LOG: u32 = 3;
/// Bytes of each of the fixed pages.
pub const PAGE_BYTES: usize = 4096;
/// Where the session page begins.
pub const SESSION_OFFSET: u64 = PAGE_BYTES as u64;
/// Where the counters record begins.
pub const COUNTERS_OFFSET: u64 = 2 * PAGE_BYTES as u64;
/// Where the zone table begins.
pub const TABLE_OFFSET: u64 = 3 * PAGE_BYTES as u64;

const SESSION_MAGIC: [u8; 8] = *b"WEFTSESS";
const SESSION_BYTES: usize = 64;

/// What the header page says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Random id of the image.
    pub id: [u8; 16],
    pub geometry: Geometry,
    /// Whether the image has an append log.
    pub has_append_log: bool,
}

/// Byte offset of the data area of a device with so many zones.
pub fn data_offset(zones: u64) -> u64 {
    (TABLE_OFFSET + zones * RECORD_BYTES as u64).next_multiple_of(PAGE_BYTES as u64)
}

/// Byte offset of the flush log.
pub fn log_offset(geometry: &Geometry) -> u64 {
    data_offset(geometry.zones()) + geometry.zones() * geometry.zone_bytes
}

/// Byte offset of the append log, which follows the flush log and is as long.
pub fn append_log_offset(geometry: &Geometry) -> u64 {
    log_offset(geometry) + log_bytes(geometry)
}

impl Header {
    /// Bytes of the whole image.
    pub fn image_bytes(&self) -> u64 {
        let append_log = if self.has_append_log { log_bytes(&self.geometry) } else { 0 };
        append_log_offset(&self.geometry) + append_log + data_offset(self.geometry.zones())
    }

    /// The header page.
    pub fn encode(&self) -> Vec<u8> {
        let g = &self.geometry;
        let mut page = Vec::with_capacity(PAGE_BYTES);
        let version = if self.has_append_log { VERSION } else { VERSION_WITHOUT_LOG };
        put(&mut page, &[&MAGIC, &version, &(BLOCK_BYTES as u32), &self.id]);
        let bytes = [g.total_bytes, g.zone_bytes, g.zone_capacity_bytes, data_offset(g.zones())];
        let limits = [g.open_max, g.active_max, g.endurance];
        let shape = [g.channels, g.luns_per_channel, g.planes, g.pages_per_block, g.page_bytes];
        put(&mut page, &[&bytes, &shape, &limits, &g.timing.words(), &g.timing.queue_depth]);
        seal_page(page, PAGE_BYTES)
    }

    /// Reads a header page; the error says what is wrong and what to do.
    pub fn decode(page: &[u8]) -> Result<Header, String> {
        let short = |_: Truncated| "the header is cut short".to_string();
        let mut r = Reader::new(page);
        match r.array::<8>() {
            Ok(MAGIC) => {}
            Err(cut) if MAGIC.starts_with(page) => return Err(short(cut)),
            _ => {
                return Err(
                    "not a weft device image, or one whose format was interrupted; `weft format` makes one"
                        .into(),
                );
            }
        }
        let version = r.u32().map_err(short)?;
        if ![VERSION, VERSION_WITHOUT_LOG].contains(&version) {
            return Err(format!(
                "the image has format version {version}, and this program reads versions {VERSION_WITHOUT_LOG} and {VERSION}; use the program \
                 that wrote it"
            ));
        }
        if unseal(page).is_none() {
            return Err("both copies of the header are damaged; restore the image or format it".into());
        }
        let block = r.u32().map_err(short)?;
        if block != BLOCK_BYTES as u32 {
            return Err(format!("blocks of {block} bytes; this program has blocks of {BLOCK_BYTES}"));
        }
        let header = Header::fields(&mut r, version == VERSION).map_err(short)?;
        header.0.geometry.validate().map_err(|e| e.to_string())?;
        let wanted = data_offset(header.0.geometry.zones());
        if header.1 != wanted {
            return Err(format!("the data area begins at byte {}, but {wanted} was expected", header.1));
        }
        Ok(header.0)
    }

    fn fields(r: &mut Reader<'_>, has_append_log: bool) -> Result<(Header, u64), Truncated> {
        let id = r.array()?;
        let [total_bytes, zone_bytes, zone_capacity_bytes, data_offset] =
            [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let mut geometry = Geometry {
            total_bytes,
            zone_bytes,
            zone_capacity_bytes,
            channels: r.u32()?,
            luns_per_channel: r.u32()?,
            planes: r.u32()?,
            pages_per_block: r.u32()?,
            page_bytes: r.u32()?,
            open_max: r.u32()?,
            active_max: r.u32()?,
            endurance: r.u32()?,
            timing: Timing::read(r)?,
        };
        geometry.timing.queue_depth = r.u32()?;
        Ok((Header { id, geometry, has_append_log }, data_offset))
    }
}

/// What the session page says: how the image was last used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Whether the last user closed the image, so that everything in it was made durable.
    pub clean: bool,
    /// The boot of the host under which it was last used; zero when unknown.
    pub boot: [u8; 16],
    /// How often it was opened.
    pub opens: u64,
}

impl Session {
    /// The session record.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(SESSION_BYTES);
        put(&mut page, &[&SESSION_MAGIC, &u32::from(self.clean), &0u32, &self.boot, &self.opens]);
        seal_page(page, SESSION_BYTES)
    }

    /// Reads a session page; `None` when it is damaged.
    pub fn decode(page: &[u8]) -> Option<Session> {
        let page = page.get(..SESSION_BYTES)?;
        let mut r = Reader::new(page);
        if r.array::<8>().ok()? != SESSION_MAGIC || unseal(page).is_none() {
            return None;
        }
        let clean = r.u32().ok()? == 1;
        r.u32().ok()?;
        Some(Session { clean, boot: r.array().ok()?, opens: r.u64().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encoding_and_no_bit_of_it_may_flip() {
        let geometry = Geometry::tlc().with_size(64 << 20);
        let header = Header { id: [9; 16], geometry, has_append_log: true };
        let before = Header { has_append_log: false, ..header.clone() };
        assert_eq!(Header::decode(&before.encode()), Ok(before));
        let page = header.encode();
        assert_eq!(page.len(), PAGE_BYTES);
        assert_eq!(Header::decode(&page), Ok(header));
        for at in 0..page.len() {
            for bit in 0..8 {
                let mut bad = page.clone();
                bad[at] ^= 1 << bit;
                assert!(Header::decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(Header::decode(&page[..100]).is_err());
    }

    #[test]
    fn another_version_is_named_in_the_error() {
        let mut page = Header { id: [9; 16], geometry: Geometry::tlc(), has_append_log: true }.encode();
        page[8] = 9;
        assert!(Header::decode(&page).unwrap_err().contains("format version 9"));
    }

    #[test]
    fn a_session_survives_encoding() {
        let session = Session { clean: true, boot: [3; 16], opens: 17 };
        assert_eq!(Session::decode(&session.encode()), Some(session));
        let mut bad = session.encode();
        bad[20] ^= 1;
        assert_eq!(Session::decode(&bad), None);
    }
}
