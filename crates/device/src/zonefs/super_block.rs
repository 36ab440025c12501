//! The super block of zonefs, as the kernel reads it (`fs/zonefs/zonefs.h`).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic 0x5a4f4653 |
//! | 4 | 4 | CRC-32 of the block with this field zero; begun with all ones, not inverted at the end |
//! | 8 | 64 | label |
//! | 72 | 16 | UUID |
//! | 88 | 8 | features: 2 user, 4 group, 8 permissions as below |
//! | 96 | 4, 4, 4 | user, group, permissions of the zones' files |
//! | 108 | 3988 | zero |

use crate::DeviceError;
use crate::zbd::BlockDevice;
use std::path::Path;
use weft_core::BLOCK_BYTES;
use weft_sys::AlignedBuf;
use weft_sys::file::random;

const MAGIC: u32 = 0x5a4f_4653;
const CRC_AT: usize = 4;
const LABEL_AT: usize = 8;
const LABEL_BYTES: usize = 64;
const UUID_AT: usize = LABEL_AT + LABEL_BYTES;
const FEATURES_AT: usize = UUID_AT + 16;
const USER_AT: usize = FEATURES_AT + 8;

/// Files belong to the user and group that the super block names.
const FEATURE_USER: u64 = 1 << 1;
const FEATURE_GROUP: u64 = 1 << 2;

/// Why no zonefs was made.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The drive refused, or is none.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The zones hold data.
    #[error("{written} zones of the drive are written")]
    Written {
        /// How many.
        written: u32,
    },
    /// The label does not fit.
    #[error("the label has {0} bytes; at most {max} fit", max = LABEL_BYTES - 1)]
    Label(usize),
}

/// Makes an empty zonefs of a zoned block device: resets its zones and writes the super block. Its files will belong to
/// `user` and `group`. What the drive held is lost; unless `force` is given, a drive that holds something is refused.
///
/// # Errors
/// See [`FormatError`]. A drive that another process has is [`DeviceError::Busy`].
pub fn format(device: &Path, label: &str, user: u32, group: u32, force: bool) -> Result<(), FormatError> {
    use crate::drive::access::ZoneAccess;
    if label.len() >= LABEL_BYTES {
        return Err(FormatError::Label(label.len()));
    }
    let io = |source| DeviceError::Io { path: device.to_path_buf(), source };
    let drive = BlockDevice::open(device)?;
    let zones = drive.report_all().map_err(io)?;
    let written = zones.iter().filter(|zone| zone.is_written()).count() as u32;
    if written > 0 && !force {
        return Err(FormatError::Written { written });
    }
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    encode(&mut block, label, &random().map_err(io)?, user, group);
    drive.write_super_block(&block).map_err(io)?;
    Ok(())
}

fn encode(block: &mut [u8], label: &str, uuid: &[u8; 16], user: u32, group: u32) {
    block.fill(0);
    block[..4].copy_from_slice(&MAGIC.to_le_bytes());
    block[LABEL_AT..LABEL_AT + label.len()].copy_from_slice(label.as_bytes());
    block[UUID_AT..FEATURES_AT].copy_from_slice(uuid);
    block[FEATURES_AT..USER_AT].copy_from_slice(&(FEATURE_USER | FEATURE_GROUP).to_le_bytes());
    block[USER_AT..USER_AT + 4].copy_from_slice(&user.to_le_bytes());
    block[USER_AT + 4..USER_AT + 8].copy_from_slice(&group.to_le_bytes());
    let crc = crc32_raw(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// CRC-32 (the reflected polynomial of Ethernet), begun with all ones and left as it is at the end. The one place that
/// needs it, for one block.
fn crc32_raw(data: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_32_without_its_last_inversion() {
        assert_eq!(!crc32_raw(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_super_block_has_its_fields_where_the_kernel_looks() {
        let mut block = vec![9; BLOCK_BYTES];
        encode(&mut block, "lab", &[0xab; 16], 1000, 100);
        assert_eq!(&block[..4], b"SFOZ", "the magic in little-endian order");
        assert_eq!(&block[8..12], b"lab\0");
        assert_eq!(block[72..88], [0xab; 16]);
        assert_eq!(block[88..96], 6u64.to_le_bytes());
        assert_eq!(block[96..104], [232, 3, 0, 0, 100, 0, 0, 0]);
        assert!(block[104..].iter().all(|b| *b == 0));
        let crc = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
        block[4..8].fill(0);
        assert_eq!(crc, crc32_raw(&block));
    }
}
