//! What this process knows: whether weft is on, where the volume appears, the connection, the permission mask and the
//! working directory.
//!
//! The state is set once, before the program's own code runs, and read by every hook; connecting happens when a path on the
//! volume is first used (or at once when descriptors were inherited).

pub mod environment;
pub mod file_limit;
pub mod fork;
pub mod identity;
pub mod nowhere;
pub mod program;
pub mod unreached;

use crate::descriptors::{placeholder, table};
use crate::interception::dispatch;
use crate::lock::Locked;
use crate::owned::Fd;
use crate::text::{Text, decimal, path_of_descriptor};
use crate::{report, sys};
use libc::{c_char, c_int};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use weft_client::busy::Busy;
use weft_client::proto::MOUNT_POINT_MAX;
use weft_client::scratch::Scratch;
use weft_client::{Client, ConnectOptions, Errno, FileRef, ForkTicket};

/// The server's socket.
pub const ENV_SOCKET: &[u8] = b"WEFT_SOCKET";
/// Where the volume appears; `/weft` when it is not given.
pub const ENV_AT: &[u8] = b"WEFT_AT";
/// A connection inherited through `exec`: `<descriptor>:<inode of the socket>:<session>:<files>`. The inode number guards against
/// a descriptor that has become something else since. [`NO_FILES`] at the end, or instead of all: there is no weft file among the
/// descriptors.
pub const ENV_FD: &[u8] = b"WEFT_FD";
/// See [`ENV_FD`].
pub const NO_FILES: &[u8] = b"none";
/// The opposite of [`NO_FILES`].
pub const FILES: &[u8] = b"files";
/// The working directory on the volume, inherited through `exec`.
pub const ENV_CWD: &[u8] = b"WEFT_CWD";
/// The libraries to preload.
pub const ENV_PRELOAD: &[u8] = b"LD_PRELOAD";

const DEFAULT_AT: &[u8] = b"/weft";
/// Longest path, NUL included.
pub const PATH_BYTES: usize = 4096;
/// Descriptors that a program can inherit at once.
const INHERITED_MAX: usize = 4096;

const OFF: u32 = 0;
const UNCONNECTED: u32 = 1;
const CONNECTING: u32 = 2;
const CONNECTED: u32 = 3;
const FAILED: u32 = 4;
/// A forked child has a connection that it has not asked for its memory yet.
const FORKED: u32 = 5;
/// It is asking.
const HEARING: u32 = 6;

static STATE: AtomicU32 = AtomicU32::new(OFF);
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// A value that is written once, before anyone reads it.
struct Once<T>(UnsafeCell<T>);
// SAFETY: written only by `start` (one thread, before the program runs) or by the thread that moved STATE to CONNECTING;
// read only after STATE has said so (acquire).
unsafe impl<T> Sync for Once<T> {}

struct Settings {
    mount: Text<{ MOUNT_POINT_MAX + 1 }>,
    /// Length of `mount` up to the slash in front of its last component.
    parent_len: usize,
    socket: Text<108>,
}

static SETTINGS: Once<Settings> =
    Once(UnsafeCell::new(Settings { mount: Text::EMPTY, parent_len: 0, socket: Text::EMPTY }));
static CLIENT: Once<MaybeUninit<Client>> = Once(UnsafeCell::new(MaybeUninit::uninit()));

/// Whether the connection is the one that came with the program.
static TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// `LD_PRELOAD=...` as this process was started with.
static PRELOAD: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Whether any path or descriptor can be weft's.
#[inline(always)]
pub fn is_on() -> bool {
    STATE.load(Acquire) != OFF
}

/// Whether a connection stands.
pub fn is_connected() -> bool {
    connection().is_some()
}

/// The connection, if one stands, and whether it is as it came by a fork: then children can be made from it, and nothing else.
pub fn connection() -> Option<(&'static Client, bool)> {
    let state = loop {
        match STATE.load(Acquire) {
            CONNECTING | HEARING => sys::yield_now(),
            state => break state,
        }
    };
    // SAFETY: both are stored (release) after the client was written.
    matches!(state, CONNECTED | FORKED)
        .then(|| (unsafe { (*CLIENT.0.get()).assume_init_ref() }, state == FORKED))
}

/// In a forked child: the ticket's connection is the process's.
pub fn adopt(client: &'static Client, ticket: ForkTicket) {
    release_own_descriptors(client);
    client.adopt(ticket);
    guard_own_descriptors(client);
    STATE.store(FORKED, Release);
}

/// Asks for what the connection of a forked child shares with the server.
#[cold]
fn hear() -> Result<&'static Client, Errno> {
    let _busy = Busy::new();
    loop {
        match STATE.compare_exchange(FORKED, HEARING, AcqRel, Acquire) {
            Ok(_) => break,
            Err(HEARING) => sys::yield_now(),
            Err(_) => return client(),
        }
    }
    // SAFETY: it was there before the fork.
    let client = unsafe { (*CLIENT.0.get()).assume_init_ref() };
    match crate::descriptors::limit::with_descriptors(|| client.hear()) {
        Ok(()) => {
            STATE.store(CONNECTED, Release);
            Ok(client)
        }
        // The next call tries again.
        Err(error @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
            STATE.store(FORKED, Release);
            Err(error)
        }
        Err(_) => {
            STATE.store(FAILED, Release);
            Err(libc::EIO)
        }
    }
}

/// Before the process limits its address space or its descriptors: a forked child asks for what it shares with the server
/// while it can.
pub fn hear_ahead() {
    if STATE.load(Acquire) == FORKED {
        let _ = hear();
    }
}

/// The process has limited its address space.
pub fn fit_into_address_space() {
    if let Some((client, false)) = connection() {
        // Without a descriptor the leases stay. With another error the connection has ended, and all that follows on the volume is
        // `EIO`.
        let _ = crate::descriptors::limit::with_descriptors(|| client.fit_into_address_space());
    }
}

/// In a forked child whose parent has connected in another thread, after the child was prepared: the connection is the parent's.
pub fn disown() {
    if STATE.load(Acquire) == CONNECTED {
        // SAFETY: stored (release) after the client was written.
        let client = unsafe { (*CLIENT.0.get()).assume_init_ref() };
        release_own_descriptors(client);
        let _ = weft_client::sys::close(client.socket());
        STATE.store(UNCONNECTED, Release);
    }
}

fn settings() -> &'static Settings {
    // SAFETY: see `Once`; callers have seen STATE != OFF.
    unsafe { &*SETTINGS.0.get() }
}

/// The prefix at which the volume appears, without a slash at the end.
pub fn mount() -> &'static [u8] {
    &settings().mount
}

/// The last component of the mount prefix.
pub fn mount_name() -> &'static [u8] {
    let settings = settings();
    settings.mount.get(settings.parent_len + 1..).unwrap_or(&[])
}

/// The server's socket path.
pub fn socket_path() -> &'static [u8] {
    &settings().socket
}

/// `LD_PRELOAD=...` as this process was started with; null without one.
pub fn preload() -> *const c_char {
    PRELOAD.load(Relaxed)
}

/// The connection; made now if there is none. `EIO` when there is no server.
pub fn client() -> Result<&'static Client, Errno> {
    match STATE.load(Acquire) {
        // SAFETY: CONNECTED is stored (release) after the client was written.
        CONNECTED => Ok(unsafe { (*CLIENT.0.get()).assume_init_ref() }),
        FORKED | HEARING => hear(),
        _ => connect(None, false),
    }
}

/// Before the process drops the superuser's rights: from then on it may not be able to connect. Whether there is a server is
/// told when a path on the volume is used.
pub fn connect_ahead() {
    if STATE.load(Acquire) == UNCONNECTED && sys::geteuid() == 0 {
        let _ = connect(None, true);
    }
}

/// `ahead`: nothing is lost when it fails, and it is tried again.
#[cold]
fn connect(inherited: Option<(c_int, &[FileRef])>, ahead: bool) -> Result<&'static Client, Errno> {
    let _busy = Busy::new();
    loop {
        match STATE.compare_exchange(UNCONNECTED, CONNECTING, AcqRel, Acquire) {
            Ok(_) => break,
            Err(CONNECTED | FORKED | HEARING) => return client(),
            Err(CONNECTING) => sys::yield_now(),
            Err(_) => return Err(libc::EIO),
        }
    }
    let taken_over = inherited.map(|(socket, files)| Client::take_over(socket, files));
    let connection = match taken_over {
        Some(Ok(client)) => {
            TAKEN_OVER.store(true, Relaxed);
            Ok(client)
        }
        _ => Client::connect(&ConnectOptions { socket_path: socket_path(), mount_point: mount() }),
    };
    match connection {
        Ok(client) => {
            // SAFETY: this thread moved STATE to CONNECTING; nobody reads before CONNECTED.
            let client = unsafe { (*CLIENT.0.get()).write(client) };
            guard_own_descriptors(client);
            STATE.store(CONNECTED, Release);
            Ok(client)
        }
        Err(error) if ahead => {
            STATE.store(UNCONNECTED, Release);
            Err(error)
        }
        Err(error) => {
            STATE.store(FAILED, Release);
            let limit: &[u8] = match error {
                libc::ENOMEM => b"address space (ulimit -v)",
                libc::EMFILE => b"open files (ulimit -n)",
                libc::EFBIG => b"file size (ulimit -f)",
                _ => b"",
            };
            if !limit.is_empty() {
                report::complain(&[
                    mount(),
                    b" is not there: no room for the connection; raise the limit on ",
                    limit,
                    b" that the program runs with",
                ]);
                return Err(libc::EIO);
            }
            report::complain(&[
                b"no server at ",
                socket_path(),
                b" (errno ",
                &decimal(error.unsigned_abs().into()),
                b"): ",
                mount(),
                b" is not there",
            ]);
            Err(libc::EIO)
        }
    }
}

/// In a child without a connection of its own: everything on the volume fails from now on.
pub fn orphan() {
    STATE.store(FAILED, Release);
}

/// Keeps the program from closing or using the connection's own descriptors.
pub fn guard_own_descriptors(client: &Client) {
    for fd in client.own_descriptors() {
        table::swap(fd, Some(table::OWN));
    }
}

/// The opposite of [`guard_own_descriptors`].
pub fn release_own_descriptors(client: &Client) {
    for fd in client.own_descriptors() {
        table::swap(fd, None);
    }
}

/// In a forked child: threads that held a lock or were connecting are in the parent.
pub fn open_locks() {
    CWD_WRITER.force_open();
    let _ = STATE.compare_exchange(CONNECTING, UNCONNECTED, AcqRel, Relaxed);
    let _ = STATE.compare_exchange(HEARING, FORKED, AcqRel, Relaxed);
}

/// The mask of permission bits that new files do not get.
pub fn umask() -> u32 {
    UMASK.load(Relaxed)
}

/// Remembers the mask that the program set.
pub fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Relaxed);
}

// ---- working directory ----------------------------------------------------------------------------------------------

/// Working directories that are remembered at once, so that a reader that is overtaken by `chdir` still reads whole paths.
const CWD_SLOTS: usize = 8;

struct CwdSlot {
    file: FileRef,
    /// Path within the volume, beginning with a slash; only `/` for the root.
    path: Text<{ PATH_BYTES + 1 }>,
}

struct CwdSlots(UnsafeCell<[CwdSlot; CWD_SLOTS]>);
// SAFETY: a slot is written under CWD_WRITER and read only while CWD names it; CWD_SLOTS - 1 further changes of directory
// have to pass before it is written again.
unsafe impl Sync for CwdSlots {}

static CWD_STORE: CwdSlots =
    CwdSlots(UnsafeCell::new([const { CwdSlot { file: FileRef(0), path: Text::EMPTY } }; CWD_SLOTS]));
/// 0: the kernel's working directory is the program's; else number of a slot plus 1, and the kernel's is [`nowhere`].
static CWD: AtomicU32 = AtomicU32::new(0);
static CWD_WRITER: Locked<u32> = Locked::new(0);

/// The working directory when it lies on the volume: its file and its path there.
#[inline]
pub fn cwd() -> Option<(FileRef, &'static [u8])> {
    match CWD.load(Acquire) {
        0 => None,
        slot => {
            // SAFETY: see `CwdSlots`.
            let slots = unsafe { &*CWD_STORE.0.get() };
            debug_assert!(slot as usize <= CWD_SLOTS, "a slot that was written");
            let slot = slots.get(slot as usize - 1)?;
            Some((slot.file, &*slot.path))
        }
    }
}

/// Sets the working directory on the volume (or none); returns the file of the one before, to be closed.
pub fn set_cwd(new: Option<(FileRef, &[u8])>) -> Option<FileRef> {
    CWD_WRITER.with(|turn| {
        let before = cwd().map(|(file, _)| file);
        let Some((file, path)) = new else {
            CWD.store(0, Release);
            return before;
        };
        *turn = (*turn + 1) % CWD_SLOTS as u32;
        // SAFETY: the lock is held, and CWD has not named this slot for CWD_SLOTS - 1 changes.
        let slots = unsafe { &mut *CWD_STORE.0.get() };
        if let Some(slot) = slots.get_mut(*turn as usize) {
            // A directory can have a longer path, by a rename above it. Its reference is what counts: without one relative
            // names would lead outside.
            slot.path.set(path);
            slot.file = file;
            CWD.store(*turn + 1, Release);
        }
        before
    })
}

// ---- start ----------------------------------------------------------------------------------------------------------

/// The value of a variable in an environment.
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
pub unsafe fn variable<'a>(environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = environment;
    // SAFETY: the caller's promise; the walk stops at the null.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if let Some(value) = value_of(sys::bytes(*at), name) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// The value when `entry` is `name=value`.
pub fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Takes a variable out of an environment.
///
/// # Safety
/// As [`variable`], and the array is writable.
unsafe fn remove_variable(environment: *mut *const c_char, name: &[u8]) {
    let mut from = environment;
    let mut to = environment;
    // SAFETY: the caller's promise; `to` never passes `from`.
    unsafe {
        while !from.is_null() && !(*from).is_null() {
            if value_of(sys::bytes(*from), name).is_none() {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        if !to.is_null() {
            *to = std::ptr::null();
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The parts of `number:rest`.
fn number_before_colon(value: &[u8]) -> Option<(u64, &[u8])> {
    let colon = value.iter().position(|&byte| byte == b':')?;
    Some((number(value.get(..colon)?)?, value.get(colon + 1..)?))
}

/// A connection that came with the program.
#[derive(Clone, Copy)]
struct Inherited {
    socket: c_int,
    session: u64,
    /// Whether there may be files of it among the descriptors.
    has_files: bool,
}

impl Inherited {
    /// When the descriptor still is that socket.
    fn of(value: &[u8]) -> Option<Inherited> {
        let (fd, rest) = number_before_colon(value)?;
        let (inode, rest) = number_before_colon(rest)?;
        let (session, files) = number_before_colon(rest)?;
        let inherited = Inherited { socket: fd as c_int, session, has_files: files != NO_FILES };
        let stat = sys::fstat(inherited.socket).ok()?;
        (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK && stat.st_ino == inode).then_some(inherited)
    }
}

/// Reads the environment and takes over what was inherited.
///
/// # Safety
/// `environment` is the process's own, and no other thread runs.
pub unsafe fn start(environment: *mut *const c_char) {
    let mask = sys::umask(0o077);
    sys::umask(mask);
    UMASK.store(mask, Relaxed);
    // SAFETY: the caller's promise, here and below.
    if let Some(adviser) = unsafe { variable(environment, crate::advice::ENV_HINTS) } {
        // SAFETY: as above.
        unsafe { crate::advice::start(adviser) };
    }
    // SAFETY: as above.
    let Some(socket) = (unsafe { variable(environment, ENV_SOCKET) }) else { return };
    // SAFETY: as above.
    let mut at = unsafe { variable(environment, ENV_AT) }.unwrap_or(DEFAULT_AT);
    while let Some(shorter) = at.strip_suffix(b"/") {
        at = shorter;
    }
    let parent = at.iter().rposition(|&byte| byte == b'/');
    let (Some(parent_len), true) = (parent, at.first() == Some(&b'/') && at.len() < MOUNT_POINT_MAX) else {
        report::complain(&[b"WEFT_AT must be an absolute path below / of at most 255 bytes; weft is off"]);
        return;
    };
    if socket.is_empty() || socket.len() >= 108 {
        report::complain(&[b"WEFT_SOCKET must be a path of at most 107 bytes; weft is off"]);
        return;
    }
    // SAFETY: no other thread runs, and STATE is still OFF.
    let settings = unsafe { &mut *SETTINGS.0.get() };
    *settings = Settings { mount: Text::of(&[at]), parent_len, socket: Text::of(&[socket]) };
    weft_client::before_own_descriptor_closes(table::let_go);
    STATE.store(UNCONNECTED, Release);

    // SAFETY: as above.
    unsafe {
        if let Some(value) = variable(environment, ENV_PRELOAD) {
            PRELOAD.store(value.as_ptr().sub(ENV_PRELOAD.len() + 1).cast_mut().cast(), Relaxed);
        }
        let inheritance = variable(environment, ENV_FD);
        let cwd = variable(environment, ENV_CWD).and_then(inherited_cwd);
        let cwd = cwd.filter(|_| !nowhere::is_left());
        let inherited = inheritance.and_then(Inherited::of);
        let has_files = inherited.map_or(inheritance != Some(NO_FILES), |inherited| inherited.has_files);
        let kept = take_over_descriptors(has_files, inherited, cwd.map(|(file, _)| file));
        match cwd {
            // Wherever its path leads by now, and whoever may walk there.
            Some((file, path)) if kept => drop(set_cwd(Some((file, path)))),
            Some((_, path)) => inherit_cwd(path),
            None => notice_cwd(),
        }
        crate::streams::adopt_inherited();
        if variable(environment, dispatch::ENV_INTERCEPT) == Some(dispatch::WANTED) {
            dispatch::start();
        }
        remove_variable(environment, ENV_FD);
        remove_variable(environment, ENV_CWD);
    }
}

/// Finds the placeholders among the inherited descriptors, and takes them and the working directory over. Whether that one
/// came with the inherited connection. The program that executed this one may have known that it `has_files` or not.
fn take_over_descriptors(has_files: bool, inherited: Option<Inherited>, cwd: Option<FileRef>) -> bool {
    let Ok(mut kept) = Scratch::<[FileRef; INHERITED_MAX]>::any() else { return false };
    let mut count = 0;
    // The directory first, so that it has a place however many descriptors there are.
    if let (Some(cwd), [place, ..]) = (cwd, kept.as_mut_slice()) {
        *place = cwd;
        count = 1;
    }
    let each = if has_files { each_descriptor } else { each_low_descriptor };
    each(&mut |fd| {
        let Some((server, file, _)) = placeholder::identify(fd) else { return };
        let known = inherited.is_some_and(|inherited| inherited.session == server);
        match kept.get_mut(count) {
            Some(place) if known && file != table::LOST => {
                *place = file;
                count += 1;
                table::swap(fd, Some(file));
            }
            // Its file is lost to this process: whatever is done with it fails, instead of reading an empty file.
            _ => drop(table::swap(fd, Some(table::LOST))),
        }
    });
    let Some(Inherited { socket, session, .. }) = inherited else { return false };
    let files = kept.get(..count).unwrap_or(&[]);
    let client = connect(Some((socket, files)), false).ok();
    match client.filter(|client| TAKEN_OVER.load(Relaxed) && client.session() == session) {
        Some(client) => cwd.is_some_and(|cwd| client.flags(cwd).is_ok()),
        None => {
            table::each(0, u32::MAX, |fd, file| {
                if file != table::OWN {
                    table::swap(fd, Some(table::LOST));
                }
            });
            false
        }
    }
}

/// What the kernel calls a descriptor.
pub fn descriptor_name(fd: c_int, out: &mut [u8]) -> Option<&[u8]> {
    if fd < 0 { None } else { sys::readlink(path_of_descriptor(fd).c_str(), out).ok() }
}

/// Calls `each` with the open descriptors among the lowest, which costs a tenth of finding all. A thread can have opened a file
/// while another one executed the program.
fn each_low_descriptor(each: &mut dyn FnMut(c_int)) {
    const LOW: usize = 64;
    let mut descriptors: [libc::pollfd; LOW] =
        std::array::from_fn(|fd| libc::pollfd { fd: fd as c_int, events: 0, revents: 0 });
    if sys::poll_now(&mut descriptors).is_err() {
        return each_descriptor(each);
    }
    let open = descriptors.iter().filter(|polled| polled.revents & libc::POLLNVAL == 0);
    open.for_each(|polled| each(polled.fd));
}

/// Calls `each` with every open descriptor.
fn each_descriptor(each: &mut dyn FnMut(c_int)) {
    let Ok(dir) = sys::open(c"/proc/self/fd", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) else {
        return;
    };
    let dir = Fd(dir);
    let Ok(mut buffer) = Scratch::<[u8; 4096]>::any() else { return };
    while let Ok(filled @ 1..) = sys::getdents64(*dir, buffer.as_mut_slice()) {
        let mut rest = buffer.get(..filled).unwrap_or(&[]);
        // linux_dirent64: u64 inode, u64 offset, u16 length, u8 type, name.
        while let Some((&[low, high], name)) =
            rest.get(16..18).and_then(|len| Some((<&[u8; 2]>::try_from(len).ok()?, rest.get(19..)?)))
        {
            let len = usize::from(u16::from_le_bytes([low, high]));
            let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
            if let Some(fd) = number(name).map(|fd| fd as c_int)
                && fd != *dir
            {
                each(fd);
            }
            rest = rest.get(len.max(19)..).unwrap_or(&[]);
        }
    }
}

/// The working directory that the process had before it executed this program: its reference and path.
fn inherited_cwd(value: &[u8]) -> Option<(FileRef, &[u8])> {
    number_before_colon(value).map(|(file, path)| (FileRef(file), path))
}

fn inherit_cwd(path: &[u8]) {
    let opened =
        client().and_then(|client| client.open(FileRef::ROOT, path, libc::O_PATH | libc::O_DIRECTORY, 0));
    // Where it is lost, relative paths fail.
    set_cwd(Some((opened.map_or(crate::descriptors::table::LOST, |open| open.file), path)));
}

/// When the kernel's working directory lies below the prefix (which then exists outside too), it means the volume's.
fn notice_cwd() {
    let Ok(mut buffer) = Scratch::<[u8; PATH_BYTES]>::any() else { return };
    if let Ok(path) = sys::getcwd(buffer.as_mut_slice())
        && let Some(inside) = crate::routing::below(path, mount())
    {
        inherit_cwd(inside);
        nowhere::enter();
    }
}
