//! The operations in their text form: the keys of each, and how they are read.

use super::error::Read;
use super::fields::Fields;
use weft_vfs::compound::{Access, Allocate, Arith, Codec, Field, Kind};
use weft_vfs::{RenameFlags, XattrMode};

/// The keys that every operation has.
pub const COMMON_KEYS: [&str; 4] = ["do", "name", "export", "when"];

const ACCESS: &[(&str, Access)] = &[
    ("read", Access::Read),
    ("write", Access::Write),
    ("read_write", Access::ReadWrite),
    ("path", Access::Path),
];
const FIELD: &[(&str, Field)] = &[
    ("size", Field::Size),
    ("mode", Field::Mode),
    ("links", Field::Links),
    ("uid", Field::Uid),
    ("gid", Field::Gid),
    ("mtime_ns", Field::MtimeNs),
    ("ctime_ns", Field::CtimeNs),
];
const ALLOCATE: &[(&str, Allocate)] = &[
    ("extend", Allocate::Extend),
    ("keep_size", Allocate::KeepSize),
    ("punch_hole", Allocate::PunchHole),
    ("zero", Allocate::Zero),
    ("zero_keep_size", Allocate::ZeroKeepSize),
];
const ARITH: &[(&str, Arith)] = &[
    ("add", Arith::Add),
    ("sub", Arith::Sub),
    ("mul", Arith::Mul),
    ("div", Arith::Div),
    ("rem", Arith::Rem),
    ("min", Arith::Min),
    ("max", Arith::Max),
];
const CODEC: &[(&str, Codec)] = &[("lz4", Codec::Lz4), ("lz4_block", Codec::Lz4Block), ("zstd", Codec::Zstd)];
const RENAME: &[(&str, RenameFlags)] =
    &[("no_replace", RenameFlags::NO_REPLACE), ("exchange", RenameFlags::EXCHANGE)];
const XATTR: &[(&str, XattrMode)] =
    &[("any", XattrMode::Any), ("create", XattrMode::Create), ("replace", XattrMode::Replace)];

/// Permission bits of a file that is made, unless said.
const FILE_PERM: u32 = 0o644;
/// Permission bits of a directory that is made, unless said.
const DIR_PERM: u32 = 0o755;

/// An operation in its text form.
pub struct KindForm {
    /// What `do` says.
    pub name: &'static str,
    /// Its keys beside those of every operation.
    pub keys: &'static [&'static str],
    /// Reads them.
    pub read: fn(&Fields<'_>) -> Read<Kind>,
}

/// The name of an extended attribute.
fn xattr(of: &Fields<'_>) -> Read<Vec<u8>> {
    Ok(of.text("xattr", "the name of an extended attribute, such as \"user.comment\"")?.into())
}

/// Every operation.
pub const KINDS: &[KindForm] = &[
    KindForm {
        name: "open",
        keys: &["path", "dir", "access", "follow"],
        read: |of| {
            let access = of.choice("access", ACCESS, Some(Access::Read))?;
            let (dir, path, follow) = (of.dir("dir")?, of.bytes("path")?, of.flag("follow", true)?);
            Ok(Kind::Open { dir, path, access, follow })
        },
    },
    KindForm {
        name: "create",
        keys: &["path", "dir", "perm", "exclusive"],
        read: |of| {
            let (dir, path, perm) = (of.dir("dir")?, of.bytes("path")?, of.perm("perm", FILE_PERM)?);
            Ok(Kind::Create { dir, path, perm, exclusive: of.flag("exclusive", false)? })
        },
    },
    KindForm { name: "close", keys: &["file"], read: |of| Ok(Kind::Close { file: of.file("file")? }) },
    KindForm { name: "stat", keys: &["file"], read: |of| Ok(Kind::Stat { file: of.file("file")? }) },
    KindForm {
        name: "field",
        keys: &["attr", "field"],
        read: |of| Ok(Kind::Field { attr: of.attr("attr")?, field: of.choice("field", FIELD, None)? }),
    },
    KindForm {
        name: "read",
        keys: &["file", "offset", "len"],
        read: |of| {
            Ok(Kind::Read { file: of.file("file")?, offset: of.num_or_0("offset")?, len: of.num("len")? })
        },
    },
    KindForm {
        name: "write",
        keys: &["file", "at", "data"],
        read: |of| Ok(Kind::Write { file: of.file("file")?, at: of.place("at")?, data: of.bytes("data")? }),
    },
    KindForm {
        name: "truncate",
        keys: &["file", "size"],
        read: |of| Ok(Kind::Truncate { file: of.file("file")?, size: of.num("size")? }),
    },
    KindForm {
        name: "fallocate",
        keys: &["file", "mode", "offset", "len"],
        read: |of| {
            let (file, mode) = (of.file("file")?, of.choice("mode", ALLOCATE, Some(Allocate::Extend))?);
            Ok(Kind::Fallocate { file, mode, offset: of.num_or_0("offset")?, len: of.num("len")? })
        },
    },
    KindForm {
        name: "mkdir",
        keys: &["path", "dir", "perm"],
        read: |of| {
            let (dir, path) = (of.dir("dir")?, of.bytes("path")?);
            Ok(Kind::Mkdir { dir, path, perm: of.perm("perm", DIR_PERM)? })
        },
    },
    KindForm {
        name: "symlink",
        keys: &["target", "path", "dir"],
        read: |of| {
            let target = of.bytes("target")?;
            Ok(Kind::Symlink { target, dir: of.dir("dir")?, path: of.bytes("path")? })
        },
    },
    KindForm {
        name: "link",
        keys: &["path", "dir", "new_path", "to"],
        read: |of| {
            let (dir, path) = (of.dir("dir")?, of.bytes("path")?);
            Ok(Kind::Link { dir, path, to: of.dir("to")?, new_path: of.bytes("new_path")? })
        },
    },
    KindForm {
        name: "rename",
        keys: &["path", "dir", "new_path", "to", "flags"],
        read: |of| {
            let (dir, path) = (of.dir("dir")?, of.bytes("path")?);
            let flags = of.choice("flags", RENAME, Some(RenameFlags::empty()))?;
            Ok(Kind::Rename { dir, path, to: of.dir("to")?, new_path: of.bytes("new_path")?, flags })
        },
    },
    KindForm {
        name: "unlink",
        keys: &["path", "dir"],
        read: |of| Ok(Kind::Unlink { dir: of.dir("dir")?, path: of.bytes("path")? }),
    },
    KindForm {
        name: "rmdir",
        keys: &["path", "dir"],
        read: |of| Ok(Kind::Rmdir { dir: of.dir("dir")?, path: of.bytes("path")? }),
    },
    KindForm {
        name: "get_xattr",
        keys: &["file", "xattr"],
        read: |of| Ok(Kind::GetXattr { file: of.file("file")?, name: xattr(of)? }),
    },
    KindForm {
        name: "set_xattr",
        keys: &["file", "xattr", "value", "mode"],
        read: |of| {
            let (file, name, value) = (of.file("file")?, xattr(of)?, of.bytes("value")?);
            Ok(Kind::SetXattr { file, name, value, mode: of.choice("mode", XATTR, Some(XattrMode::Any))? })
        },
    },
    KindForm {
        name: "remove_xattr",
        keys: &["file", "xattr"],
        read: |of| Ok(Kind::RemoveXattr { file: of.file("file")?, name: xattr(of)? }),
    },
    KindForm { name: "sync", keys: &["file"], read: |of| Ok(Kind::Sync { file: of.file("file")? }) },
    KindForm {
        name: "slice",
        keys: &["bytes", "from", "len"],
        read: |of| {
            Ok(Kind::Slice { bytes: of.bytes("bytes")?, from: of.num_or_0("from")?, len: of.num("len")? })
        },
    },
    KindForm { name: "concat", keys: &["parts"], read: |of| Ok(Kind::Concat { parts: of.parts("parts")? }) },
    KindForm { name: "len", keys: &["bytes"], read: |of| Ok(Kind::Len { bytes: of.bytes("bytes")? }) },
    KindForm {
        name: "pack",
        keys: &["num", "width"],
        read: |of| Ok(Kind::Pack { num: of.num("num")?, width: of.width("width")? }),
    },
    KindForm {
        name: "unpack",
        keys: &["bytes", "from", "width"],
        read: |of| {
            let (bytes, from) = (of.bytes("bytes")?, of.num_or_0("from")?);
            Ok(Kind::Unpack { bytes, from, width: of.width("width")? })
        },
    },
    KindForm {
        name: "arith",
        keys: &["arith", "left", "right"],
        read: |of| {
            let arith = of.choice("arith", ARITH, None)?;
            Ok(Kind::Arith { arith, left: of.num("left")?, right: of.num("right")? })
        },
    },
    KindForm {
        name: "find",
        keys: &["bytes", "what", "from"],
        read: |of| {
            let (bytes, what) = (of.bytes("bytes")?, of.bytes("what")?);
            Ok(Kind::Find { bytes, what, from: of.num_or_0("from")? })
        },
    },
    KindForm {
        name: "patch",
        keys: &["base", "at", "with"],
        read: |of| {
            Ok(Kind::Patch { base: of.bytes("base")?, at: of.num_or_0("at")?, with: of.bytes("with")? })
        },
    },
    KindForm { name: "crc32c", keys: &["bytes"], read: |of| Ok(Kind::Crc32c { bytes: of.bytes("bytes")? }) },
    KindForm {
        name: "verify",
        keys: &["bytes", "crc"],
        read: |of| Ok(Kind::Verify { bytes: of.bytes("bytes")?, crc: of.num("crc")? }),
    },
    KindForm {
        name: "compress",
        keys: &["bytes", "codec", "level"],
        read: |of| {
            let (bytes, codec) = (of.bytes("bytes")?, of.choice("codec", CODEC, None)?);
            Ok(Kind::Compress { bytes, codec, level: of.level("level")? })
        },
    },
    KindForm {
        name: "decompress",
        keys: &["bytes", "codec", "max"],
        read: |of| {
            let (bytes, codec) = (of.bytes("bytes")?, of.choice("codec", CODEC, None)?);
            Ok(Kind::Decompress { bytes, codec, max: of.num("max")? })
        },
    },
    KindForm {
        name: "call",
        keys: &["module", "input", "fuel"],
        read: |of| {
            let (module, input) = (of.bytes("module")?, of.bytes("input")?);
            Ok(Kind::Call { module, input, fuel: of.num("fuel")? })
        },
    },
    KindForm { name: "expect", keys: &["that"], read: |of| Ok(Kind::Expect { guard: of.guard("that")? }) },
];
