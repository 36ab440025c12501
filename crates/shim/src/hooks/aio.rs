//! POSIX asynchronous I/O on weft files: done at once, while the caller waits. Whoever then asks finds it done, and is
//! notified as it wanted. The other functions of the family (`aio_error`, `aio_return`, `aio_suspend`, `aio_cancel`) look at the
//! control block or at what libc's own threads have under way, and need no hook.

use super::data::{given, room};
use crate::descriptors::table;
use crate::owned::Memory;
use crate::routing::fail;
use crate::{file as weft_file, process, sys};
use libc::{c_int, c_void, sigevent};
use std::ptr;
use weft_client::{Errno, FileRef};

/// glibc's control block: the size of the public type fixes it, and programs read the last results by `aio_error` alone.
#[repr(C)]
pub struct Control {
    fd: c_int,
    opcode: c_int,
    priority: c_int,
    buffer: *mut c_void,
    bytes: usize,
    event: sigevent,
    next: *mut Control,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    returned: isize,
    offset: i64,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Control>() == size_of::<libc::aiocb>());

/// Greatest amount by which a request may lower its priority.
const PRIORITY_DELTA_MAX: c_int = 20;
/// `si_code` of a signal that tells of a finished request.
const SI_ASYNCIO: c_int = -4;

unsafe fn weft_file_of(control: *const Control) -> Option<FileRef> {
    // SAFETY: the program promises a control block, when it is not null.
    unsafe { control.as_ref() }.and_then(|control| table::get(control.fd))
}

/// Does a request and notes its result.
unsafe fn finish(
    control: *mut Control,
    act: impl FnOnce(&mut Control) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    // SAFETY: the program's control block, which is not in use by anybody else while the request is under way.
    let control = unsafe { &mut *control };
    let result = act(control);
    control.returned = result.map_or(-1, |n| n as isize);
    control.error = result.err().unwrap_or(0);
    result.map(drop)
}

unsafe fn transfer(control: *mut Control, file: FileRef, writes: bool) -> Result<(), Errno> {
    // SAFETY: as above; the program promises a buffer of so many bytes.
    unsafe {
        finish(control, |control| {
            if !(0..=PRIORITY_DELTA_MAX).contains(&control.priority) {
                return Err(libc::EINVAL);
            }
            let offset = u64::try_from(control.offset).map_err(|_| libc::EINVAL)?;
            if writes {
                weft_file::write(file, given(control.buffer, control.bytes)?, Some(offset))
            } else {
                weft_file::read(file, room(control.buffer, control.bytes)?, Some(offset))
            }
        })
    }
}

/// Tells the program that something is done.
unsafe fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => sys::queue_signal(event.sigev_signo, SI_ASYNCIO, event.sigev_value),
        // SAFETY: the program's own function.
        libc::SIGEV_THREAD => unsafe { start_thread(event) },
        _ => {}
    }
}

type Notified = unsafe extern "C" fn(libc::sigval);

/// The public head of glibc's `sigevent` for `SIGEV_THREAD`, which the libc crate hides.
#[repr(C)]
struct ThreadEvent {
    value: libc::sigval,
    signal: c_int,
    notify: c_int,
    function: Option<Notified>,
    attributes: *const libc::pthread_attr_t,
}

struct Start {
    function: Notified,
    value: libc::sigval,
}

extern "C" fn run_notified(start: *mut c_void) -> *mut c_void {
    // SAFETY: allocated by `start_thread` for this thread alone.
    unsafe {
        let Start { function, value } = start.cast::<Start>().read();
        libc::free(start);
        function(value);
    }
    ptr::null_mut()
}

unsafe fn start_thread(event: &sigevent) {
    // SAFETY: the size of the public type covers the fields; memory and attributes are handed to the thread.
    unsafe {
        let event = &*ptr::from_ref(event).cast::<ThreadEvent>();
        let Some(function) = event.function else { return };
        let start: *mut Start = libc::malloc(size_of::<Start>()).cast();
        if start.is_null() {
            return;
        }
        start.write(Start { function, value: event.value });
        let mut thread = 0;
        if libc::pthread_create(&raw mut thread, event.attributes, run_notified, start.cast()) == 0 {
            libc::pthread_detach(thread);
        } else {
            libc::free(start.cast());
        }
    }
}

unsafe fn started(control: *mut Control) -> c_int {
    // SAFETY: the program's control block.
    unsafe { notify(&(*control).event) };
    0
}

hooks! {
    fn aio_read(control: *mut Control) -> c_int {
        let Some(file) = weft_file_of(control) else { return real::aio_read(control) };
        // An error is the request's, for `aio_error` to tell.
        let _ = transfer(control, file, false);
        started(control)
    }

    fn aio_write(control: *mut Control) -> c_int {
        let Some(file) = weft_file_of(control) else { return real::aio_write(control) };
        let _ = transfer(control, file, true);
        started(control)
    }

    fn aio_fsync(operation: c_int, control: *mut Control) -> c_int {
        let Some(file) = weft_file_of(control) else { return real::aio_fsync(operation, control) };
        if operation != libc::O_SYNC && operation != libc::O_DSYNC {
            return fail(libc::EINVAL);
        }
        let _ = finish(control, |_| weft_file::sync(file).map(|()| 0));
        started(control)
    }

    fn lio_listio(mode: c_int, list: *const *mut Control, count: c_int, event: *mut sigevent) -> c_int {
        let blocks = count.max(0) as usize;
        let any = process::is_on() && (0..blocks).any(|number| weft_file_of(*list.add(number)).is_some());
        if !any {
            return real::lio_listio(mode, list, count, event);
        }
        if mode != libc::LIO_WAIT && mode != libc::LIO_NOWAIT {
            return fail(libc::EINVAL);
        }
        // What is not weft's is libc's, as a list of its own.
        let memory = match Memory::new(blocks * size_of::<*mut Control>()) {
            Ok(memory) => memory,
            Err(error) => return fail(error),
        };
        let others: *mut *mut Control = memory.start();
        let (mut others_count, mut failed) = (0, false);
        for number in 0..blocks {
            let control = *list.add(number);
            if control.is_null() {
                continue;
            }
            let Some(file) = weft_file_of(control) else {
                *others.add(others_count) = control;
                others_count += 1;
                continue;
            };
            if matches!((*control).opcode, libc::LIO_READ | libc::LIO_WRITE) {
                failed |= transfer(control, file, (*control).opcode == libc::LIO_WRITE).is_err();
                notify(&(*control).event);
            }
        }
        let result = if others_count > 0 {
            real::lio_listio(mode, others, others_count as c_int, event)
        } else {
            if mode == libc::LIO_NOWAIT && !event.is_null() {
                notify(&*event);
            }
            0
        };
        if result == 0 && failed && mode == libc::LIO_WAIT { fail(libc::EIO) } else { result }
    }
}
