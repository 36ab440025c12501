//! Mounting and unmounting: by the kernel for root, by `fusermount3` for others.

use crate::MountChoice;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use weft_sys::{effective_user, message};

/// What can be changed of a mount: of the rest, the server would have to know.
const CHANGEABLE: MountFlags =
    MountFlags::RDONLY.union(MountFlags::NOSUID).union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// Where the kernel gives a connection.
const DEVICE: &str = "/dev/fuse";
/// Mounts for users; its variable with the number of the descriptor by which it gives the connection.
const HELPER: &str = "fusermount3";
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Mounts on a directory; the connection with the kernel.
pub fn mount(dir: &Path, choice: &MountChoice) -> io::Result<File> {
    if effective_user().0 == 0 { by_kernel(dir, choice) } else { by_helper(dir, choice) }
}

/// Unmounts a directory; with `detaches` also one that is in use: those who use it keep what they have open.
pub fn unmount(dir: &Path, detaches: bool) -> io::Result<()> {
    if effective_user().0 == 0 {
        // A name that leads elsewhere by now must not lead root there.
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, detaches);
        return Ok(rustix::mount::unmount(dir, flags)?);
    }
    let lazily = if detaches { "-uz" } else { "-u" };
    helped(Command::new(HELPER).args([lazily, "--"]).arg(dir))
}

/// The options that the kernel and the helper have in common.
fn options(choice: &MountChoice) -> String {
    let other = if choice.allow_other { ",allow_other" } else { "" };
    format!("default_permissions{other}")
}

/// What the kernel looks after of a mount by itself.
fn flags(choice: &MountChoice) -> MountFlags {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    let chosen = [
        (choice.read_only, MountFlags::RDONLY, true),
        (choice.suid, MountFlags::NOSUID, false),
        (choice.dev, MountFlags::NODEV, false),
        (choice.no_exec, MountFlags::NOEXEC, true),
        (choice.no_atime, MountFlags::NOATIME, true),
        (choice.sync, MountFlags::SYNCHRONOUS, true),
        (choice.dir_sync, MountFlags::DIRSYNC, true),
    ];
    for (_, flag, is_set) in chosen.into_iter().filter(|(is_chosen, ..)| *is_chosen) {
        flags.set(flag, is_set);
    }
    flags
}

/// Shows what is mounted on a directory in another one, too. Only the superuser can.
///
/// # Errors
/// What the kernel says.
pub fn mount_too(mounted: &Path, dir: &Path, choice: &MountChoice) -> io::Result<()> {
    rustix::mount::mount_bind(mounted, dir)?;
    let limited = MountFlags::BIND | flags(choice) & CHANGEABLE;
    rustix::mount::mount_remount(dir, limited, c"").map_err(|error| {
        // It is of use to nobody as it is.
        let _ = unmount(dir, true);
        error.into()
    })
}

/// Changes what the kernel looks after by itself of a mount of any process: whether something can be changed, set-id bits count,
/// device nodes lead to devices, programs can be executed. Only the superuser can.
///
/// # Errors
/// What the kernel says.
pub fn remount(dir: &Path, choice: &MountChoice) -> io::Result<()> {
    // Who mounted it has told the server the rest, which stays.
    let is_sync = rustix::fs::statvfs(dir)?.f_flag.contains(StatVfsMountFlags::SYNCHRONOUS);
    let mut flags = flags(choice) & CHANGEABLE;
    flags.set(MountFlags::SYNCHRONOUS, is_sync);
    Ok(rustix::mount::mount_remount(dir, flags, c"")?)
}

fn by_kernel(dir: &Path, choice: &MountChoice) -> io::Result<File> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let (user, group) = effective_user();
    let kind = dir.metadata()?.mode() & libc::S_IFMT;
    let data = format!(
        "fd={},rootmode={kind:o},user_id={user},group_id={group},{}",
        device.as_raw_fd(),
        options(choice)
    );
    let text = |text: &[u8]| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (source, data) = (text(choice.source.as_bytes())?, text(data.as_bytes())?);
    rustix::mount::mount(&*source, dir, c"fuse.weft", flags(choice), Some(&*data))?;
    Ok(device)
}

fn by_helper(dir: &Path, choice: &MountChoice) -> io::Result<File> {
    let (own, theirs) = UnixStream::pair()?;
    // A copy that stays open over exec; it is given to the helper alone.
    let theirs = rustix::io::dup(theirs.as_fd())?;
    let mut all = OsString::from(options(choice));
    let chosen = [
        (choice.read_only, ",ro"),
        (choice.no_exec, ",noexec"),
        (choice.no_atime, ",noatime"),
        (choice.sync, ",sync"),
        (choice.dir_sync, ",dirsync"),
    ];
    for (_, option) in chosen.into_iter().filter(|(is_chosen, _)| *is_chosen) {
        all.push(option);
    }
    all.push(",subtype=weft,fsname=");
    all.push(escaped(&choice.source));
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(&all).arg("--").arg(dir);
    command.env(HELPER_SOCKET, theirs.as_raw_fd().to_string());
    helped(&mut command)?;
    drop(theirs);
    let received = message::receive(&own, &mut [0])?;
    received.fd.map(File::from).ok_or_else(|| io::Error::other(format!("{HELPER} gives no connection")))
}

/// Commas end an option.
fn escaped(text: &OsStr) -> OsString {
    let escape = |&byte: &u8| match byte {
        b',' | b'\\' => vec![b'\\', byte],
        byte => vec![byte],
    };
    OsString::from_vec(text.as_bytes().iter().flat_map(escape).collect())
}

/// Runs the helper; what it says is the error.
fn helped(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), format!("{HELPER} is not installed")),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_of_a_name_are_no_ends_of_options() {
        assert_eq!(escaped(OsStr::new("a,b\\c")), "a\\,b\\\\c");
    }
}
