//! Volumes in this process, with what the command alone knows: limits of the process, and words for the user.

use crate::error::CliError;
use crate::say::{say, warn};
use crate::sys::limit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weft_client::shared::volume::{RING_BYTES, RINGS_MAX};
use weft_device::Geometry;
use weft_lfs::{LfsError, Lost};
use weft_volume::spec::path_of;
use weft_volume::{MountChoice, Mounted};

/// Bytes of the largest memory that a server shares whatever the volume is.
const SHARED_BYTES: u64 = (RINGS_MAX * RING_BYTES) as u64;

/// Opens an image or a drive and mounts the volume on it.
pub fn open(image: &Path, choice: &MountChoice) -> Result<Arc<Mounted>, CliError> {
    // The last write may end where the image does; memory that is shared is a file to the system.
    let meta = std::fs::metadata(path_of(image));
    let image_bytes = if choice.look { 0 } else { meta.map_or(0, |meta| meta.len()) };
    limit::require_file_size(image_bytes.max(SHARED_BYTES))?;
    let mounted = weft_volume::open(image, choice)?;
    if let (Some(damage), Some(lfs)) = (mounted.damage(), mounted.lfs()) {
        warn_of_damage(&path_of(image).display().to_string(), damage, lfs.lost());
    }
    Ok(Arc::new(mounted))
}

/// Makes a volume in memory and mounts it: on a modelled device, or as files alone where there is no geometry.
pub fn open_memory(
    name: String,
    geometry: Option<&Geometry>,
    choice: &MountChoice,
) -> Result<Arc<Mounted>, CliError> {
    limit::require_file_size(SHARED_BYTES)?;
    Ok(Arc::new(match geometry {
        Some(geometry) => weft_volume::open_memory(name, geometry, choice)?,
        None => weft_volume::mount_memfs(Arc::default(), choice)?,
    }))
}

/// Whether this command has read a volume that is not all there.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether this command has read a volume of which something is lost: what it lists or copies is then not all that was there.
pub fn is_incomplete() -> bool {
    INCOMPLETE.load(Relaxed)
}

/// Says what a damaged volume that is read nonetheless is missing, and what can be done.
fn warn_of_damage(name: &str, damage: &LfsError, lost: &Lost) {
    if !lost.is_nothing() {
        INCOMPLETE.store(true, Relaxed);
    }
    warn(format_args!("{name}: {damage}"));
    say(format_args!("      it is read as far as it can be: {}", missing(lost)));
    say(format_args!(
        "      'weft fsck {name}' lists the damage, 'weft salvage {name} NEW' copies what can be read"
    ));
}

/// What the metadata of a volume lost, in words.
pub fn missing(lost: &Lost) -> String {
    let blocks: u64 = lost.blocks.values().sum();
    let counts = [
        (lost.frames, "frames of the journal"),
        (lost.records, "records that fit nothing"),
        (lost.names.len() as u64, "files whose names are left"),
        (lost.made_up.len() as u64, "files' attributes"),
        (lost.partial.len() as u64, "files' maps, in part"),
        (blocks, "blocks whose place holds other data"),
        (lost.mixed.len() as u64, "files' changes, perhaps"),
        (lost.orphans.len() as u64, "names of files in lost+found"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let checkpoint = lost.checkpoint.then(|| "parts of both checkpoints".to_string());
    let told: Vec<String> = checkpoint.into_iter().chain(counts).collect();
    if told.is_empty() {
        "nothing is known to be missing".into()
    } else {
        format!("missing are {}", told.join(", "))
    }
}
