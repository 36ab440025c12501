"""A connection to the server of a volume, its open files, and batches of runs."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_size_t, c_uint64, c_void_p
from types import TracebackType
from typing import Any, Callable, List, Optional, Sequence, Type, Union

from . import _library as c
from ._answer import Answer
from ._chain import Chain, Input
from ._values import PERM_MAX, LiteralPath, literal_bytes, literal_number, literal_path

# More than a call can carry, and still no danger to this process.
_LENGTH_MAX = 2**31 - 1


class _Handle:
    """The library's connection. It ends once: when it is closed and no call on it is under way.

    `with` gives it to a call. A forked child has a copy of its parent's handle: it can end that copy, and cannot call on it, because the
    server would take the call for the parent's.
    """

    def __init__(self, socket: Optional[bytes], mount_point: Optional[bytes]) -> None:
        self._raw = c_void_p()
        self._calls, self._is_open = 0, True
        # A handler of a signal may close the connection while its own thread is in here.
        self.lock = threading.RLock()
        self._process = os.getpid()
        c.files_connect(socket, mount_point, byref(self._raw))

    @property
    def is_open(self) -> bool:
        return self._is_open and not self.is_parents()

    def is_parents(self) -> bool:
        return self._process != os.getpid()

    def __enter__(self) -> c_void_p:
        if self.is_parents():
            raise RuntimeError(f"the connection is of process {self._process}, which has forked this one; connect again")
        with self.lock:
            if not self._is_open:
                raise ValueError("the connection is closed")
            self._calls += 1
        return self._raw

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self._calls -= 1
            self._free_unused()

    def close(self) -> None:
        if self.is_parents():
            # Calls that were under way are the parent's, and so is who held the lock.
            self.lock, self._calls, self._process = threading.RLock(), 0, os.getpid()
        with self.lock:
            self._is_open = False
            self._free_unused()

    def _free_unused(self, _free: Callable[[c_void_p], None] = c.files_close) -> None:
        if not self._is_open and self._calls == 0 and self._raw:
            raw, self._raw = self._raw, c_void_p()
            _free(raw)

    def __del__(self) -> None:
        self.close()


class Connection:
    """A connection to the server of a volume, which several threads may use. connect() makes one.

    It is a context manager, and closes its files when it is closed. A forked child cannot use it, nor its files and batches, and connects
    for itself.
    """

    def __init__(self, socket: Optional[LiteralPath] = None, *, mount_point: Optional[LiteralPath] = None) -> None:
        if socket is None and not os.environ.get("WEFT_SOCKET"):
            raise ValueError("WEFT_SOCKET is not set; pass the server's socket, or run the program under 'weft run'")
        named = None if socket is None else literal_path(socket, "socket")
        appears = None if mount_point is None else literal_path(mount_point, "mount_point")
        self._handle = _Handle(named, appears)

    def run(self, chain: Chain, inputs: Sequence[Input] = (), *, files: Sequence[File] = ()) -> Answer:
        """Has the server run a chain, with its inputs and the open files for Chain.given.

        The server keeps a chain that runs a second time or has inputs: runs send only the inputs then. ChainFailed: an operation failed.
        OSError: the chain did not run; with EIO, the server ended meanwhile, and the chain was run or was not. ValueError: the chain is
        wrong.
        """
        given, answer = self._given(files), c_void_p()
        taken = chain._run_inputs(inputs)
        with self._handle as raw:
            if inputs or chain._has_run:
                c.chain_run_with(raw, chain._raw, given, len(given), taken, len(taken), byref(answer))
            else:
                c.chain_run(raw, chain._raw, given, len(given), byref(answer))
        chain._has_run = True
        return chain._answered(answer)

    def open(self, path: LiteralPath, flags: int = os.O_RDONLY, mode: int = 0o644) -> File:
        """Opens a file for chains. The path begins at the root of the volume; flags are those of os.open; a file that is made has the
        permission bits `mode`, from which no umask is taken."""
        named, bits = literal_path(path, "path"), literal_number(mode, "mode", PERM_MAX)
        flags = literal_number(flags, "flags", 2**31 - 1)
        file = c.RawFile()
        with self._handle as raw:
            c.file_open(raw, named, flags, bits, byref(file))
        return File(self, file)

    def open_read(self, path: LiteralPath, length: int, offset: int = 0) -> bytes:
        """Opens a file and reads at most `length` bytes of it, by one call; fewer at its end. More than 4 MiB fail with EMSGSIZE."""
        named, most = literal_path(path, "path"), literal_number(length, "length", _LENGTH_MAX)
        where, read = literal_number(offset, "offset"), c_size_t()
        buffer = ctypes.create_string_buffer(most)
        with self._handle as raw:
            c.open_read(raw, named, where, buffer, most, byref(read))
        return ctypes.string_at(buffer, read.value)

    def open_write(
        self, path: LiteralPath, data: Union[bytes, bytearray, memoryview], offset: int = 0, *, perm: int = 0o644, durable: bool = False
    ) -> None:
        """Opens a file, or makes it with these permission bits, from which no umask is taken, and writes to it: all of it, or nothing is
        made or changed. With `durable`, it survives a power cut."""
        named, copied = literal_path(path, "path"), literal_bytes(data, "data")
        where, bits = literal_number(offset, "offset"), literal_number(perm, "perm", PERM_MAX)
        with self._handle as raw:
            c.open_write(raw, named, bits, where, copied, len(copied), bool(durable))

    def close(self) -> None:
        """Ends the connection when no call on it is under way. Its open files are closed. In a forked child, it ends only what the child
        has of it."""
        self._handle.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weft.Connection, {'open' if self._handle.is_open else 'closed'}>"

    def _given(self, files: Sequence[File]) -> Any:
        """Open files as the library takes them."""
        if isinstance(files, File):
            raise TypeError("files is a single file; pass a list")
        for place, file in enumerate(files):
            if not isinstance(file, File):
                raise TypeError(f"file {place} is of type {type(file).__name__}; pass what Connection.open has returned")
            if file._connection is not self:
                raise ValueError(f"file {place} is of another connection; pass one that this connection has opened")
            if not file._is_open:
                raise ValueError(f"file {place} is closed")
        return (c.RawFile * len(files))(*(file._raw for file in files))


def connect(socket: Optional[LiteralPath] = None, *, mount_point: Optional[LiteralPath] = None) -> Connection:
    """Connects to the server of a volume at its socket ('weft serve', 'weft run', 'weft mount'). Without one, at the socket in the
    environment variable WEFT_SOCKET, which programs under 'weft run' have.

    `mount_point` is where the volume appears: absolute symlinks below it stay on the volume. Default: what WEFT_AT says, or /weft.
    OSError: there is no such server.
    """
    return Connection(socket, mount_point=mount_point)


class File:
    """An open file of a connection, to be given with chains. A context manager; Connection.open makes one."""

    def __init__(self, connection: Connection, raw: c.RawFile) -> None:
        self._connection, self._raw, self._is_open = connection, raw, True

    def write_close(self, data: Union[bytes, bytearray, memoryview], offset: int = 0, *, durable: bool = False) -> None:
        """Writes to the file and closes it, by one call. A file that could not be written to stays open. With `durable`, the write survives
        a power cut."""
        copied, where = literal_bytes(data, "data"), literal_number(offset, "offset")
        with self._opened() as raw:
            c.write_close(raw, self._raw, where, copied, len(copied), bool(durable))
            self._is_open = False

    def read_modify_write(
        self, offset: int, length: int, at: int, data: Union[bytes, bytearray, memoryview], *, durable: bool = False
    ) -> bytes:
        """Replaces a part of a block, by one call: reads the block of `length` bytes at `offset`, puts `data` into it from its byte `at` on,
        and writes it back. Nobody writes to the file in between. Returns what the block was before, with zeros behind the end of the file.
        Fails with ERANGE when the file ends before the part does."""
        where, most = literal_number(offset, "offset"), literal_number(length, "length", _LENGTH_MAX)
        begin, copied = literal_number(at, "at"), literal_bytes(data, "data")
        block = ctypes.create_string_buffer(most)
        with self._opened() as raw:
            c.read_modify_write(raw, self._raw, where, block, most, begin, copied, len(copied), bool(durable))
        return block.raw

    def write_checksum(
        self, data: Union[bytes, bytearray, memoryview], offset: Optional[int] = None, *, durable: bool = False
    ) -> int:
        """Writes data at an offset, or without one at the end of the file, and behind the data its CRC32C in four little-endian bytes, which
        the server computes. Returns the offset of the data."""
        copied = literal_bytes(data, "data")
        where = c.END if offset is None else literal_number(offset, "offset", c.END - 1)
        at = c_uint64()
        with self._opened() as raw:
            c.write_checksum(raw, self._raw, where, copied, len(copied), bool(durable), byref(at))
        return at.value

    def read_checksum(self, length: int, offset: int = 0) -> bytes:
        """Reads data that write_checksum wrote. Fails with EBADMSG when it is damaged, and with ERANGE when the file ends before."""
        most, where = literal_number(length, "length", _LENGTH_MAX), literal_number(offset, "offset")
        buffer = ctypes.create_string_buffer(most)
        with self._opened() as raw:
            c.read_checksum(raw, self._raw, where, buffer, most)
        return buffer.raw

    def close(self) -> None:
        """Closes the file. Nothing happens when it is closed already, with its connection too."""
        handle = self._connection._handle
        if not handle.is_open:
            self._is_open = False
            return
        with handle.lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            with handle as raw:
                c.file_close(raw, self._raw)

    def _opened(self) -> _Handle:
        """The connection for a call with this file."""
        if not self._is_open:
            raise ValueError("the file is closed")
        return self._connection._handle

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except (OSError, ValueError):
            # The server or the connection has ended meanwhile, and the file with it.
            pass

    def __repr__(self) -> str:
        return f"<weft.File, {'open' if self._is_open and self._connection._handle.is_open else 'closed'}>"


class Batch:
    """Up to 64 runs of chains, which one request makes in their order. Other programs may come between two of them."""

    def __init__(self, connection: Connection) -> None:
        self._raw = c_void_p()
        self._connection = connection
        self._chains: List[Chain] = []
        # The library gives the answers one by one, and forgets those of the run before.
        self._lock = threading.Lock()
        with connection._handle as raw:
            c.batch_new(raw, byref(self._raw))

    def __del__(self, _free: Callable[[c_void_p], None] = c.batch_free) -> None:
        if self._raw:
            _free(self._raw)

    def __len__(self) -> int:
        return len(self._chains)

    def add(self, chain: Chain, inputs: Sequence[Input] = (), *, files: Sequence[File] = ()) -> None:
        """Adds a run of a chain, with its inputs and the open files for Chain.given. ValueError: the chain is wrong, or 64 runs are there
        already."""
        given, taken = self._connection._given(files), chain._run_inputs(inputs)
        with self._connection._handle, self._lock:
            c.batch_add(self._raw, chain._raw, given, len(given), taken, len(taken))
            self._chains.append(chain)

    def run(self) -> List[Answer]:
        """Makes all runs, after which the batch is empty, and returns their answers. A run that fails leaves those behind it: look at
        Answer.error. ValueError: the runs take more than about 256 KiB together, or a file has been closed; nothing was run. OSError with
        EIO: the server ended meanwhile, and some were run or were not."""
        with self._connection._handle, self._lock:
            chains, self._chains = self._chains, []
            c.batch_run(self._raw)
            return [self._answer_of(chain) for chain in chains]

    def _answer_of(self, chain: Chain) -> Answer:
        answer = c_void_p()
        c.batch_take(self._raw, byref(answer))
        return chain._take(answer)
