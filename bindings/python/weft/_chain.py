"""Chains: programs of file operations that a server runs as one."""

from __future__ import annotations

import os
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterable, List, Literal, Optional, Protocol, Sequence, Type, TypeVar, Union

from . import _library as c
from ._answer import Answer, take
from ._values import (
    PERM_MAX,
    AttributesValue,
    BytesValue,
    Data,
    FileValue,
    Number,
    NumberValue,
    PathLike,
    Value,
    choice,
    data,
    literal_bytes,
    literal_number,
    number,
    of_chain,
    path,
    path_bytes,
)

Policy = Literal["all", "prefix", "each"]
Compare = Literal["==", "!=", "<", "<=", ">", ">="]
Access = Literal["read", "write", "read_write", "path"]
Field = Literal["size", "mode", "links", "uid", "gid", "mtime_ns", "ctime_ns"]
Allocate = Literal["extend", "keep_size", "punch_hole", "zero", "zero_keep_size"]
Rename = Literal["no_replace", "exchange"]
Set = Literal["any", "create", "replace"]
Arithmetic = Literal["add", "sub", "mul", "div", "rem", "min", "max"]
Codec = Literal["lz4", "lz4-block", "zstd"]

NOT_FOUND = 2**64 - 1
"""What Chain.find gives when it finds nothing."""

Input = Union[int, bytes, bytearray, memoryview]

_POLICIES = {"all": 0, "prefix": 1, "each": 2}
_COMPARES = {"==": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
_ACCESSES = {"read": os.O_RDONLY, "write": os.O_WRONLY, "read_write": os.O_RDWR, "path": os.O_PATH}
_FIELDS = {"size": 0, "mode": 1, "links": 2, "uid": 3, "gid": 4, "mtime_ns": 5, "ctime_ns": 6}
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
_ALLOCATES = {
    "extend": 0,
    "keep_size": _KEEP_SIZE,
    "punch_hole": _PUNCH_HOLE | _KEEP_SIZE,
    "zero": _ZERO_RANGE,
    "zero_keep_size": _ZERO_RANGE | _KEEP_SIZE,
}
_RENAMES = {"no_replace": 1, "exchange": 2}
_SETS = {"any": 0, "create": 1, "replace": 2}
_CODECS = {"lz4": 0, "lz4-block": 1, "zstd": 2}
_ARITHMETICS = {"add": 0, "sub": 1, "mul": 2, "div": 3, "rem": 4, "min": 5, "max": 6}
_GIVEN_MAX = 15
_INPUT_MAX = 63
_PARTS_MAX = 255
_WIDTH_MAX = 8

_V = TypeVar("_V", bound=Value)


class HasDescriptor(Protocol):
    """What has the method fileno(), such as a file of Python."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Chain:
    """A program of at most 64 file operations, in the order in which they are added.

    A method that adds an operation returns its value, which later operations of the chain take. `policy` says what a failure leaves:
    "all": nothing is changed; "prefix": the changes before the operation that failed; "each": the same, and each change is made for itself.
    With `durable`, the changes survive a power cut when the chain has run. Paths begin at the root of the volume, or in the open directory
    `dir` when they do not begin with a slash.

    An argument of a wrong type raises TypeError, a wrong value ValueError, and the chain is as it was. A chain that breaks a rule of the
    whole, such as that of 64 operations, raises ValueError at the latest when it is checked, and does not run then.

    A chain that has run or was checked does not change any more. It runs as often as it is wanted, in several threads and on several
    connections; one thread at a time adds operations.
    """

    def __init__(self, policy: Policy = "all", *, durable: bool = False) -> None:
        number_of_policy = choice(policy, _POLICIES, "policy")
        self._raw = c_void_p()
        c.chain_new(number_of_policy, byref(self._raw))
        self._operations: List[Value] = []
        self._exported: List[Value] = []
        self._closed: List[FileValue] = []
        self._inputs: Dict[int, Type[Value]] = {}
        self._has_guards = self._has_run = False
        # The library tells the chain's number with its first operation. Before that, all values are of other chains.
        self._number = 0
        if durable:
            c.chain_durable(self._raw)

    def __del__(self, _free: Callable[[c_void_p], None] = c.chain_free) -> None:
        # Without a chain when the constructor has refused its arguments.
        raw = getattr(self, "_raw", None)
        if raw:
            _free(raw)

    def __repr__(self) -> str:
        return f"<weft.Chain of {len(self._operations)} operations>"

    # What is no operation.

    def when(self, left: Union[Number, Data], compare: Compare, right: Union[Number, Data]) -> Chain:
        """The next operation is done only when this comparison of two numbers or two bytes holds. Otherwise it is skipped, and so is every
        operation that uses its value. Returns the chain: `chain.when(size, ">", 0).unlink("/file")`."""
        operator = choice(compare, _COMPARES, "compare")
        if self._is_of_bytes(left, right):
            c.chain_when_bytes(self._raw, self._data(left, "left"), operator, self._data(right, "right"))
        else:
            c.chain_when_numbers(self._raw, self._num(left, "left"), operator, self._num(right, "right"))
        self._has_guards = True
        return self

    def export(self, value: _V) -> _V:
        """The answer has this value: a number, bytes or attributes. Returns it: `found = chain.export(chain.read(file, 4096))`."""
        of_chain(self._number, value, Value, "value")
        if not isinstance(value, (NumberValue, BytesValue, AttributesValue)):
            raise TypeError(f"{value} gives nothing that can be exported; export a number, bytes or attributes")
        c.chain_export(self._raw, value._raw)
        self._exported.append(value)
        return value

    def check(self) -> None:
        """Checks the chain, which does not change any more then. A run does so by itself. ValueError: it is wrong."""
        c.chain_check(self._raw)

    def run_at(self, directory: Union[int, HasDescriptor]) -> Answer:
        """Runs the chain through a mount of a volume: `directory` is an open directory or file there, as a descriptor or with fileno().

        Paths begin in the directory and do not lead out of it. Of an open file, `given(0)` is that file. The umask of the process is taken
        from permission bits. ChainFailed: an operation failed. OSError: the chain did not run, with ENOTTY when this is no mount of a
        volume, and EAGAIN when too many chains wait.
        """
        if self._inputs:
            raise ValueError("a chain with inputs does not run through a mount; run it on a connection")
        descriptor = directory.fileno() if hasattr(directory, "fileno") else directory
        answer = c_void_p()
        c.chain_run_at(literal_number(descriptor, "directory", 2**31 - 1), self._raw, byref(answer))
        return self._answered(answer)

    # Operations on files.

    def open(
        self, path: PathLike, access: Access = "read", *, dir: Optional[FileValue] = None, follow: bool = True
    ) -> FileValue:
        """Opens a file or directory: `access` is "read", "write", "read_write", or "path" for attributes and as a `dir`. Without `follow`, a
        symlink at the end of the path fails with ELOOP."""
        flags = choice(access, _ACCESSES, "access") | (0 if follow else os.O_NOFOLLOW)
        return self._add(c.op_open, FileValue, "open", self._path(path, dir), flags)

    def create(
        self, path: PathLike, *, dir: Optional[FileValue] = None, perm: int = 0o644, exclusive: bool = False
    ) -> FileValue:
        """Makes an empty file with these permission bits, from which no umask is taken, and opens it for reading and writing. Opens a file
        that exists, or with `exclusive` fails with EEXIST."""
        flags = os.O_EXCL if exclusive else 0
        return self._add(c.op_create, FileValue, "create", self._path(path, dir), flags, literal_number(perm, "perm", PERM_MAX))

    def given(self, number: int = 0) -> FileValue:
        """The open file with this number, from 0, among those that a run gets. Fails with EBADF when there is none."""
        return self._add(c.op_given, FileValue, "given", literal_number(number, "number", _GIVEN_MAX))

    def close(self, file: FileValue) -> Value:
        """Ends the use of a file in the chain; its end does so with all. A file that was given stays open for the caller."""
        value = self._add(c.op_close, Value, "close", self._file(file))
        self._closed.append(file)
        return value

    def stat(self, file: FileValue) -> AttributesValue:
        """Reads the attributes of a file."""
        return self._add(c.op_stat, AttributesValue, "stat", self._file(file))

    def field(self, attributes: AttributesValue, field: Field) -> NumberValue:
        """One of the attributes: "size", "mode", "links", "uid", "gid", "mtime_ns" or "ctime_ns"."""
        of = of_chain(self._number, attributes, AttributesValue, "attributes")
        return self._add(c.op_field, NumberValue, "field", of._raw, choice(field, _FIELDS, "field"))

    def read(self, file: FileValue, length: Number, offset: Number = 0) -> BytesValue:
        """Reads at most `length` bytes; fewer at the end of the file."""
        where, most = self._num(offset, "offset"), self._num(length, "length")
        return self._add(c.op_read, BytesValue, "read", self._file(file), where, most)

    def write(self, file: FileValue, data: Data, offset: Number = 0) -> NumberValue:
        """Writes at an offset, which is the value."""
        where = self._num(offset, "offset")
        return self._add(c.op_write, NumberValue, "write", self._file(file), where, self._data(data, "data"))

    def append(self, file: FileValue, data: Data) -> NumberValue:
        """Writes at the end of the file. The value is the offset where that was."""
        return self._add(c.op_append, NumberValue, "write", self._file(file), self._data(data, "data"))

    def truncate(self, file: FileValue, size: Number) -> Value:
        """Sets the size of a file in bytes. New bytes are zeros."""
        return self._add(c.op_truncate, Value, "truncate", self._file(file), self._num(size, "size"))

    def fallocate(self, file: FileValue, length: Number, offset: Number = 0, *, mode: Allocate = "extend") -> Value:
        """Allocates space: `mode` is "extend", "keep_size", "punch_hole", "zero" or "zero_keep_size"."""
        how, where = choice(mode, _ALLOCATES, "mode"), self._num(offset, "offset")
        return self._add(c.op_fallocate, Value, "fallocate", self._file(file), how, where, self._num(length, "length"))

    def sync(self, file: FileValue) -> Value:
        """Makes a file and all names so far survive a power cut; with the policies "all" and "prefix", all changes at the end."""
        return self._add(c.op_sync, Value, "sync", self._file(file))

    def get_xattr(self, file: FileValue, name: Union[str, bytes]) -> BytesValue:
        """Reads an extended attribute, whose name begins with "user."."""
        return self._add(c.op_get_xattr, BytesValue, "get_xattr", self._file(file), _xattr(name))

    def set_xattr(self, file: FileValue, name: Union[str, bytes], value: Data, *, mode: Set = "any") -> Value:
        """Sets an extended attribute: with "create" it must not exist, with "replace" it must."""
        how = choice(mode, _SETS, "mode")
        return self._add(c.op_set_xattr, Value, "set_xattr", self._file(file), _xattr(name), self._data(value, "value"), how)

    def remove_xattr(self, file: FileValue, name: Union[str, bytes]) -> Value:
        """Removes an extended attribute."""
        return self._add(c.op_remove_xattr, Value, "remove_xattr", self._file(file), _xattr(name))

    # Operations on names.

    def mkdir(self, path: PathLike, *, dir: Optional[FileValue] = None, perm: int = 0o755) -> Value:
        """Makes a directory with these permission bits, from which no umask is taken."""
        return self._add(c.op_mkdir, Value, "mkdir", self._path(path, dir), literal_number(perm, "perm", PERM_MAX))

    def symlink(self, target: PathLike, path: PathLike, *, dir: Optional[FileValue] = None) -> Value:
        """Makes a symlink at `path` that holds `target`."""
        holds = path_bytes(self._number, target, "target")
        return self._add(c.op_symlink, Value, "symlink", holds, self._path(path, dir))

    def link(
        self, path: PathLike, new_path: PathLike, *, dir: Optional[FileValue] = None, to: Optional[FileValue] = None
    ) -> Value:
        """Gives a file one more name. `new_path` begins in the directory `to`."""
        return self._add(c.op_link, Value, "link", self._path(path, dir), self._path(new_path, to, "new_path", "to"))

    def rename(
        self,
        path: PathLike,
        new_path: PathLike,
        *,
        dir: Optional[FileValue] = None,
        to: Optional[FileValue] = None,
        flags: Optional[Rename] = None,
    ) -> Value:
        """Renames a file, and replaces what has the new name; "no_replace" fails with EEXIST instead, "exchange" swaps both. `new_path` begins
        in the directory `to`."""
        how = 0 if flags is None else choice(flags, _RENAMES, "flags")
        new = self._path(new_path, to, "new_path", "to")
        return self._add(c.op_rename, Value, "rename", self._path(path, dir), new, how)

    def unlink(self, path: PathLike, *, dir: Optional[FileValue] = None) -> Value:
        """Removes a name that is not a directory's."""
        return self._add(c.op_unlink, Value, "unlink", self._path(path, dir))

    def rmdir(self, path: PathLike, *, dir: Optional[FileValue] = None) -> Value:
        """Removes an empty directory."""
        return self._add(c.op_rmdir, Value, "rmdir", self._path(path, dir))

    # Operations that compute.

    def slice(self, data: Data, start: Number, length: Number) -> BytesValue:
        """A part of bytes. Fails with ERANGE unless all of it is there."""
        begin, most = self._num(start, "start"), self._num(length, "length")
        return self._add(c.op_slice, BytesValue, "slice", self._data(data, "data"), begin, most)

    def concat(self, parts: Iterable[Data]) -> BytesValue:
        """Bytes, one behind the other; at most 255 parts."""
        if isinstance(parts, (str, bytes, bytearray, memoryview, Value)):
            raise TypeError("parts is a single value; pass a list of bytes")
        listed = [self._data(part, f"part {place}") for place, part in enumerate(parts)]
        if len(listed) > _PARTS_MAX:
            raise ValueError(f"parts has {len(listed)} parts; pass {_PARTS_MAX} at most")
        return self._add(c.op_concat, BytesValue, "concat", (c.RawBytes * len(listed))(*listed), len(listed))

    def len(self, data: Data) -> NumberValue:
        """The number of bytes."""
        return self._add(c.op_len, NumberValue, "len", self._data(data, "data"))

    def pack(self, number: Number, width: int) -> BytesValue:
        """A number in `width` (1 to 8) little-endian bytes. Fails with EOVERFLOW when they do not hold it."""
        return self._add(c.op_pack, BytesValue, "pack", self._num(number, "number"), _width(width))

    def unpack(self, data: Data, width: int, start: Number = 0) -> NumberValue:
        """The number in `width` (1 to 8) little-endian bytes. Fails with ERANGE unless all of them are there."""
        begin = self._num(start, "start")
        return self._add(c.op_unpack, NumberValue, "unpack", self._data(data, "data"), begin, _width(width))

    def arith(self, left: Number, arithmetic: Arithmetic, right: Number) -> NumberValue:
        """Of two numbers another one: "add", "sub", "mul", "div", "rem", "min" or "max". Fails with EOVERFLOW when it does not fit into 64
        bits, is below 0, or divides by 0."""
        how = choice(arithmetic, _ARITHMETICS, "arithmetic")
        return self._add(c.op_arith, NumberValue, "arith", self._num(left, "left"), how, self._num(right, "right"))

    def find(self, data: Data, what: Data, start: Number = 0) -> NumberValue:
        """The first offset, not before `start`, at which `data` has `what`, or NOT_FOUND."""
        begin, sought = self._num(start, "start"), self._data(what, "what")
        return self._add(c.op_find, NumberValue, "find", self._data(data, "data"), sought, begin)

    def patch(self, base: Data, data: Data, at: Number = 0) -> BytesValue:
        """`base` with `data` in place of as many bytes at offset `at`. Fails with ERANGE when `data` goes beyond the end."""
        where, instead = self._num(at, "at"), self._data(data, "data")
        return self._add(c.op_patch, BytesValue, "patch", self._data(base, "base"), where, instead)

    def crc32c(self, data: Data) -> NumberValue:
        """The CRC32C (Castagnoli) of bytes."""
        return self._add(c.op_crc32c, NumberValue, "crc32c", self._data(data, "data"))

    def verify(self, data: Data, crc: Number) -> Value:
        """The chain fails with EBADMSG unless the bytes have this CRC32C."""
        return self._add(c.op_verify, Value, "verify", self._data(data, "data"), self._num(crc, "crc"))

    def compress(self, data: Data, codec: Codec = "lz4", level: int = 0) -> BytesValue:
        """Bytes, compressed: "lz4" or "zstd" frames, or one "lz4-block". With level 0 in the codec's usual way."""
        which = choice(codec, _CODECS, "codec")
        return self._add(c.op_compress, BytesValue, "compress", self._data(data, "data"), which, level)

    def decompress(self, data: Data, max_bytes: Number, codec: Codec = "lz4") -> BytesValue:
        """Bytes, decompressed. Fails with EBADMSG when they are damaged, and with EMSGSIZE when they would be more than `max_bytes`."""
        which, most = choice(codec, _CODECS, "codec"), self._num(max_bytes, "max_bytes")
        return self._add(c.op_decompress, BytesValue, "decompress", self._data(data, "data"), which, most)

    def call(self, module: Data, data: Data, fuel: Number) -> BytesValue:
        """What the function of a WebAssembly module makes of `data`, for at most `fuel` units. The server runs it."""
        code, units = self._data(module, "module"), self._num(fuel, "fuel")
        return self._add(c.op_call, BytesValue, "call", code, self._data(data, "data"), units)

    def expect(self, left: Union[Number, Data], compare: Compare, right: Union[Number, Data]) -> Value:
        """The chain fails with ECANCELED unless this comparison of two numbers or two bytes holds."""
        operator = choice(compare, _COMPARES, "compare")
        if self._is_of_bytes(left, right):
            sides = self._data(left, "left"), self._data(right, "right")
            return self._add(c.expect_bytes, Value, "expect", sides[0], operator, sides[1])
        numbers = self._num(left, "left"), self._num(right, "right")
        return self._add(c.expect_numbers, Value, "expect", numbers[0], operator, numbers[1])

    # What comes with a run.

    def input_number(self, place: int) -> NumberValue:
        """A number that comes with each run: the input at this place, from 0."""
        return self._input(c.input_number, NumberValue, place)

    def input_bytes(self, place: int) -> BytesValue:
        """Bytes that come with each run: the input at this place, from 0."""
        return self._input(c.input_bytes, BytesValue, place)

    def _input(self, function: Any, kind: Type[_V], place: int) -> _V:
        place = literal_number(place, "place", _INPUT_MAX)
        if self._inputs.get(place, kind) is not kind:
            raise ValueError(f"input {place} is used as a number and as bytes; use another place for one of them")
        value = self._add(function, kind, "input", place)
        self._inputs[place] = kind
        return value

    # What all of these use.

    def _add(self, function: Any, kind: Type[_V], name: str, *arguments: Any) -> _V:
        value = kind(function(self._raw, *arguments), name)
        self._number = value._raw.chain
        self._operations.append(value)
        return value

    def _file(self, file: FileValue) -> c.RawValue:
        opened = of_chain(self._number, file, FileValue, "file")
        if any(opened is closed for closed in self._closed):
            raise ValueError(f"file is {opened}, which the chain has closed")
        return opened._raw

    def _num(self, given: Any, what: str) -> c.RawNumber:
        return number(self._number, given, what)

    def _data(self, given: Any, what: str) -> c.RawBytes:
        return data(self._number, given, what)

    def _path(
        self, given: PathLike, dir: Optional[FileValue], what: str = "path", dir_what: str = "dir"
    ) -> c.RawPath:
        return path(self._number, given, dir, what, dir_what)

    def _is_of_bytes(self, left: object, right: object) -> bool:
        """Whether a comparison is one of bytes, and not one of numbers."""
        is_number = [isinstance(side, NumberValue) or hasattr(side, "__index__") for side in (left, right)]
        if is_number[0] != is_number[1]:
            raise TypeError("a number is compared with something else; compare two numbers or two bytes")
        return not is_number[0]

    def _run_inputs(self, inputs: Sequence[Input]) -> Any:
        """The inputs of a run as the library takes them."""
        takes = max(self._inputs, default=-1) + 1
        if isinstance(inputs, (str, bytes, bytearray, memoryview)):
            raise TypeError("inputs is a single value; pass a list")
        if len(inputs) != takes:
            raise ValueError(f"the chain takes {takes} inputs, and {len(inputs)} were passed")
        raw = (c.RawInput * takes)()
        for place, given in enumerate(inputs):
            if self._inputs.get(place) is NumberValue:
                raw[place].number = literal_number(given, f"input {place}")
            elif place in self._inputs:
                copied = literal_bytes(given, f"input {place}")
                raw[place].data, raw[place].data_bytes = copied, len(copied)
        return raw

    def _answered(self, answer: c_void_p) -> Answer:
        """The answer, unless the chain failed."""
        taken = self._take(answer)
        if taken.error is not None:
            raise taken.error
        return taken

    def _take(self, answer: c_void_p) -> Answer:
        return take(answer, self._operations, self._exported, self._has_guards)


def _width(width: int) -> int:
    return literal_number(width, "width", _WIDTH_MAX, 1)


def _xattr(name: Union[str, bytes]) -> bytes:
    if not isinstance(name, (str, bytes)):
        raise TypeError(f"name is of type {type(name).__name__}; pass str or bytes")
    encoded = os.fsencode(name)
    if not encoded.startswith(b"user.") or b"\0" in encoded:
        raise ValueError(f"name is {name!r}; pass one that begins with 'user.' and has no zero byte")
    return encoded
