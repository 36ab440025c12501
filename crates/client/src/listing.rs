//! Reading a directory that the server has [listed](crate::shared::listing) lately, without a call.

use crate::client::{Client, Leases};
use crate::proto::{FileRef, WireDirent};
use crate::scratch::Scratch;
use crate::shared::listing::{HEAD_BYTES, LISTING_BYTES, head};
use crate::shared::volume::{self, Inode};
use std::sync::atomic::{Ordering::*, fence};
use weft_core::BLOCK_BYTES;

impl Client {
    /// Fills `out` as [`Client::read_dir`] does; `None` when the server has to.
    pub(crate) fn read_dir_here(&self, file: FileRef, cookie: u64, out: &mut [u8]) -> Option<usize> {
        let leases = self.leases()?;
        let (open, inode, _) = leases.open_file(file).ok()?;
        if inode.kind.load(Relaxed) != libc::S_IFDIR || open.flags.load(Relaxed) as i32 & libc::O_PATH != 0 {
            return None;
        }
        let mut listing = Scratch::<[u8; LISTING_BYTES]>::any().ok()?;
        let seq = inode.seq.load(Acquire);
        let len = leases.copy_listing(inode, cookie, &mut listing)?;
        fence(Acquire);
        let is_still = seq & 1 == 0 && inode.seq.load(Relaxed) == seq && leases.open_file(file).is_ok();
        if !is_still || !leases.control().volume.is_alive() {
            return None;
        }
        let (mut rest, mut used) = (listing.get(HEAD_BYTES..len).unwrap_or(&[]), 0);
        while let Some((entry, name, others)) = WireDirent::split_first(rest) {
            if entry.cookie > cookie {
                let bytes = &rest[..WireDirent::len_with(name.len())];
                let Some(room) = out.get_mut(used..used + bytes.len()) else {
                    // Not even one has room: the server says so.
                    return (used > 0).then_some(used);
                };
                room.copy_from_slice(bytes);
                used += bytes.len();
            }
            rest = others;
        }
        Some(used)
    }
}

impl Leases {
    /// Whether the server has listed a directory, whose inode is in this slot, and found no such name there.
    pub(crate) fn is_listed_without(&self, dir: u64, slot: u32, name: &[u8]) -> bool {
        let Some(inode) = self.control().inodes.get(slot as usize) else { return false };
        let Ok(mut page) = Scratch::<[u8; BLOCK_BYTES]>::any() else { return false };
        let seq = inode.seq.load(Acquire);
        let mut begin = [0; HEAD_BYTES];
        let len = self.copy_page(inode, 0, 0, &mut begin).map(|()| head(&begin).0 as usize);
        // Of a long one the server tells faster, from the second time on.
        let Some(len) = len.filter(|len| (HEAD_BYTES..=BLOCK_BYTES).contains(len)) else { return false };
        if self.copy_page(inode, 0, 0, &mut page[..len]).is_none() {
            return false;
        }
        fence(Acquire);
        // The slot may be another inode's by now, whose listing this is, or whose content.
        let is_still = seq & 1 == 0 && inode.seq.load(Relaxed) == seq && inode.ino.load(Relaxed) == dir;
        let mut rest = page.get(HEAD_BYTES..len).filter(|_| is_still).unwrap_or(&[]);
        // There is `.` at least.
        let is_listed = !rest.is_empty();
        while let Some((_, found, others)) = WireDirent::split_first(rest)
            && found != name
        {
            rest = others;
        }
        is_listed && rest.is_empty()
    }

    /// Copies the listing of a directory, of which only the head counts when nothing is behind `cookie`; returns its bytes. They
    /// are of no meaning when the inode's sequence number has changed.
    fn copy_listing(&self, inode: &Inode, cookie: u64, out: &mut [u8; LISTING_BYTES]) -> Option<usize> {
        let (first, others) = out.split_at_mut(BLOCK_BYTES);
        let (begin, rest) = first.split_first_chunk_mut::<HEAD_BYTES>()?;
        self.copy_page(inode, 0, 0, begin)?;
        let (len, last) = head(begin);
        let len = usize::try_from(len).ok().filter(|len| (HEAD_BYTES..=LISTING_BYTES).contains(len))?;
        if cookie >= last {
            return Some(HEAD_BYTES);
        }
        let in_first = len.min(BLOCK_BYTES) - HEAD_BYTES;
        self.copy_page(inode, 0, HEAD_BYTES, &mut rest[..in_first])?;
        let others = &mut others[..len.saturating_sub(BLOCK_BYTES)];
        for (page, piece) in others.chunks_mut(BLOCK_BYTES).enumerate() {
            self.copy_page(inode, page + 1, 0, piece)?;
        }
        Some(len)
    }

    fn copy_page(&self, inode: &Inode, page: usize, within: usize, out: &mut [u8]) -> Option<()> {
        let (number, len) = volume::copied(inode.first.get(page)?.load(Acquire))?;
        (within + out.len() <= len && self.read_page(number, within, out)).then_some(())
    }
}
