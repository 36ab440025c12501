//! The command line of `weft lab`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// `weft lab`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft lab -- blkzone report /dev/nvme0n1\n  \
    weft lab -- sh -c 'weft format /dev/nvme0n1 && weft run --volume /dev/nvme0n1 -- cp -r /etc /weft'\n  \
    weft lab --zone-capacity 12M --share results -- ./measure.sh\n\n\
    In the guest, WEFT_LAB_ZONED names the zoned drive, WEFT_LAB_PLAIN an ordinary drive, WEFT_LAB_FDP the FDP drive (QEMU \
    8 or newer) and WEFT_LAB_SHARE the writable directory. The guest sees the host's files read-only; /tmp, /mnt and /run \
    are empty and in memory.\n\n\
    EXIT STATUS\n  The exit status of the command; 124 after --timeout, 125 when the lab itself failed")]
pub struct LabArgs {
    /// Size of the zoned drive.
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    pub size: String,
    /// Size of a zone, a power of two.
    #[arg(long, value_name = "BYTES", default_value = "16M")]
    pub zone_size: String,
    /// Writable bytes of a zone [default: the size of the zone]
    #[arg(long, value_name = "BYTES")]
    pub zone_capacity: Option<String>,
    /// Maximum number of open zones; 0 means no limit.
    #[arg(long, value_name = "N", default_value_t = 14)]
    pub max_open: u32,
    /// Maximum number of active zones; 0 means no limit.
    #[arg(long, value_name = "N", default_value_t = 14)]
    pub max_active: u32,
    /// Size of the ordinary drive, which has no zones.
    #[arg(long, value_name = "BYTES", default_value = "256M")]
    pub plain_size: String,
    /// Memory of the guest.
    #[arg(long, value_name = "BYTES", default_value = "2G")]
    pub memory: String,
    /// Processors of the guest.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,
    /// How QEMU executes the guest.
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    pub accel: Accel,
    /// A directory of the host that the guest may write to [default: a directory in ~/.cache/weft/lab]
    #[arg(long, value_name = "DIR")]
    pub share: Option<PathBuf>,
    /// Make a host directory below /tmp, /mnt or /run visible in the guest; repeat the option for several directories.
    /// The guest always sees the current directory and the directory of the weft command.
    #[arg(long, value_name = "DIR")]
    pub see: Vec<PathBuf>,
    /// A Debian kernel package to boot [default: linux-image-amd64, downloaded by apt-get on the first use]
    #[arg(long, value_name = "DEB")]
    pub kernel: Option<PathBuf>,
    /// Load a further kernel module in the guest: btrfs or null_blk; repeat the option for several modules.
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(super::initramfs::OPTIONAL), hide_possible_values = true)]
    pub module: Vec<String>,
    /// End the guest when the command takes longer than SECONDS seconds [default: no limit]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Write the guest's console, with the kernel's messages, to FILE.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How the guest's instructions are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Accel {
    /// With KVM when /dev/kvm is usable, otherwise in software.
    Auto,
    /// With KVM (/dev/kvm), at the speed of the processor.
    Kvm,
    /// In software, without KVM: slow.
    Tcg,
}
