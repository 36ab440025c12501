//! The state of the library across a fork.

use crate::descriptors::limit;
use crate::mapping::pages::{self, Held};
use crate::process::{self, identity};
use crate::report::{Refusal, refuse};
use crate::sys;
use libc::{c_int, c_void, pid_t};
use weft_client::{Child, Client, Errno, ForkTicket, scratch};

/// What a child that is about to be forked gets.
pub struct Ticket {
    /// Its connection: `None` when its parent has none.
    connection: Option<(&'static Client, Result<ForkTicket, Errno>)>,
    /// Changes of identity that the connection knows of.
    changes: u32,
    /// Its hold on the pages of maps.
    held: Result<Option<Held>, Errno>,
    /// The thread that forks.
    thread: usize,
    /// The limit on the number of descriptors.
    limit: limit::SavedLimit,
}

impl Ticket {
    /// Whether the child will be able to use the volume. One that could not would get an error for everything, for good; a
    /// program that cannot fork knows what to do.
    fn is_whole(&self) -> bool {
        let connection = self.connection.as_ref().and_then(|(_, made)| made.as_ref().err());
        let scarce = |error: &Errno| matches!(*error, libc::EMFILE | libc::ENFILE | libc::ENOMEM);
        !connection.is_some_and(scarce) && !self.held.as_ref().err().is_some_and(scarce)
    }
}

/// Whether a child that `clone` makes can share what it wants. What descriptors lead to weft files lies in memory, so that the
/// memory and the kernel's table of descriptors are shared together or not at all. A child that shares its parent's
/// memory until it executes a program gets its own.
pub fn check_sharing(flags: c_int) -> Result<(), Errno> {
    let until_exec = flags & libc::CLONE_VFORK != 0 && flags & libc::CLONE_THREAD == 0;
    let memory = flags & libc::CLONE_VM != 0;
    let alike =
        if until_exec { flags & libc::CLONE_FILES == 0 } else { memory == (flags & libc::CLONE_FILES != 0) };
    if alike { Ok(()) } else { Err(refuse(Refusal::SharedDescriptors)) }
}

/// Before a thread is made with these flags of `clone`: one without thread-local memory of its own uses that of its maker.
pub fn before_thread(flags: c_int) {
    if flags & libc::CLONE_VM != 0 && flags & (libc::CLONE_SETTLS | libc::CLONE_VFORK) == 0 {
        weft_client::busy::share_thread_memory();
    }
}

/// What `unshare` may give the calling thread for itself of what the process has once: descriptors, working directory and mask.
const PARTED: c_int = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_NEWNS;

/// Whether `unshare` with these flags is possible. What would be the calling thread's own is, when it is the process's only one.
pub fn check_unshare(flags: c_int) -> Result<(), Errno> {
    if flags & PARTED != 0 { check_parting() } else { Ok(()) }
}

/// Whether the calling thread can have a table of descriptors of its own: when it is the process's only one, it has.
pub fn check_parting() -> Result<(), Errno> {
    match weft_client::sys::thread_count() {
        Some(1) => Ok(()),
        _ => Err(refuse(Refusal::SharedDescriptors)),
    }
}

/// A fork that is not made: for want of descriptors or memory, as the kernel's.
fn no_child() -> c_int {
    sys::set_errno(libc::EAGAIN);
    -1
}

/// Before a fork.
pub fn prepare() -> Ticket {
    let held = limit::with_descriptors(pages::before_fork);
    // Before the connection is made: a change meanwhile is reported once more.
    let changes = identity::changes();
    let client = process::connection().map(|(client, _)| client);
    Ticket {
        connection: client
            .map(|client| (client, limit::with_descriptors(|| client.prepare_child(Child::Forked)))),
        changes,
        held,
        thread: scratch::thread(),
        limit: limit::note(),
    }
}

/// Forks by `make`; parent and child each go on with a connection of their own.
pub fn fork(make: impl FnOnce() -> pid_t) -> pid_t {
    let ticket = prepare();
    let pid = if ticket.is_whole() { make() } else { no_child() };
    if pid == 0 {
        in_child(ticket);
    } else {
        in_parent(ticket);
    }
    pid
}

/// In the parent, or when there is no child.
pub fn in_parent(ticket: Ticket) {
    let error = sys::errno();
    if let Some((client, Ok(ticket))) = ticket.connection {
        client.forget(ticket);
    }
    if let Ok(Some(held)) = ticket.held {
        held.let_go();
    }
    sys::set_errno(error);
}

/// In the child, before anything else.
pub fn in_child(ticket: Ticket) {
    crate::interception::dispatch::arm();
    limit::restore(&ticket.limit);
    process::open_locks();
    crate::descriptors::blank::open_locks();
    crate::hooks::spawn::open_locks();
    crate::mapping::copies::open_locks();
    crate::file::requests::in_child();
    crate::file::batch::in_child();
    match ticket.connection {
        None => process::disown(),
        // Nor with pages that others may take for given up.
        Some(_) if ticket.held.is_err() => process::orphan(),
        Some((client, Ok(connection))) => {
            process::adopt(client, connection);
            identity::catch_up(ticket.changes);
        }
        // Without a connection of its own the child must not use its parent's.
        Some((_, Err(_))) => process::orphan(),
    }
    pages::after_fork(ticket.held.ok().flatten());
    scratch::forget_other_threads(ticket.thread);
}

/// What a child that `clone` starts on a stack of its own runs.
pub type Entry = unsafe extern "C" fn(*mut c_void) -> c_int;

struct Start {
    function: Entry,
    argument: *mut c_void,
    ticket: Option<Ticket>,
}

unsafe extern "C" fn run_child(start: *mut c_void) -> c_int {
    // SAFETY: this process's own copy of what `clone_by` prepared, which nobody else uses.
    let start = unsafe { &mut *start.cast::<Start>() };
    if let Some(ticket) = start.ticket.take() {
        in_child(ticket);
    }
    // SAFETY: the program's own function.
    unsafe { (start.function)(start.argument) }
}

/// Clones by `make`, which gets the function and argument to start the child with. The child has memory of its own.
pub fn clone_by(
    function: Entry,
    argument: *mut c_void,
    make: impl FnOnce(Entry, *mut c_void) -> c_int,
) -> c_int {
    let ticket = prepare();
    let whole = ticket.is_whole();
    let mut start = Start { function, argument, ticket: Some(ticket) };
    // The child's copy of this stack frame has what it needs.
    let pid = if whole { make(run_child, (&raw mut start).cast()) } else { no_child() };
    if let Some(ticket) = start.ticket.take() {
        in_parent(ticket);
    }
    pid
}
