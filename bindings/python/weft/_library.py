"""The C library: where it is, its functions, and what their codes mean in Python.

ctypes releases the interpreter's lock while a function runs. The last error of the library is that of the calling thread, so it is read
right after the call.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, List

NAME = "libweft_c.so"
VARIABLE = "WEFT_LIBRARY"

EFAILED = -11

OUTCOME_DONE, OUTCOME_SKIPPED, OUTCOME_FAILED = 0, 1, 2
END = 2**64 - 1


class RawValue(ctypes.Structure):
    """weft_value."""

    _fields_ = [("chain", c_uint64), ("operation", c_uint32)]


class RawNumber(ctypes.Structure):
    """weft_number."""

    _fields_ = [("number", c_uint64), ("of", RawValue)]


class RawBytes(ctypes.Structure):
    """weft_bytes. ctypes keeps the bytes alive as long as the structure, and as one that has a copy of it."""

    _fields_ = [("data", c_char_p), ("data_bytes", c_size_t), ("of", RawValue)]


class RawPath(ctypes.Structure):
    """weft_path."""

    _fields_ = [("dir", RawValue), ("path", RawBytes)]


class RawFile(ctypes.Structure):
    """weft_file."""

    _fields_ = [("files", c_uint64), ("file", c_uint64)]


class RawInput(ctypes.Structure):
    """weft_input."""

    _fields_ = [("number", c_uint64), ("data", c_char_p), ("data_bytes", c_size_t)]


class RawAttributes(ctypes.Structure):
    """weft_attributes."""

    _fields_ = [
        ("ino", c_uint64),
        ("size", c_uint64),
        ("blocks", c_uint64),
        ("mode", c_uint32),
        ("links", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("atime_ns", c_int64),
        ("mtime_ns", c_int64),
        ("ctime_ns", c_int64),
    ]


def places() -> List[Path]:
    """Where the library may be, the first place first."""
    found = [Path(__file__).with_name(NAME)]
    named = os.environ.get(VARIABLE)
    if named:
        return found + [Path(named)]
    command = shutil.which("weft")
    if command:
        directory = Path(command).resolve().parent
        found += [directory / NAME, directory.parent / "lib" / NAME]
    return found


def load() -> ctypes.CDLL:
    """The library at the first of its places that has one."""
    looked = places()
    found = next((place for place in looked if place.is_file()), None)
    if found is None:
        raise ImportError(
            f"there is no {NAME} at " + ", ".join(map(str, looked)) + f"; install the wheel that 'make python' builds, or set {VARIABLE}"
            " to the path of the library"
        )
    try:
        return ctypes.CDLL(str(found))
    except OSError as error:
        raise ImportError(f"{found} cannot be loaded: {error}") from error


LIBRARY = load()


def _function(name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(LIBRARY, name)
    except AttributeError:
        raise ImportError(f"{LIBRARY._name} has no function {name}; use the library of the same version of weft") from None
    function.restype, function.argtypes = result, arguments
    return function


_message = _function("weft_error_message", c_char_p)
_errno = _function("weft_error_errno", c_int)


def failure() -> Exception:
    """The last error of this thread."""
    text, number = _message().decode(errors="replace"), _errno()
    return OSError(number, text) if number else ValueError(text)


def _raise_failure(code: int, _function: Any, _arguments: Any) -> int:
    if code:
        raise failure()
    return code


def _raise_refusal(code: int, _function: Any, _arguments: Any) -> int:
    """The failure of an operation is the answer's."""
    if code not in (0, EFAILED):
        raise failure()
    return code


def _raise_without_value(value: RawValue, _function: Any, _arguments: Any) -> RawValue:
    if not value.operation:
        raise failure()
    return value


def _call(name: str, *arguments: Any) -> Any:
    function = _function(name, c_int, *arguments)
    function.errcheck = _raise_failure
    return function


def _run(name: str, *arguments: Any) -> Any:
    function = _function(name, c_int, *arguments)
    function.errcheck = _raise_refusal
    return function


def _operation(name: str, *arguments: Any) -> Any:
    function = _function("weft_chain_" + name, RawValue, c_void_p, *arguments)
    function.errcheck = _raise_without_value
    return function


def _free(name: str) -> Any:
    return _function(name, None, c_void_p)


_OUT = POINTER(c_void_p)
_GIVEN = (POINTER(RawFile), c_size_t)
_INPUTS = (POINTER(RawInput), c_size_t)
_DATA = (c_char_p, c_size_t)

files_connect = _call("weft_files_connect", c_char_p, c_char_p, _OUT)
files_close = _free("weft_files_close")
file_open = _call("weft_file_open", c_void_p, c_char_p, c_int, c_uint32, POINTER(RawFile))
file_close = _call("weft_file_close", c_void_p, RawFile)

chain_new = _call("weft_chain_new", c_uint32, _OUT)
chain_free = _free("weft_chain_free")
chain_durable = _call("weft_chain_durable", c_void_p)
chain_when_numbers = _call("weft_chain_when_numbers", c_void_p, RawNumber, c_uint32, RawNumber)
chain_when_bytes = _call("weft_chain_when_bytes", c_void_p, RawBytes, c_uint32, RawBytes)
chain_export = _call("weft_chain_export", c_void_p, RawValue)
chain_check = _call("weft_chain_check", c_void_p)
chain_run = _run("weft_chain_run", c_void_p, c_void_p, *_GIVEN, _OUT)
chain_run_at = _run("weft_chain_run_at", c_int, c_void_p, _OUT)
chain_run_with = _run("weft_chain_run_with", c_void_p, c_void_p, *_GIVEN, *_INPUTS, _OUT)

batch_new = _call("weft_batch_new", c_void_p, _OUT)
batch_free = _free("weft_batch_free")
batch_add = _call("weft_batch_add", c_void_p, c_void_p, *_GIVEN, *_INPUTS)
batch_run = _call("weft_batch_run", c_void_p)
batch_take = _run("weft_batch_take", c_void_p, _OUT)

expect_numbers = _operation("expect_numbers", RawNumber, c_uint32, RawNumber)
expect_bytes = _operation("expect_bytes", RawBytes, c_uint32, RawBytes)
input_number = _operation("input_number", c_uint32)
input_bytes = _operation("input_bytes", c_uint32)
op_open = _operation("open", RawPath, c_int)
op_create = _operation("create", RawPath, c_int, c_uint32)
op_given = _operation("given", c_uint32)
op_close = _operation("close", RawValue)
op_stat = _operation("stat", RawValue)
op_field = _operation("field", RawValue, c_uint32)
op_read = _operation("read", RawValue, RawNumber, RawNumber)
op_write = _operation("write", RawValue, RawNumber, RawBytes)
op_append = _operation("append", RawValue, RawBytes)
op_truncate = _operation("truncate", RawValue, RawNumber)
op_fallocate = _operation("fallocate", RawValue, c_int, RawNumber, RawNumber)
op_mkdir = _operation("mkdir", RawPath, c_uint32)
op_symlink = _operation("symlink", RawBytes, RawPath)
op_link = _operation("link", RawPath, RawPath)
op_rename = _operation("rename", RawPath, RawPath, c_uint32)
op_unlink = _operation("unlink", RawPath)
op_rmdir = _operation("rmdir", RawPath)
op_get_xattr = _operation("get_xattr", RawValue, c_char_p)
op_set_xattr = _operation("set_xattr", RawValue, c_char_p, RawBytes, c_int)
op_remove_xattr = _operation("remove_xattr", RawValue, c_char_p)
op_sync = _operation("sync", RawValue)
op_slice = _operation("slice", RawBytes, RawNumber, RawNumber)
op_concat = _operation("concat", POINTER(RawBytes), c_size_t)
op_len = _operation("len", RawBytes)
op_pack = _operation("pack", RawNumber, c_uint32)
op_unpack = _operation("unpack", RawBytes, RawNumber, c_uint32)
op_arith = _operation("arith", RawNumber, c_uint32, RawNumber)
op_find = _operation("find", RawBytes, RawBytes, RawNumber)
op_patch = _operation("patch", RawBytes, RawNumber, RawBytes)
op_crc32c = _operation("crc32c", RawBytes)
op_verify = _operation("verify", RawBytes, RawNumber)
op_compress = _operation("compress", RawBytes, c_uint32, c_int32)
op_decompress = _operation("decompress", RawBytes, c_uint32, RawNumber)
op_call = _operation("call", RawBytes, RawBytes, RawNumber)

answer_free = _free("weft_answer_free")
answer_outcome = _call("weft_answer_outcome", c_void_p, RawValue, POINTER(c_uint32), POINTER(c_int))
answer_failed = _call("weft_answer_failed", c_void_p, POINTER(RawValue), POINTER(c_int))
answer_bytes = _call("weft_answer_bytes", c_void_p, RawValue, POINTER(c_void_p), POINTER(c_size_t))
answer_number = _call("weft_answer_number", c_void_p, RawValue, POINTER(c_uint64))
answer_attributes = _call("weft_answer_attributes", c_void_p, RawValue, POINTER(RawAttributes))

open_read = _call("weft_open_read", c_void_p, c_char_p, c_uint64, c_char_p, c_size_t, POINTER(c_size_t))
open_write = _call("weft_open_write", c_void_p, c_char_p, c_uint32, c_uint64, *_DATA, c_uint32)
write_close = _call("weft_write_close", c_void_p, RawFile, c_uint64, *_DATA, c_uint32)
read_modify_write = _call(
    "weft_read_modify_write", c_void_p, RawFile, c_uint64, c_char_p, c_size_t, c_uint64, *_DATA, c_uint32
)
write_checksum = _call("weft_write_checksum", c_void_p, RawFile, c_uint64, *_DATA, c_uint32, POINTER(c_uint64))
read_checksum = _call("weft_read_checksum", c_void_p, RawFile, c_uint64, c_char_p, c_size_t)
