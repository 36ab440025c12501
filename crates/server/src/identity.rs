//! Who a process is to the server: what the kernel says when it connects, and again when it says that it has changed.

use crate::socket::{Sender, peer, peer_groups};
use std::io;
use std::os::unix::net::UnixStream;
use weft_vfs::Cred;

/// Who a process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// By whose rights it does what it does.
    pub cred: Cred,
    /// By whose it is told what it may do: `access` asks for the real user and group.
    pub real: Cred,
}

impl Identity {
    /// Who has connected, and from which process.
    pub fn of_peer(socket: &UnixStream) -> io::Result<(Identity, u32)> {
        let peer = peer(socket)?;
        let cred = Cred { uid: peer.uid, gid: peer.gid, groups: peer_groups(socket) };
        // Whoever connects has not been preloaded into a program that has other rights than its caller.
        Ok((Identity { real: cred.clone(), cred }, peer.pid))
    }

    /// Who the sender of a message is by now. It named its effective user and group in the message, and the kernel has let
    /// it; the rest is what the kernel says of the process. If that is of somebody else (the process has since become a
    /// program with more rights, or its number belongs to another) nothing is believed.
    pub fn of_sender(sender: Sender) -> io::Result<Identity> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sender.pid))?;
        let parsed = parse(&status).ok_or(io::ErrorKind::InvalidData)?;
        if (parsed.effective_uid, parsed.effective_gid) != (sender.uid, sender.gid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(parsed.identity)
    }

    /// Whether a process of this user may have the memory of leases: it shows all files of the volume.
    pub fn may_lease(&self) -> bool {
        // SAFETY: plain system call without arguments.
        let server_uid = unsafe { libc::geteuid() };
        self.cred.uid == server_uid || self.cred.is_root()
    }
}

struct Parsed {
    identity: Identity,
    effective_uid: u32,
    effective_gid: u32,
}

/// Reads `/proc/PID/status`. What files are made and opened by is the file-system user, which is the effective one unless
/// the process has said otherwise (`setfsuid`).
fn parse(status: &str) -> Option<Parsed> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let (uids, gids, groups) = (numbers("Uid")?, numbers("Gid")?, numbers("Groups")?);
    let [real_uid, effective_uid, _, uid] = uids[..] else { return None };
    let [real_gid, effective_gid, _, gid] = gids[..] else { return None };
    let cred = Cred { uid, gid, groups: groups.clone() };
    let real = Cred { uid: real_uid, gid: real_gid, groups };
    Some(Parsed { identity: Identity { cred, real }, effective_uid, effective_gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_effective_and_file_system_users_are_told_apart() {
        let status =
            "Name:\tUid: 9\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t10 11 \n";
        let parsed = parse(status).unwrap();
        assert_eq!(parsed.identity.cred, Cred { uid: 4, gid: 8, groups: vec![10, 11] });
        assert_eq!(parsed.identity.real, Cred { uid: 1, gid: 5, groups: vec![10, 11] });
        assert_eq!((parsed.effective_uid, parsed.effective_gid), (2, 6));
        assert!(parse("Uid:\t1\t2\t3\nGid:\t5\t6\t7\t8\nGroups:\t\n").is_none());
        assert!(parse("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n").is_none());
    }

    #[test]
    fn a_process_that_is_somebody_else_by_now_is_not_believed() {
        // SAFETY: plain system calls without arguments.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let me = Sender { pid: std::process::id(), uid, gid };
        assert_eq!(Identity::of_sender(me).unwrap().cred.uid, me.uid);
        for other in
            [Sender { uid: me.uid ^ 1, ..me }, Sender { gid: me.gid ^ 1, ..me }, Sender { pid: 0, ..me }]
        {
            assert!(Identity::of_sender(other).is_err(), "{other:?}");
        }
    }
}
