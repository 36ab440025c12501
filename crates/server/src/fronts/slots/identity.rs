//! Credentials of connected processes, as the kernel reports them: when a process connects, and when it reports a
//! change.
//!
//! Users, groups and capabilities belong to threads. Most processes have one set of them, and so has their
//! connection; where threads differ, each has its own.

use crate::ops::Caller;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use weft_core::{Capabilities, Capability, Credentials};
use weft_sys::effective_user;
use weft_sys::peer::{self, Peer};

/// Room for `/proc/PID/status`.
const STATUS_BYTES: usize = 8192;
/// Capabilities to take on any user and any group.
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;

/// Who has connected, and says who it is in its first message. When the message does not say so, or what it says cannot be
/// verified, the kernel's word of who has connected counts, and nobody has the superuser's capabilities.
pub fn of_newcomer(socket: &UnixStream, peer: Peer, sender: Option<Peer>, thread: u32) -> Caller {
    let told = sender.filter(|sender| (sender.pid, sender.uid) == (peer.pid, peer.uid));
    // Of one that is served since before it said so, there is still its first thread.
    let told = told
        .map_or_else(|| ThreadStatus::of_sender(peer, 0), |sender| ThreadStatus::of_sender(sender, thread));
    if let Ok(status) = told {
        return status.caller;
    }
    tracing::debug!(pid = peer.pid, uid = peer.uid, "a process whose identity is known by its socket only");
    let groups = peer::groups(socket).unwrap_or_default();
    Credentials { gid: peer.gid, ..Credentials::user(peer.uid, &groups) }.into()
}

/// Who a thread is, and its umask, by the number under which this process sees it. It waits for the answer to a request that the kernel
/// has said to be of this file-system user and group.
///
/// # Errors
/// There is no such thread, it cannot be looked at, or it is somebody else's.
pub fn of_thread(thread: u32, uid: u32, gid: u32) -> io::Result<(Caller, u32)> {
    let status = ThreadStatus::read(&PathBuf::from(format!("/proc/{thread}")))?;
    let effective = &status.caller.effective;
    if (effective.uid, effective.gid) != (uid, gid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let umask = status.umask.ok_or(io::ErrorKind::NotFound)?;
    Ok((status.caller, umask & 0o777))
}

/// Whether a process with these credentials may have the memory of leases: it shows all files of the volume.
pub fn may_lease(caller: &Caller) -> bool {
    caller.effective.uid == effective_user().0 || caller.effective.is_superuser()
}

/// Who a thread is, and who it can still become.
#[derive(Clone, Debug)]
pub struct ThreadStatus {
    /// Who it is.
    pub caller: Caller,
    /// Real, effective, saved and file-system user.
    uids: [u32; 4],
    /// Likewise the groups.
    gids: [u32; 4],
    /// Capabilities that it has or can take back.
    permitted: u64,
    /// Permission bits that what it makes does not get. A thread that ends has none any more.
    umask: Option<u32>,
}

impl ThreadStatus {
    /// Who the sender of a message is by now, by the `thread`th of its threads (0: by its first). It named its effective user
    /// and group in the message, and the kernel has let it; the rest is what the kernel says of the thread. If that is of
    /// somebody else (the process has since become a program with more rights, or its number belongs to another) nothing is
    /// believed.
    pub fn of_sender(sender: Peer, thread: u32) -> io::Result<ThreadStatus> {
        let status = ThreadStatus::read(&place_of(sender.pid, thread)?)?;
        let [_, effective_uid, ..] = status.uids;
        let [_, effective_gid, ..] = status.gids;
        if (effective_uid, effective_gid) != (sender.uid, sender.gid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(status)
    }

    fn read(place: &Path) -> io::Result<ThreadStatus> {
        // In one piece: the kernel has no size of it to tell.
        let mut status = Vec::with_capacity(STATUS_BYTES);
        File::open(place.join("status"))?.read_to_end(&mut status)?;
        // The name in it may be of any bytes.
        let status = String::from_utf8_lossy(&status);
        static OURS: LazyLock<Option<PathBuf>> =
            LazyLock::new(|| std::fs::read_link("/proc/self/ns/user").ok());
        let trusts = match (std::fs::read_link(place.join("ns/user")), &*OURS) {
            (Ok(theirs), Some(ours)) => Trust::of(theirs == *ours),
            _ => Trust::Superuser,
        };
        ThreadStatus::parse(&status, trusts).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads `/proc/PID/status`. What files are made and opened by is the file-system user, which is the effective one unless
    /// the process has said otherwise (`setfsuid`).
    fn parse(status: &str, trust: Trust) -> Option<ThreadStatus> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let capabilities = |name: &str| u64::from_str_radix(line(name)?.trim(), 16).ok();
        let (uids, gids) = (numbers("Uid")?.try_into().ok()?, numbers("Gid")?.try_into().ok()?);
        let ([real_uid, _, _, uid], [real_gid, _, _, gid]): ([u32; 4], [u32; 4]) = (uids, gids);
        let believed = |uid: u32, bits: u64| match trust {
            Trust::All => bits,
            Trust::Superuser if uid == 0 => bits,
            Trust::Superuser | Trust::Nothing => 0,
        };
        let permitted = believed(uids[0].min(uids[1]).min(uids[2]), capabilities("CapPrm")?);
        let of_effective = Capabilities::from_bits(believed(uid, capabilities("CapEff")?));
        // As the kernel has it for `access`: who started as the superuser asks with all that it may have.
        let of_real = if real_uid == 0 { Capabilities::from_bits(permitted) } else { Capabilities::NONE };
        let groups = numbers("Groups")?;
        let umask = line("Umask").and_then(|bits| u32::from_str_radix(bits.trim(), 8).ok());
        let effective = Credentials { uid, gid, groups: groups.clone(), capabilities: of_effective };
        let real = Credentials { uid: real_uid, gid: real_gid, groups, capabilities: of_real };
        Some(ThreadStatus { caller: Caller { effective, real }, uids, gids, permitted, umask })
    }

    fn has(&self, capability: u32) -> bool {
        self.permitted >> capability & 1 != 0
    }

    /// Whether it is or can become a user who may have the memory of leases.
    pub fn can_lease(&self) -> bool {
        self.uids.contains(&effective_user().0)
            || self.has(CAP_SETUID)
            || self.has(Capability::DacOverride as u32)
    }

    /// Whether it is or can become this user, with these groups.
    pub fn can_be(&self, caller: &Caller) -> bool {
        let wanted = &caller.effective;
        let user = self.has(CAP_SETUID) || self.uids.contains(&wanted.uid);
        let own = &self.caller.effective.groups;
        let group = |gid| self.gids.contains(gid) || own.contains(gid);
        let capabilities = (0..64).all(|bit| wanted.capabilities.bits() >> bit & 1 == 0 || self.has(bit));
        user && capabilities
            && (self.has(CAP_SETGID) || group(&wanted.gid) && wanted.groups.iter().all(group))
    }
}

/// Of whom capabilities are believed. They count in the user namespace of the thread: in one of its own everybody has all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// The thread is in the server's user namespace.
    All,
    /// That cannot be seen: of user 0 only, of whom the server's kernel says so too.
    Superuser,
    /// It is in another one.
    Nothing,
}

impl Trust {
    fn of(same_namespace: bool) -> Trust {
        if same_namespace { Trust::All } else { Trust::Nothing }
    }
}

/// What the kernel tells of a thread of a process: the process's first one when `thread` is 0. The process says the number of
/// its thread as it knows it, which in a process namespace of its own is another one.
fn place_of(pid: u32, thread: u32) -> io::Result<PathBuf> {
    if thread == 0 {
        return Ok(format!("/proc/{pid}").into());
    }
    let place = PathBuf::from(format!("/proc/{pid}/task/{thread}"));
    if place.exists() {
        return Ok(place);
    }
    let own_number = |place: &Path| -> Option<u32> {
        let status = std::fs::read_to_string(place.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let found =
        tasks.find_map(|task| task.ok().map(|task| task.path()).filter(|p| own_number(p) == Some(thread)));
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether a process still has this thread.
pub fn has_thread(pid: u32, thread: u32) -> bool {
    place_of(pid, thread).is_ok_and(|place| place.exists())
}

/// Whether some thread of a process is as asked for. One that cannot be looked at has ended.
pub fn any_thread(pid: u32, mut is: impl FnMut(&ThreadStatus) -> bool) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().any(|task| ThreadStatus::read(&task.path()).is_ok_and(|status| is(&status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tUid: 9\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t10 11 \n\
                          CapPrm:\t0000000000000082\nCapEff:\t0000000000000002\n";

    #[test]
    fn real_effective_and_file_system_users_are_told_apart() {
        let status = ThreadStatus::parse(STATUS, Trust::Superuser).unwrap();
        assert_eq!(status.caller.effective, Credentials::new(4, 8, vec![10, 11]));
        assert_eq!(status.caller.real, Credentials::new(1, 5, vec![10, 11]));
        assert_eq!((status.uids[1], status.gids[1]), (2, 6));
        assert_eq!(status.umask, Some(0o22));
        for line in STATUS.lines().skip(2).filter(|line| !line.starts_with("FDSize")) {
            let without = STATUS.replace(line, "");
            assert!(ThreadStatus::parse(&without, Trust::All).is_none(), "{line}");
        }
        assert!(ThreadStatus::parse(&STATUS.replace("\t4\n", "\n"), Trust::All).is_none());
    }

    #[test]
    fn capabilities_count_of_whom_they_can_be_believed() {
        let of = |status: &str, trust| ThreadStatus::parse(status, trust).unwrap();
        let may = |status: &ThreadStatus| status.caller.effective.may(Capability::DacOverride);
        let root = STATUS.replace("\t1\t2\t3\t4", "\t0\t0\t0\t0");
        for (text, trust, believed) in [
            (STATUS, Trust::All, true),
            (STATUS, Trust::Superuser, false),
            (STATUS, Trust::Nothing, false),
            (&root, Trust::All, true),
            (&root, Trust::Superuser, true),
            (&root, Trust::Nothing, false),
        ] {
            let status = of(text, trust);
            assert_eq!((may(&status), status.has(CAP_SETUID)), (believed, believed), "{text} {trust:?}");
        }
        assert!(!of(&root, Trust::All).caller.effective.may(Capability::Chown), "it was dropped");
        // For `access` counts what it could take back.
        assert!(!of(STATUS, Trust::All).caller.real.may(Capability::DacOverride));
        assert!(of(&root, Trust::All).caller.real.may(Capability::DacOverride));
    }

    #[test]
    fn who_can_still_become_somebody_is_known() {
        let plain = STATUS.replace("82\n", "00\n").replace("02\n", "00\n");
        let status = ThreadStatus::parse(&plain, Trust::All).unwrap();
        let be = |uid, gid, groups: &[u32]| {
            let cred = Credentials { gid, ..Credentials::user(uid, groups) };
            status.can_be(&Caller::from(cred))
        };
        assert!(be(1, 5, &[]) && be(2, 6, &[10]) && be(3, 7, &[10, 11]) && be(4, 10, &[8]));
        assert!(!be(5, 5, &[]) && !be(1, 9, &[]) && !be(1, 5, &[12]) && !be(0, 0, &[]));
        let root = Caller { effective: Credentials::default(), real: Credentials::default() };
        let was_root = STATUS.replace("\t1\t2\t3\t4", "\t9\t9\t0\t9");
        assert!(
            !ThreadStatus::parse(&was_root, Trust::All).unwrap().can_be(&root),
            "not with all capabilities"
        );
        let all = was_root.replace("0000000000000082", "ffffffffffffffff");
        assert!(ThreadStatus::parse(&all, Trust::All).unwrap().can_be(&root));
    }

    #[test]
    fn a_process_that_is_somebody_else_by_now_is_not_believed() {
        let (uid, gid) = effective_user();
        let me = Peer { pid: std::process::id(), uid, gid };
        assert_eq!(ThreadStatus::of_sender(me, 0).unwrap().caller.effective.uid, me.uid);
        for other in [Peer { uid: me.uid ^ 1, ..me }, Peer { gid: me.gid ^ 1, ..me }, Peer { pid: 0, ..me }] {
            assert!(ThreadStatus::of_sender(other, 0).is_err(), "{other:?}");
        }
        assert!(ThreadStatus::of_sender(me, 1).is_err(), "a thread of another process");
    }
}
