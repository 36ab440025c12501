//! What processes and the server have to agree on about pages of mapped files: where they are, what their base begins
//! with, and how stores that nobody gave to the volume are brought there.
//!
//! ```text
//!  /dev/shm/weft-<volume>-<user>/<inode>-<birth>        pages: what every map of the inode maps
//!                               /<inode>-<birth>.base   one page of header, then what the volume holds of them
//! ```
//!
//! A byte that differs from its base was stored through a map. A process holds a shared `flock` on the pages as long as it
//! maps them, so whoever gets an exclusive one knows that nobody does.

/// How the directories' paths begin.
pub const ROOT: &str = "/dev/shm/weft-";
/// What the name of the base has behind that of the pages.
pub const BASE: &str = ".base";
/// What stands behind inode and birth in the name of a named pipe.
pub const FIFO: &str = ".fifo";
/// In that of a socket.
pub const SOCKET: &str = ".sock";
/// In that of the file with the name that a socket was given.
pub const SOCKET_NAME: &str = ".name";
/// All of these: what programs make names for in a user's directory.
pub const NAMED: [&str; 5] = ["", BASE, FIFO, SOCKET, SOCKET_NAME];
/// Bytes of a page, and of the header's page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;

/// What the base begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the file that are loaded.
    pub valid: u64,
    /// The server's number.
    pub session: u64,
    /// What is being written back, from the first byte to the end; empty when nothing is.
    pub at_work: (u64, u64),
    /// How often a process that may store has come, since there were none.
    pub joins: u64,
}

impl Header {
    /// From the bytes at the beginning of a base; zeros where it has none.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [valid, session, from, to, joins] = std::array::from_fn(|i| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(word)
        });
        Header { valid, session, at_work: (from, to), joins }
    }

    /// The bytes of the header, as they lie at the beginning of the base file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [self.valid, self.session, self.at_work.0, self.at_work.1, self.joins];
        for (place, word) in bytes.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Brings what was stored (`new`, where it differs from its base `old`) to what the volume has `there`, all from `offset`
    /// of the file on. What the volume has otherwise than the base was written later, and stays. Returns whether anything
    /// changed.
    ///
    /// While the same server serves (`session`), that is judged word by word. Where a write-back ended halfway the volume may
    /// be ahead of the base by a store and behind the pages by the next one; there the pages are right. When a server has
    /// died, the volume may also have lost what was not synced, and a page is taken whole or not at all, as after a power
    /// cut: words of different times on one page would be worse than old ones.
    pub fn merge(&self, session: u64, offset: u64, there: &mut [u8], new: &[u8], old: &[u8]) -> bool {
        let same_server = self.session == session;
        let unit = if same_server { size_of::<u64>() } else { PAGE_BYTES as usize };
        let (from, to) = if same_server { self.at_work } else { (0, 0) };
        let mut changed = false;
        let units = there.chunks_mut(unit).zip(new.chunks(unit)).zip(old.chunks(unit));
        for (at, ((there, new), old)) in (offset..).step_by(unit).zip(units) {
            let (new, old) = (new.get(..there.len()).unwrap_or(&[]), old.get(..there.len()).unwrap_or(&[]));
            let halfway = at < to && at + unit as u64 > from;
            if new != old && (there == old || halfway) {
                there.copy_from_slice(new);
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { valid: 1, session: 2, at_work: (3, 4), joins: 5 };

    #[test]
    fn a_header_comes_back() {
        assert_eq!(Header::decode(&HEADER.encode()), HEADER);
    }

    #[test]
    fn stores_reach_the_volume_where_it_has_nothing_later() {
        let old = [0u8; 4096];
        let (mut new, mut there) = (old, old);
        new[8..16].fill(1);
        new[16..24].fill(1);
        there[16..24].fill(9);
        let mut same = there;
        assert!(Header { at_work: (0, 0), ..HEADER }.merge(2, 0, &mut same, &new, &old));
        assert_eq!((same[8], same[16]), (1, 9), "word by word");
        let mut at_work = there;
        assert!(Header { at_work: (16, 24), ..HEADER }.merge(2, 0, &mut at_work, &new, &old));
        assert_eq!((at_work[8], at_work[16]), (1, 1), "where a write-back was under way the pages are right");
        let mut other = there;
        assert!(!Header { at_work: (0, 4096), ..HEADER }.merge(7, 0, &mut other, &new, &old));
        assert_eq!(other, there, "pages of another server are taken whole or not at all");
        assert!(HEADER.merge(7, 0, &mut old.clone(), &new, &old));
    }
}
