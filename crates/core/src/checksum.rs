//! CRC32C (Castagnoli), the one checksum of every format.

/// CRC32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// Continues a CRC32C with more data: `crc32c_append(crc32c(a), b) == crc32c(ab)`.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, data)
}
