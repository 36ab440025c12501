//! What people call the parts of a program: in messages, tables and the text forms of programs.

use super::{Kind, Policy};

impl Kind {
    /// The name of the operation, in lower case with underscores: `get_xattr`.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Open { .. } => "open",
            Kind::Create { .. } => "create",
            Kind::Close { .. } => "close",
            Kind::Stat { .. } => "stat",
            Kind::Field { .. } => "field",
            Kind::Read { .. } => "read",
            Kind::Write { .. } => "write",
            Kind::Truncate { .. } => "truncate",
            Kind::Fallocate { .. } => "fallocate",
            Kind::Mkdir { .. } => "mkdir",
            Kind::Symlink { .. } => "symlink",
            Kind::Link { .. } => "link",
            Kind::Rename { .. } => "rename",
            Kind::Unlink { .. } => "unlink",
            Kind::Rmdir { .. } => "rmdir",
            Kind::GetXattr { .. } => "get_xattr",
            Kind::SetXattr { .. } => "set_xattr",
            Kind::RemoveXattr { .. } => "remove_xattr",
            Kind::Sync { .. } => "sync",
            Kind::Slice { .. } => "slice",
            Kind::Concat { .. } => "concat",
            Kind::Len { .. } => "len",
            Kind::Pack { .. } => "pack",
            Kind::Unpack { .. } => "unpack",
            Kind::Arith { .. } => "arith",
            Kind::Find { .. } => "find",
            Kind::Patch { .. } => "patch",
            Kind::Crc32c { .. } => "crc32c",
            Kind::Verify { .. } => "verify",
            Kind::Expect { .. } => "expect",
            Kind::Given { .. } => "given",
            Kind::Compress { .. } => "compress",
            Kind::Decompress { .. } => "decompress",
            Kind::Call { .. } => "call",
            Kind::InputBytes { .. } => "input_bytes",
            Kind::InputNum { .. } => "input_num",
        }
    }
}

impl Policy {
    /// Every policy.
    pub const EVERY: [Policy; 3] = [Policy::All, Policy::Prefix, Policy::Each];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Policy::All => "all",
            Policy::Prefix => "prefix",
            Policy::Each => "each",
        }
    }
}
