//! What a file may hold after a power cut.
//!
//! Kept are, from the last promise on, all versions that each block has had, and all sizes that the file may have
//! been left with. A recovered content is explained when its size is one of those and each of its blocks is one of
//! that block's versions.

use weft_core::BLOCK_BYTES;

/// A change of a file's size or blocks that is not a write. But for the truncate, offsets are whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Truncate {
        size: u64,
    },
    /// Makes the blocks zeros, as far as the file reaches.
    Punch {
        start: u64,
        end: u64,
    },
    Collapse {
        start: u64,
        end: u64,
    },
    Insert {
        start: u64,
        len: u64,
    },
}

impl Shape {
    /// What the change makes of a content that is known.
    pub(super) fn apply(self, content: &mut Vec<u8>) {
        match self {
            Shape::Truncate { size } => content.resize(size as usize, 0),
            Shape::Punch { start, end } => {
                let end = (end as usize).min(content.len());
                content[(start as usize).min(end)..end].fill(0);
            }
            Shape::Collapse { start, end } => drop(content.drain(start as usize..end as usize)),
            Shape::Insert { start, len } => {
                drop(content.splice(start as usize..start as usize, vec![0; len as usize]));
            }
        }
    }
}

/// A size that the file may have.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    from: u64,
    to: u64,
    /// Whether the file got this long over a gap, so that bytes that were not stored read as zeros.
    over_gap: bool,
}

/// Bytes that a block may hold, as far as the file reached.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Version {
    bytes: Vec<u8>,
    /// The first of the sizes with which the block may hold this: the zeros of a gap come with a size beyond it.
    with_sizes_from: usize,
}

impl Version {
    fn new(bytes: &[u8]) -> Version {
        Version { bytes: bytes.to_vec(), with_sizes_from: 0 }
    }
}

/// The contents that a file may have.
#[derive(Clone, Debug)]
pub(super) struct Possible {
    /// What a reader would have seen before the cut.
    current: Vec<u8>,
    sizes: Vec<Sizes>,
    /// Versions of each block.
    blocks: Vec<Vec<Version>>,
}

fn block_number(offset: u64) -> usize {
    offset as usize / BLOCK_BYTES
}

/// The bytes of block `block` in `content`.
fn block_of(content: &[u8], block: usize) -> &[u8] {
    let start = (block * BLOCK_BYTES).min(content.len());
    &content[start..(start + BLOCK_BYTES).min(content.len())]
}

impl Possible {
    /// Exactly this content: it was promised.
    pub(super) fn promised(content: Vec<u8>) -> Possible {
        let size = content.len() as u64;
        let blocks = content.chunks(BLOCK_BYTES).map(|block| vec![Version::new(block)]).collect();
        Possible { current: content, sizes: vec![Sizes { from: size, to: size, over_gap: false }], blocks }
    }

    /// The versions of a block; a block that the file has not reached so far has been empty.
    fn versions(&mut self, block: usize) -> &mut Vec<Version> {
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, vec![Version::new(&[])]);
        }
        &mut self.blocks[block]
    }

    fn add_version(&mut self, block: usize) {
        let version = Version::new(block_of(&self.current, block));
        let versions = self.versions(block);
        if versions.last() != Some(&version) {
            versions.push(version);
        }
    }

    /// A write that may have been stored, whole, in part, or not at all.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let (start, end, size) = (offset as usize, offset as usize + data.len(), self.current.len());
        if data.is_empty() {
            return;
        }
        if end > size {
            let over_gap = start > size;
            self.current.resize(end, 0);
            let from = if over_gap { offset + 1 } else { size as u64 + 1 };
            self.sizes.push(Sizes { from, to: end as u64, over_gap });
        }
        self.current[start..end].copy_from_slice(data);
        if start > size {
            // The gap is zeros, and what had not been stored before it may be, too.
            let with_sizes_from = self.sizes.len() - 1;
            for block in 0..=start / BLOCK_BYTES {
                let reach = (start - block * BLOCK_BYTES).min(BLOCK_BYTES);
                let versions = self.versions(block);
                for at in 0..versions.len() {
                    if versions[at].bytes.len() < reach {
                        let mut bytes = versions[at].bytes.clone();
                        bytes.resize(reach, 0);
                        versions.push(Version { bytes, with_sizes_from });
                    }
                }
            }
            for block in size / BLOCK_BYTES..start / BLOCK_BYTES {
                self.add_version(block);
            }
        }
        for block in start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            self.add_version(block);
        }
    }

    /// A change that is known to be stored. Blocks move only in files whose size is known: synced just before.
    pub(super) fn reshape(&mut self, shape: Shape) {
        shape.apply(&mut self.current);
        match shape {
            Shape::Truncate { size } => self.truncate(size),
            Shape::Punch { start, end } => {
                let count = self.blocks.len();
                let (first, last) = (block_number(start).min(count), block_number(end).min(count));
                for version in self.blocks[first..last].iter_mut().flatten() {
                    version.bytes.fill(0);
                }
            }
            Shape::Collapse { start, end } => {
                self.blocks.drain(block_number(start)..block_number(end));
                self.known_size();
            }
            Shape::Insert { start, len } => {
                let holes = vec![vec![Version::new(&[0; BLOCK_BYTES])]; block_number(len)];
                self.blocks.splice(block_number(start)..block_number(start), holes);
                self.known_size();
            }
        }
    }

    fn known_size(&mut self) {
        let size = self.current.len() as u64;
        self.sizes = vec![Sizes { from: size, to: size, over_gap: false }];
    }

    /// What had not been stored before a truncate may be zeros up to the new size.
    fn truncate(&mut self, size: u64) {
        let len = size as usize;
        self.sizes = vec![Sizes { from: size, to: size, over_gap: false }];
        let blocks = len.div_ceil(BLOCK_BYTES);
        self.blocks.resize(blocks, vec![Version::new(&[])]);
        for (block, versions) in self.blocks.iter_mut().enumerate() {
            let reach = (len - block * BLOCK_BYTES).min(BLOCK_BYTES);
            for version in versions {
                version.bytes.resize(reach, 0);
                version.with_sizes_from = 0;
            }
        }
    }

    /// Whether `content` may be what was recovered; otherwise what speaks against it.
    pub(super) fn explain(&self, content: &[u8]) -> Result<(), String> {
        let size = content.len() as u64;
        let mut against = None;
        for (at, sizes) in self.sizes.iter().enumerate() {
            if (sizes.from..=sizes.to).contains(&size) {
                match self.explain_blocks(content, at) {
                    Ok(()) => return Ok(()),
                    Err(what) => against = Some(what),
                }
            }
        }
        Err(against.unwrap_or_else(|| {
            let known: Vec<String> =
                self.sizes.iter().map(|sizes| format!("{} to {}", sizes.from, sizes.to)).collect();
            format!("its size is {size}, which it never had; it may have {}", known.join(" or "))
        }))
    }

    /// Whether each block may hold what it does, when the size is one of the `sizes`.
    fn explain_blocks(&self, content: &[u8], sizes: usize) -> Result<(), String> {
        let over_gap = self.sizes[sizes].over_gap;
        let nothing_yet = [Version::new(&[])];
        for block in 0..content.len().div_ceil(BLOCK_BYTES) {
            let got = block_of(content, block);
            let versions = self.blocks.get(block).map_or(&nothing_yet[..], Vec::as_slice);
            let is_version = |version: &Version| {
                let stored = version.bytes.len().min(got.len());
                let rest_is_zeros = || got[stored..].iter().all(|byte| *byte == 0);
                version.with_sizes_from <= sizes
                    && got[..stored] == version.bytes[..stored]
                    && (stored == got.len() || (over_gap && rest_is_zeros()))
            };
            if !versions.iter().any(is_version) {
                return Err(describe_block(block, got, versions));
            }
        }
        Ok(())
    }
}

/// Says how a block differs from the version that it is most like.
fn describe_block(block: usize, got: &[u8], versions: &[Version]) -> String {
    let agrees =
        |version: &Version| got.iter().zip(&version.bytes).take_while(|(got, want)| got == want).count();
    let nearest = versions.iter().map(agrees).max().unwrap_or(0);
    let zeros = got[nearest..].iter().take_while(|byte| **byte == 0).count();
    format!(
        "block {block} ({} of its bytes are in the file) is none of its {} versions; the nearest agrees up to byte \
         {nearest} of the block, where {}",
        got.len(),
        versions.len(),
        if zeros > 0 {
            format!("{zeros} zeros begin")
        } else {
            format!("{:#04x} stands", got[nearest.min(got.len() - 1)])
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_content_is_the_only_one() {
        let possible = Possible::promised(vec![7; 5000]);
        assert!(possible.explain(&[7; 5000]).is_ok());
        assert!(possible.explain(&[7; 4999]).is_err());
        assert!(possible.explain(&[7; 5001]).is_err());
        let mut wrong = vec![7; 5000];
        wrong[4500] = 0;
        assert!(possible.explain(&wrong).is_err());
    }

    #[test]
    fn an_append_is_there_up_to_any_byte_and_never_as_zeros() {
        let mut possible = Possible::promised(vec![7; 100]);
        possible.write(100, &[8; 5000]);
        for len in [100, 101, 4096, 4097, 5100] {
            let mut content = vec![7; 100];
            content.resize(len, 8);
            assert!(possible.explain(&content).is_ok(), "{len}");
            if len > 100 {
                content[len - 1] = 0;
                assert!(possible.explain(&content).is_err(), "{len} with a zero");
            }
        }
        assert!(possible.explain(&[7; 99]).is_err());
    }

    #[test]
    fn an_overwritten_block_is_old_or_new_but_not_both() {
        let mut possible = Possible::promised(vec![1; 8192]);
        possible.write(0, &[2; 8192]);
        possible.write(0, &[3; 100]);
        let blocks: [&dyn Fn(usize) -> u8; 3] = [&|_| 1, &|_| 2, &|at| if at < 100 { 3 } else { 2 }];
        for first in blocks {
            for second in &blocks[..2] {
                let content: Vec<u8> = (0..4096).map(first).chain((0..4096).map(second)).collect();
                assert!(possible.explain(&content).is_ok());
            }
        }
        let mut torn = vec![2; 8192];
        torn[..50].fill(1);
        assert!(possible.explain(&torn).is_err());
        // The small write came after the whole block's.
        let mut out_of_order = vec![1; 8192];
        out_of_order[..100].fill(3);
        assert!(possible.explain(&out_of_order).is_err());
    }

    #[test]
    fn what_a_stored_truncate_cut_off_does_not_come_back() {
        let mut possible = Possible::promised(vec![1; 5000]);
        possible.reshape(Shape::Truncate { size: 10 });
        possible.write(10, &[2; 20]);
        assert!(possible.explain(&[1; 10]).is_ok());
        assert!(possible.explain(&[[1; 10].as_slice(), &[2; 7]].concat()).is_ok());
        assert!(possible.explain(&[1; 17]).is_err());
        assert!(possible.explain(&[1; 5000]).is_err());
    }

    #[test]
    fn blocks_that_move_take_their_versions_along() {
        let content: Vec<u8> = (0..5).flat_map(|block| vec![block + 1; BLOCK_BYTES]).collect();
        let block = |byte: u8| vec![byte; BLOCK_BYTES];
        let mut possible = Possible::promised(content);
        possible.reshape(Shape::Collapse { start: 4096, end: 8192 });
        possible.reshape(Shape::Insert { start: 4096, len: 8192 });
        possible.reshape(Shape::Punch { start: 16_384, end: 20_480 });
        possible.write(12_288, &block(9));
        for third in [3, 9] {
            let content = [block(1), block(0), block(0), block(third), block(0), block(5)].concat();
            assert!(possible.explain(&content).is_ok(), "{third}");
        }
        let unmoved = [block(1), block(0), block(0), block(2), block(0), block(5)].concat();
        assert!(possible.explain(&unmoved).is_err());
    }

    #[test]
    fn a_gap_reads_as_zeros_and_so_may_what_was_not_stored_before_it() {
        let mut possible = Possible::promised(vec![1; 10]);
        possible.write(10, &[2; 10]);
        possible.write(10_000, &[3; 10]);
        let with = |append: u8, end: usize| {
            let mut content = vec![1; 10];
            content.resize(20, append);
            content.resize(10_000, 0);
            content.resize(end, 3);
            content
        };
        assert!(possible.explain(&with(2, 10_010)).is_ok());
        assert!(possible.explain(&with(0, 10_010)).is_ok());
        assert!(possible.explain(&with(2, 10_005)).is_ok());
        assert!(possible.explain(&with(9, 10_010)).is_err());
        assert!(possible.explain(&[vec![1; 10], vec![0; 5]].concat()).is_err());
    }
}
