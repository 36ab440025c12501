//! The kernel's asynchronous I/O: libaio's functions, which make their system calls past libc, and the calls by number.
//! Contexts are the kernel's, and so are requests on files that are not weft's; [`crate::file::requests`] tells how those on weft
//! files join them. They are done when they are submitted, by the thread that submits them.

use crate::descriptors::table;
use crate::file::atomic::RWF_ATOMIC;
use crate::file::requests::{self, Block, Claimed, Event};
use crate::hooks::{data, raw};
use crate::interception::dispatch;
use crate::process;
use libc::{c_int, c_long, c_void, iovec, sigset_t, timespec};
use std::{ptr, slice};
use weft_client::proto::{is_readable, is_writable};
use weft_client::{Errno, FileRef};

/// Requests that are handed to the kernel at once.
const BATCH: usize = 16;
/// `io_pgetevents`, which the libc crate does not name.
pub const SYS_IO_PGETEVENTS: c_long = syscalls::Sysno::io_pgetevents as c_long;
/// Bytes of the kernel's signal sets.
const SIGNAL_SET_BYTES: usize = 8;

/// What a program has called for an event (`io_set_callback`).
type Callback = unsafe extern "C" fn(u64, *mut Block, c_long, c_long);

unsafe fn weft_file_of(block: *const Block) -> Option<FileRef> {
    // SAFETY: the program promises a request, when it is not null.
    unsafe { block.as_ref() }.and_then(|block| table::get(block.fd))
}

/// What the kernel says of a request before it takes it.
fn check(block: &Block, file: FileRef) -> Result<(), Errno> {
    let flags = process::client()?.flags(file)?;
    if flags & libc::O_PATH != 0 {
        return Err(libc::EBADF);
    }
    match block.opcode {
        requests::FSYNC | requests::FDSYNC => {
            let none = (block.buffer, block.offset, block.count, block.rw_flags) == (0, 0, 0, 0);
            if none { Ok(()) } else { Err(libc::EINVAL) }
        }
        requests::PREAD | requests::PREADV | requests::PWRITE | requests::PWRITEV => {
            let writes = is_write(block);
            let reads_atomically = !writes && block.rw_flags & RWF_ATOMIC != 0;
            if block.rw_flags & !data::V2_FLAGS != 0 || reads_atomically {
                Err(libc::EOPNOTSUPP)
            } else if !(if writes { is_writable(flags) } else { is_readable(flags) }) {
                Err(libc::EBADF)
            } else if block.offset < 0 || is_vectored(block) && block.count > libc::UIO_MAXIOV as u64 {
                Err(libc::EINVAL)
            } else {
                Ok(())
            }
        }
        _ => Err(libc::EINVAL),
    }
}

fn is_write(block: &Block) -> bool {
    matches!(block.opcode, requests::PWRITE | requests::PWRITEV)
}

fn is_vectored(block: &Block) -> bool {
    matches!(block.opcode, requests::PREADV | requests::PWRITEV)
}

/// Does a request; what its event tells.
unsafe fn perform(block: &Block, file: FileRef) -> i64 {
    let result = if matches!(block.opcode, requests::FSYNC | requests::FDSYNC) {
        crate::file::sync(file).map(|()| 0)
    } else {
        let one = iovec { iov_base: block.buffer as *mut c_void, iov_len: block.count as usize };
        let (parts, count) = if is_vectored(block) {
            (block.buffer as *const iovec, block.count as c_int)
        } else {
            (&raw const one, 1)
        };
        // SAFETY: the program promises memory that the request may use.
        unsafe { data::transfer(file, is_write(block), parts, count, block.offset, block.rw_flags) }
    };
    result.map_or_else(|error| -i64::from(error), |n| n as i64)
}

/// Requests for one call of the kernel, those on weft files by their stand-ins.
struct Batch {
    blocks: [*mut Block; BATCH],
    /// For those on weft files: the stand-in, the program's request and the file.
    ours: [Option<(Claimed, *const Block, FileRef)>; BATCH],
    len: usize,
}

impl Batch {
    const fn new() -> Self {
        Batch { blocks: [ptr::null_mut(); BATCH], ours: [const { None }; BATCH], len: 0 }
    }

    unsafe fn push(&mut self, context: u64, block: *mut Block) -> Result<(), Errno> {
        // SAFETY: the program's request, when it is not null.
        let ours = unsafe {
            match weft_file_of(block) {
                None => None,
                Some(file) => {
                    check(&*block, file)?;
                    (*block).key = 0;
                    Some((requests::claim(context, block)?, block.cast_const(), file))
                }
            }
        };
        if let (Some(place), Some(of)) = (self.blocks.get_mut(self.len), self.ours.get_mut(self.len)) {
            *place = ours.as_ref().map_or(block, |(claimed, ..)| claimed.block());
            *of = ours;
            self.len += 1;
        }
        Ok(())
    }

    /// Hands them to the kernel, then does those that it took; how many, or a negated errno.
    unsafe fn submit(&mut self, context: u64) -> c_long {
        if self.len == 0 {
            return 0;
        }
        // SAFETY: so many blocks, the program's or stand-ins.
        let taken = unsafe { kernel_submit(context, self.len as c_long, self.blocks.as_ptr()) };
        let len = std::mem::take(&mut self.len);
        for (number, ours) in self.ours.iter_mut().enumerate().take(len) {
            match ours.take() {
                None => {}
                Some((claimed, block, file)) if (number as c_long) < taken => {
                    // SAFETY: the program leaves the request alone until it has its event, which waits for this.
                    claimed.done(unsafe { perform(&*block, file) });
                }
                Some((claimed, ..)) => claimed.give_back(),
            }
        }
        taken
    }
}

unsafe fn kernel_submit(context: u64, count: c_long, list: *const *mut Block) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { raw::by_kernel(libc::SYS_io_submit, [context as c_long, count, list as c_long, 0, 0, 0]) }
}

unsafe fn kernel_events(
    context: u64,
    least: c_long,
    most: c_long,
    events: *mut Event,
    time: *const timespec,
) -> c_long {
    let arguments = [context as c_long, least, most, events as c_long, time as c_long, 0];
    // SAFETY: the caller's promise.
    unsafe { raw::by_kernel(libc::SYS_io_getevents, arguments) }
}

/// `io_submit`, as the kernel returns it.
///
/// # Safety
/// As the call.
pub unsafe fn submit(context: u64, count: c_long, list: *const *mut Block) -> c_long {
    // SAFETY: the program passes `count` requests.
    unsafe {
        let total = usize::try_from(count).unwrap_or(0);
        let any = process::is_on()
            && !list.is_null()
            && (0..total).any(|number| weft_file_of(*list.add(number)).is_some());
        if !any {
            return kernel_submit(context, count, list);
        }
        // Asking for nothing fails when there is no such context.
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        if !requests::mark(context, || kernel_events(context, 0, 0, ptr::null_mut(), &raw const now) == 0) {
            return kernel_submit(context, count, list);
        }
        let mut batch = Batch::new();
        let mut submitted = 0;
        let mut left = slice::from_raw_parts(list, total).iter();
        loop {
            let wrong = loop {
                match left.next() {
                    Some(&block) if batch.len < BATCH - 1 => match batch.push(context, block) {
                        Ok(()) => {}
                        Err(error) => break Some(error),
                    },
                    Some(&block) => break batch.push(context, block).err(),
                    None => break None,
                }
            };
            let len = batch.len as c_long;
            let taken = batch.submit(context);
            submitted += taken.max(0);
            let refused = if taken < 0 { Some(taken) } else { wrong.map(|error| -c_long::from(error)) };
            match refused {
                Some(error) => return if submitted > 0 { submitted } else { error },
                None if taken < len || left.as_slice().is_empty() => return submitted,
                None => {}
            }
        }
    }
}

/// What the kernel told of events, with the program's requests in them.
unsafe fn told(count: c_long, events: *mut Event) -> c_long {
    if count > 0 && requests::any() {
        // SAFETY: the kernel has just written so many.
        requests::translate(unsafe { slice::from_raw_parts_mut(events, count as usize) });
    }
    count
}

/// `io_getevents`, as the kernel returns it.
///
/// # Safety
/// As the call.
pub unsafe fn events(
    context: u64,
    least: c_long,
    most: c_long,
    events: *mut Event,
    time: *const timespec,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { told(kernel_events(context, least, most, events, time), events) }
}

/// `io_pgetevents`, as the kernel returns it; `mask` is the address of a signal set and its size.
///
/// # Safety
/// As the call.
pub unsafe fn events_with_mask(
    context: u64,
    least: c_long,
    most: c_long,
    events: *mut Event,
    time: *const timespec,
    mask: *const [usize; 2],
) -> c_long {
    /// Bit of the signal that hands calls over, which no mask may hold then.
    const OURS: u64 = 1 << (libc::SIGSYS - 1);
    // SAFETY: the caller's promise.
    unsafe {
        let call = |mask: *const [usize; 2]| {
            let arguments =
                [context as c_long, least, most, events as c_long, time as c_long, mask as c_long];
            raw::by_kernel(SYS_IO_PGETEVENTS, arguments)
        };
        let given = mask.as_ref().and_then(|&[set, len]| Some(((set as *const u64).as_ref()?, len)));
        let count = match given {
            Some((set, len)) if dispatch::is_on() => {
                let set = set & !OURS;
                call(&[&raw const set as usize, len])
            }
            _ => call(mask),
        };
        told(count, events)
    }
}

/// `io_destroy`, as the kernel returns it.
///
/// # Safety
/// As the call.
pub unsafe fn destroy(context: u64) -> c_long {
    // SAFETY: the caller's promise.
    let result = unsafe { raw::by_kernel(libc::SYS_io_destroy, [context as c_long, 0, 0, 0, 0, 0]) };
    if result == 0 {
        requests::forget(context);
    }
    result
}

// libaio's functions return negated errnos, as the kernel does.
hooks! {
    fn io_submit(context: u64, count: c_long, list: *const *mut Block) -> c_int {
        submit(context, count, list) as c_int
    }

    fn io_getevents(context: u64, least: c_long, most: c_long, out: *mut Event, time: *const timespec) -> c_int {
        // As libaio does, without a system call, as long as only the kernel knows what there is.
        let at_once = time.as_ref().is_some_and(|time| time.tv_sec == 0 && time.tv_nsec == 0);
        if at_once && !requests::any() && requests::is_empty(context) {
            return 0;
        }
        events(context, least, most, out, time) as c_int
    }

    fn io_pgetevents(context: u64, least: c_long, most: c_long, out: *mut Event, time: *const timespec, mask: *const sigset_t) -> c_int {
        let mask = [mask as usize, SIGNAL_SET_BYTES];
        events_with_mask(context, least, most, out, time, &raw const mask) as c_int
    }

    fn io_destroy(context: u64) -> c_int {
        destroy(context) as c_int
    }

    fn io_queue_wait(context: u64, time: *const timespec) -> c_int {
        events(context, 0, 0, ptr::null_mut(), time) as c_int
    }

    fn io_queue_run(context: u64) -> c_int {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        let mut event = Event { data: 0, block: ptr::null_mut(), result: 0, second: 0 };
        loop {
            match events(context, 0, 1, &raw mut event, &raw const now) {
                1 => {
                    // The program's function, which it set for the request; libaio calls it in the same way.
                    let callback = ptr::with_exposed_provenance::<c_void>(event.data as usize);
                    if let Some(callback) = std::mem::transmute::<*const c_void, Option<Callback>>(callback) {
                        callback(context, event.block, event.result, event.second);
                    }
                }
                result => return result as c_int,
            }
        }
    }
}
