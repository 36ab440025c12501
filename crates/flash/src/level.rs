//! Which level wrote what is on a grant. A level erases what it does not know, so it has to know the data of the others: it refuses
//! a grant that holds some.

use crate::address::GrantBlock;
use crate::error::LevelError;
use crate::grant::Grant;
use crate::log;
use std::fmt;
use weft_core::Nanos;

/// First out-of-band bytes of each page of the function level.
pub(crate) const FUNCTION_MAGIC: [u8; 4] = *b"WFNB";
/// The same, of the policy level; its log has the log's magic in the data.
pub(crate) const POLICY_MAGIC: [u8; 4] = *b"WFPL";

/// A level that marks its pages. The raw level does not: only the application knows what it wrote there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelName {
    /// The function level.
    Function,
    /// The policy level.
    Policy,
}

impl fmt::Display for LevelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LevelName::Function => "function level",
            LevelName::Policy => "policy level",
        })
    }
}

impl LevelName {
    /// The level that wrote a page with these first bytes.
    fn of(oob: [u8; 4], data: &[u8; log::MAGIC.len()]) -> Option<LevelName> {
        match oob {
            FUNCTION_MAGIC => Some(LevelName::Function),
            POLICY_MAGIC => Some(LevelName::Policy),
            _ => (data == log::MAGIC).then_some(LevelName::Policy),
        }
    }

    /// Refuses a grant that holds data of another level than this one. All pages of a block are of one level: the first one
    /// that can be read tells.
    pub(crate) fn refuse_others(self, grant: &Grant) -> Result<(), LevelError> {
        let geometry = grant.geometry();
        for (channel, lun) in geometry.lun_list() {
            for block in (0..geometry.blocks_per_lun).map(|block| GrantBlock { channel, lun, block }) {
                match level_of(grant, block)? {
                    Some(found) if found != self => {
                        let grant = grant.name().to_string();
                        return Err(LevelError::OtherLevel { grant, found, wanted: self });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The level that wrote a block, if one did.
fn level_of(grant: &Grant, block: GrantBlock) -> Result<Option<LevelName>, LevelError> {
    for page in 0..grant.look(block)?.programmed {
        let (mut data, mut oob) = ([0; log::MAGIC.len()], [0; 4]);
        match grant.read(Nanos(0), block.page(page), 0, &mut data, &mut oob) {
            Ok(_) => return Ok(LevelName::of(oob, &data)),
            Err(LevelError::Unreadable { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}
