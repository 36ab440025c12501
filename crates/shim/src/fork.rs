//! What a fork does to this library's state.

use crate::{process, sys};
use libc::pid_t;
use weft_client::{Child, Client, Errno, ForkTicket};

type Ticket = Option<(&'static Client, Result<ForkTicket, Errno>)>;

/// Forks by `make`; parent and child each go on with a connection of their own.
pub fn fork(make: impl FnOnce() -> pid_t) -> pid_t {
    let ticket: Ticket = if process::is_connected() {
        process::client().ok().map(|client| (client, client.prepare_child(Child::Forked)))
    } else {
        None
    };
    let pid = make();
    if pid == 0 {
        in_child(ticket);
    } else if let Some((client, Ok(ticket))) = ticket {
        let error = sys::errno();
        client.forget(ticket);
        sys::set_errno(error);
    }
    pid
}

fn in_child(ticket: Ticket) {
    process::open_locks();
    crate::hooks::spawn::open_locks();
    crate::mapping::copies::open_locks();
    match ticket {
        None => {}
        Some((client, Ok(ticket))) => {
            process::release_own_descriptors(client);
            client.adopt(ticket);
            process::guard_own_descriptors(client);
        }
        // Without a connection of its own the child must not use its parent's.
        Some((_, Err(_))) => process::orphan(),
    }
    crate::mapping::pages::after_fork();
}
