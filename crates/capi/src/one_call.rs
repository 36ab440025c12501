//! Pairs of operations that programs often do one behind the other, each pair as one program in one call. These are the compound
//! operations of CompoundFS (HotStorage 2020).
//!
//! A checksum is the CRC32C of the data, and lies behind it in four little-endian bytes.

use crate::chain::{checked, failure};
use crate::error::{Failure, exports};
use crate::files::{WeftFile, WeftFiles, connection};
use crate::handle::{bytes, bytes_mut, c_string, put, put_unless_null};
use crate::value_operations::codec_of;
use std::ffi::c_char;
use weft_vfs::compound::{Access, Answer, BytesOf, Chain, File, NumOf};

/// As the offset of weft_write_checksum: the end of the file.
pub const WEFT_END: u64 = 0xffffffffffffffff;

/// Bytes of a checksum.
const CRC_BYTES: u8 = 4;

exports! {
    /// Opens a file and reads at most `capacity` bytes of it; fewer at its end. `read_bytes` gets how many. More than 4 MiB in one call
    /// fail with EMSGSIZE. When an operation fails, this and the other calls for whole chains return `WEFT_EFAILED`, weft_error_errno has
    /// the errno, and nothing has changed.
    ///
    /// # Safety
    /// The handle is open; `path` is a string; `data` has room for `capacity` bytes; `read_bytes` can be written.
    fn weft_open_read(
        files: *const WeftFiles,
        path: *const c_char,
        offset: u64,
        data: *mut u8,
        capacity: usize,
        read_bytes: *mut usize,
    ) {
        let (files, path) = (connection(files)?, c_string(path, "path")?);
        let data = bytes_mut(data, capacity)?;
        put(0, read_bytes)?;
        let mut chain = Chain::all();
        let file = chain.open(path, Access::Read);
        let found = chain.read(file, offset, capacity as u64);
        chain.export(found);
        let answer = run(files, &[], chain)?;
        put(copy(&answer, found, data)?, read_bytes)
    }

    /// Opens a file, or makes it with the permission bits `mode`, from which no umask is taken, and writes to it: all of it, or nothing is
    /// made or changed. When `durable` is not 0, it survives a power cut.
    ///
    /// # Safety
    /// The handle is open; `path` is a string; data has so many bytes.
    fn weft_open_write(
        files: *const WeftFiles,
        path: *const c_char,
        mode: u32,
        offset: u64,
        data: *const u8,
        data_bytes: usize,
        durable: u32,
    ) {
        let (files, path) = (connection(files)?, c_string(path, "path")?);
        let mut chain = new_chain(durable);
        let file = chain.create(path, mode, false);
        chain.write(file, offset, bytes(data, data_bytes)?);
        run(files, &[], chain).map(drop)
    }

    /// Writes to an open file, and closes it. A file that could not be written to stays open. When `durable` is not 0, the write survives a
    /// power cut.
    ///
    /// # Safety
    /// The handle is open; data has so many bytes.
    fn weft_write_close(
        files: *const WeftFiles,
        file: WeftFile,
        offset: u64,
        data: *const u8,
        data_bytes: usize,
        durable: u32,
    ) {
        let files = connection(files)?;
        let mut chain = new_chain(durable);
        let given = chain.given(0);
        chain.write(given, offset, bytes(data, data_bytes)?);
        run(files, &[file], chain)?;
        files.close(file)
    }

    /// Replaces a part of a block of an open file: reads the block of `block_bytes` at `offset`, puts `data` into it from its byte `at` on, and
    /// writes it back. Nobody writes to the file in between. `block`, unless null, gets what the block was before, with zeros behind the
    /// end of the file. Fails with ERANGE when the file ends before the part does.
    ///
    /// # Safety
    /// The handle is open; `block` is null or has room for `block_bytes`; data has so many bytes.
    fn weft_read_modify_write(
        files: *const WeftFiles,
        file: WeftFile,
        offset: u64,
        block: *mut u8,
        block_bytes: usize,
        at: u64,
        data: *const u8,
        data_bytes: usize,
        durable: u32,
    ) {
        let files = connection(files)?;
        let mut chain = new_chain(durable);
        let given = chain.given(0);
        let found = chain.read(given, offset, block_bytes as u64);
        let changed = chain.patch(found, at, bytes(data, data_bytes)?);
        chain.write(given, offset, changed);
        if block.is_null() {
            return run(files, &[file], chain).map(drop);
        }
        chain.export(found);
        let answer = run(files, &[file], chain)?;
        let block = bytes_mut(block, block_bytes)?;
        let len = copy(&answer, found, block)?;
        block[len..].fill(0);
        Ok(())
    }

    /// Writes data with its checksum to an open file, at an offset or at its end (`WEFT_END`). The server computes the checksum, the CRC32C
    /// of the data, and writes it behind the data in four little-endian bytes. `at`, unless null, gets the offset of the data.
    ///
    /// # Safety
    /// The handle is open; data has so many bytes; `at` is null or can be written.
    fn weft_write_checksum(
        files: *const WeftFiles,
        file: WeftFile,
        offset: u64,
        data: *const u8,
        data_bytes: usize,
        durable: u32,
        at: *mut u64,
    ) {
        let files = connection(files)?;
        let mut chain = new_chain(durable);
        let given = chain.given(0);
        let block = chain.concat([bytes(data, data_bytes)?.into()]);
        let crc = chain.crc32c(block);
        let trailer = chain.pack(crc, CRC_BYTES);
        let whole = chain.concat([block.into(), trailer.into()]);
        let written = write(&mut chain, given, offset, whole);
        chain.export(written);
        let answer = run(files, &[file], chain)?;
        put_unless_null(answer.num(written.place()).ok_or_else(no_value)?, at);
        Ok(())
    }

    /// Compresses data (WEFT_LZ4, ...; with level 0 in the codec's usual way), and writes that to an open file, at an offset or at its end
    /// (`WEFT_END`). `at`, unless null, gets the offset, and `written_bytes`, unless null, how many bytes there are.
    ///
    /// # Safety
    /// The handle is open; data has so many bytes; `at` and `written_bytes` are null or can be written.
    fn weft_compress_write(
        files: *const WeftFiles,
        file: WeftFile,
        offset: u64,
        data: *const u8,
        data_bytes: usize,
        codec: u32,
        level: i32,
        durable: u32,
        at: *mut u64,
        written_bytes: *mut u64,
    ) {
        let files = connection(files)?;
        let mut chain = new_chain(durable);
        let given = chain.given(0);
        let packed = chain.compress(bytes(data, data_bytes)?, codec_of(codec)?, level);
        let len = chain.len(packed);
        let written = write(&mut chain, given, offset, packed);
        chain.export(written);
        chain.export(len);
        let answer = run(files, &[file], chain)?;
        put_unless_null(answer.num(written.place()).ok_or_else(no_value)?, at);
        put_unless_null(answer.num(len.place()).ok_or_else(no_value)?, written_bytes);
        Ok(())
    }

    /// Reads data that weft_write_checksum wrote to an open file. When the checksum is another one, it fails with EBADMSG, and when the file
    /// ends before, with ERANGE; `data` is as it was then.
    ///
    /// # Safety
    /// The handle is open; `data` has room for `data_bytes`.
    fn weft_read_checksum(
        files: *const WeftFiles,
        file: WeftFile,
        offset: u64,
        data: *mut u8,
        data_bytes: usize,
    ) {
        let (files, data) = (connection(files)?, bytes_mut(data, data_bytes)?);
        let len = data_bytes as u64;
        let mut chain = Chain::all();
        let given = chain.given(0);
        let whole = chain.read(given, offset, len.saturating_add(CRC_BYTES.into()));
        let block = chain.slice(whole, 0, len);
        let crc = chain.unpack(whole, len, CRC_BYTES);
        chain.verify(block, crc);
        chain.export(block);
        let answer = run(files, &[file], chain)?;
        copy(&answer, block, data).map(drop)
    }
}

fn new_chain(durable: u32) -> Chain {
    if durable == 0 { Chain::all() } else { Chain::all().durable() }
}

fn write(chain: &mut Chain, file: File, offset: u64, data: BytesOf) -> NumOf {
    if offset == WEFT_END { chain.append(file, data) } else { chain.write(file, offset, data) }
}

/// Runs a chain, none of whose operations may fail.
fn run(files: &WeftFiles, given: &[WeftFile], chain: Chain) -> Result<Answer, Failure> {
    let program = checked(chain)?;
    let answer = files.run(given, &program)?;
    failure(&program, &answer)?;
    Ok(answer)
}

/// Copies a value out; how many bytes it has.
fn copy(answer: &Answer, value: BytesOf, out: &mut [u8]) -> Result<usize, Failure> {
    let bytes = answer.bytes(value.place()).ok_or_else(no_value)?;
    let out = out.get_mut(..bytes.len()).ok_or_else(no_value)?;
    out.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// The server's answer lacks a value, or has more than was asked for.
fn no_value() -> Failure {
    Failure::Files { what: "read the server's answer".into(), errno: libc::EPROTO }
}
