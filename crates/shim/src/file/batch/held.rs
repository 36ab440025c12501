//! The writes that a batch holds back: which bytes of the file, and what they are.
//!
//! ```text
//!  pieces, by place in the file     [0..4096] [4096..8192]        [65536..69632]      \  two runs, one write each
//!                                       |          |                   |               |  in the program of the commit
//!  arena, in order of arrival       [ 8192 bytes           ][ 4096 bytes  ][ free ... /
//! ```
//! Each byte of the file is held once: a later write of the same bytes overwrites them in the arena, so that the arena is full only
//! when the batch writes more different bytes than a program may.
//!
//! What a batch does to the size needs no more than two numbers: the least size that it cut the file to, and the size that it needs
//! in the end. With the size `below` of the file itself, the batch's file has `max(min(below, cut), needed)` bytes.

use crate::owned::Memory;
use crate::sys;
use std::ops::Range;
use weft_client::Errno;
use weft_vfs::change::CHANGE_BYTES_MAX;
use weft_vfs::compound::OPS_MAX;

/// Bytes that are held at once, as many as a program may write.
pub const HELD_BYTES_MAX: usize = CHANGE_BYTES_MAX;
/// Operations of the commit's program beside the writes: the file, and for each of two changes of the size the look at it.
const OTHER_OPS: usize = 1 + 2 * 3;
/// Runs of bytes that are held at once: each is an operation of the commit's program.
pub const RUNS_MAX: usize = OPS_MAX - OTHER_OPS;
/// Bytes of memory that a batch which has ended keeps for the next.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Pieces that the runs may consist of. One who writes to a run's front again and again needs many.
const PIECES_MAX: usize = 4096;
const PIECES_BYTES: usize = PIECES_MAX * size_of::<Piece>();

/// The write does not fit into the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Bytes of the file, and where the arena has them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u64,
    len: u32,
    from: u32,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + u64::from(self.len)
    }

    /// Where the arena has this part of it.
    fn part(&self, part: &Range<u64>) -> Range<usize> {
        let from = self.from as usize + (part.start - self.at) as usize;
        from..from + (part.end - part.start) as usize
    }
}

/// Held writes.
pub struct Held {
    /// The pieces, then the arena. A forked child does not have it.
    memory: Memory,
    count: usize,
    used: usize,
    cut: u64,
    needed: u64,
}

// SAFETY: the memory is mapped by `new`, as it is larger than any scratch, and belongs to this value alone.
unsafe impl Send for Held {}
const _: () = assert!(HELD_BYTES_MAX > weft_client::scratch::SCRATCH_BYTES);

impl Held {
    /// Nothing yet.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Held, Errno> {
        let memory = Memory::new(PIECES_BYTES + HELD_BYTES_MAX)?;
        // SAFETY: advice about memory of this value's own; its content stays in this process.
        unsafe {
            sys::madvise(memory.start::<u8>() as usize, PIECES_BYTES + HELD_BYTES_MAX, libc::MADV_DONTFORK)
        }?;
        Ok(Held { memory, count: 0, used: 0, cut: u64::MAX, needed: 0 })
    }

    /// Drops all.
    pub fn clear(&mut self) {
        if self.used > KEPT_BYTES_MAX {
            let arena = self.parts().1;
            // SAFETY: whole pages of memory of this value's own, in which nothing is held from here on.
            let _ = unsafe { sys::madvise(arena.as_ptr() as usize, arena.len(), libc::MADV_DONTNEED) };
        }
        (self.count, self.used, self.cut, self.needed) = (0, 0, u64::MAX, 0);
    }

    fn parts(&mut self) -> (&mut [Piece], &mut [u8]) {
        let (pieces, arena) = self.memory.bytes().split_at_mut(PIECES_BYTES);
        // SAFETY: memory that begins at a page, of `PIECES_MAX` pieces, which any bytes are valid values of; borrowed as `pieces` is.
        let pieces = unsafe { std::slice::from_raw_parts_mut(pieces.as_mut_ptr().cast(), PIECES_MAX) };
        (pieces, arena)
    }

    fn pieces(&mut self) -> &[Piece] {
        let count = self.count;
        self.parts().0.get(..count).unwrap_or(&[])
    }

    /// The number of the first piece that ends behind `at`.
    fn first_behind(&mut self, at: u64) -> usize {
        self.pieces().partition_point(|piece| piece.end() <= at)
    }

    /// Holds a write; one that does not fit changes nothing.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Full> {
        if bytes.is_empty() {
            return Ok(());
        }
        let range = at..at.checked_add(bytes.len() as u64).ok_or(Full)?;
        self.check_room(&range)?;
        let mut at = range.start;
        while at < range.end {
            let number = self.first_behind(at);
            let next = self.pieces().get(number).copied();
            let of = |part: &Range<u64>| {
                let from = (part.start - range.start) as usize;
                bytes.get(from..from + (part.end - part.start) as usize).unwrap_or(&[])
            };
            match next {
                Some(piece) if piece.at <= at => {
                    let part = at..piece.end().min(range.end);
                    let place = piece.part(&part);
                    if let Some(place) = self.parts().1.get_mut(place) {
                        place.copy_from_slice(of(&part));
                    }
                    at = part.end;
                }
                _ => {
                    let part = at..next.map_or(range.end, |piece| piece.at.min(range.end));
                    self.add(number, part.start, of(&part));
                    at = part.end;
                }
            }
        }
        self.needed = self.needed.max(range.end);
        Ok(())
    }

    /// Whether the bytes that are not held yet fit, and do not make too many runs.
    fn check_room(&mut self, range: &Range<u64>) -> Result<(), Full> {
        let (mut known, mut touches, mut joined) = (0, 0, 0);
        let mut before: Option<u64> = None;
        let mut runs = 0;
        for piece in self.pieces() {
            let begins_run = before != Some(piece.at);
            runs += usize::from(begins_run);
            before = Some(piece.end());
            if piece.at <= range.end && piece.end() >= range.start {
                touches += 1;
                joined += usize::from(begins_run || touches == 1);
                known += piece.end().min(range.end).saturating_sub(piece.at.max(range.start));
            }
        }
        let new = (range.end - range.start) - known;
        let runs_after = runs + 1 - joined;
        // Each gap between pieces becomes one at most, and one more on either side.
        let is_full = self.used as u64 + new > HELD_BYTES_MAX as u64
            || runs_after > RUNS_MAX
            || self.count + touches + 1 > PIECES_MAX;
        if is_full { Err(Full) } else { Ok(()) }
    }

    /// Adds bytes that no piece has, in front of piece `number`.
    fn add(&mut self, number: usize, at: u64, bytes: &[u8]) {
        let (count, used) = (self.count, self.used);
        let (pieces, arena) = self.parts();
        let Some(place) = arena.get_mut(used..used + bytes.len()) else { return };
        place.copy_from_slice(bytes);
        let len = bytes.len() as u32;
        let before = number.checked_sub(1).and_then(|before| pieces.get_mut(before));
        match before {
            Some(before) if before.end() == at && before.from as usize + before.len as usize == used => {
                before.len += len;
            }
            _ => {
                pieces.copy_within(number..count, number + 1);
                if let Some(place) = pieces.get_mut(number) {
                    *place = Piece { at, len, from: used as u32 };
                }
                self.count += 1;
            }
        }
        self.used += bytes.len();
    }

    /// Sets the size, of a file that has `below` bytes without the batch.
    pub fn resize(&mut self, below: u64, size: u64) {
        let (kept, count) = (self.first_behind(size), self.count);
        let piece = self.parts().0.get_mut(kept).filter(|piece| kept < count && piece.at < size);
        let reaches_over = piece.is_some();
        if let Some(piece) = piece {
            piece.len = (size - piece.at) as u32;
        }
        self.count = kept + usize::from(reaches_over);
        if size < self.size(below) {
            self.cut = self.cut.min(size);
        }
        self.needed = size;
    }

    /// The size of the file, which has `below` bytes without the batch.
    pub fn size(&self, below: u64) -> u64 {
        below.min(self.cut).max(self.needed)
    }

    /// Lays the batch over the first `filled` bytes of `out`, which are those of the file at `at`. Returns how many bytes there are.
    pub fn lay_over(&mut self, at: u64, out: &mut [u8], filled: usize, below: u64) -> usize {
        let len = self.size(below).saturating_sub(at).min(out.len() as u64) as usize;
        let kept = filled.min(self.cut.saturating_sub(at).min(len as u64) as usize);
        if let Some(rest) = out.get_mut(kept..len) {
            rest.fill(0);
        }
        let end = at + len as u64;
        let (first, count) = (self.first_behind(at), self.count);
        let (pieces, arena) = self.parts();
        for piece in pieces.get(first..count).unwrap_or(&[]).iter().take_while(|piece| piece.at < end) {
            let part = piece.at.max(at)..piece.end().min(end);
            let to = (part.start - at) as usize..(part.end - at) as usize;
            if let (Some(to), Some(from)) = (out.get_mut(to), arena.get(piece.part(&part))) {
                to.copy_from_slice(from);
            }
        }
        len
    }

    /// The least size that the batch has cut the file to.
    pub fn cut(&self) -> Option<u64> {
        (self.cut != u64::MAX).then_some(self.cut)
    }

    /// The size that the file has at least in the end.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Calls `each` with every run of held bytes: where it begins, and its parts.
    pub fn runs(&mut self, mut each: impl FnMut(u64, Vec<u8>)) {
        let count = self.count;
        let (pieces, arena) = self.parts();
        let pieces = pieces.get(..count).unwrap_or(&[]);
        for run in pieces.chunk_by(|one, next| one.end() == next.at) {
            let Some(first) = run.first() else { continue };
            let parts = run.iter().filter_map(|piece| arena.get(piece.part(&(piece.at..piece.end()))));
            let mut bytes = Vec::with_capacity(run.iter().map(|piece| piece.len as usize).sum());
            parts.for_each(|part| bytes.extend_from_slice(part));
            each(first.at, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(held: &mut Held) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        held.runs(|at, bytes| all.push((at, bytes)));
        all
    }

    #[test]
    fn adjacent_and_overlapping_writes_are_one_run() {
        let mut held = Held::new().unwrap();
        for page in [3u64, 1, 2, 9] {
            held.write(page * 4096, &[page as u8; 4096]).unwrap();
        }
        held.write(3 * 4096 - 10, &[7; 20]).unwrap();
        let all = runs(&mut held);
        assert_eq!(
            all.iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>(),
            [(4096, 3 * 4096), (9 * 4096, 4096)]
        );
        assert_eq!(all[0].1[2 * 4096 - 11..2 * 4096 + 11], {
            let mut around = [7; 22];
            (around[0], around[21]) = (2, 3);
            around
        });
        assert_eq!(held.used, 4 * 4096, "each byte is held once");
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut held = Held::new().unwrap();
        for run in 0..RUNS_MAX as u64 {
            held.write(run * 100, &[1; 50]).unwrap();
        }
        assert_eq!(held.write(1 << 20, b"one run more"), Err(Full));
        // Those that join runs fit.
        held.write(0, &[2; 250]).unwrap();
        held.write(1 << 20, b"now there is room").unwrap();
        held.clear();
        held.write(4096, &vec![1; HELD_BYTES_MAX]).unwrap();
        held.write(5000, &[3; 5000]).unwrap();
        assert_eq!(held.write(4095, &[0; 2]), Err(Full));
        let all = runs(&mut held);
        assert_eq!((all.len(), all[0].0, all[0].1.len()), (1, 4096, HELD_BYTES_MAX));
        assert_eq!(held.size(0), 4096 + HELD_BYTES_MAX as u64);
    }

    #[test]
    fn a_batch_reads_as_a_file_that_was_written_at_once() {
        let mut seed = 1u64;
        let mut roll = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..300 {
            let below: Vec<u8> = vec![0xaa; roll(3000) as usize];
            let mut want = below.clone();
            let mut held = Held::new().unwrap();
            for step in 0..roll(40) as u8 {
                let (at, len) = (roll(3000) as usize, roll(400) as usize);
                if roll(5) == 0 {
                    held.resize(below.len() as u64, at as u64);
                    want.resize(at, 0);
                } else if held.write(at as u64, &vec![step; len]).is_ok() && len > 0 {
                    want.resize(want.len().max(at + len), 0);
                    want[at..at + len].fill(step);
                }
            }
            assert_eq!(held.size(below.len() as u64), want.len() as u64, "round {round}");
            let at = roll(3500) as usize;
            let mut out = vec![0x55; 700];
            let there = below.get(at..).unwrap_or(&[]);
            let filled = there.len().min(out.len());
            out[..filled].copy_from_slice(&there[..filled]);
            let len = held.lay_over(at as u64, &mut out, filled, below.len() as u64);
            let wanted = want.get(at..).unwrap_or(&[]);
            assert_eq!(out[..len], wanted[..wanted.len().min(700)], "round {round}");
            // And the program of the commit makes the same.
            let mut made = below;
            if let Some(cut) = held.cut().filter(|cut| *cut < made.len() as u64) {
                made.truncate(cut as usize);
            }
            for (at, bytes) in runs(&mut held) {
                let (at, end) = (at as usize, at as usize + bytes.len());
                made.resize(made.len().max(end), 0);
                made[at..end].copy_from_slice(&bytes);
            }
            made.resize(made.len().max(held.needed() as usize), 0);
            assert_eq!(made, want, "round {round}");
        }
    }
}
