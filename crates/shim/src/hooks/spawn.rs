//! Starting programs: `posix_spawn`, `system`, `popen`.
//!
//! libc's `posix_spawn` makes a child that shares this process's memory and executes by an inner function, so everything
//! the child needs is prepared here: the environment with a connection, files on the volume opened beforehand (the
//! child's open becomes a `dup2`), a program on the volume copied to memory.

use super::exec::{self, Strings};
use crate::descriptors::{self, table};
use crate::lock::Locked;
use crate::owned::Memory;
use crate::process::environment::Environment;
use crate::process::program::{self, Program};
use crate::process::{self, fork, unreached};
use crate::report::{Refusal, refuse};
use crate::routing::{finish, is_on_volume, needs_routing, on_target, result_of};
use crate::sys;
use crate::text::path_of_descriptor;
use libc::{FILE, c_char, c_int, c_void, mode_t, pid_t};
use std::ptr;
use weft_client::Errno;
use weft_client::busy;

/// glibc's file actions: fixed by the size of the public type, and the same since 2.29.
#[repr(C)]
struct FileActions {
    allocated: c_int,
    used: c_int,
    actions: *mut Action,
    pad: [c_int; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    tag: c_int,
    what: ActionWhat,
}

#[repr(C)]
#[derive(Clone, Copy)]
union ActionWhat {
    open: ActionOpen,
    dup2: ActionDup2,
    chdir: *const c_char,
    fchdir: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ActionOpen {
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ActionDup2 {
    fd: c_int,
    new: c_int,
}

const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
/// Files on the volume that one spawn opens.
const OPENED_MAX: usize = 16;
/// Numbers of files opened for a child begin here, out of the way of the actions.
const OPENED_FROM: usize = 600;

/// The caller's actions with opens on the volume, and what leads out of it, replaced.
struct Prepared {
    actions: FileActions,
    _memory: Memory,
    opened: [c_int; OPENED_MAX],
    opened_count: usize,
}

impl Prepared {
    /// `None` when the actions can stay as they are.
    unsafe fn new(given: *const FileActions) -> Result<Option<Prepared>, Errno> {
        // SAFETY: null or initialised by libc.
        let Some(given) = (unsafe { given.as_ref() }) else { return Ok(None) };
        let count = given.used.max(0) as usize;
        if count == 0 {
            return Ok(None);
        }
        // SAFETY: libc keeps `used` actions there.
        let old = unsafe { std::slice::from_raw_parts(given.actions, count) };
        // SAFETY: the tag tells which member holds.
        let concerns = |action: &Action| unsafe {
            match action.tag {
                OPEN => needs_routing(libc::AT_FDCWD, action.what.open.path),
                CHDIR => needs_routing(libc::AT_FDCWD, action.what.chdir),
                _ => false,
            }
        };
        if !old.iter().any(concerns) {
            return Ok(None);
        }
        let memory = Memory::new(count * size_of::<Action>())?;
        let mut prepared = Prepared {
            actions: FileActions {
                allocated: given.used,
                used: given.used,
                actions: memory.start(),
                pad: given.pad,
            },
            _memory: memory,
            opened: [-1; OPENED_MAX],
            opened_count: 0,
        };
        // SAFETY: just mapped for `count` actions.
        let new = unsafe { std::slice::from_raw_parts_mut(prepared.actions.actions, count) };
        for (to, from) in new.iter_mut().zip(old) {
            *to = *from;
            if concerns(from) {
                // SAFETY: the tag tells which member holds.
                *to = unsafe { prepared.replace(from)? };
            }
        }
        Ok(Some(prepared))
    }

    unsafe fn replace(&mut self, action: &Action) -> Result<Action, Errno> {
        if action.tag != OPEN {
            // SAFETY: the tag is CHDIR; the path is the program's.
            let path = unsafe { action.what.chdir };
            if is_on_volume(libc::AT_FDCWD, path) {
                return Err(refuse(Refusal::SpawnDirectory));
            }
            // SAFETY: as above.
            let fchdir = unsafe { self.open(path, libc::O_PATH | libc::O_DIRECTORY, 0)? };
            return Ok(Action { tag: FCHDIR, what: ActionWhat { fchdir } });
        }
        // SAFETY: the tag is OPEN; the path is the program's.
        let (fd, new) = unsafe {
            let wanted = action.what.open;
            (self.open(wanted.path, wanted.flags, wanted.mode)?, wanted.fd)
        };
        let dup2 = ActionDup2 { fd, new };
        Ok(Action { tag: DUP2, what: ActionWhat { dup2 } })
    }

    /// Opens a file for the child, under a number that the actions do not use.
    unsafe fn open(&mut self, path: *const c_char, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
        // SAFETY: the program's own path.
        let fd = unsafe { crate::hooks::open::body::open(path, flags | libc::O_CLOEXEC, mode) };
        let fd = result_of(fd)?;
        // SAFETY: plain descriptors.
        let high = unsafe { crate::hooks::control::body::fcntl(fd, libc::F_DUPFD_CLOEXEC, OPENED_FROM) };
        let _ = descriptors::close_any(fd);
        match self.opened.get_mut(self.opened_count) {
            Some(place) if high >= 0 => *place = high,
            _ => return Err(libc::EMFILE),
        }
        self.opened_count += 1;
        Ok(high)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for fd in self.opened.iter().take(self.opened_count) {
            let _ = descriptors::close_any(*fd);
        }
    }
}

type Attributes = *const c_void;

/// Spawns while weft is on; `search` as in `posix_spawnp`. Returns an error number.
unsafe fn spawn(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const FileActions,
    attributes: Attributes,
    arguments: Strings,
    environment: Strings,
    search: bool,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let prepared = match Prepared::new(actions) {
            Ok(prepared) => prepared,
            Err(error) => return error,
        };
        let another = becomes_another(attributes);
        if another && (prepared.is_some() || is_on_volume(libc::AT_FDCWD, file)) {
            return refuse(Refusal::SpawnIdentity);
        }
        // After the opens: the child's connection has to know those files.
        let inherits = prepared.is_some() || another || hands_over(actions);
        let environment = match Environment::for_child(environment, inherits) {
            Ok(environment) => environment,
            Err(error) => return error,
        };
        let actions: *const c_void = match &prepared {
            Some(prepared) => (&raw const prepared.actions).cast(),
            None => actions.cast(),
        };
        let place = SpawnCall { pid, actions, attributes, arguments, environment: &environment };
        let name = sys::bytes(file);
        if !search || name.contains(&b'/') {
            return place.spawn(file, search);
        }
        if name.is_empty() {
            return libc::ENOENT;
        }
        match exec::in_path(name, |path| needs_routing(libc::AT_FDCWD, path).then_some(())) {
            Ok(Some(())) => {}
            Ok(None) => {
                // Of the candidates, the first that is there is the one.
                let _ = exec::in_path(name, |path| {
                    sys::exists(libc::AT_FDCWD, path, 0)
                        .is_ok()
                        .then(|| unreached::tell_of_path(libc::AT_FDCWD, path))
                });
                return real::posix_spawnp(pid, file, actions, attributes, arguments, environment.array());
            }
            Err(error) => return error,
        }
        exec::start_in_path(name, |path| place.spawn(path, sys::bytes(path).contains(&b'/')))
    }
}

/// Whether the child runs as another user or group than this process: what it may open is not what this process may.
unsafe fn becomes_another(attributes: Attributes) -> bool {
    let mut flags = 0;
    // SAFETY: null or initialised by libc.
    let read = !attributes.is_null()
        && unsafe { libc::posix_spawnattr_getflags(attributes.cast(), &raw mut flags) } == 0;
    // SAFETY: system calls without arguments.
    let differs = unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() };
    read && c_int::from(flags) & libc::POSIX_SPAWN_RESETIDS != 0 && differs
}

/// Whether the child gets a weft descriptor by a `dup2` that the program asked for, close-on-exec or not.
unsafe fn hands_over(actions: *const FileActions) -> bool {
    // SAFETY: null or initialised by libc, which keeps `used` actions there; the tag tells which member holds.
    unsafe {
        let Some(actions) = actions.as_ref().filter(|actions| actions.used > 0) else { return false };
        std::slice::from_raw_parts(actions.actions, actions.used as usize)
            .iter()
            .any(|action| action.tag == DUP2 && table::is_weft(action.what.dup2.fd))
    }
}

/// The arguments of a `posix_spawn` without the path.
struct SpawnCall<'a> {
    pid: *mut pid_t,
    actions: *const c_void,
    attributes: Attributes,
    arguments: Strings,
    environment: &'a Environment,
}

impl SpawnCall<'_> {
    /// Spawns the program of this path; `or_sh`: a file that is no program is a script for the shell. Returns an error
    /// number.
    unsafe fn spawn(&self, file: *const c_char, or_sh: bool) -> c_int {
        let &SpawnCall { pid, actions, attributes, arguments, environment } = self;
        let spawn_at = |file: *const c_char| {
            // SAFETY: the program's own arguments.
            unsafe {
                if or_sh {
                    real::posix_spawnp(pid, file, actions, attributes, arguments, environment.array())
                } else {
                    real::posix_spawn(pid, file, actions, attributes, arguments, environment.array())
                }
            }
        };
        let elsewhere = |path| {
            // SAFETY: the program's own path.
            unsafe { unreached::tell_of_path(libc::AT_FDCWD, path) };
            spawn_at(path)
        };
        on_target(file, elsewhere, |place| {
            Ok(match program::load(place) {
                Err(weft_client::OUTSIDE) => return Err(weft_client::OUTSIDE),
                Err(error) => error,
                Ok(Program::Binary(fd)) => {
                    unreached::tell_of(*fd, b"a program on the volume");
                    // Apart: a program inherits the signal mask.
                    busy::apart(|| spawn_at(path_of_descriptor(*fd).c_str().as_ptr()))
                }
                // Through `env`, which executes it by the hooks.
                Ok(Program::Script(_)) => {
                    let env = c"/usr/bin/env".as_ptr();
                    // SAFETY: as above; `file` lives until the spawn.
                    unsafe {
                        match exec::Arguments::new(&[env, file], arguments) {
                            Err(error) => error,
                            Ok(arguments) => busy::apart(|| {
                                let (arguments, environment) = (arguments.array(), environment.array());
                                real::posix_spawn(pid, env, actions, attributes, arguments, environment)
                            }),
                        }
                    }
                }
            })
        })
    }
}

/// In a forked child: becomes `/bin/sh -c command`.
unsafe fn become_shell(command: *const c_char) -> ! {
    let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), command, ptr::null()];
    // SAFETY: C strings; the child ends here in any case.
    unsafe {
        exec::body::execv(c"/bin/sh".as_ptr(), arguments.as_ptr());
        crate::hooks::exit::body::_exit(127)
    }
}

unsafe fn run_shell(command: *const c_char) -> c_int {
    // SAFETY: signal sets and actions are plain data that the calls fill.
    unsafe {
        let mut ignore: libc::sigaction = std::mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        let (mut old_int, mut old_quit): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigaction(libc::SIGINT, &raw const ignore, &raw mut old_int);
        libc::sigaction(libc::SIGQUIT, &raw const ignore, &raw mut old_quit);
        let (mut child, mut old_mask): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const child, &raw mut old_mask);
        let restore = || {
            libc::sigaction(libc::SIGINT, &raw const old_int, ptr::null_mut());
            libc::sigaction(libc::SIGQUIT, &raw const old_quit, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old_mask, ptr::null_mut());
        };
        let pid = fork::fork(|| crate::hooks::fork::real::fork());
        if pid == 0 {
            restore();
            become_shell(command);
        }
        let status = if pid > 0 { wait_for(pid).unwrap_or(-1) } else { -1 };
        let error = sys::errno();
        restore();
        sys::set_errno(error);
        status
    }
}

/// Waits for the end of a child; its status.
fn wait_for(pid: pid_t) -> Result<c_int, Errno> {
    let mut status = -1;
    // SAFETY: a place for the status.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {
        match sys::errno() {
            libc::EINTR => {}
            error => return Err(error),
        }
    }
    Ok(status)
}

/// Streams of `popen` at once.
const PIPES_MAX: usize = 128;

#[derive(Clone, Copy)]
struct Pipe {
    stream: *mut FILE,
    pid: pid_t,
}
// SAFETY: the pointer is only compared.
unsafe impl Send for Pipe {}

static PIPES: Locked<[Pipe; PIPES_MAX]> = Locked::new([Pipe { stream: ptr::null_mut(), pid: 0 }; PIPES_MAX]);

/// In a forked child.
pub fn open_locks() {
    PIPES.force_open();
}

fn swap_pipe(from: *mut FILE, to: Pipe) -> Option<pid_t> {
    PIPES.with(|pipes| {
        let place = pipes.iter_mut().find(|pipe| pipe.stream == from)?;
        Some(std::mem::replace(place, to).pid)
    })
}

unsafe fn open_pipe(command: *const c_char, mode: &[u8]) -> Result<*mut FILE, Errno> {
    let reads = match mode.iter().filter(|&&letter| letter != b'e').copied().collect_one() {
        Some(b'r') => true,
        Some(b'w') => false,
        _ => return Err(libc::EINVAL),
    };
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    result_of(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    let [read_end, write_end] = ends;
    let (ours, theirs, number) = if reads { (read_end, write_end, 1) } else { (write_end, read_end, 0) };
    // SAFETY: plain descriptors and C strings.
    unsafe {
        let pid = fork::fork(|| crate::hooks::fork::real::fork());
        if pid == 0 {
            if theirs == number {
                let _ = weft_client::sys::set_cloexec(theirs, false);
            } else {
                let _ = descriptors::duplicate_any(theirs, number, 0);
            }
            become_shell(command);
        }
        let error = sys::errno();
        let _ = weft_client::sys::close(theirs);
        if pid < 0 {
            let _ = weft_client::sys::close(ours);
            return Err(error);
        }
        let stream = crate::hooks::stdio::real::fdopen(ours, if reads { c"r" } else { c"w" }.as_ptr());
        if stream.is_null() || swap_pipe(ptr::null_mut(), Pipe { stream, pid }).is_none() {
            if stream.is_null() {
                let _ = weft_client::sys::close(ours);
            } else {
                crate::hooks::stdio::real::fclose(stream);
            }
            libc::waitpid(pid, ptr::null_mut(), 0);
            return Err(libc::ENOMEM);
        }
        if !mode.contains(&b'e') {
            let _ = weft_client::sys::set_cloexec(ours, false);
        }
        Ok(stream)
    }
}

trait CollectOne {
    fn collect_one(self) -> Option<u8>;
}
impl<I: Iterator<Item = u8>> CollectOne for I {
    /// The element, when there is exactly one.
    fn collect_one(mut self) -> Option<u8> {
        let one = self.next();
        if self.next().is_some() { None } else { one }
    }
}

hooks! {
    fn posix_spawn(
        pid: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: Attributes,
        arguments: Strings,
        environment: Strings
    ) -> c_int {
        if process::is_on() {
            spawn(pid, path, actions.cast(), attributes, arguments, environment, false)
        } else {
            real::posix_spawn(pid, path, actions, attributes, arguments, environment)
        }
    }

    fn posix_spawnp(
        pid: *mut pid_t,
        file: *const c_char,
        actions: *const c_void,
        attributes: Attributes,
        arguments: Strings,
        environment: Strings
    ) -> c_int {
        if process::is_on() {
            spawn(pid, file, actions.cast(), attributes, arguments, environment, true)
        } else {
            real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
        }
    }

    fn system(command: *const c_char) -> c_int {
        if command.is_null() || !process::is_on() {
            return real::system(command);
        }
        run_shell(command)
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        if !process::is_on() || command.is_null() || mode.is_null() {
            return real::popen(command, mode);
        }
        finish(open_pipe(command, sys::bytes(mode)))
    }

    fn pclose(stream: *mut FILE) -> c_int {
        let none = Pipe { stream: ptr::null_mut(), pid: 0 };
        let known = if stream.is_null() { None } else { swap_pipe(stream, none) };
        let Some(pid) = known else { return real::pclose(stream) };
        crate::hooks::stdio::real::fclose(stream);
        finish(wait_for(pid))
    }
}
