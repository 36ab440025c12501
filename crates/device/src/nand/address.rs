//! Physical addresses, and the shape of the device that bounds them.

use super::error::FlashError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A LUN: a die, which carries out one operation at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct LunAddr {
    /// Channel, from 0.
    pub channel: u32,
    /// The LUN on its channel.
    pub lun: u32,
}

/// An erase block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct BlockAddr {
    /// Channel, from 0.
    pub channel: u32,
    /// The LUN on its channel.
    pub lun: u32,
    /// The plane of the LUN.
    pub plane: u32,
    /// The block in its plane.
    pub block: u32,
}

/// A page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PageAddr {
    /// The erase block.
    pub block: BlockAddr,
    /// The page in its block.
    pub page: u32,
}

impl BlockAddr {
    /// A page of this block.
    pub fn page(self, page: u32) -> PageAddr {
        PageAddr { block: self, page }
    }

    /// The LUN of this block.
    pub fn lun_addr(self) -> LunAddr {
        LunAddr { channel: self.channel, lun: self.lun }
    }
}

impl LunAddr {
    /// A block of this LUN.
    pub fn block(self, plane: u32, block: u32) -> BlockAddr {
        BlockAddr { channel: self.channel, lun: self.lun, plane, block }
    }
}

impl fmt::Display for LunAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {} LUN {}", self.channel, self.lun)
    }
}

impl fmt::Display for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} plane {} block {}", self.lun_addr(), self.plane, self.block)
    }
}

impl fmt::Display for PageAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} page {}", self.block, self.page)
    }
}

/// How many of everything a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlashShape {
    /// Channels.
    pub channels: u32,
    /// LUNs on each channel.
    pub luns_per_channel: u32,
    /// Planes of a LUN.
    pub planes: u32,
    /// Erase blocks of a plane.
    pub blocks_per_plane: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Bytes of a page, without the out-of-band bytes.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page.
    pub oob_bytes: u32,
}

impl FlashShape {
    /// LUNs of the device.
    pub fn luns(&self) -> u32 {
        self.channels * self.luns_per_channel
    }

    /// Erase blocks of a LUN, all planes together.
    pub fn blocks_per_lun(&self) -> u32 {
        self.planes * self.blocks_per_plane
    }

    /// Erase blocks of the device.
    pub fn blocks(&self) -> u64 {
        u64::from(self.luns()) * u64::from(self.blocks_per_lun())
    }

    /// Pages of the device.
    pub fn pages(&self) -> u64 {
        self.blocks() * u64::from(self.pages_per_block)
    }

    /// Bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.page_bytes)
    }

    /// The LUN with this number. LUNs are numbered round the channels: neighbours in number are on different channels.
    pub fn lun_at(&self, index: u32) -> LunAddr {
        LunAddr { channel: index % self.channels, lun: index / self.channels }
    }

    /// The number of a LUN, which has to exist.
    pub fn lun_index(&self, lun: LunAddr) -> u32 {
        lun.lun * self.channels + lun.channel
    }

    /// The number of a block in its LUN; the block has to exist.
    pub fn block_in_lun(&self, block: BlockAddr) -> u32 {
        block.plane * self.blocks_per_plane + block.block
    }

    /// The number of a block in the device: LUN by LUN, plane by plane. The block has to exist.
    pub fn block_index(&self, block: BlockAddr) -> u64 {
        u64::from(self.lun_index(block.lun_addr())) * u64::from(self.blocks_per_lun())
            + u64::from(self.block_in_lun(block))
    }

    /// The block with this number in the device.
    pub fn block_at(&self, index: u64) -> BlockAddr {
        let per_lun = u64::from(self.blocks_per_lun());
        let within = (index % per_lun) as u32;
        self.lun_at((index / per_lun) as u32)
            .block(within / self.blocks_per_plane, within % self.blocks_per_plane)
    }

    /// Every block of the device, in the order of their numbers.
    pub fn all_blocks(&self) -> impl Iterator<Item = BlockAddr> {
        let shape = *self;
        (0..self.blocks()).map(move |index| shape.block_at(index))
    }

    /// Refuses a block that the device does not have.
    #[inline]
    pub fn check_block(&self, block: BlockAddr) -> Result<(), FlashError> {
        if self.has_block(block) { Ok(()) } else { self.refuse(block.page(0)) }
    }

    /// Refuses a page that the device does not have.
    #[inline]
    pub fn check_page(&self, address: PageAddr) -> Result<(), FlashError> {
        let has_page = self.has_block(address.block) && address.page < self.pages_per_block;
        if has_page { Ok(()) } else { self.refuse(address) }
    }

    #[inline]
    fn has_block(&self, block: BlockAddr) -> bool {
        block.channel < self.channels
            && block.lun < self.luns_per_channel
            && block.plane < self.planes
            && block.block < self.blocks_per_plane
    }

    /// Refuses an address by its first part that the device does not have.
    #[cold]
    fn refuse(&self, address: PageAddr) -> Result<(), FlashError> {
        let PageAddr { block, page } = address;
        let parts = [
            ("channel", block.channel, self.channels),
            ("LUN", block.lun, self.luns_per_channel),
            ("plane", block.plane, self.planes),
            ("block", block.block, self.blocks_per_plane),
            ("page", page, self.pages_per_block),
        ];
        let missing = parts.into_iter().find(|(_, given, limit)| given >= limit);
        missing.map_or(Ok(()), |(part, given, limit)| {
            Err(FlashError::NoSuchAddress { address, part, given, limit })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_one_number_and_every_number_one_block() {
        let shape = FlashShape {
            channels: 3,
            luns_per_channel: 2,
            planes: 2,
            blocks_per_plane: 5,
            pages_per_block: 4,
            page_bytes: 4096,
            oob_bytes: 64,
        };
        assert_eq!(shape.blocks(), 60);
        let blocks: Vec<BlockAddr> = shape.all_blocks().collect();
        for (index, block) in blocks.iter().enumerate() {
            shape.check_block(*block).unwrap();
            assert_eq!(shape.block_index(*block), index as u64);
        }
        assert_eq!(shape.lun_at(1), LunAddr { channel: 1, lun: 0 });
        assert_eq!(shape.lun_at(3), LunAddr { channel: 0, lun: 1 });
        assert_eq!(
            shape.check_page(blocks[0].page(4)).unwrap_err().to_string(),
            "channel 0 LUN 0 plane 0 block 0 page 4: the device has 4 of the part 'page' (0 to 3), and 4 was given; \
             address what the geometry has"
        );
    }
}
