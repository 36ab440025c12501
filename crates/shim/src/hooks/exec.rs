//! Executing programs. The environment is composed anew, see [`crate::process::environment`]; programs on the volume are loaded by
//! [`crate::process::program`].

use crate::descriptors::table;
use crate::owned::{Fd, Memory};
use crate::process::environment::Environment;
use crate::process::program::{self, Line, Program};
use crate::process::{self, unreached};
use crate::routing::{Last, fail, finish, on_path};
use crate::sys;
use crate::text::{Text, decimal};
use libc::{c_char, c_int};
use weft_client::Errno;
use weft_client::busy;
use weft_client::scratch::Scratch;

/// Array of C strings, ended by null.
pub type Strings = *const *const c_char;

/// Interpreters of interpreters, as many as Linux follows.
const NESTING_MAX: u32 = 4;

unsafe extern "C" {
    static environ: Strings;
}

/// How many there are.
///
/// # Safety
/// `strings` is null or ends with null.
pub unsafe fn count(strings: Strings) -> usize {
    let mut count = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while !strings.is_null() && !(*strings.add(count)).is_null() {
            count += 1;
        }
    }
    count
}

/// Arguments that were put together anew, in memory of their own.
pub struct Arguments(Memory);

impl Arguments {
    /// These, and a null.
    fn of(count: usize, arguments: impl Iterator<Item = *const c_char>) -> Result<Arguments, Errno> {
        let memory = Memory::new((count + 1) * size_of::<*const c_char>())?;
        for (at, argument) in arguments.take(count).enumerate() {
            // SAFETY: room for `count` and the null, which is there already.
            unsafe { memory.start::<*const c_char>().add(at).write(argument) };
        }
        Ok(Arguments(memory))
    }

    /// `first`, then `rest` without its first element.
    ///
    /// # Safety
    /// `rest` is null or ends with null; all strings live as long as the result is used.
    pub unsafe fn new(first: &[*const c_char], rest: Strings) -> Result<Arguments, Errno> {
        // SAFETY: the caller's promise: `rest` ends with null.
        let old = unsafe { count(rest) };
        // SAFETY: below the count.
        let rest = (1..old).map(|at| unsafe { *rest.add(at) });
        Self::of(first.len() + old, first.iter().copied().chain(rest))
    }

    /// The array for `execve`.
    pub fn array(&self) -> Strings {
        self.0.start::<*const c_char>()
    }
}

unsafe fn execute_at(
    dirfd: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: &Environment,
    flags: c_int,
    nesting: u32,
) -> c_int {
    let last = Last::of(flags);
    let real = |dirfd: c_int, path: *const c_char| {
        // SAFETY: the program's own arguments.
        unsafe {
            unreached::tell_of_path(dirfd, path);
            if dirfd == libc::AT_FDCWD && flags == 0 {
                real::execve(path, arguments, environment.array())
            } else {
                real::execveat(dirfd, path, arguments, environment.array(), flags)
            }
        }
    };
    on_path(dirfd, path, last, real, |place| {
        let program = program::load(place)?;
        // SAFETY: as above.
        unsafe {
            match program {
                Program::Binary(fd) => execute_binary(fd, arguments, environment),
                Program::Script(line) => execute_script(&line, path, arguments, environment, nesting),
            }
        }
    })
}

unsafe fn execute_binary(fd: Fd, arguments: Strings, environment: &Environment) -> Result<c_int, Errno> {
    unreached::tell_of(*fd, b"a program on the volume");
    // SAFETY: the program's own arguments.
    // Apart: a program inherits the signal mask.
    busy::apart(|| unsafe {
        real::execveat(*fd, c"".as_ptr(), arguments, environment.array(), libc::AT_EMPTY_PATH)
    });
    Err(sys::errno())
}

unsafe fn execute_script(
    line: &Line,
    path: *const c_char,
    arguments: Strings,
    environment: &Environment,
    nesting: u32,
) -> Result<c_int, Errno> {
    if nesting >= NESTING_MAX {
        return Err(libc::ELOOP);
    }
    let interpreter = line.interpreter();
    // SAFETY: the program's own arguments; `line` and `path` live until the execution.
    unsafe {
        let arguments = match line.argument() {
            Some(argument) => Arguments::new(&[interpreter, argument, path], arguments)?,
            None => Arguments::new(&[interpreter, path], arguments)?,
        };
        execute_at(libc::AT_FDCWD, interpreter, arguments.array(), environment, 0, nesting + 1);
    }
    Err(sys::errno())
}

/// `execve` while weft is on.
///
/// # Safety
/// As `execve(2)`.
pub unsafe fn execute(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        finish(
            Environment::new(environment)
                .map(|environment| execute_at(libc::AT_FDCWD, path, arguments, &environment, 0, 0)),
        )
    }
}

/// As the shells do: a file that is no program is a script for `/bin/sh`.
unsafe fn execute_or_sh(path: *const c_char, arguments: Strings, environment: &Environment) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let result = execute_at(libc::AT_FDCWD, path, arguments, environment, 0, 0);
        if sys::errno() != libc::ENOEXEC {
            return result;
        }
        let shell = c"/bin/sh".as_ptr();
        match Arguments::new(&[shell, path], arguments) {
            Ok(arguments) => execute_at(libc::AT_FDCWD, shell, arguments.array(), environment, 0, 0),
            Err(error) => fail(error),
        }
    }
}

/// `execvpe` while weft is on: the shim searches `PATH` itself, because a directory of `PATH` may be on the volume.
///
/// # Safety
/// As `execvpe(3)`.
pub unsafe fn search(file: *const c_char, arguments: Strings, given: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    let (name, environment) = unsafe {
        match Environment::new(given) {
            Ok(environment) => (sys::bytes(file), environment),
            Err(error) => return fail(error),
        }
    };
    if name.is_empty() {
        return fail(libc::ENOENT);
    }
    if name.contains(&b'/') {
        // SAFETY: as above.
        return unsafe { execute_or_sh(file, arguments, &environment) };
    }
    fail(start_in_path(name, |candidate| {
        // SAFETY: as above.
        unsafe { execute_or_sh(candidate, arguments, &environment) };
        sys::errno()
    }))
}

/// Calls `attempt` with each path at which `PATH` says that a program may lie, as long as its error says that there is none
/// that starts; the error that counts.
pub fn start_in_path(name: &[u8], mut attempt: impl FnMut(*const c_char) -> Errno) -> Errno {
    let mut none = libc::ENOENT;
    let ended = in_path(name, |candidate| match attempt(candidate) {
        libc::EACCES => {
            none = libc::EACCES;
            None
        }
        libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => None,
        error => Some(error),
    });
    ended.map_or_else(|error| error, |ended| ended.unwrap_or(none))
}

/// Calls `attempt` with each path at which `PATH` says that a program may lie, until it gives a result.
pub fn in_path<R>(
    name: &[u8],
    mut attempt: impl FnMut(*const c_char) -> Option<R>,
) -> Result<Option<R>, Errno> {
    let mut candidate = Scratch::<[u8; process::PATH_BYTES]>::any()?;
    // SAFETY: the process's own environment.
    let path = unsafe { process::variable(environ, b"PATH") }.unwrap_or(b"/bin:/usr/bin");
    for directory in path.split(|&byte| byte == b':') {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        if directory.len() + slash.len() + name.len() >= process::PATH_BYTES {
            continue;
        }
        for (to, from) in candidate.iter_mut().zip(directory.iter().chain(slash).chain(name).chain(b"\0")) {
            *to = *from;
        }
        if let Some(result) = attempt(candidate.as_ptr().cast()) {
            return Ok(Some(result));
        }
    }
    Ok(None)
}

hooks! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        if process::is_on() { execute(path, arguments, environment) } else { real::execve(path, arguments, environment) }
    }

    fn execv(path: *const c_char, arguments: Strings) -> c_int {
        if process::is_on() { execute(path, arguments, environ) } else { real::execv(path, arguments) }
    }

    fn execvp(file: *const c_char, arguments: Strings) -> c_int {
        if process::is_on() { search(file, arguments, environ) } else { real::execvp(file, arguments) }
    }

    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        if process::is_on() {
            search(file, arguments, environment)
        } else {
            real::execvpe(file, arguments, environment)
        }
    }

    fn execveat(dirfd: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int {
        if !process::is_on() {
            return real::execveat(dirfd, path, arguments, environment, flags);
        }
        if flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && *path == 0 && table::is_weft(dirfd) {
            return body::fexecve(dirfd, arguments, environment);
        }
        finish(
            Environment::new(environment)
                .map(|environment| execute_at(dirfd, path, arguments, &environment, flags, 0)),
        )
    }

    fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
        if !process::is_on() {
            return real::fexecve(fd, arguments, environment);
        }
        finish(Environment::new(environment).and_then(|environment| {
            let Some(file) = table::get(fd) else { return Ok(real::fexecve(fd, arguments, environment.array())) };
            match program::load_open(process::client()?, file)? {
                Program::Binary(fd) => execute_binary(fd, arguments, &environment),
                Program::Script(line) => {
                    let path = Text::<24>::of(&[b"/dev/fd/", &decimal(fd as u64)]);
                    execute_script(&line, path.c_str().as_ptr(), arguments, &environment, 0)
                }
            }
        }))
    }
}

/// `execl`, `execlp` and `execle`: variadic, with the arguments themselves in the list, so that a fixed-arity definition
/// cannot reach them. The entry puts the argument registers in front of the callee and hands over both parts.
#[cfg(target_arch = "x86_64")]
pub mod lists {
    use super::{Arguments, Strings, body, environ};
    use crate::routing::finish;
    use libc::{c_char, c_int};

    /// Argument registers behind `path`.
    const REGISTERS: usize = 5;

    /// Gives `execute` the list, made contiguous, and what follows the null in the caller's list.
    unsafe fn with_list(
        registers: Strings,
        stack: Strings,
        execute: impl FnOnce(Strings, *const c_char) -> c_int,
    ) -> c_int {
        // SAFETY: the entry passes the caller's registers and stack; the list ends with null.
        let at = |number: usize| unsafe {
            if number < REGISTERS { *registers.add(number) } else { *stack.add(number - REGISTERS) }
        };
        let mut count = 0;
        while !at(count).is_null() {
            count += 1;
        }
        finish(Arguments::of(count, (0..count).map(at)).map(|list| execute(list.array(), at(count + 1))))
    }

    unsafe extern "C" fn list(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
        // SAFETY: the caller's own path, list and environment.
        unsafe { with_list(registers, stack, |list, _| body::execve(path, list, environ)) }
    }

    unsafe extern "C" fn list_search(file: *const c_char, registers: Strings, stack: Strings) -> c_int {
        // SAFETY: as above.
        unsafe { with_list(registers, stack, |list, _| body::execvpe(file, list, environ)) }
    }

    unsafe extern "C" fn list_environment(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
        // SAFETY: as above; the environment follows the list.
        unsafe { with_list(registers, stack, |list, behind| body::execve(path, list, behind.cast())) }
    }

    macro_rules! entries {
        ($($name:ident => $inner:ident),*) => {
            $(
                /// # Safety
                /// As the function's manual says.
                #[cfg_attr(not(test), unsafe(no_mangle))]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() -> c_int {
                    // At entry rsp is 8 off a multiple of 16, with the return address on top and the caller's stack
                    // arguments behind it.
                    std::arch::naked_asm!(
                        "sub rsp, 56",
                        "mov [rsp], rsi",
                        "mov [rsp + 8], rdx",
                        "mov [rsp + 16], rcx",
                        "mov [rsp + 24], r8",
                        "mov [rsp + 32], r9",
                        "mov rsi, rsp",
                        "lea rdx, [rsp + 64]",
                        "call {inner}",
                        "add rsp, 56",
                        "ret",
                        inner = sym $inner,
                    )
                }
            )*
        };
    }
    entries!(execl => list, execlp => list_search, execle => list_environment);
}
