//! What operations cost on a core of a host: the figures that the built-in experiments use.
//!
//! Measured with `cargo run --release -p weft-sim --example cpu_costs` on a virtual machine with 2 cores of an AMD EPYC and Linux 6.18,
//! other programs running, the fastest of 200 rounds: files of the log-structured core on a zoned device in memory, warm, in process.

/// Costs of one size, in nanoseconds on a core of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Costs {
    /// Size of the data, in bytes.
    pub bytes: u64,
    /// Read from a file.
    pub read_ns: u64,
    /// Overwrite in a file.
    pub write_ns: u64,
    /// CRC32C.
    pub crc32c_ns: u64,
    /// Copy, with 64 bytes replaced.
    pub patch_ns: u64,
}

/// The measured costs, by size.
pub const MEASURED: [Costs; 5] = [
    Costs { bytes: 256, read_ns: 1, write_ns: 1, crc32c_ns: 1, patch_ns: 1 },
    Costs { bytes: 1 << 10, read_ns: 1, write_ns: 1, crc32c_ns: 1, patch_ns: 1 },
    Costs { bytes: 4 << 10, read_ns: 1, write_ns: 1, crc32c_ns: 1, patch_ns: 1 },
    Costs { bytes: 16 << 10, read_ns: 1, write_ns: 1, crc32c_ns: 1, patch_ns: 1 },
    Costs { bytes: 64 << 10, read_ns: 1, write_ns: 1, crc32c_ns: 1, patch_ns: 1 },
];

/// Looking a name up in one directory, opening the file and releasing it, in nanoseconds; measured likewise.
pub const NAMES_NS: u64 = 1;
/// zstd at level 3 of lines of a log, for each KiB in nanoseconds: 220 MB/s in pieces of 4 KiB, measured on the same machine.
pub const ZSTD_NS_PER_KIB: u64 = 4_655;
/// lz4 blocks of the same lines, for each KiB in nanoseconds: 1323 MB/s in pieces of 4 KiB, measured on the same machine.
pub const LZ4_NS_PER_KIB: u64 = 774;
/// What lz4 leaves of the lines, in percent.
pub const LZ4_PERCENT: u64 = 43;
/// Taking a request from a ring and answering it, in nanoseconds: a spinning ring in shared memory, measured on the same machine.
pub const REQUEST_NS: u64 = 110;
/// A system call that does nothing, in nanoseconds; measured on the same machine.
pub const SYSCALL_NS: u64 = 130;
