//! What a directory holds, as the server publishes it: in pages of the map memory that the first entries of the directory's inode
//! name, as for a file's blocks that the core still buffers.
//!
//! ```text
//!  0    bytes in all (8)
//!  8    cookie of the last entry (8)
//!  16   entries as in the answer of ReadDir, `.` and `..` first
//! ```

use super::volume::FIRST_BLOCKS;
use crate::proto::WireDirent;
use weft_core::BLOCK_BYTES;
use weft_vfs::DirEntry;

/// A longer one is not published.
pub const LISTING_BYTES: usize = FIRST_BLOCKS * BLOCK_BYTES;
/// Where the first entry is.
pub const HEAD_BYTES: usize = 16;

/// Bytes of a listing and the cookie of its last entry, as its beginning tells them.
pub fn head(bytes: &[u8; HEAD_BYTES]) -> (u64, u64) {
    let [len, last] = bytemuck::cast::<_, [u64; 2]>(*bytes);
    (len, last)
}

/// A listing that is put together.
pub struct Listing {
    bytes: Vec<u8>,
    used: usize,
}

impl Default for Listing {
    fn default() -> Listing {
        Listing { bytes: vec![0; LISTING_BYTES], used: HEAD_BYTES }
    }
}

impl Listing {
    /// Adds an entry; false when it would become too long.
    pub fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let Some(written) = WireDirent::write(entry, &mut self.bytes[self.used..]) else { return false };
        self.used += written;
        let head = [self.used as u64, entry.cookie];
        self.bytes[..HEAD_BYTES].copy_from_slice(bytemuck::bytes_of(&head));
        true
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}
