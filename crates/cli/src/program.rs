//! Checks a program before it runs: whether it exists, and whether a library can be preloaded into it.
//!
//! The dynamic loader preloads libraries into programs that name a loader (`PT_INTERP`) and that do not gain rights when
//! they start. A script is as good as its interpreter.

use crate::error::CliError;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that are followed, as in Linux.
const SCRIPTS_MAX: usize = 5;
const HEAD_BYTES: usize = 4096;
const PT_INTERP: u32 = 3;
const ELF_CLASS_64: u8 = 2;
/// Bytes of a program header.
const HEADER_BYTES: usize = 56;
/// Program headers that are looked at.
const HEADERS_MAX: usize = 512;

const USE_SHELL: &str = "use a dynamically linked build of the program, or copy its files with 'weft cp'";

/// Finds a program as a shell would, and refuses one that weft cannot reach.
pub fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    let path = search(name)?;
    check(&path, SCRIPTS_MAX)?;
    Ok(path)
}

pub fn refused(path: &Path, why: impl Display, remedy: &str, status: u8) -> CliError {
    CliError::ended(status, format!("{}: {why}", path.display()), remedy)
}

fn search(name: &OsStr) -> Result<PathBuf, CliError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let executable = |file: &PathBuf| file.metadata().is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(executable).ok_or_else(|| {
        refused(Path::new(name), "not found in PATH", "give the path of the program, or install it", 127)
    })
}

/// Whether a program runs as somebody else than its caller when it starts. One that makes root of root does not.
fn gains_rights(meta: &Metadata) -> bool {
    // SAFETY: system calls without arguments.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let set_group = meta.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    meta.mode() & libc::S_ISUID != 0 && meta.uid() != user || set_group && meta.gid() != group
}

fn check(path: &Path, scripts_left: usize) -> Result<(), CliError> {
    let meta = path.metadata().map_err(|e| refused(path, e, "check the path", 127))?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(refused(path, "not an executable file", "check the path and the permissions", 126));
    }
    if gains_rights(&meta) {
        let why =
            "it gains rights at its start (setuid or setgid), so the system preloads no library into it";
        return Err(refused(
            path,
            why,
            "copy the program, remove the bit from the copy, and run the copy as the user whose rights it gains",
            126,
        ));
    }
    let unreadable =
        |e: std::io::Error| refused(path, format_args!("cannot be read: {e}"), "check its permissions", 126);
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let file = File::open(path).map_err(unreadable)?;
    (&file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    if let Some(script) = head.strip_prefix(b"#!") {
        let line = script.split(|&b| b == b'\n').next().unwrap_or_default();
        let interpreter =
            line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty()).unwrap_or_default();
        if scripts_left == 0 || interpreter.is_empty() {
            return Err(refused(
                path,
                "its first line names no interpreter",
                "write #! and the path of an interpreter",
                126,
            ));
        }
        return check(Path::new(OsStr::from_bytes(interpreter)), scripts_left - 1);
    }
    let why = match loader(&file, &head) {
        Ok(Some(loader)) if loader.windows(4).any(|w| w == b"musl") => {
            "it is linked with musl, and weft's preloaded library needs glibc"
        }
        Ok(Some(_)) => return Ok(()),
        Ok(None) => "it is statically linked, so the system preloads no library into it",
        Err(why) => why,
    };
    Err(refused(path, why, USE_SHELL, 126))
}

/// The loader that an ELF file names.
fn loader(file: &File, head: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    const DAMAGED: &str = "a damaged ELF file";
    if !head.starts_with(b"\x7fELF") {
        return Err("neither an ELF program nor a script with an interpreter");
    }
    if head.get(4) != Some(&ELF_CLASS_64) {
        return Err("it is built for another word size than weft's preloaded library");
    }
    let table = u64_at(head, 32).ok_or(DAMAGED)?;
    let (entry, count) = (u16_at(head, 54).ok_or(DAMAGED)?, u16_at(head, 56).ok_or(DAMAGED)?);
    let mut headers = vec![0; usize::from(entry) * usize::from(count).min(HEADERS_MAX)];
    file.read_exact_at(&mut headers, table).map_err(|_| DAMAGED)?;
    for header in headers.chunks_exact(usize::from(entry).max(HEADER_BYTES)) {
        if header.first_chunk().map(|kind| u32::from_le_bytes(*kind)) == Some(PT_INTERP) {
            let (at, len) = (u64_at(header, 8).ok_or(DAMAGED)?, u64_at(header, 32).ok_or(DAMAGED)?);
            let mut name = vec![0; (len as usize).min(HEAD_BYTES)];
            file.read_exact_at(&mut name, at).map_err(|_| DAMAGED)?;
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &tempfile::TempDir, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn status(result: Result<(), CliError>) -> u8 {
        result.map_or_else(|e| e.status(), |()| 0)
    }

    #[test]
    fn dynamic_programs_and_scripts_of_them_may_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(OsStr::new("sh")).is_ok());
        assert_eq!(status(check(&file(&dir, "script", b"#! /bin/sh -e\n", 0o755), SCRIPTS_MAX)), 0);
    }

    #[test]
    fn what_cannot_be_preloaded_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let shell = std::fs::read("/bin/sh").unwrap();
        // A program whose headers name no loader any more.
        let mut fixed = shell.clone();
        let table = u64::from_le_bytes(fixed[32..40].try_into().unwrap()) as usize;
        for header in 0..usize::from(fixed[56]) {
            let at = table + header * usize::from(fixed[54]);
            if fixed[at] == PT_INTERP as u8 {
                fixed[at] = 0;
            }
        }
        let cases: [(&str, &[u8], u32, &str); 5] = [
            ("static", &fixed, 0o755, "statically linked"),
            ("setuid", &shell, 0o4755, "gains rights"),
            ("plain", &shell, 0o644, "not an executable"),
            ("text", b"hello", 0o755, "neither an ELF program"),
            ("loop", b"#!/", 0o755, "not an executable"),
        ];
        for (name, content, mode, says) in cases {
            let path = file(&dir, name, content, mode);
            // SAFETY: plain system call without arguments.
            if name == "setuid" && unsafe { libc::getuid() } == 0 {
                // What makes root of root gains nothing.
                assert_eq!(status(check(&path, SCRIPTS_MAX)), 0);
                std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            let error = check(&path, SCRIPTS_MAX).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.remedy().is_some() && error.status() == 126);
        }
        assert_eq!(find(OsStr::new("no-such-program")).map_or_else(|e| e.status(), |_| 0), 127);
    }
}
