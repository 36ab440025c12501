//! The flash monitor.

use crate::error::{Failure, exports, null};
use crate::handle::{give, handle, put, take, text};
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{Grant, GrantBlock, GrantRequest, Monitor, MonitorSetup, share};

/// A flash monitor.
pub struct WeftMonitor(pub(crate) Arc<Monitor>);

/// A grant, which becomes one of the levels.
pub struct WeftGrant(pub(crate) Grant);

/// A block of a grant.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WeftBlock {
    /// Channel of the grant.
    pub channel: u32,
    /// LUN on the channel.
    pub lun: u32,
    /// Block in the LUN.
    pub block: u32,
}

impl From<WeftBlock> for GrantBlock {
    fn from(block: WeftBlock) -> GrantBlock {
        GrantBlock { channel: block.channel, lun: block.lun, block: block.block }
    }
}

impl From<GrantBlock> for WeftBlock {
    fn from(block: GrantBlock) -> WeftBlock {
        WeftBlock { channel: block.channel, lun: block.lun, block: block.block }
    }
}

exports! {
    /// Makes a flash device of a preset (`bbssd`, `tlc`, `mlc`, `slc`, `qlc` or `zn540`) in an image file, or in memory when
    /// `path` is null, with a monitor on it. An existing file is refused.
    ///
    /// # Safety
    /// Strings end with a zero byte; `out` can be written.
    fn weft_monitor_format(
        path: *const c_char,
        preset: *const c_char,
        size_bytes: u64,
        out: *mut *mut WeftMonitor,
    ) {
        let preset = text(preset, "preset")?;
        let geometry = Geometry::preset(preset).map_err(weft_device::nand::FlashError::from)?;
        let setup = FlashSetup::new(geometry.with_size(size_bytes));
        let device = if path.is_null() {
            OpenChannel::memory(&setup)?
        } else {
            OpenChannel::create(Path::new(text(path, "path")?), &setup, false)?
        };
        let monitor = Monitor::format(Arc::new(device), MonitorSetup::default())?;
        give(WeftMonitor(monitor), out)
    }

    /// Opens an image file with a monitor on it. One process at a time.
    ///
    /// # Safety
    /// The path ends with a zero byte; `out` can be written.
    fn weft_monitor_open(path: *const c_char, out: *mut *mut WeftMonitor) {
        let device = OpenChannel::open(Path::new(text(path, "path")?))?;
        let monitor = Monitor::open(Arc::new(device))?;
        give(WeftMonitor(monitor), out)
    }

    /// Closes a monitor. Grants and levels of it may live on.
    ///
    /// # Safety
    /// The handle is null or open, and no call on it is under way.
    fn weft_monitor_close(monitor: *mut WeftMonitor) -> () {
        drop(take(monitor))
    }

    /// Asks for flash: bytes, and over-provisioning in thousandths of them on top.
    ///
    /// # Safety
    /// The handle is open; the name ends with a zero byte; `out` can be written.
    fn weft_allocate(
        monitor: *const WeftMonitor,
        name: *const c_char,
        size_bytes: u64,
        over_provisioning_permille: u32,
        out: *mut *mut WeftGrant,
    ) {
        let (monitor, name) = (handle(monitor, "monitor")?, text(name, "name")?);
        let request = GrantRequest { name: name.to_string(), bytes: size_bytes, over_provisioning_permille };
        give(WeftGrant(monitor.0.allocate(&request)?), out)
    }

    /// Attaches to flash that was asked for earlier.
    ///
    /// # Safety
    /// The handle is open; the name ends with a zero byte; `out` can be written.
    fn weft_attach(monitor: *const WeftMonitor, name: *const c_char, out: *mut *mut WeftGrant) {
        let (monitor, name) = (handle(monitor, "monitor")?, text(name, "name")?);
        give(WeftGrant(monitor.0.attach(name)?), out)
    }

    /// Asks a monitor that another process serves on this socket ('weft flash serve') for flash.
    ///
    /// # Safety
    /// The strings end with a zero byte; `out` can be written.
    fn weft_allocate_served(
        socket: *const c_char,
        name: *const c_char,
        size_bytes: u64,
        over_provisioning_permille: u32,
        out: *mut *mut WeftGrant,
    ) {
        let (socket, name) = (text(socket, "socket")?, text(name, "name")?);
        let request = GrantRequest { name: name.to_string(), bytes: size_bytes, over_provisioning_permille };
        give(WeftGrant(share::allocate(Path::new(socket), &request)?), out)
    }

    /// Attaches to flash that was asked for earlier, of a monitor that another process serves on this socket.
    ///
    /// # Safety
    /// The strings end with a zero byte; `out` can be written.
    fn weft_attach_served(socket: *const c_char, name: *const c_char, out: *mut *mut WeftGrant) {
        let (socket, name) = (text(socket, "socket")?, text(name, "name")?);
        give(WeftGrant(share::attach(Path::new(socket), name)?), out)
    }

    /// Gives flash back that nobody is attached to.
    ///
    /// # Safety
    /// The handle is open; the name ends with a zero byte.
    fn weft_release(monitor: *const WeftMonitor, name: *const c_char) {
        Ok(handle(monitor, "monitor")?.0.release(text(name, "name")?)?)
    }

    /// Gives flash back that another process's monitor gave, and that nobody is attached to.
    ///
    /// # Safety
    /// Both texts end with a zero byte.
    fn weft_release_served(socket: *const c_char, name: *const c_char) {
        let (socket, name) = (text(socket, "socket")?, text(name, "name")?);
        Ok(share::release(Path::new(socket), name)?)
    }

    /// Lets go of a grant that has not become a level.
    ///
    /// # Safety
    /// The handle is null or open.
    fn weft_grant_close(grant: *mut WeftGrant) -> () {
        drop(take(grant))
    }

    /// Exchanges worn, busy LUNs and fresh, quiet ones of any grants, up to `swaps_max` pairs; says how many it were.
    ///
    /// # Safety
    /// The handle is open; `swaps` can be written.
    fn weft_level_wear(monitor: *const WeftMonitor, swaps_max: u32, swaps: *mut u32) {
        let monitor = handle(monitor, "monitor")?;
        let policy = weft_flash::monitor::LevelPolicy { swaps_max, ..Default::default() };
        let report = monitor.0.level_wear(policy, weft_core::Nanos(0))?;
        put(report.swaps, swaps)
    }
}

/// The grant of a handle, which is used up.
///
/// # Safety
/// The handle is null or open.
pub(crate) unsafe fn grant_of(grant: *mut WeftGrant) -> Result<Grant, Failure> {
    // SAFETY: the caller's promise.
    let grant = unsafe { take(grant) }.ok_or_else(|| null("grant"))?;
    Ok(grant.0)
}
