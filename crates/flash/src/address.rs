//! Addresses within a grant, and its geometry.

use crate::error::LevelError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An erase block of a grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct GrantBlock {
    /// The channel of the grant.
    pub channel: u32,
    /// The LUN on its channel.
    pub lun: u32,
    /// The block in its LUN.
    pub block: u32,
}

/// A page of a grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct GrantPage {
    /// The erase block.
    pub block: GrantBlock,
    /// The page in its block.
    pub page: u32,
}

impl GrantBlock {
    /// A page of this block.
    pub fn page(self, page: u32) -> GrantPage {
        GrantPage { block: self, page }
    }
}

impl fmt::Display for GrantBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant channel {} LUN {} block {}", self.channel, self.lun, self.block)
    }
}

impl fmt::Display for GrantPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} page {}", self.block, self.page)
    }
}

/// What a grant looks like to the application that has it: an open-channel device of its own, without bad blocks.
///
/// Blocks `planes * n` to `planes * n + planes - 1` of a LUN are in different planes: their pages of one number, named one
/// after the other in a vectored command, are one operation. A spare may stand in another plane than the block that it
/// replaces; then they are several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantGeometry {
    /// By channel of the grant, its LUNs. Neighbouring channels differ by one at most when the device had room.
    pub luns_by_channel: Vec<u32>,
    /// Erase blocks of a LUN.
    pub blocks_per_lun: u32,
    /// Planes of a LUN.
    pub planes: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Bytes of a page, without the out-of-band bytes.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page that are the application's.
    pub oob_bytes: u32,
    /// Bytes that were asked for, over-provisioning not included.
    pub capacity_bytes: u64,
    /// Over-provisioning that was asked for, in thousandths of the capacity.
    pub over_provisioning_permille: u32,
}

impl GrantGeometry {
    /// Channels.
    pub fn channels(&self) -> u32 {
        self.luns_by_channel.len() as u32
    }

    /// LUNs.
    pub fn luns(&self) -> u32 {
        self.luns_by_channel.iter().sum()
    }

    /// Erase blocks.
    pub fn blocks(&self) -> u32 {
        self.luns() * self.blocks_per_lun
    }

    /// Pages.
    pub fn pages(&self) -> u64 {
        u64::from(self.blocks()) * u64::from(self.pages_per_block)
    }

    /// Bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.page_bytes)
    }

    /// Every LUN as (channel, LUN), going round the channels: neighbours are on different channels.
    pub fn lun_list(&self) -> Vec<(u32, u32)> {
        let most = self.luns_by_channel.iter().copied().max().unwrap_or(0);
        let on_channels = |lun| {
            let has = move |(_, luns): &(usize, &u32)| **luns > lun;
            self.luns_by_channel.iter().enumerate().filter(has).map(move |(channel, _)| (channel as u32, lun))
        };
        (0..most).flat_map(on_channels).collect()
    }

    /// Refuses a block that the grant does not have.
    pub fn check_block(&self, block: GrantBlock) -> Result<(), LevelError> {
        self.check_page(block.page(0))
    }

    /// Refuses a page that the grant does not have.
    pub fn check_page(&self, address: GrantPage) -> Result<(), LevelError> {
        let block = address.block;
        let luns = self.luns_by_channel.get(block.channel as usize).copied();
        let parts = [
            ("channel", block.channel, self.channels()),
            ("LUN", block.lun, luns.unwrap_or(0)),
            ("block", block.block, self.blocks_per_lun),
            ("page", address.page, self.pages_per_block),
        ];
        for (part, given, limit) in parts {
            if given >= limit {
                return Err(LevelError::OutsideGrant { address, part, given, limit });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns_are_listed_round_the_channels_and_an_address_beyond_them_is_refused_by_its_part() {
        let geometry = GrantGeometry {
            luns_by_channel: vec![2, 1, 1],
            blocks_per_lun: 4,
            planes: 1,
            pages_per_block: 8,
            page_bytes: 4096,
            oob_bytes: 60,
            capacity_bytes: 1,
            over_provisioning_permille: 70,
        };
        assert_eq!(geometry.lun_list(), [(0, 0), (1, 0), (2, 0), (0, 1)]);
        let block = |channel, lun, block| GrantBlock { channel, lun, block };
        geometry.check_page(block(0, 1, 3).page(7)).unwrap();
        for (address, wanted) in [
            (block(3, 0, 0).page(0), "channel"),
            (block(1, 1, 0).page(0), "LUN"),
            (block(0, 0, 4).page(0), "block"),
            (block(0, 0, 0).page(8), "page"),
        ] {
            let refused = geometry.check_page(address);
            assert!(matches!(refused, Err(LevelError::OutsideGrant { part, .. }) if part == wanted));
        }
    }
}
