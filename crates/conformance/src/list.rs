//! The one list of all properties, from which both [`run_all`](super::run_all) and
//! [`conformance_tests!`](crate::conformance_tests) are made.

use super::Property;

/// Hands the list to another macro of this crate: `[context] module { property ... } ...`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_list {
    ($callback:ident $($context:tt)*) => {
        $crate::$callback! {
            [$($context)*]
            names {
                the_root_is_a_directory_that_is_its_own_parent
                a_new_volume_is_empty
                a_missing_name_is_not_found
                a_created_file_is_found_by_its_name
                a_new_file_has_the_attributes_it_was_created_with
                different_names_are_different_inodes
                a_taken_name_cannot_be_created_again
                only_directories_have_entries
                a_new_directory_is_empty_and_knows_its_parent
                a_directory_has_a_link_from_each_subdirectory
                dot_and_dot_dot_are_not_entries
                names_are_bytes
                names_have_up_to_255_bytes
                unlink_removes_the_name_and_the_inode
                unlink_refuses_directories
                rmdir_refuses_what_is_no_directory
                rmdir_refuses_a_directory_that_is_not_empty
                a_removed_directory_takes_no_new_names
                a_symlink_gives_back_its_target
                readlink_refuses_what_is_no_symlink
                special_files_keep_their_kind_and_device_number
                an_inode_that_is_gone_is_stale
            }
            links {
                a_hard_link_is_one_more_name_of_the_same_inode
                hard_links_share_content_and_attributes
                an_inode_lives_until_its_last_name_goes
                a_link_does_not_replace
                a_directory_cannot_be_linked
                symlinks_and_special_files_can_be_linked
                a_file_has_up_to_65000_names
            }
            rename {
                a_renamed_file_is_the_same_inode
                a_file_moves_to_another_directory
                a_directory_moves_with_all_that_is_in_it
                a_rename_replaces_the_file_that_had_the_name
                a_replaced_file_keeps_its_other_names
                a_file_that_is_replaced_while_open_stays_readable
                renaming_a_missing_name_is_not_found
                a_rename_is_between_directories
                renaming_a_name_to_itself_changes_nothing
                renaming_one_hard_link_to_another_changes_nothing
                a_directory_replaces_an_empty_directory
                replacing_a_sibling_directory_drops_a_link_of_the_parent
                a_directory_that_is_not_empty_is_not_replaced
                files_and_directories_do_not_replace_each_other
                a_rename_replaces_a_symlink_itself
                a_directory_does_not_move_below_itself
                a_rename_does_not_replace_a_directory_above
                no_replace_keeps_what_has_the_name
                exchange_swaps_two_names
                exchange_of_a_file_and_a_directory_moves_the_link_count
                exchange_with_a_missing_name_is_not_found
                exchange_does_not_move_a_directory_below_itself
                no_replace_and_exchange_exclude_each_other
                a_rename_leaves_a_whiteout
                a_replaced_name_is_never_missing
            }
            listing {
                a_listing_shows_each_entry_once_with_inode_and_kind
                cookies_are_distinct_and_in_range
                later_entries_come_behind_the_newest_cookie
                a_listing_stops_when_it_is_told_to
                a_listing_continues_after_a_cookie
                a_cookie_outlives_its_entry
                a_listing_shows_what_stays_once_while_others_come_and_go
                a_name_that_gets_another_inode_keeps_its_cookie
                a_listing_shows_once_what_is_replaced_meanwhile
                a_directory_is_emptied_while_it_is_listed
                a_listing_past_the_end_is_empty
            }
            content {
                an_empty_file_reads_as_nothing
                what_is_written_is_read
                a_read_stops_at_the_end_of_the_file
                a_write_of_nothing_changes_nothing
                an_overwrite_replaces_exactly_its_bytes
                an_in_place_overwrite_shows_the_last_version
                unaligned_overlapping_writes_leave_the_last_bytes
                small_appends_follow_one_another
                a_write_past_the_end_leaves_zeros
                offsets_are_64_bits_wide
                sparse_files_reach_8_tebibytes
                what_is_past_the_largest_size_is_too_large
                only_files_have_content
                write_through_is_read_like_write
                mixtures_of_writes_give_the_same_content
                syncing_changes_nothing_that_can_be_seen
                one_read_spans_stored_buffered_and_missing_parts
                files_written_in_turns_keep_their_own_bytes
                a_large_file_is_read_back
            }
            ranges {
                truncate_down_keeps_what_is_before
                truncate_up_shows_zeros
                truncate_down_then_up_shows_zeros
                a_write_after_a_cut_within_a_block_leaves_zeros_between
                appends_follow_a_truncate
                truncate_up_takes_no_space
                allocate_extends_and_keeps_content
                keep_size_changes_nothing_that_can_be_read
                punch_hole_makes_its_range_zeros
                zero_range_makes_its_range_zeros_and_extends
                zero_range_can_keep_the_size
                collapse_range_moves_the_rest_down
                insert_range_moves_the_rest_up
                collapse_and_insert_refuse_what_they_cannot_do
                fallocate_refuses_empty_and_endless_ranges
                insert_refuses_to_exceed_the_largest_size
                fallocate_is_for_files
                what_seek_calls_a_hole_is_zeros
                seek_ends_with_the_file
            }
            attributes {
                setattr_changes_what_it_is_told
                setattr_works_on_directories_and_symlinks
                times_are_kept_to_the_nanosecond
                access_and_modification_times_are_set_apart
                the_first_noted_read_after_a_change_sets_the_access_time
                a_new_node_has_the_times_of_its_creation
                a_change_of_the_content_sets_mtime_and_ctime
                reading_and_syncing_set_neither_mtime_nor_ctime
                writing_back_later_does_not_change_mtime
                what_comes_late_changed_the_file_when_it_was_written
                a_change_of_the_inode_sets_ctime_alone
                a_change_of_the_entries_sets_the_directorys_times
                a_given_mtime_wins_over_the_truncate_beside_it
                a_setattr_that_fails_changes_nothing
                blocks_count_the_space_of_the_data
                extended_attributes_come_back
                a_missing_extended_attribute_is_no_attribute
                xattr_modes_refuse_to_replace_or_to_create
                extended_attributes_have_up_to_64_kib
                an_inode_has_many_extended_attributes
                extended_attributes_belong_to_the_inode
                attributes_and_extended_ones_change_in_one_step
                an_inode_begins_with_extended_attributes
                marks_are_what_extended_attributes_say
                the_flag_of_secure_deletion_is_in_the_tag_whatever_sets_the_tag
                a_file_carries_its_tag
            }
            open_files {
                an_unlinked_open_file_lives_until_it_is_released
                each_open_takes_a_release
                a_released_file_with_a_name_stays
                a_file_can_be_created_open
                an_unlinked_open_file_and_its_successor_are_two
                an_unnamed_file_goes_when_it_is_released
                an_unnamed_file_can_be_given_a_name
                a_file_that_has_lost_its_names_gets_none_again
                many_unlinked_open_files_keep_their_own_bytes
            }
            scale {
                two_thousand_small_files_keep_their_content
                a_directory_of_5000_entries_is_listed_while_entries_are_deleted
                deep_trees_are_walked_and_removed
                a_name_is_made_and_removed_again_and_again
            }
            space {
                statfs_counts_free_space_within_the_total
                statfs_counts_inodes
                statfs_counts_the_space_of_data
                overwriting_a_file_takes_no_more_space
                cutting_and_regrowing_a_file_takes_no_more_space
                a_full_volume_refuses_writes_keeps_its_data_and_recovers
                what_is_allocated_counts_as_used_until_it_is_given_back
                an_allocation_that_does_not_fit_is_no_space_and_changes_nothing
                what_was_allocated_takes_its_data_on_a_full_volume
                a_full_volume_takes_every_overwrite
                what_is_allocated_is_a_hole_until_it_is_written
            }
            concurrency {
                threads_with_files_of_their_own_do_not_disturb_each_other
                threads_write_disjoint_ranges_of_one_file
                a_write_of_one_block_is_seen_whole_or_not_at_all
                a_reader_of_a_growing_file_sees_a_prefix
                one_of_several_creators_of_a_name_wins
                threads_share_a_directory
                concurrent_directory_moves_never_form_a_loop
                concurrent_links_are_counted
                a_file_is_unlinked_while_others_use_it
                syncing_beside_writers_loses_nothing
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_as_tests {
    ([$make:ident] $($module:ident { $($property:ident)* })*) => {
        $(
            mod $module {
                $(
                    #[test]
                    fn $property() {
                        $crate::$module::$property(&super::$make);
                    }
                )*
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_as_table {
    ([] $($module:ident { $($property:ident)* })*) => {
        &[$($(
            Property {
                name: concat!(stringify!($module), "::", stringify!($property)),
                prove: super::$module::$property,
            },
        )*)*]
    };
}

/// Makes a `#[test]` of every property. Takes the name of a function `fn() -> Box<dyn FileSystem>` in the module where
/// it stands, which gives an empty volume at each call.
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident) => {
        $crate::__conformance_list!(__conformance_as_tests $make);
    };
}

pub(super) const PROPERTIES: &[Property] = crate::__conformance_list!(__conformance_as_table);
