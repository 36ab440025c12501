//! Names of a store's medium on flash: `policy:IMAGE#GRANT` and `function:IMAGE#GRANT`.

use crate::error::FlashPagesError;
use crate::function::{FunctionPages, FunctionPagesSetup};
use crate::policy::{PolicyPages, PolicyPagesSetup, check_page_bytes};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use weft_device::nand::{FlashError, OpenChannel};
use weft_flash::{Grant, GrantRequest, LevelError, LevelName, Monitor, MonitorSetup};
use weft_tags::PageStore;

/// The grant of a name without one.
pub const GRANT_DEFAULT: &str = "tags";

/// A store's medium on modelled flash in an image: the level, the image, and the grant of its monitor.
///
/// ```
/// use weft_flash_pages::FlashSpec;
///
/// let spec = FlashSpec::parse("function:nand.img#orders").unwrap();
/// assert_eq!((spec.grant.as_str(), spec.to_string().as_str()), ("orders", "function:nand.img#orders"));
/// assert_eq!(FlashSpec::parse("policy:nand.img").unwrap().grant, "tags");
/// assert!(FlashSpec::parse("nand.img").is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlashSpec {
    /// The level that the store uses.
    pub level: LevelName,
    /// The image of the device.
    pub image: PathBuf,
    /// The grant.
    pub grant: String,
}

/// How a medium is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateRequest {
    /// Bytes of the grant without over-provisioning; 0 stands for all flash that is free.
    pub bytes: u64,
    /// Flash on top of that, in thousandths of the bytes.
    pub over_provisioning_permille: u32,
    /// Whether a grant of this name, and whatever is on a device without a monitor, may be overwritten.
    pub force: bool,
}

impl FlashSpec {
    /// Reads a name; `None` for one of something else, such as a file.
    pub fn parse(text: &str) -> Option<FlashSpec> {
        let (level, rest) = text.split_once(':')?;
        let level = [LevelName::Policy, LevelName::Function].into_iter().find(|name| word(*name) == level)?;
        let (image, grant) = rest.rsplit_once('#').unwrap_or((rest, GRANT_DEFAULT));
        let is_whole = !image.is_empty() && !grant.is_empty();
        is_whole.then(|| FlashSpec { level, image: image.into(), grant: grant.into() })
    }

    /// Makes a medium. The image is there already; a monitor is made on a device that is blank, and the grant where it is not there.
    ///
    /// # Errors
    /// [`FlashPagesError::Exists`] and [`FlashPagesError::NotBlank`] unless forced; [`FlashPagesError::PageSize`],
    /// [`FlashPagesError::TooSmall`]; [`FlashPagesError::Image`], [`FlashPagesError::Level`].
    pub fn create(&self, request: &CreateRequest) -> Result<Box<dyn PageStore>, FlashPagesError> {
        let device = self.device()?;
        // Before anything is written.
        check_page_bytes(device.shape().page_bytes)?;
        let monitor = match Monitor::open(device.clone()) {
            Err(LevelError::NotFormatted(_)) if request.force || is_blank(&device)? => {
                Monitor::format(device, MonitorSetup::default())?
            }
            Err(LevelError::NotFormatted(_)) => {
                return Err(FlashPagesError::NotBlank { image: self.image.clone() });
            }
            opened => opened?,
        };
        let is_there = monitor.grants().iter().any(|grant| grant.name == self.grant);
        if is_there && !request.force {
            return Err(FlashPagesError::Exists { grant: self.grant.clone(), image: self.image.clone() });
        }
        if is_there {
            monitor.release(&self.grant)?;
        }
        let grant = self.allocate(&monitor, request)?;
        let made: Result<Box<dyn PageStore>, FlashPagesError> = match self.level {
            LevelName::Policy => {
                PolicyPages::create(grant, PolicyPagesSetup::default()).map(|pages| Box::new(pages) as _)
            }
            LevelName::Function => {
                FunctionPages::create(grant, FunctionPagesSetup::default()).map(|pages| Box::new(pages) as _)
            }
        };
        if made.is_err() {
            // What was made for nothing would be refused by the next try.
            monitor.release(&self.grant)?;
        }
        made
    }

    fn allocate(&self, monitor: &Arc<Monitor>, request: &CreateRequest) -> Result<Grant, FlashPagesError> {
        let over_provisioning_permille = request.over_provisioning_permille;
        let bytes = match request.bytes {
            0 => {
                let all = u64::from(monitor.free_luns()?) * monitor.lun_bytes();
                all * 1000 / (1000 + u64::from(over_provisioning_permille))
            }
            bytes => bytes,
        };
        let request = GrantRequest { name: self.grant.clone(), bytes, over_provisioning_permille };
        Ok(monitor.allocate(&request)?)
    }

    /// Whether the image has a grant of this name. An image that cannot be opened counts as one: to open the medium says why.
    pub fn exists(&self) -> bool {
        let grants = OpenChannel::look(&self.image).map_err(LevelError::from);
        match grants.and_then(|device| Monitor::look(&device)) {
            Ok(grants) => grants.iter().any(|grant| grant.name == self.grant),
            Err(LevelError::NotFormatted(_)) => false,
            Err(_) => true,
        }
    }

    /// Opens a medium.
    ///
    /// # Errors
    /// [`FlashPagesError::NotAStore`], [`FlashPagesError::PageSize`], [`FlashPagesError::Unreadable`];
    /// [`FlashPagesError::Image`], [`FlashPagesError::Level`].
    pub fn open(&self) -> Result<Box<dyn PageStore>, FlashPagesError> {
        let grant = Monitor::open(self.device()?)?.attach(&self.grant)?;
        Ok(match self.level {
            LevelName::Policy => Box::new(PolicyPages::open(grant, PolicyPagesSetup::default())?),
            LevelName::Function => Box::new(FunctionPages::open(grant, FunctionPagesSetup::default())?),
        })
    }

    fn device(&self) -> Result<Arc<OpenChannel>, FlashPagesError> {
        Ok(Arc::new(OpenChannel::open(&self.image)?))
    }
}

/// What a name begins with.
fn word(level: LevelName) -> &'static str {
    match level {
        LevelName::Policy => "policy",
        LevelName::Function => "function",
    }
}

/// Whether nothing was ever programmed on a device.
fn is_blank(device: &OpenChannel) -> Result<bool, FlashError> {
    let shape = device.shape();
    for lun in (0..shape.luns()).map(|lun| shape.lun_at(lun)) {
        if device.lun_info(lun)?.iter().any(|block| block.programmed > 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl fmt::Display for FlashSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", word(self.level), self.image.display(), self.grant)
    }
}
