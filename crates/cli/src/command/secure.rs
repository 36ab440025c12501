//! `weft secure`: looks for what secure deletion must not leave.

use crate::error::CliError;
use crate::kind::Kind;
use crate::progress;
use crate::say::{json_line, print};
use crate::table::Table;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weft_core::markers::{Markers, PIECE_BYTES};
use weft_core::units::format_size;
use weft_device::nand::OpenChannel;
use weft_device::{ZonedDevice, ZonedModel};

/// Bytes that are read at once.
const PART_BYTES: usize = 4 << 20;
/// Places that are listed; further ones are counted.
const PLACES_MAX: usize = 100;

/// `weft secure`
#[derive(Subcommand, Debug)]
#[command(after_help = "EXAMPLES\n  weft secure verify vol.img --marker letter.txt")]
pub enum SecureCommand {
    /// Look for bytes that must not be on a medium any more.
    Verify(VerifyArgs),
}

/// `weft secure verify`
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    weft secure verify vol.img --marker letter.txt --text the-name-of-the-letter.txt\n  \
    weft secure verify /dev/sdb --hex 8f1c0a5be2774d90a1b2c3d4e5f60718\n\n\
    A marker is what was deleted: a copy of the file, or its name. The command reads every byte of the image, whatever weft \
    keeps there and whether it is still valid, and looks for pieces of 16 bytes of each marker. It does not look for pieces \
    with fewer than 4 different bytes, such as zeros. An image of a flash device contains the out-of-band bytes of its \
    pages. The command cannot see what a drive keeps behind its interface.\n\n\
    EXIT STATUS\n  0 nothing was found, 1 something was found, 2 it cannot be verified")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["marker", "hex", "text"]))]
pub struct VerifyArgs {
    /// A file with the bytes of a marker, such as a copy of the deleted file.
    #[arg(long, value_name = "FILE")]
    pub marker: Vec<PathBuf>,
    /// The bytes of a marker in hexadecimal digits; at least 16 bytes.
    #[arg(long, value_name = "HEX")]
    pub hex: Vec<String>,
    /// The bytes of a marker as text, such as the name of the deleted file; at least 16 bytes.
    #[arg(long, value_name = "TEXT")]
    pub text: Vec<std::ffi::OsString>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The image file or block device.
    pub image: PathBuf,
}

/// Does what `weft secure` is asked for.
pub fn run(command: &SecureCommand) -> Result<(), CliError> {
    match command {
        SecureCommand::Verify(args) => verify(args).map_err(|error| match error {
            found @ CliError::Said { .. } => found,
            error => error.with_status(2),
        }),
    }
}

/// Pieces of a marker that lie together on a medium.
struct Found {
    offset: u64,
    bytes: u64,
    marker: u32,
    place: Place,
}

/// What lies at an offset of an image.
#[derive(Default)]
enum Place {
    /// No more is known of it than the offset.
    #[default]
    Unknown,
    /// A block of a zone; it is valid below the zone's write pointer.
    Zone { zone: u32, block: u32, is_valid: bool },
    /// A page of flash, or its out-of-band bytes; it is valid from its program to the erase of its block.
    Page { block: u64, page: u32, is_oob: bool, is_valid: bool },
}

impl Place {
    fn in_words(&self) -> String {
        let whether = |is_valid| if is_valid { "" } else { ", not valid" };
        match *self {
            Place::Unknown => String::new(),
            Place::Zone { zone, block, is_valid } => {
                format!("zone {zone}, block {block}{}", whether(is_valid))
            }
            Place::Page { block, page, is_oob, is_valid } => {
                let oob = if is_oob { ", out of band" } else { "" };
                format!("erase block {block}, page {page}{oob}{}", whether(is_valid))
            }
        }
    }

    fn add_to(&self, found: &mut Value) {
        match *self {
            Place::Unknown => {}
            Place::Zone { zone, block, is_valid } => {
                (found["zone"], found["block"], found["valid"]) =
                    (zone.into(), block.into(), is_valid.into());
            }
            Place::Page { block, page, is_oob, is_valid } => {
                (found["block"], found["page"]) = (block.into(), page.into());
                (found["oob"], found["valid"]) = (is_oob.into(), is_valid.into());
            }
        }
    }
}

/// What tells where in a device an offset of its image is.
enum Map {
    Nothing,
    Zones(Box<ZonedModel>),
    Flash(Box<OpenChannel>),
}

impl Map {
    /// That of an image. One that another process uses is looked through all the same, by offsets alone.
    fn of(image: &Path) -> Map {
        let kind = image.metadata().ok().and_then(|meta| Kind::of(image, &meta));
        let map = match kind {
            Some(Kind::Volume) => ZonedModel::open_to_look(image).ok().map(Box::new).map(Map::Zones),
            Some(Kind::FlashDevice) => OpenChannel::look(image).ok().map(Box::new).map(Map::Flash),
            _ => None,
        };
        map.unwrap_or(Map::Nothing)
    }

    fn place(&self, offset: u64) -> Place {
        let place = match self {
            Map::Nothing => None,
            Map::Zones(device) => zone_at(device, offset),
            Map::Flash(device) => device.image_place(offset).map(|(block, page, is_oob)| {
                let info = device.block_info(device.shape().block_at(block));
                Place::Page { block, page, is_oob, is_valid: info.is_ok_and(|info| page < info.programmed) }
            }),
        };
        place.unwrap_or_default()
    }
}

fn zone_at(device: &ZonedModel, offset: u64) -> Option<Place> {
    let (zone, block) = device.image_place(offset)?;
    let written = device.report(zone).map_or(0, |report| report.write_pointer);
    Some(Place::Zone { zone: zone.0, block, is_valid: block < written })
}

fn verify(args: &VerifyArgs) -> Result<(), CliError> {
    let mut markers = Markers::default();
    let mut names = Vec::new();
    for (name, bytes) in given(args)? {
        if markers.add(&bytes) == 0 {
            return Err(CliError::ended(
                2,
                format!("{name}: no piece of {PIECE_BYTES} bytes that tells it from others"),
                "give a marker of at least 16 bytes of which 4 differ",
            ));
        }
        names.push(name);
    }
    let map = Map::of(&args.image);
    let io = |source| CliError::io("read", &args.image, source);
    let file = File::open(&args.image).map_err(io)?;
    let bytes = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0)).map_err(io)?;
    let bar = progress::bytes("verify", bytes, args.quiet || args.json);
    let (mut found, mut more, mut last) = (Vec::new(), 0u64, None);
    let mut part = vec![0; PART_BYTES];
    let mut at = 0;
    while at < bytes {
        let len = part.len().min((bytes - at) as usize);
        let part = &mut part[..len];
        file.read_exact_at(part, at).map_err(io)?;
        markers.find(part, |offset, marker| {
            let offset = at + offset as u64;
            let end = offset + PIECE_BYTES as u64;
            if let Some((of, last_end)) = &mut last
                && *of == marker
                && offset <= *last_end
            {
                let begun = found.last_mut().filter(|_| more == 0);
                begun.into_iter().for_each(|begun: &mut Found| begun.bytes = end - begun.offset);
                *last_end = end;
                return;
            }
            last = Some((marker, end));
            if found.len() < PLACES_MAX {
                found.push(Found { offset, bytes: PIECE_BYTES as u64, marker, place: map.place(offset) });
            } else {
                more += 1;
            }
        });
        // A piece may begin in this part and end in the next.
        at += if at + len as u64 == bytes { len } else { len - (PIECE_BYTES - 1) } as u64;
        bar.set_position(at);
    }
    bar.finish_and_clear();
    let image = args.image.display().to_string();
    let text = match args.json {
        true => json_line(&as_json(&image, bytes, &markers, &names, &found, more))?,
        false => in_words(&image, bytes, &markers, &names, &found, more),
    };
    print(&text).map_err(|error| error.with_status(2))?;
    match found.len() as u64 + more {
        0 => Ok(()),
        count => Err(CliError::said(
            format!("{image}: bytes of markers found at {count} places"),
            "what is deleted securely is gone after a 'sync' or an 'fsync' of its directory; see \
             docs/how-to/delete-securely.md",
        )),
    }
}

/// The markers, with the names that the report has for them.
fn given(args: &VerifyArgs) -> Result<Vec<(String, Vec<u8>)>, CliError> {
    let mut all = Vec::new();
    for path in &args.marker {
        let bytes = std::fs::read(path).map_err(|source| CliError::io("read", path, source))?;
        all.push((path.display().to_string(), bytes));
    }
    for digits in &args.hex {
        let bytes = bytes_of(digits).ok_or_else(|| {
            CliError::ended(2, format!("--hex {digits}: not pairs of hexadecimal digits"), "")
        })?;
        all.push((digits.clone(), bytes));
    }
    for text in &args.text {
        all.push((text.to_string_lossy().into_owned(), text.as_bytes().to_vec()));
    }
    Ok(all)
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<_>>()
        .filter(|_| digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn in_words(
    image: &str,
    bytes: u64,
    markers: &Markers,
    names: &[String],
    found: &[Found],
    more: u64,
) -> String {
    let looked = format!("{image}: {} looked through for {} pieces", format_size(bytes), markers.pieces());
    if found.is_empty() {
        return format!("{looked}; none found\n");
    }
    let mut table = Table::new("offset> bytes> marker< place<");
    for Found { offset, bytes, marker, place } in found {
        table.cells(&[offset, bytes, &names[*marker as usize], &place.in_words()]);
    }
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    format!("{looked}\n{table}{rest}")
}

fn as_json(
    image: &str,
    bytes: u64,
    markers: &Markers,
    names: &[String],
    found: &[Found],
    more: u64,
) -> Value {
    let place = |found: &Found| {
        let mut value = json!({
            "offset": found.offset,
            "bytes": found.bytes,
            "marker": names[found.marker as usize],
        });
        found.place.add_to(&mut value);
        value
    };
    json!({
        "image": image,
        "bytes": bytes,
        "pieces": markers.pieces(),
        "clean": found.is_empty(),
        "found": found.iter().map(place).collect::<Vec<_>>(),
        "more_found": more,
    })
}
