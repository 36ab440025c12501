//! Models of what stands on weft, and replays of what programs did: nothing here is part of a path that keeps data.
//!
//! - [`block`]: requests for a device, synthetic or from a trace, and the closed loop that issues them.
//! - [`cache`]: the eviction policies of a tag store's cache under the requests of a web server.
//! - [`cpus`]: a device with processors of its own, and who runs next on them.
//! - [`files`]: recordings of programs, played on a model of zones or through the file core.
//! - [`flash`]: a drive, a page map in the host or a range of the policy level under a workload.
//! - [`levels`]: one application on each level of flash.

pub mod block;
pub mod cache;
pub mod cpus;
pub mod files;
pub mod flash;
pub mod levels;
