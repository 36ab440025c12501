//! Crashes of the host below an image: what was synced is on the disk; of each page of the file that was written since, the disk has
//! the old or the new content.

use super::Random;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_core::checksum::crc32c;
use weft_device::nand::OpenChannel;

/// What the disk writes whole.
const BLOCK: usize = 4096;

/// An image that is in use.
pub struct Crashing {
    path: PathBuf,
    /// The file as it was synced last.
    synced: Arc<Mutex<Vec<u8>>>,
}

impl Crashing {
    /// Watches an image that has just been made or opened.
    pub fn new(device: &OpenChannel, path: &Path) -> Crashing {
        let synced = Arc::new(Mutex::new(std::fs::read(path).unwrap()));
        let (file, seen) = (path.to_path_buf(), synced.clone());
        device.after_syncs(move || *seen.lock() = std::fs::read(&file).unwrap());
        Crashing { path: path.to_path_buf(), synced }
    }

    /// The file as a crash of the host leaves it now; the image itself is to be dropped before it is put in its place.
    pub fn crashed(&self, random: &mut Random) -> Vec<u8> {
        let now = std::fs::read(&self.path).unwrap();
        let mut image = self.synced.lock().clone();
        image.resize(now.len(), 0);
        // Sometimes nearly all of it is there, or nearly nothing.
        let of_eight = 1 + random.below(7);
        for (page, new) in image.chunks_mut(BLOCK).zip(now.chunks(BLOCK)) {
            if page != new && random.below(8) < of_eight {
                page.copy_from_slice(new);
            }
        }
        set_session(&mut image);
        image
    }
}

/// Makes both copies of the session page those of another boot which did not close the image.
pub fn set_session(image: &mut [u8]) {
    let mut copies = 0;
    for page in image.chunks_mut(BLOCK).filter(|page| page.starts_with(b"WEFTSESS")) {
        let session = &mut page[..64];
        session[8..12].fill(0);
        session[16..32].fill(0x5a);
        let crc = crc32c(&session[..60]);
        session[60..].copy_from_slice(&crc.to_le_bytes());
        copies += 1;
    }
    assert_eq!(copies, 2);
}
