//! The suite turns red: each fault that is put into a core is found by the property that is there for it.

#![allow(clippy::expect_used)]

mod broken;

use broken::{Broken, Fault};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use weft_conformance::{Property, properties};
use weft_vfs::MemFs;

fn is_proved(property: &Property, fault: Fault) -> bool {
    let make = || -> Box<dyn weft_vfs::FileSystem> { Box::new(Broken::new(Arc::new(MemFs::new()), fault)) };
    catch_unwind(AssertUnwindSafe(|| (property.prove)(&make))).is_ok()
}

fn property(name: &str) -> &'static Property {
    properties().iter().find(|property| property.name == name).expect(name)
}

#[test]
fn each_fault_is_found_by_the_property_that_is_there_for_it() {
    let found_by = [
        (Fault::ReadPastEnd, "content::a_read_stops_at_the_end_of_the_file"),
        (Fault::WriteThroughShort, "content::write_through_is_read_like_write"),
        (Fault::TruncateKeepsTail, "ranges::truncate_down_then_up_shows_zeros"),
        (Fault::NoReplaceReplaces, "rename::no_replace_keeps_what_has_the_name"),
        (Fault::ExchangeReplaces, "rename::exchange_swaps_two_names"),
        (Fault::OpenIsNotCounted, "open_files::an_unlinked_open_file_lives_until_it_is_released"),
        (Fault::CookiesArePositions, "listing::a_cookie_outlives_its_entry"),
        (Fault::CookiesArePositions, "listing::later_entries_come_behind_the_newest_cookie"),
        (Fault::CookiesArePositions, "listing::a_listing_shows_what_stays_once_while_others_come_and_go"),
        (Fault::ReplacedNamesMove, "listing::a_name_that_gets_another_inode_keeps_its_cookie"),
        (Fault::ReplacedNamesMove, "listing::a_listing_shows_once_what_is_replaced_meanwhile"),
        (
            Fault::CookiesArePositions,
            "scale::a_directory_of_5000_entries_is_listed_while_entries_are_deleted",
        ),
        (Fault::NamesAreCut, "names::names_have_up_to_255_bytes"),
        (Fault::XattrCreateReplaces, "attributes::xattr_modes_refuse_to_replace_or_to_create"),
        (Fault::SeekSkipsData, "ranges::what_seek_calls_a_hole_is_zeros"),
        (Fault::WriteKeepsMtime, "attributes::a_change_of_the_content_sets_mtime_and_ctime"),
        (Fault::LateWritesAreNew, "attributes::what_comes_late_changed_the_file_when_it_was_written"),
        (Fault::PunchIsTooLong, "ranges::punch_hole_makes_its_range_zeros"),
        (Fault::CollapseUnaligned, "ranges::collapse_and_insert_refuse_what_they_cannot_do"),
        (Fault::Offsets32Bits, "content::offsets_are_64_bits_wide"),
        (Fault::NotEmptyIsExists, "names::rmdir_refuses_a_directory_that_is_not_empty"),
        (Fault::LinksAreNotCounted, "links::a_hard_link_is_one_more_name_of_the_same_inode"),
        (Fault::TornWrites, "concurrency::a_write_of_one_block_is_seen_whole_or_not_at_all"),
        (Fault::EmptyWriteExtends, "content::a_write_of_nothing_changes_nothing"),
        (Fault::AnythingIsLinkable, "open_files::a_file_that_has_lost_its_names_gets_none_again"),
        (Fault::ParentIsStale, "rename::a_directory_moves_with_all_that_is_in_it"),
    ];
    for (fault, name) in found_by {
        assert!(is_proved(property(name), Fault::None), "{name} holds without a fault");
        assert!(!is_proved(property(name), fault), "{name} does not see {fault:?}");
    }
}

#[test]
fn every_public_property_is_in_the_list() {
    let sources = [
        ("attributes", include_str!("../src/attributes.rs")),
        ("concurrency", include_str!("../src/concurrency.rs")),
        ("content", include_str!("../src/content.rs")),
        ("links", include_str!("../src/links.rs")),
        ("listing", include_str!("../src/listing.rs")),
        ("names", include_str!("../src/names.rs")),
        ("open_files", include_str!("../src/open_files.rs")),
        ("ranges", include_str!("../src/ranges.rs")),
        ("rename", include_str!("../src/rename.rs")),
        ("scale", include_str!("../src/scale.rs")),
        ("space", include_str!("../src/space.rs")),
    ];
    let mut written: Vec<String> = Vec::new();
    for (module, source) in sources {
        let names =
            source.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split_once("(make: Make<'_>)"));
        written.extend(names.map(|(name, _)| format!("{module}::{name}")));
    }
    let mut listed: Vec<&str> = properties().iter().map(|property| property.name).collect();
    written.sort();
    listed.sort();
    assert_eq!(written, listed);
}
