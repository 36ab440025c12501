//! The errors of the command: what failed, on which object, and the next step for the user.

use crate::kind::Kind;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use weft_core::units::BadSize;
use weft_device::DeviceError;
use weft_device::nand::FlashError;
use weft_device::ssd::SsdError;
use weft_flash::LevelError;
use weft_flash_pages::FlashPagesError;
use weft_lfs::LfsError;
use weft_server::ServerError;
use weft_sim::flash::SimError;
use weft_tagfs::TagFsError;
use weft_volume::VolumeError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The device refused or its image is not one.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Flash with physical addresses refused, or its image is not one.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// A modelled drive refused or cannot be made.
    #[error(transparent)]
    Drive(#[from] SsdError),
    /// A socket cannot be served.
    #[error(transparent)]
    Serve(#[from] weft_core::serve::ServeError),
    /// The flash monitor or a level on it refused.
    #[error(transparent)]
    Level(#[from] weft_flash::LevelError),
    /// A volume cannot be opened, mounted, made or closed.
    #[error(transparent)]
    Volume(VolumeError),
    /// A tag store refused.
    #[error("{}{source}", match .source { weft_tags::Error::Open { .. } | weft_tags::Error::InUse { .. } => String::new(), _ => format!("{store}: ") })]
    Tags {
        /// The store's file.
        store: String,
        /// Why.
        source: weft_tags::Error,
    },
    /// The medium of a tag store on flash was not made or not opened.
    #[error("{store}: {source}")]
    FlashPages {
        /// The store's name.
        store: String,
        /// Why.
        source: FlashPagesError,
    },
    /// The server did not start.
    #[error(transparent)]
    Server(ServerError),
    /// A size on the command line.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// The operating system refused.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file on the volume.
    #[error("{what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// `IMAGE:/path`.
        path: String,
        /// What the volume said.
        source: io::Error,
    },
    /// Anything that is said in one sentence and its remedy.
    #[error("{what}")]
    Said {
        /// What is wrong, and where.
        what: String,
        /// What to do; empty when nothing helps.
        remedy: String,
        /// Exit status.
        status: u8,
    },
}

/// The next step for a file without a directory.
const NO_DIRECTORY: &str = "the file's directory is not there: make it first, or name another one";

/// The next step for a damaged volume.
fn look_closer(image: &str) -> String {
    format!(
        "'weft salvage {image} NEW' copies all readable files to a new volume; 'weft fsck {image}' lists the damage"
    )
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether this user may not open a file as the command has to.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EROFS | libc::EPERM))
}

impl From<VolumeError> for CliError {
    fn from(error: VolumeError) -> CliError {
        match error {
            VolumeError::Device(error) => CliError::Device(error),
            VolumeError::Io { what, path, source } => CliError::Io { what, path, source },
            VolumeError::KeepsItsTime(path) => CliError::of(
                &path,
                "--real-time is an option of modelled devices",
                "leave it out: the latencies of a real drive are real",
            ),
            VolumeError::NoPageClasses(path) => CliError::of(
                &path,
                "--cache-class and --cache-policy are options of volumes of the core tagfs",
                "leave them out, or make a volume with 'weft format --core tagfs'",
            ),
            VolumeError::Flash(error) => CliError::Flash(error),
            VolumeError::FlashPages { volume, source } => CliError::FlashPages { store: volume, source },
            error => CliError::Volume(error),
        }
    }
}

impl From<SimError> for CliError {
    fn from(error: SimError) -> CliError {
        match error {
            SimError::Device(error) => error.into(),
            SimError::Flash(error) => error.into(),
            SimError::Level(error) => error.into(),
            SimError::Drive(error) => error.into(),
            SimError::Map(what) => {
                CliError::said(what, "give a larger --size, a larger --op or a smaller --reserve")
            }
            error @ SimError::TooFewUnits(_) => CliError::said(
                error.to_string(),
                "give a larger --size, a smaller --op or fewer --luns-per-unit",
            ),
            error @ SimError::Identity(_) => CliError::said(error.to_string(), ""),
        }
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> CliError {
        match error {
            ServerError::Volume(error) => error.into(),
            error => CliError::Server(error),
        }
    }
}

impl CliError {
    /// Whether the directory that a file is to be in is missing.
    pub fn has_no_directory(file: &Path) -> bool {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
        dir.is_some_and(|dir| !dir.is_dir())
    }

    /// An error of the operating system on a local file.
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> CliError {
        CliError::Io { what, path: path.to_path_buf(), source }
    }

    /// A sentence and its remedy.
    pub fn said(what: impl Into<String>, remedy: impl Into<String>) -> CliError {
        CliError::ended(1, what, remedy)
    }

    /// What is wrong with a file, and the remedy.
    pub fn of(path: &Path, what: impl Display, remedy: impl Into<String>) -> CliError {
        CliError::said(format!("{}: {what}", path.display()), remedy)
    }

    /// As [`CliError::said`], with another exit status.
    pub fn ended(status: u8, what: impl Into<String>, remedy: impl Into<String>) -> CliError {
        CliError::Said { what: what.into(), remedy: remedy.into(), status }
    }

    /// The same with another exit status of the command, unless the reader of its output has gone.
    pub fn with_status(self, status: u8) -> CliError {
        match self {
            CliError::Said { what, remedy, .. } => CliError::Said { what, remedy, status },
            CliError::Io { ref source, .. } if source.kind() == io::ErrorKind::BrokenPipe => self,
            error => CliError::ended(status, error.to_string(), error.remedy().unwrap_or_default()),
        }
    }

    /// Refuses to write over what exists, unless that is forced.
    pub fn unless_forced(path: &Path, exists: bool, force: bool) -> Result<(), CliError> {
        let remedy = "give --force to overwrite it: all data in it will be lost";
        CliError::unless_there(path, exists && !force, remedy)
    }

    /// Refuses to make a copy in a file that exists.
    pub fn unless_new(path: &Path, exists: bool) -> Result<(), CliError> {
        CliError::unless_there(
            path,
            exists,
            "give the name of a file that does not exist; the command makes it",
        )
    }

    fn unless_there(path: &Path, exists: bool, remedy: &str) -> Result<(), CliError> {
        let error = || CliError::said(format!("{} exists", path.display()), remedy);
        if exists { Err(error()) } else { Ok(()) }
    }

    /// What is expected to be `kind` and cannot be checked.
    pub fn uncheckable(name: &str, kind: Kind, why: impl Display) -> CliError {
        let remedy = kind.other_at(Path::new(name)).unwrap_or_default();
        CliError::ended(2, format!("{name}: cannot be checked: {why}"), remedy)
    }

    /// What is expected to be `kind`, and of which nothing can be read.
    pub fn unsalvageable(name: &str, kind: Kind, why: impl Display) -> CliError {
        let remedy = kind.other_at(Path::new(name)).unwrap_or_default();
        CliError::ended(2, format!("{name}: nothing can be salvaged: {why}"), remedy)
    }

    /// A file for a tag store that cannot be made.
    pub fn unmakeable(path: &Path, source: io::Error) -> CliError {
        if path.is_symlink() && !path.exists() {
            let what = "this is a link to a file that does not exist";
            return CliError::of(
                path,
                what,
                "remove the link, or give the name of the file that it leads to",
            );
        }
        let remedy = if is_missing(&source) && CliError::has_no_directory(path) {
            NO_DIRECTORY
        } else if is_missing(&source) || is_forbidden(&source) {
            "name a file in a directory in which you may make files"
        } else {
            let source = weft_tags::Error::Open { path: path.to_path_buf(), source };
            return CliError::Tags { store: path.display().to_string(), source };
        };
        CliError::of(path, source, remedy)
    }

    /// A file system or device that has no room for a copy of a tag store.
    pub fn no_room(target: &Path, why: impl Display, status: u8) -> CliError {
        let what = format!("{}: no room for the copy: {why}", target.display());
        CliError::ended(
            status,
            what,
            "no copy was made; free space there, or name a file in a place with more room",
        )
    }

    /// The line below the error: what to do about it.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            CliError::Device(DeviceError::Busy(_)) => {
                "another process has the image open. A server of another user, or one that was started with another XDG_RUNTIME_DIR or TMPDIR, is \
                 reached by 'weft run --socket PATH'; otherwise wait for the process, or end it"
            }
            CliError::Device(DeviceError::Io { path, source })
            | CliError::Flash(FlashError::Device(DeviceError::Io { path, source }))
            | CliError::Drive(SsdError::Flash(FlashError::Device(DeviceError::Io { path, source })))
                if is_missing(source) && CliError::has_no_directory(path) =>
            {
                NO_DIRECTORY
            }
            CliError::Io { what: "write", path, source }
                if is_missing(source) && CliError::has_no_directory(path) =>
            {
                NO_DIRECTORY
            }
            CliError::Io { what: "policy", source, .. } if is_missing(source) => {
                "give a policy file, or the name of a policy that comes with weft; 'weft policy list' shows them"
            }
            CliError::Device(DeviceError::Io { source, .. }) if is_missing(source) => {
                "'weft format --size 4G IMAGE' makes a volume"
            }
            CliError::Volume(VolumeError::Lfs { source: LfsError::NotAVolume { .. }, .. }) => {
                "'weft format --force IMAGE' makes a new volume there; all data in the image is lost"
            }
            CliError::Volume(VolumeError::Lfs { source: LfsError::NoCheckpoint { .. }, .. }) => {
                "restore the volume from a backup; 'weft format --force IMAGE' deletes all data on it"
            }
            CliError::Volume(VolumeError::Lfs { volume, source }) if source.is_damage() => {
                return Some(look_closer(volume));
            }
            CliError::Volume(VolumeError::Close { volume, .. }) => {
                return Some(format!(
                    "if the file system that holds {volume} is full, make room there and run the command again; otherwise {}",
                    look_closer(volume)
                ));
            }
            CliError::Volume(VolumeError::TagFs { volume, source: TagFsError::NoFileSystem }) => {
                return Kind::Volume.other_at(Path::new(volume));
            }
            CliError::Volume(VolumeError::NoSnapshots(image)) => {
                return Some(format!(
                    "copy its files instead ('weft cp -r {}:/ DIR', 'weft export'); volumes that 'weft format --core tagfs NEW' makes have \
                     snapshots",
                    image.display()
                ));
            }
            // The text says what to do.
            CliError::Volume(VolumeError::TagFs {
                source:
                    TagFsError::Store(
                        weft_tags::Error::SnapshotExists(_)
                        | weft_tags::Error::NoSuchSnapshot(_)
                        | weft_tags::Error::TooLarge { .. },
                    ),
                ..
            }) => return None,
            CliError::Volume(VolumeError::TagFs { source: TagFsError::Label { .. }, .. }) => {
                "give a shorter --label"
            }
            CliError::Volume(VolumeError::TagFs {
                source: TagFsError::Store(weft_tags::Error::Full { .. }),
                ..
            }) => "give a larger --size",
            CliError::Volume(VolumeError::TagFs {
                volume,
                source: TagFsError::Store(weft_tags::Error::Damaged { .. }),
            }) => {
                return Some(format!(
                    "'weft tags check {volume}' lists the damage; 'weft tags salvage {volume} NEW' copies all readable nodes to a new store"
                ));
            }
            CliError::Volume(
                VolumeError::Lfs { .. } | VolumeError::TagFs { .. } | VolumeError::Unrecordable(_),
            ) => "'weft fsck IMAGE' checks the volume",
            CliError::Volume(VolumeError::NotWritable { .. }) => {
                "read permission is enough for 'weft run --read-only' and for the commands that only read: ls, stat, cat, \
                 cp from it, export, df, stats, zones, fsck, salvage, and do with a program that changes nothing; 'weft mount' \
                 writes to the image even with -o ro: mount a copy of it; 'weft run --socket PATH' joins the server of another user"
            }
            CliError::Volume(VolumeError::AlwaysNew(_)) => {
                "leave out --read-only, or name a volume with a device"
            }
            CliError::Volume(VolumeError::Written { .. }) => {
                "give --force to overwrite the drive: all data on it will be lost"
            }
            CliError::Volume(VolumeError::PolicyText { .. }) => {
                "docs/formats/policy-toml.md describes every key; 'weft policy show generic' prints an example"
            }
            CliError::Device(DeviceError::BadImage { path, .. }) => {
                return Kind::Volume.other_at(path);
            }
            CliError::Flash(FlashError::Device(DeviceError::BadImage { path, .. }))
            | CliError::Drive(SsdError::Flash(FlashError::Device(DeviceError::BadImage { path, .. }))) => {
                return Kind::FlashDevice.other_at(path);
            }
            CliError::Flash(FlashError::Device(DeviceError::Io { source, .. })) if is_missing(source) => {
                "'weft flash create IMAGE' makes a device"
            }
            CliError::Drive(SsdError::Flash(FlashError::Device(DeviceError::Io { source, .. })))
                if is_missing(source) =>
            {
                "'weft flash create --presentation conventional IMAGE' makes a drive"
            }
            CliError::Flash(FlashError::Device(DeviceError::Io { source, .. }))
            | CliError::Drive(SsdError::Flash(FlashError::Device(DeviceError::Io { source, .. })))
                if is_forbidden(source) =>
            {
                "the command needs write permission on the image, or on the directory of a new one; read permission is enough \
                 for 'weft flash info', 'wear', 'grants' and 'read'"
            }
            CliError::Drive(SsdError::BadSetup(_)) => {
                "--size, --op, --reserve and --luns-per-unit decide this: a larger device, a larger --op, a smaller --reserve, \
                 or units of fewer LUNs"
            }
            CliError::File { source, .. } if source.raw_os_error() == Some(libc::ENOSPC) => {
                "the volume is full: remove files ('weft rm'), or format a larger volume; 'weft df' shows the space"
            }
            CliError::File { source, .. } if source.raw_os_error() == Some(libc::EIO) => {
                "the volume could not be read, or its server has ended; 'weft fsck IMAGE' checks the volume"
            }
            CliError::Tags { source: weft_tags::Error::Open { path, source }, .. }
                if is_missing(source) && CliError::has_no_directory(path) =>
            {
                NO_DIRECTORY
            }
            CliError::Tags { source: weft_tags::Error::Open { source, .. }, .. } if is_missing(source) => {
                "'weft tags create STORE' makes a store; 'weft kv put --create STORE KEY VALUE' makes one with a pair"
            }
            CliError::Tags { source: weft_tags::Error::NotAStore { .. }, store } => {
                let other = Kind::TagStore.other_at(Path::new(store));
                let create = "'weft tags create STORE' makes a store; with --force it overwrites the file that is there";
                return other.or_else(|| Some(create.to_string()));
            }
            CliError::Tags { source: weft_tags::Error::Damaged { .. }, .. } => {
                "'weft tags check STORE' lists the problems; 'weft tags salvage STORE NEW' copies all readable data"
            }
            CliError::FlashPages { source: FlashPagesError::PageSize { .. }, .. } => {
                "'weft flash create --preset bbssd IMAGE' makes a device with pages of 4 KiB"
            }
            CliError::FlashPages {
                source:
                    FlashPagesError::NotAStore { .. }
                    | FlashPagesError::Level(LevelError::NoSuchGrant(_) | LevelError::NotFormatted(_)),
                ..
            } => {
                "'weft tags create STORE' makes a store, 'weft format --core tagfs STORE' a volume; 'weft flash grants IMAGE' lists the grants of a device"
            }
            CliError::FlashPages {
                source: FlashPagesError::Exists { .. } | FlashPagesError::NotBlank { .. },
                ..
            } => "give --force to overwrite it: all data in it will be lost",
            CliError::Said { remedy, .. } => return (!remedy.is_empty()).then(|| remedy.clone()),
            _ => return None,
        };
        Some(text.to_string())
    }

    /// The system's error behind this one.
    pub fn system(&self) -> Option<&io::Error> {
        let this: &(dyn std::error::Error + 'static) = self;
        std::iter::successors(Some(this), |error| error.source()).find_map(|error| error.downcast_ref())
    }

    /// Exit status of a command other than `run`.
    pub fn status(&self) -> u8 {
        match self {
            CliError::Said { status, .. } => *status,
            _ => 1,
        }
    }
}
