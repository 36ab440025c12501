//! What operations cost on a core of a host: the figures that the built-in experiments use.
//!
//! Measured on a virtual machine with 2 cores of an AMD EPYC under Linux 6.18, while other programs ran. Each is the median of three runs:
//!
//! | figure | program | what it does |
//! |---|---|---|
//! | [`MEASURED`], [`NAMES_NS`] | `cargo run --release -p weft-sim --example cpu_costs`, the fastest of 200 rounds | files of the log-structured core on a zoned device in memory, in process. Reads are warm. Writes replace data that is still buffered: their cost is that of the copy and the file map, without the device |
//! | [`ZSTD_NS_PER_KIB`], [`LZ4_NS_PER_KIB`], [`LZ4_PERCENT`] | the crates `zstd` and `lz4_flex`, the median of half a second | lines of a log, in pieces of 4 KiB |
//! | [`REQUEST_NS`] | two threads on two cores, the median | a ring in shared memory on which both spin |
//! | [`SYSCALL_NS`] | many calls, the median | a system call that does nothing |

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
    Costs { bytes: 256, read_ns: 398, write_ns: 114, crc32c_ns: 22, patch_ns: 15 },
    Costs { bytes: 1 << 10, read_ns: 442, write_ns: 136, crc32c_ns: 66, patch_ns: 24 },
    Costs { bytes: 4 << 10, read_ns: 358, write_ns: 174, crc32c_ns: 187, patch_ns: 79 },
    Costs { bytes: 16 << 10, read_ns: 1_169, write_ns: 515, crc32c_ns: 713, patch_ns: 188 },
    Costs { bytes: 64 << 10, read_ns: 4_684, write_ns: 2_068, crc32c_ns: 2_476, patch_ns: 1_264 },
];

/// Looking a name up in one directory, opening the file and releasing it, in nanoseconds.
pub const NAMES_NS: u64 = 54;
/// zstd at level 3 of lines of a log, for each KiB in nanoseconds: 220 MB/s.
pub const ZSTD_NS_PER_KIB: u64 = 4_655;
/// lz4 blocks of the same lines, for each KiB in nanoseconds: 1323 MB/s.
pub const LZ4_NS_PER_KIB: u64 = 774;
/// What lz4 leaves of the lines, in percent.
pub const LZ4_PERCENT: u64 = 43;
/// Taking a request from a ring and answering it, in nanoseconds.
pub const REQUEST_NS: u64 = 110;
/// A system call that does nothing, in nanoseconds.
pub const SYSCALL_NS: u64 = 130;
