//! Mounted volumes: what lies between the name of a volume and a file core that can be served.
//!
//! - [`spec`]: what a user calls a volume; [`device`]: the device under it;
//! - [`append_log`]: what clients make durable without the server;
//! - [`mod@mount`]: opening, mounting and closing; [`direct`]: what programs may reach without the server;
//! - [`policy`]: reading placement policies; [`recorder`]: a recording of what programs do to their files;
//! - [`report`]: what a volume has counted, as reports show it.
//!
//! A core's place in here is one variant of `Store` in [`mod@mount`]: everything above reaches a core by [`weft_vfs::Core`].
//! The crate knows neither how programs ask (the wire) nor the command line.
//!
//! ```
//! use weft_volume::{MountChoice, mount_memfs};
//!
//! let mounted = mount_memfs(Default::default(), &MountChoice::default())?;
//! assert_eq!(mounted.core().statfs()?.inodes, 1);
//! mounted.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod append_log;
pub mod device;
pub mod direct;
pub mod error;
mod inspect;
pub mod mount;
pub mod policy;
pub mod recorder;
pub mod report;
pub mod spec;

pub use append_log::AppendLog;
pub use device::Device;
pub use direct::{DirectImage, ImageKind};
pub use error::VolumeError;
pub use mount::{
    MountChoice, Mounted, SHARED_MEMORY_DEFAULT, SnapshotChange, change_snapshots, format, format_tagfs,
    format_tagfs_on_flash, is_tag_store, mount, mount_memfs, open, open_memory, settle_append_log, snapshots,
    tag_medium,
};
pub use policy::{read_policy, read_settings};
pub use recorder::{Record, Recorder};
pub use report::{ProgramView, SharedUse, Snapshot};
pub use spec::Spec;
pub use weft_tagfs::Layout;
