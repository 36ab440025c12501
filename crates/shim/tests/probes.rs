//! What libc calls do on a volume is what they do natively: C probes print what they see, once in a directory of the native
//! file system, once there with the library preloaded, once on a volume; the outputs are equal.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;
use support::{Served, can_build, clear, difference, library, native, probe, run, said};

fn without_a_server(name: &str) {
    if !can_build(name) {
        return;
    }
    let program = probe(name);
    let dir = native();
    let plain = said(&run(Command::new(&program).arg(dir.path())));
    clear(dir.path());
    let preloaded = said(&run(Command::new(&program).arg(dir.path()).env("LD_PRELOAD", library())));
    assert_eq!(difference(&plain, &preloaded), None, "{name} with the library alone");
    // Weft is on, but the path is not its.
    clear(dir.path());
    let mut command = Command::new(&program);
    command.arg(dir.path()).env("LD_PRELOAD", library()).env("WEFT_SOCKET", "/nonexistent/weft.sock");
    let on = said(&run(&mut command));
    assert_eq!(difference(&plain, &on), None, "{name} with weft on elsewhere");
}

fn on_a_volume(name: &str, leases: bool) {
    if !can_build(name) {
        return;
    }
    let program = probe(name);
    let dir = native();
    let plain = native_run(&program, dir.path());
    let served = Served::new(leases);
    let weft = volume_run(&served, &program, "/weft");
    assert_eq!(difference(&plain, &weft), None, "{name} on a volume, leases: {leases}");
    assert!(served.is_idle_soon(), "{name} leaves connections behind");
    // And below a directory, which makes paths of another depth.
    std::fs::create_dir_all(dir.path().join("p/q")).unwrap();
    let plain = native_run(&program, &dir.path().join("p/q"));
    served.shell("mkdir -p /weft/p/q");
    let weft = volume_run(&served, &program, "/weft/p/q");
    assert_eq!(difference(&plain, &weft), None, "{name} in a directory of a volume, leases: {leases}");
}

fn native_run(program: &Path, dir: &Path) -> String {
    said(&run(Command::new(program).arg(dir))).replace(dir.to_str().unwrap(), "ROOT")
}

fn volume_run(served: &Served, program: &Path, dir: &str) -> String {
    said(&run(served.command(program).arg(dir))).replace(dir, "ROOT")
}

macro_rules! probes {
    ($($name:ident: $sentence:ident,)*) => {
        mod passed_through_unchanged {
            $(#[test] fn $sentence() { super::without_a_server(stringify!($name)); })*
        }
        mod as_on_the_native_file_system {
            $(#[test] fn $sentence() { super::on_a_volume(stringify!($name), true); })*
        }
        mod as_on_the_native_file_system_without_leases {
            $(#[test] fn $sentence() { super::on_a_volume(stringify!($name), false); })*
        }
    };
}

probes! {
    address_space: limits_on_the_address_space_leave_room,
    aio: asynchronous_requests_are_done_and_told,
    at: paths_lead_where_they_should,
    attributes: attributes_are_kept_and_told,
    cancel: a_cancelled_thread_ends,
    children: children_of_all_kinds_see_the_volume,
    close: descriptors_are_opened_duplicated_and_closed,
    crowded: with_all_descriptors_in_use_programs_fork_and_map,
    directory: directories_are_listed_and_walked,
    directory_of_work: the_working_directory_is_followed,
    errors: of_several_errors_the_same_comes_first,
    fifo: named_pipes_join_processes,
    found: what_random_sequences_found_stays_fixed,
    identity: whoever_a_process_becomes_has_that_ones_rights,
    jumps: handlers_leave_calls_and_make_their_own,
    links: links_of_proc_lead_to_open_files_and_the_working_directory,
    limits: the_limit_on_the_size_of_files_is_kept,
    lock_waits: whoever_waits_for_a_lock_can_be_interrupted,
    libaio: requests_of_the_kernels_asynchronous_io_are_done,
    locks: locks_exclude_whom_they_should,
    map: files_are_mapped,
    moved: open_files_and_directories_know_their_paths_after_renames,
    own_handle: functions_of_a_librarys_own_handle_see_the_volume,
    own_loader: a_program_with_functions_of_the_loader_starts,
    pass: descriptors_are_passed_in_messages,
    print: text_is_printed_to_descriptors,
    process: children_and_executed_programs_inherit,
    replaced: a_name_that_is_replaced_is_there_all_the_time,
    sockets: sockets_are_found_by_their_names,
    spawn: spawned_programs_are_found_and_get_what_they_are_handed,
    splice: bytes_move_between_files_and_pipes,
    stamps: times_never_go_back,
    stopped: writers_that_are_stopped_leave_whole_records_and_nobody_waits,
    stdio: streams_read_and_write,
    wide: wide_characters_are_read_and_written,
    walk: trees_are_walked_by_libc_as_elsewhere,
    vectored: all_forms_of_reading_and_writing_agree,
}

#[test]
fn requests_of_the_kernels_asynchronous_io_are_done_where_calls_are_intercepted() {
    for name in ["libaio", "libaio-static"] {
        if !can_build(name) {
            continue;
        }
        let program = probe(name);
        let dir = native();
        let plain = native_run(&program, dir.path());
        let served = Served::new(true);
        let mut command = served.command(&program);
        let weft = said(&run(command.arg("/weft").env("WEFT_INTERCEPT", "sud"))).replace("/weft", "ROOT");
        assert_eq!(difference(&plain, &weft), None, "{name}");
    }
}
