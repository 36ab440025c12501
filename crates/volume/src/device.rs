//! The device under a volume: a modelled one in an image file, or a real drive.

use crate::error::VolumeError;
use crate::spec::is_drive;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use weft_device::{DeviceError, Latencies, SharedCache, ZonedDevice, ZonedDrive, ZonedModel};

/// Bytes of a real drive that are kept in memory unless said otherwise.
pub const CACHE_BYTES_DEFAULT: u64 = 256 << 20;

/// The device under a volume.
#[derive(Clone)]
pub enum Device {
    /// A zoned device of the NAND model.
    Model(Arc<ZonedModel>),
    /// A real drive.
    Drive(Arc<ZonedDrive>),
    /// Another one, such as a model whose power a test cuts. Clients do not read it by themselves.
    Other(Arc<dyn ZonedDevice>),
}

impl Device {
    /// Opens an image file, a zoned block device, or the directory of a zonefs; of a real drive, up to `cache_bytes`
    /// are kept in memory.
    pub fn open(path: &Path, real_time: bool, cache_bytes: u64) -> Result<Device, VolumeError> {
        if !is_drive(path) {
            let mut model = ZonedModel::open(path).map_err(|error| not_writable(path, error))?;
            model.set_real_time(real_time);
            return Ok(Device::Model(Arc::new(model)));
        }
        if real_time {
            return Err(VolumeError::KeepsItsTime(path.to_path_buf()));
        }
        Ok(Device::Drive(Arc::new(ZonedDrive::open(path, cache_bytes)?)))
    }

    /// Opens an image file so that it stays as it is and others may look at it, too. A real drive is opened as ever.
    pub fn look(path: &Path, cache_bytes: u64) -> Result<Device, VolumeError> {
        if is_drive(path) {
            return Device::open(path, false, cache_bytes);
        }
        Ok(Device::Model(Arc::new(ZonedModel::open_to_look(path)?)))
    }

    /// What an image lacks at its end, in words, when that is less than its data needs; it is only looked at then.
    pub fn cut_short(&self) -> Option<String> {
        match self {
            Device::Model(model) => model.cut_short(),
            Device::Drive(_) | Device::Other(_) => None,
        }
    }

    /// The modelled device, if it is one.
    pub fn model(&self) -> Option<&ZonedModel> {
        match self {
            Device::Model(model) => Some(model),
            Device::Drive(_) | Device::Other(_) => None,
        }
    }

    /// The interface that the core works on.
    pub fn zoned(&self) -> Arc<dyn ZonedDevice> {
        match self {
            Device::Model(model) => model.clone(),
            Device::Drive(drive) => drive.clone(),
            Device::Other(device) => device.clone(),
        }
    }

    /// Bytes that the device has taken and not yet programmed; of a real drive nobody knows, 0.
    pub fn buffered_bytes(&self) -> i64 {
        match self {
            Device::Model(model) => model.flash_report().buffered_bytes as i64,
            Device::Drive(_) | Device::Other(_) => 0,
        }
    }

    /// Memory from which clients may read what is held of a real drive.
    pub fn shared_cache(&self) -> Option<SharedCache> {
        match self {
            Device::Drive(drive) => drive.shared_cache(),
            Device::Model(_) | Device::Other(_) => None,
        }
    }

    /// What commands took.
    pub fn latencies(&self) -> Latencies {
        match self {
            Device::Model(model) => model.latencies(),
            Device::Drive(drive) => drive.latencies(),
            Device::Other(_) => Latencies::default(),
        }
    }
}

impl Deref for Device {
    type Target = dyn ZonedDevice;

    fn deref(&self) -> &Self::Target {
        match self {
            Device::Model(model) => &**model,
            Device::Drive(drive) => &**drive,
            Device::Other(device) => &**device,
        }
    }
}

/// The error of an image that this user may not write, or that lies on a file system that is mounted read-only.
fn not_writable(path: &Path, error: DeviceError) -> VolumeError {
    match error {
        DeviceError::Io { source, .. }
            if matches!(source.raw_os_error(), Some(libc::EACCES | libc::EROFS | libc::EPERM)) =>
        {
            VolumeError::NotWritable { path: path.to_path_buf(), source }
        }
        error => error.into(),
    }
}

/// Opens a drive for its format. One that holds something is left alone unless `force` is given.
pub fn open_for_format(path: &Path, force: bool) -> Result<Arc<ZonedDrive>, VolumeError> {
    let drive = ZonedDrive::open(path, 0)?;
    let mut written = 0;
    for zone in (0..drive.info().zones).map(weft_core::ZoneId) {
        written += u32::from(drive.report(zone)?.write_pointer > 0);
    }
    if written > 0 && !force {
        return Err(VolumeError::Written { path: path.to_path_buf(), zones: written });
    }
    Ok(Arc::new(drive))
}
