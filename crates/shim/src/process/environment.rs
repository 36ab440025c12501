//! The environment of a program that is about to be executed: `LD_PRELOAD` and the `WEFT_` variables stay in it even when
//! the caller passes another one, and the connection and working directory are handed over.
//!
//! The new array lies in memory of its own (no `malloc`: this runs in forked children), the strings that stay are the
//! caller's.

use crate::descriptors::{blank, table};
use crate::hooks::exec;
use crate::interception::dispatch;
use crate::owned::Memory;
use crate::process::{self, identity};
use crate::sys;
use crate::text::decimal;
use libc::c_char;
use std::ptr;
use weft_client::{Child, Client, Errno, FileRef, ForkTicket};

/// Room for the strings that are composed: preload list, socket, prefix, connection, directory.
const TEXT_BYTES: usize = 5 * 4096;
/// Variables that may be added.
const ADDED_MAX: usize = 6;

/// An environment, and the connection that goes with it.
pub struct Environment {
    memory: Memory,
    /// The connection for the program, when it inherits weft descriptors.
    ticket: Option<(&'static Client, ForkTicket)>,
}

struct Builder {
    array: *mut *const c_char,
    count: usize,
    text: *mut u8,
    text_left: usize,
}

impl Builder {
    fn keep(&mut self, entry: *const c_char) {
        // SAFETY: the array has room for every old entry, the added ones and the null.
        unsafe { *self.array.add(self.count) = entry };
        self.count += 1;
    }

    /// Adds `name=` followed by the parts.
    fn add(&mut self, name: &[u8], parts: &[&[u8]]) -> Result<(), Errno> {
        let start = self.text;
        for part in [name, b"="].iter().chain(parts).chain(&[&b"\0"[..]]) {
            if part.len() > self.text_left {
                return Err(libc::E2BIG);
            }
            // SAFETY: checked to fit.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), self.text, part.len());
                self.text = self.text.add(part.len());
            }
            self.text_left -= part.len();
        }
        self.keep(start.cast());
        Ok(())
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len().max(1)).any(|window| window == word)
}

/// Whether the program needs this process's connection: it inherits a weft descriptor, is in a directory of the volume, or may
/// not be able to make one of its own, after this process or its forebears have become somebody else. (Capabilities that open
/// the way to the socket now may end with the execution.)
fn inherits() -> bool {
    process::cwd().is_some()
        || identity::changes() > 0
        || !sys::may_connect(process::socket_path())
        || inherits_file(|file| !matches!(file, table::OWN | table::LOST))
}

/// Whether the program inherits a descriptor of such a file.
fn inherits_file(is_such: impl Fn(FileRef) -> bool) -> bool {
    let mut found = false;
    table::each(0, u32::MAX, |fd, file| {
        if !found && is_such(file) {
            found = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC == 0);
        }
    });
    found
}

impl Environment {
    /// Composes the environment, for the program that this process becomes, from the caller's.
    ///
    /// # Safety
    /// `given` is null or an array of C strings that ends with null, and lives as long as the result.
    pub unsafe fn new(given: *const *const c_char) -> Result<Environment, Errno> {
        // SAFETY: the caller's promise.
        unsafe { Self::compose(given, Child::Executed, false) }
    }

    /// The same for a program that another process will become; `inherits_more`: it gets weft descriptors that are
    /// close-on-exec here.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub unsafe fn for_child(given: *const *const c_char, inherits_more: bool) -> Result<Environment, Errno> {
        // SAFETY: the caller's promise.
        unsafe { Self::compose(given, Child::Spawned, inherits_more) }
    }

    unsafe fn compose(
        given: *const *const c_char,
        child: Child,
        inherits_more: bool,
    ) -> Result<Environment, Errno> {
        crate::mapping::pages::write_back_all();
        // SAFETY: the caller's promise.
        let count = unsafe { exec::count(given) };
        let array_bytes = (count + ADDED_MAX + 1) * size_of::<*const c_char>();
        let memory = Memory::new(array_bytes + TEXT_BYTES)?;
        // SAFETY: the text follows the array.
        let text = unsafe { memory.start::<u8>().add(array_bytes) };
        let mut builder = Builder { array: memory.start(), count: 0, text, text_left: TEXT_BYTES };
        let mut environment = Environment { memory, ticket: None };
        // SAFETY: as promised; the array just counted.
        unsafe { environment.fill(given, count, child, inherits_more, &mut builder)? };
        Ok(environment)
    }

    unsafe fn fill(
        &mut self,
        given: *const *const c_char,
        count: usize,
        child: Child,
        inherits_more: bool,
        builder: &mut Builder,
    ) -> Result<(), Errno> {
        let preload = match process::preload() {
            text if text.is_null() => None,
            // SAFETY: kept since start; `LD_PRELOAD=` is in front of the value.
            text => process::value_of(unsafe { sys::bytes(text) }, process::ENV_PRELOAD),
        };
        let (mut has_preload, mut has_socket, mut has_at, mut has_intercept, mut other_volume) =
            (false, false, false, false, false);
        for number in 0..count {
            // SAFETY: `given` has `count` entries.
            let entry = unsafe { *given.add(number) };
            // SAFETY: a C string.
            let bytes = unsafe { sys::bytes(entry) };
            if let Some(value) = process::value_of(bytes, process::ENV_PRELOAD) {
                has_preload = true;
                match preload {
                    Some(ours) if !contains(value, ours) => {
                        let colon: &[u8] = if value.is_empty() { b"" } else { b":" };
                        builder.add(process::ENV_PRELOAD, &[ours, colon, value])?;
                    }
                    _ => builder.keep(entry),
                }
                continue;
            }
            if let Some(value) = process::value_of(bytes, process::ENV_SOCKET) {
                has_socket = true;
                other_volume = value != process::socket_path();
            }
            has_intercept |= process::value_of(bytes, dispatch::ENV_INTERCEPT).is_some();
            has_at |= process::value_of(bytes, process::ENV_AT).is_some();
            let ours = [process::ENV_FD, process::ENV_CWD];
            if !ours.iter().any(|name| process::value_of(bytes, name).is_some()) {
                builder.keep(entry);
            }
        }
        if let (false, Some(ours)) = (has_preload, preload) {
            builder.add(process::ENV_PRELOAD, &[ours])?;
        }
        if !has_socket {
            builder.add(process::ENV_SOCKET, &[process::socket_path()])?;
        }
        if !has_at {
            builder.add(process::ENV_AT, &[process::mount()])?;
        }
        if dispatch::is_on() && !has_intercept {
            builder.add(dispatch::ENV_INTERCEPT, &[dispatch::WANTED])?;
        }
        if other_volume {
            // The program is to see another volume: nothing of this one is handed over.
            return Ok(());
        }
        if let Some((file, path)) = process::cwd() {
            // Where it leads by now is asked for when somebody wants to know.
            builder.add(process::ENV_CWD, &[&decimal(file.0), b":", path])?;
        }
        if let Some((client, is_forked)) = process::connection()
            && (inherits_more || inherits())
        {
            let ticket = Self::ticket(client, is_forked, child)?;
            let socket = ticket.socket();
            self.ticket = Some((client, ticket));
            let inode = decimal(sys::fstat(socket)?.st_ino);
            let has_files = inherits_more || inherits_file(|file| file != table::OWN);
            let files = if has_files { process::FILES } else { process::NO_FILES };
            let (fd, session) = (decimal(socket as u64), decimal(client.session()));
            builder.add(process::ENV_FD, &[&fd, b":", &inode, b":", &session, b":", files])?;
        } else if !inherits_more && !inherits_file(|file| file != table::OWN) {
            builder.add(process::ENV_FD, &[process::NO_FILES])?;
        }
        Ok(())
    }

    /// The connection that the program gets.
    fn ticket(client: &Client, is_forked: bool, child: Child) -> Result<ForkTicket, Errno> {
        // As it came by the fork, the program can have it, unless the server has to be told of something.
        let hands_on = is_forked
            && child == Child::Executed
            && client.has_leases()
            && !client.has_duplicates()
            // Another one may be about to use it.
            && weft_client::sys::thread_count() == Some(1);
        if !hands_on {
            process::client()?;
        }
        blank::name_all(client)?;
        if child == Child::Executed && !hands_on {
            client.tell_duplicates()?;
        }
        crate::descriptors::limit::with_descriptors(|| {
            if hands_on { client.hand_on() } else { client.prepare_child(child) }
        })
    }

    /// The array for `execve`.
    pub fn array(&self) -> *const *const c_char {
        self.memory.start::<*const c_char>()
    }
}

impl Drop for Environment {
    /// When the program was not executed, or another process was: the connection is that one's alone.
    fn drop(&mut self) {
        if let Some((client, ticket)) = self.ticket.take() {
            client.forget(ticket);
        }
    }
}
