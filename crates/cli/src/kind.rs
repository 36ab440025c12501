//! The kinds of files that hold data of weft, told by their first bytes; docs/formats describes each.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A volume on a modelled device.
    Volume,
    /// A zone of a volume, by itself: of a drive or in a zonefs.
    Zone,
    /// An open-channel device, or a drive made of one.
    FlashDevice,
    /// A tag store.
    TagStore,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Volume => "a weft volume",
            Kind::Zone => "a zone of a weft volume",
            Kind::FlashDevice => "a flash device of weft",
            Kind::TagStore => "a tag store",
        })
    }
}

impl Kind {
    /// The kind of a file that begins so.
    pub fn of_first(bytes: &[u8; 8]) -> Option<Kind> {
        match bytes {
            b"WEFTZNS\0" => Some(Kind::Volume),
            b"WEFTZONE" => Some(Kind::Zone),
            b"WEFTOCF\0" => Some(Kind::FlashDevice),
            b"WEFTTAGS" => Some(Kind::TagStore),
            _ => None,
        }
    }

    /// The kind of a file. Nothing is read of a pipe, whose other end may be waited for.
    pub fn of(path: &Path, meta: &Metadata) -> Option<Kind> {
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return None;
        }
        let mut first = [0; 8];
        File::open(path).and_then(|mut file| file.read_exact(&mut first)).ok()?;
        Kind::of_first(&first)
    }

    /// What to do with a file that a command for this kind refused, when it is of another one.
    pub fn other_at(self, path: &Path) -> Option<String> {
        let found = Kind::of(path, &path.metadata().ok()?).filter(|found| *found != self)?;
        let commands = match found {
            Kind::FlashDevice => "'weft flash --help' lists the commands for it",
            Kind::TagStore => "'weft tags', 'weft kv' and 'weft btree' are the commands for it",
            Kind::Volume | Kind::Zone => "'weft --help' lists the commands for it",
        };
        Some(format!("{} is {found}; {commands}", path.display()))
    }
}
