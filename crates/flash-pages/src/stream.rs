//! Which stream of the flash a page goes to: a policy without state.

use weft_core::{DataClass, LifetimeGroup, Origin, StreamId, Tag, TagFlags};

/// What decides which stream a page of the store goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StreamChoice {
    /// Checkpoints, the journal, and pages by class and by secure deletion have a stream each.
    #[default]
    ByTag,
    /// Everything goes to one stream, as on a drive that knows nothing of tags: the baseline of measurements. Tags still reach the
    /// out-of-band bytes.
    One,
}

/// First stream of pages; before it are those of the store itself.
const PAGES: u16 = 2;

impl StreamChoice {
    /// The tag with its stream.
    pub fn place(self, tag: &Tag) -> Tag {
        let stream = match self {
            StreamChoice::One => 0,
            StreamChoice::ByTag => stream_of(tag),
        };
        // An expected death would part streams once more; the store has none to tell.
        Tag { stream: StreamId(stream), group: LifetimeGroup(0), death: 0, ..*tag }
    }
}

/// 0: checkpoints; 1: the journal; from 2 on pages, two for each class: those that are erased when they die apart.
fn stream_of(tag: &Tag) -> u16 {
    match (tag.origin, tag.class) {
        (Origin::Metadata, DataClass::Log) => 1,
        (Origin::Metadata, _) => 0,
        (_, class) => PAGES + 2 * class as u16 + u16::from(tag.flags.contains(TagFlags::SECURE_DELETE)),
    }
}

/// Open blocks at the function level: six for kinds of new data, two for what is moved.
pub(crate) const FRONTS: usize = 8;
const MOVED: usize = 6;
const MOVED_SECURE: usize = 7;
const SECURE: usize = 5;

/// The front of a page whose tag was [placed](StreamChoice::place). There are fewer than streams: classes that die alike share one.
pub(crate) fn front_of(placed: &Tag) -> usize {
    match placed.stream.0 {
        stream if stream < PAGES => usize::from(stream),
        stream if (stream - PAGES) % 2 == 1 => SECURE,
        _ => match placed.class {
            DataClass::Unknown | DataClass::Metadata | DataClass::Small => 2,
            DataClass::Log | DataClass::InPlace | DataClass::Temporary => 3,
            DataClass::Immutable => 4,
        },
    }
}

/// The front that pages of a front are moved to. What is to be erased stays among its like.
pub(crate) fn relocation_of(front: usize) -> usize {
    if matches!(front, SECURE | MOVED_SECURE) { MOVED_SECURE } else { MOVED }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::collections::BTreeSet;
    use weft_tags::JOURNAL_TAG;

    #[test]
    fn what_differs_in_class_or_fate_has_streams_of_its_own_and_owners_share_them() {
        let mut streams =
            BTreeSet::from([Tag::METADATA, JOURNAL_TAG].map(|tag| StreamChoice::ByTag.place(&tag).stream.0));
        let classes: Vec<DataClass> = DataClass::all().collect();
        for class in &classes {
            for flags in [TagFlags::empty(), TagFlags::SECURE_DELETE] {
                let tag = Tag { class: *class, flags, ..Tag::default() };
                let placed = StreamChoice::ByTag.place(&tag);
                streams.insert(placed.stream.0);
                assert_eq!(Tag { stream: tag.stream, ..placed }, tag, "nothing else is changed");
                assert_eq!(StreamChoice::ByTag.place(&Tag { owner: 7, ..tag }).stream, placed.stream);
                assert_eq!(StreamChoice::ByTag.place(&tag.relocated()).stream, placed.stream);
                assert_eq!(StreamChoice::One.place(&tag).stream, StreamId(0));
            }
        }
        assert_eq!(streams.len(), 2 + 2 * classes.len());
    }
}
