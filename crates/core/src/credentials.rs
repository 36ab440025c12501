//! Credentials: by whose rights a call is made. A front learns them from the kernel, the cores and the tag store decide by
//! them.

/// What a caller may do whoever owns a file: the superuser's rights one by one, numbered as Linux numbers its capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// To give files to others.
    Chown = 0,
    /// To read, write and search whatever the permission bits say.
    DacOverride = 1,
    /// To read and search likewise.
    DacReadSearch = 2,
    /// To do what only an owner may.
    Fowner = 3,
    /// To keep and give set-id bits.
    Fsetid = 4,
    /// To set and clear the flags `i` and `a` of files.
    LinuxImmutable = 9,
    /// To use attributes in `trusted.`, and in `security.` to write them.
    SysAdmin = 21,
    /// To make devices.
    Mknod = 27,
}

/// A set of [`Capability`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities(u64);

impl Capabilities {
    /// What users have.
    pub const NONE: Capabilities = Capabilities(0);
    /// What the superuser has who has dropped nothing.
    pub const ALL: Capabilities = Capabilities(u64::MAX);

    /// From capabilities as `/proc/PID/status` writes them.
    pub fn from_bits(bits: u64) -> Capabilities {
        Capabilities(bits)
    }

    /// As [`Capabilities::from_bits`] takes them.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether one is among them.
    pub fn contains(self, capability: Capability) -> bool {
        self.0 >> capability as u32 & 1 != 0
    }
}

/// A group id that no group has: of a caller without a primary group.
const NO_GROUP: u32 = u32::MAX;

/// By whose rights a call is made: what permission bits and granted permissions are checked against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// What the caller may do whoever owns a file.
    pub capabilities: Capabilities,
}

impl Default for Credentials {
    /// The superuser.
    fn default() -> Credentials {
        Credentials::new(0, 0, Vec::new())
    }
}

impl Credentials {
    /// A user with what users have; user 0 is the superuser.
    pub fn new(uid: u32, gid: u32, groups: Vec<u32>) -> Credentials {
        let capabilities = if uid == 0 { Capabilities::ALL } else { Capabilities::NONE };
        Credentials { uid, gid, groups, capabilities }
    }

    /// A user in these groups without capabilities, also when its id is 0.
    pub fn user(uid: u32, groups: &[u32]) -> Credentials {
        Credentials { capabilities: Capabilities::NONE, ..Credentials::new(uid, NO_GROUP, groups.to_vec()) }
    }

    /// Someone who may do everything, under this id.
    pub fn superuser(uid: u32) -> Credentials {
        Credentials { capabilities: Capabilities::ALL, ..Credentials::new(uid, NO_GROUP, Vec::new()) }
    }

    /// Whether the caller may do this whoever owns a file.
    pub fn may(&self, capability: Capability) -> bool {
        self.capabilities.contains(capability)
    }

    /// Whether the caller reads and writes whatever permissions say.
    pub fn is_superuser(&self) -> bool {
        self.may(Capability::DacOverride)
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        gid != NO_GROUP && self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_primary_group_is_only_in_the_groups_named() {
        let user = Credentials::user(0, &[7]);
        assert!(user.in_group(7) && !user.in_group(0) && !user.in_group(NO_GROUP));
        assert!(!user.is_superuser() && !user.may(Capability::Chown));
        let root = Credentials::superuser(5);
        assert!(root.is_superuser() && !root.in_group(NO_GROUP));
        assert!(Credentials::new(1, 2, vec![3]).in_group(2) && Credentials::new(1, 2, vec![3]).in_group(3));
    }
}
