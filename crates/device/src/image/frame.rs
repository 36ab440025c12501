//! The frame of an image, which those of all devices have: the pages before the data, their second copy behind it, and
//! the lock of the file.

use super::header::{PAGE_BYTES, SESSION_OFFSET, Session};
use super::slot::{Content, TornSlots};
use super::spare::Spare;
use super::table::{Record, Table};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weft_sys::file::{LockedFile, boot_id};
use weft_sys::syncs::Syncs;

/// Why an image without a session page is refused.
pub const NO_SESSION: &str =
    "the checksum of the session page does not match: the image is damaged; restore it";

/// How an image was last used, as its session pages say.
#[derive(Clone, Copy, Debug)]
pub struct LastUse {
    /// How often the image had been opened.
    pub opens: u64,
    /// Whether it was closed.
    pub closed: bool,
    /// Whether the host went down meanwhile.
    pub host_crashed: bool,
    /// Whether the copy of the records is that of the image as it was closed.
    spare_counts: bool,
}

impl LastUse {
    /// Reads the session pages; `None` when both are damaged.
    pub fn read(file: &File, spare: &Spare) -> Option<LastUse> {
        let sessions = [SESSION_OFFSET, spare.session()].map(|place| {
            let mut page = vec![0u8; PAGE_BYTES];
            file.read_exact_at(&mut page, place).ok()?;
            Session::decode(&page)
        });
        // A crash of the host may have caught the two between: an opening that is in one of them took place.
        let newest = sessions.iter().flatten().max_by_key(|session| (session.opens, !session.clean));
        let last = *newest?;
        Some(LastUse {
            opens: last.opens,
            closed: last.clean,
            host_crashed: !last.clean && boot_id() != Some(last.boot),
            spare_counts: last.clean && sessions.iter().flatten().all(|session| *session == last),
        })
    }

    /// How records may be read.
    pub fn torn_slots(&self) -> TornSlots {
        if self.host_crashed { TornSlots::TakeOther } else { TornSlots::Refuse }
    }
}

/// The frame of an open image.
#[derive(Debug)]
pub struct Frame {
    /// The records. Before the file, so that they are unmapped before the lock goes.
    pub table: Table,
    /// The file, locked.
    pub file: LockedFile,
    syncs: Syncs,
    spare: Spare,
    /// Whether the copy of the records counts; see [`LastUse`].
    spare_counts: bool,
    /// How the image is being used.
    pub session: Session,
}

impl Frame {
    /// The frame of an image with this id and so many records beside the counters. Of an image without a last use, which is
    /// new, all bytes are zero. The records of one that is only looked at change for this process alone.
    pub fn new(
        file: LockedFile,
        id: [u8; 16],
        records: u64,
        spare: Spare,
        last: Option<&LastUse>,
        look: bool,
    ) -> io::Result<Frame> {
        let left = last.is_some_and(|last| !last.closed);
        let table = if look {
            Table::map_private(&file, id, records)?
        } else {
            Table::map(&file, id, records, left)?
        };
        let opens = last.map_or(1, |last| last.opens.wrapping_add(1));
        let syncs = Syncs::of(&file)?;
        Ok(Frame {
            table,
            file,
            syncs,
            spare,
            spare_counts: last.is_some_and(|last| last.spare_counts),
            session: Session { clean: false, boot: boot_id().unwrap_or_default(), opens },
        })
    }

    /// Makes what was written to the file durable. After the first error, each sync fails.
    pub fn sync_data(&self) -> io::Result<()> {
        self.syncs.sync_data()
    }

    /// A record from its second copy. That of the counters may be older than the image; others are taken only of an image
    /// that was closed since.
    pub fn spare_record(&self, record: Record) -> Option<Content> {
        let counts = self.spare_counts || record == Record::Counters;
        let words = self.spare.record(&self.file, record).filter(|_| counts)?;
        self.table.read_copy(record, &words)
    }

    /// Writes the header page to both places, its own last: a file whose making was interrupted has no magic at its start.
    pub fn write_header(&self, page: &[u8]) -> io::Result<()> {
        self.write_twice([self.spare.header(), 0], page)
    }

    /// Writes down that the image is in use under this boot.
    pub fn begin_session(&self) -> io::Result<()> {
        self.write_twice([self.spare.session(), SESSION_OFFSET], &self.session.encode())
    }

    /// Copies the records, makes everything durable with `sync`, and writes down that the image is no longer in use.
    pub fn end_session(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Before any session page says that the copy is that of the table, it has to be.
        self.spare.copy_records(&self.file, self.table.words())?;
        sync()?;
        let closed = Session { clean: true, ..self.session };
        self.write_twice([self.spare.session(), SESSION_OFFSET], &closed.encode())
    }

    fn write_twice(&self, places: [u64; 2], page: &[u8]) -> io::Result<()> {
        places.iter().try_for_each(|place| self.file.write_all_at(page, *place))
    }
}
