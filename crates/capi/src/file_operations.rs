//! The operations of chains on files and names.

use crate::chain::{WeftChain, add};
use crate::error::{Failure, bad, exports};
use crate::handle::c_string;
use crate::values::{WeftBytes, WeftNumber, WeftPath, WeftValue};
use std::ffi::c_char;
use weft_vfs::compound::{Access, Allocate, At, Field, Kind};
use weft_vfs::{RenameFlags, XattrMode};

/// Bytes of the file.
pub const WEFT_FIELD_SIZE: u32 = 0;
/// Kind and permission bits, as in st_mode.
pub const WEFT_FIELD_MODE: u32 = 1;
/// Names.
pub const WEFT_FIELD_LINKS: u32 = 2;
/// Owner.
pub const WEFT_FIELD_UID: u32 = 3;
/// Group.
pub const WEFT_FIELD_GID: u32 = 4;
/// Last change of the data, in nanoseconds since 1970.
pub const WEFT_FIELD_MTIME_NS: u32 = 5;
/// Last change of the inode, in nanoseconds since 1970.
pub const WEFT_FIELD_CTIME_NS: u32 = 6;

exports! {
    /// Opens a file or directory. `flags` are O_RDONLY, O_WRONLY, O_RDWR, or O_PATH for attributes and for paths that begin there; with
    /// O_NOFOLLOW, a symlink at the end of the path fails with ELOOP. The value is a file.
    ///
    /// # Safety
    /// The handle is open; the path is there.
    fn weft_chain_open(chain: *mut WeftChain, path: WeftPath, flags: i32) -> WeftValue {
        add(chain, |arguments| {
            let (dir, path) = arguments.path(path)?;
            let access = access_of(flags & !libc::O_NOFOLLOW)?;
            Ok(Kind::Open { dir, path, access, follow: flags & libc::O_NOFOLLOW == 0 })
        })
    }

    /// Makes an empty file with the permission bits `mode`, from which no umask is taken, and opens it for reading and writing. When there
    /// is such a file, the operation opens it, or with the flag O_EXCL fails with EEXIST. The value is a file.
    ///
    /// # Safety
    /// The handle is open; the path is there.
    fn weft_chain_create(chain: *mut WeftChain, path: WeftPath, flags: i32, mode: u32) -> WeftValue {
        add(chain, |arguments| {
            let (dir, path) = arguments.path(path)?;
            let exclusive = match flags {
                0 => false,
                libc::O_EXCL => true,
                other => return Err(bad(format!("flags 0{other:o}; pass O_EXCL or 0"))),
            };
            Ok(Kind::Create { dir, path, perm: mode, exclusive })
        })
    }

    /// The open file with this number, from 0, among those that weft_chain_run is given. The value is a file, open for what it was opened
    /// for. Fails with EBADF when there is none.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_given(chain: *mut WeftChain, number: u32) -> WeftValue {
        add(chain, |_| match u8::try_from(number) {
            Ok(number) => Ok(Kind::Given { number }),
            Err(_) => Err(bad(format!("given file {number}; files are given with numbers of 0 to 15"))),
        })
    }

    /// Ends the use of a file: no later operation may use it. The end of the chain does so with all files. A file that was given stays open
    /// for the caller.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_close(chain: *mut WeftChain, file: WeftValue) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Close { file: arguments.file(file)? }))
    }

    /// Reads the attributes of a file. The value is attributes.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_stat(chain: *mut WeftChain, file: WeftValue) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Stat { file: arguments.file(file)? }))
    }

    /// One of the attributes (WEFT_FIELD_...). The value is a number.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_field(chain: *mut WeftChain, attributes: WeftValue, field: u32) -> WeftValue {
        add(chain, |arguments| {
            let field = match field {
                WEFT_FIELD_SIZE => Field::Size,
                WEFT_FIELD_MODE => Field::Mode,
                WEFT_FIELD_LINKS => Field::Links,
                WEFT_FIELD_UID => Field::Uid,
                WEFT_FIELD_GID => Field::Gid,
                WEFT_FIELD_MTIME_NS => Field::MtimeNs,
                WEFT_FIELD_CTIME_NS => Field::CtimeNs,
                other => return Err(bad(format!("field {other}; pass one of WEFT_FIELD_..."))),
            };
            Ok(Kind::Field { attr: arguments.value(attributes)?, field })
        })
    }

    /// Reads at most `len` bytes; fewer at the end of the file. The value is bytes.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_read(
        chain: *mut WeftChain,
        file: WeftValue,
        offset: WeftNumber,
        len: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (offset, len) = (arguments.num(offset)?, arguments.num(len)?);
            Ok(Kind::Read { file: arguments.file(file)?, offset, len })
        })
    }

    /// Writes at an offset. The value is the offset, a number.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_write(
        chain: *mut WeftChain,
        file: WeftValue,
        offset: WeftNumber,
        data: WeftBytes,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (file, at) = (arguments.file(file)?, At::Offset(arguments.num(offset)?));
            Ok(Kind::Write { file, at, data: arguments.bytes(data)? })
        })
    }

    /// Writes at the end of the file. The value is the offset where that was, a number.
    ///
    /// # Safety
    /// The handle is open; the bytes are there.
    fn weft_chain_append(chain: *mut WeftChain, file: WeftValue, data: WeftBytes) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::Write { file: arguments.file(file)?, at: At::End, data: arguments.bytes(data)? })
        })
    }

    /// Sets the size of a file in bytes. New bytes are zeros.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_truncate(chain: *mut WeftChain, file: WeftValue, size: WeftNumber) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::Truncate { file: arguments.file(file)?, size: arguments.num(size)? })
        })
    }

    /// Allocates space. `mode` is that of fallocate(2): 0, FALLOC_FL_KEEP_SIZE, or FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE, or
    /// FALLOC_FL_ZERO_RANGE with FALLOC_FL_KEEP_SIZE or alone.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_fallocate(
        chain: *mut WeftChain,
        file: WeftValue,
        mode: i32,
        offset: WeftNumber,
        len: WeftNumber,
    ) -> WeftValue {
        add(chain, |arguments| {
            let (offset, len) = (arguments.num(offset)?, arguments.num(len)?);
            Ok(Kind::Fallocate { file: arguments.file(file)?, mode: allocate_of(mode)?, offset, len })
        })
    }

    /// Makes a directory with the permission bits `mode`, from which no umask is taken.
    ///
    /// # Safety
    /// The handle is open; the path is there.
    fn weft_chain_mkdir(chain: *mut WeftChain, path: WeftPath, mode: u32) -> WeftValue {
        add(chain, |arguments| {
            let (dir, path) = arguments.path(path)?;
            Ok(Kind::Mkdir { dir, path, perm: mode })
        })
    }

    /// Makes a symlink at `path` that holds `target`.
    ///
    /// # Safety
    /// The handle is open; target and path are there.
    fn weft_chain_symlink(chain: *mut WeftChain, target: WeftBytes, path: WeftPath) -> WeftValue {
        add(chain, |arguments| {
            let (target, (dir, path)) = (arguments.bytes(target)?, arguments.path(path)?);
            Ok(Kind::Symlink { target, dir, path })
        })
    }

    /// Gives a file one more name. A symlink at the end of `path` is not followed.
    ///
    /// # Safety
    /// The handle is open; both paths are there.
    fn weft_chain_link(chain: *mut WeftChain, path: WeftPath, new_path: WeftPath) -> WeftValue {
        add(chain, |arguments| {
            let ((dir, path), (to, new_path)) = (arguments.path(path)?, arguments.path(new_path)?);
            Ok(Kind::Link { dir, path, to, new_path })
        })
    }

    /// Renames a file, and replaces what has the new name. `flags` are those of renameat2(2): 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
    ///
    /// # Safety
    /// The handle is open; both paths are there.
    fn weft_chain_rename(
        chain: *mut WeftChain,
        path: WeftPath,
        new_path: WeftPath,
        flags: u32,
    ) -> WeftValue {
        add(chain, |arguments| {
            let ((dir, path), (to, new_path)) = (arguments.path(path)?, arguments.path(new_path)?);
            let known = RenameFlags::from_bits(flags);
            let flags = known.ok_or_else(|| {
                bad(format!("flags {flags:#x}; pass 0, RENAME_NOREPLACE or RENAME_EXCHANGE"))
            })?;
            Ok(Kind::Rename { dir, path, to, new_path, flags })
        })
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Safety
    /// The handle is open; the path is there.
    fn weft_chain_unlink(chain: *mut WeftChain, path: WeftPath) -> WeftValue {
        add(chain, |arguments| {
            let (dir, path) = arguments.path(path)?;
            Ok(Kind::Unlink { dir, path })
        })
    }

    /// Removes an empty directory.
    ///
    /// # Safety
    /// The handle is open; the path is there.
    fn weft_chain_rmdir(chain: *mut WeftChain, path: WeftPath) -> WeftValue {
        add(chain, |arguments| {
            let (dir, path) = arguments.path(path)?;
            Ok(Kind::Rmdir { dir, path })
        })
    }

    /// Reads an extended attribute in the namespace `user`: its name begins with "user.". The value is bytes.
    ///
    /// # Safety
    /// The handle is open; `name` is a string.
    fn weft_chain_get_xattr(chain: *mut WeftChain, file: WeftValue, name: *const c_char) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::GetXattr { file: arguments.file(file)?, name: c_string(name, "name")?.to_vec() })
        })
    }

    /// Sets an extended attribute in the namespace `user`. `flags` are those of setxattr(2): 0, XATTR_CREATE or XATTR_REPLACE.
    ///
    /// # Safety
    /// The handle is open; `name` is a string; the bytes are there.
    fn weft_chain_set_xattr(
        chain: *mut WeftChain,
        file: WeftValue,
        name: *const c_char,
        value: WeftBytes,
        flags: i32,
    ) -> WeftValue {
        add(chain, |arguments| {
            let mode = match flags {
                0 => XattrMode::Any,
                libc::XATTR_CREATE => XattrMode::Create,
                libc::XATTR_REPLACE => XattrMode::Replace,
                other => return Err(bad(format!("flags {other}; pass 0, XATTR_CREATE or XATTR_REPLACE"))),
            };
            let (file, name) = (arguments.file(file)?, c_string(name, "name")?.to_vec());
            Ok(Kind::SetXattr { file, name, value: arguments.bytes(value)?, mode })
        })
    }

    /// Removes an extended attribute in the namespace `user`.
    ///
    /// # Safety
    /// The handle is open; `name` is a string.
    fn weft_chain_remove_xattr(chain: *mut WeftChain, file: WeftValue, name: *const c_char) -> WeftValue {
        add(chain, |arguments| {
            Ok(Kind::RemoveXattr { file: arguments.file(file)?, name: c_string(name, "name")?.to_vec() })
        })
    }

    /// Makes a file and all names so far survive a power cut. Of a WEFT_CHAIN_ALL or WEFT_CHAIN_PREFIX, the step at the end does so for
    /// all changes.
    ///
    /// # Safety
    /// The handle is open.
    fn weft_chain_sync(chain: *mut WeftChain, file: WeftValue) -> WeftValue {
        add(chain, |arguments| Ok(Kind::Sync { file: arguments.file(file)? }))
    }
}

fn access_of(flags: i32) -> Result<Access, Failure> {
    match flags {
        libc::O_RDONLY => Ok(Access::Read),
        libc::O_WRONLY => Ok(Access::Write),
        libc::O_RDWR => Ok(Access::ReadWrite),
        libc::O_PATH => Ok(Access::Path),
        other => Err(bad(format!("flags 0{other:o}; pass O_RDONLY, O_WRONLY, O_RDWR or O_PATH"))),
    }
}

fn allocate_of(mode: i32) -> Result<Allocate, Failure> {
    const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP_SIZE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Ok(Allocate::Extend),
        libc::FALLOC_FL_KEEP_SIZE => Ok(Allocate::KeepSize),
        PUNCH_HOLE => Ok(Allocate::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(Allocate::Zero),
        ZERO_KEEP_SIZE => Ok(Allocate::ZeroKeepSize),
        other => Err(bad(format!("mode {other:#x}; weft_chain_fallocate has a list of the known ones"))),
    }
}
