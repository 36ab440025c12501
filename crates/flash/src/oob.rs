//! The out-of-band bytes of a page: those of the monitor, those of the application, and the tag of the data.
//!
//! ```text
//!  mark 1 | form of the tag 1 | 0 2 | the application's ............................ | tag 20 | crc 4
//!           0: there is none, and the application has the bytes to the end
//! ```
//!
//! A tag that says nothing ([`Tag::default`]) is not stored: who gives none programs what he did without tags, and has all
//! bytes. Every level and the monitor move a page with its tag.

use crate::address::GrantPage;
use crate::error::LevelError;
use weft_core::Tag;
use weft_core::checksum::crc32c;

/// Out-of-band bytes of each page that the monitor keeps for itself: they come first.
pub const MONITOR_OOB_BYTES: u32 = 4;
/// Out-of-band bytes that the tag of a page takes, if it has one: they come last.
pub const TAG_OOB_BYTES: u32 = Tag::ENCODED_BYTES as u32 + 4;

/// The application's bytes begin here.
pub(crate) const MARK: usize = MONITOR_OOB_BYTES as usize;
/// Which of the monitor's bytes says how the tag is stored.
const FORM_AT: usize = 1;
/// The only form of a tag.
const FORM: u8 = 1;

/// The tag in the out-of-band bytes of a page, all of them: what a [`Backend`](crate::Backend) reads that lays data by its tag.
/// `None` when what is there is damaged, or has a form that is not known.
pub fn tag_in(oob: &[u8]) -> Option<Tag> {
    let at = oob.len().checked_sub(TAG_OOB_BYTES as usize)?;
    match oob[FORM_AT] {
        0 => Some(Tag::default()),
        FORM => {
            let (tag, crc) = oob[at..].split_first_chunk()?;
            (crc32c(tag).to_le_bytes() == crc).then(|| Tag::decode(tag)).flatten()
        }
        _ => None,
    }
}

/// Out-of-band bytes to program, after so many of the application's, on a page with room for `room` of them.
///
/// [`LevelError::WrongLength`] when that is too little for them and the tag.
pub(crate) fn bytes_for(page: GrantPage, given: usize, tag: Tag, room: u32) -> Result<usize, LevelError> {
    let is_tagged = tag != Tag::default();
    let (what, taken) = match is_tagged {
        true => ("out-of-band bytes with a tag", TAG_OOB_BYTES as usize),
        false => ("out-of-band bytes", 0),
    };
    check_most(page, what, given + taken, room)?;
    Ok(MARK + if is_tagged { room as usize } else { given })
}

/// Fills out-of-band bytes, which are zeros and as many as [`bytes_for`] says.
pub(crate) fn fill(raw: &mut [u8], given: &[u8], tag: Tag) {
    raw[MARK..MARK + given.len()].copy_from_slice(given);
    if tag != Tag::default() {
        raw[FORM_AT] = FORM;
        let at = raw.len() - TAG_OOB_BYTES as usize;
        let (raw_tag, crc) = raw[at..].split_at_mut(Tag::ENCODED_BYTES);
        raw_tag.copy_from_slice(&tag.encode());
        crc.copy_from_slice(&crc32c(raw_tag).to_le_bytes());
    }
}

/// Takes the application's out-of-band bytes out of the first ones of a page, which has room for `room` of them.
pub(crate) fn take(raw: &[u8], out: &mut [u8], room: u32) {
    out.copy_from_slice(&raw[MARK..MARK + out.len()]);
    if raw[FORM_AT] != 0 {
        let end = room.saturating_sub(TAG_OOB_BYTES) as usize;
        out.iter_mut().skip(end).for_each(|byte| *byte = 0);
    }
}

/// The tag for the copy of a page. That of a damaged one says nothing: its data is worth keeping without.
pub(crate) fn tag_for_copy(page: GrantPage, found: Option<Tag>) -> Tag {
    found.unwrap_or_else(|| {
        tracing::warn!(%page, "a page is copied without its tag, which is damaged");
        Tag::default()
    })
}

/// Refuses a buffer that is too long.
pub(crate) fn check_most(
    address: GrantPage,
    what: &'static str,
    given: usize,
    most: u32,
) -> Result<(), LevelError> {
    let wanted = most as usize;
    if given > wanted {
        return Err(LevelError::WrongLength { address, what, given, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{DataClass, TagFlags};

    const ROOM: u32 = 60;

    #[test]
    fn a_tag_is_read_back_beside_the_bytes_of_the_application_and_a_changed_one_is_not() {
        let tag = Tag { class: DataClass::Log, owner: 7, flags: TagFlags::SECURE_DELETE, ..Tag::default() };
        let page = GrantPage::default();
        let given = [9; 36];
        let mut raw = vec![0; bytes_for(page, given.len(), tag, ROOM).unwrap()];
        fill(&mut raw, &given, tag);
        assert_eq!(tag_in(&raw), Some(tag));
        let mut out = [1; ROOM as usize];
        take(&raw, &mut out, ROOM);
        assert_eq!((&out[..36], &out[36..]), (&given[..], &[0; 24][..]));
        for at in [1].into_iter().chain(40..64) {
            let mut changed = raw.clone();
            changed[at] ^= 2;
            assert_eq!(tag_in(&changed), None, "{at}");
        }
        assert!(bytes_for(page, 37, tag, ROOM).is_err());
    }

    #[test]
    fn without_a_tag_nothing_is_added() {
        let none = Tag::default();
        assert_eq!(bytes_for(GrantPage::default(), 60, none, ROOM).unwrap(), 64);
        let mut raw = vec![0; bytes_for(GrantPage::default(), 3, none, ROOM).unwrap()];
        fill(&mut raw, &[5; 3], none);
        assert_eq!(raw, [0, 0, 0, 0, 5, 5, 5]);
        raw.resize(64, 5);
        assert_eq!(tag_in(&raw), Some(none));
        let mut out = [0; ROOM as usize];
        take(&raw, &mut out, ROOM);
        assert_eq!(out, [5; ROOM as usize]);
    }
}
