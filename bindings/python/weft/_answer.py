"""Answers: what became of the operations of a chain.

An answer copies what the library's has, so that it needs no care: it may be kept, given to other threads and pickled.
"""

from __future__ import annotations

import ctypes
import enum
import os
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union, overload

from . import _library as c
from ._values import AttributesValue, BytesValue, NumberValue, Value


class Outcome(enum.Enum):
    """What became of an operation."""

    DONE = c.OUTCOME_DONE
    """It was done."""
    SKIPPED = c.OUTCOME_SKIPPED
    """Its comparison did not hold, it uses the value of an operation that was skipped, or it comes behind the one that failed."""
    FAILED = c.OUTCOME_FAILED
    """It failed."""


class Attributes(NamedTuple):
    """Attributes of a file. Times are in nanoseconds since 1970.

    Those of a file that the chain has changed before have its new size, owner, mode and links, but the times and the blocks of before.
    """

    ino: int
    """The inode's number."""
    size: int
    """Bytes."""
    blocks: int
    """Units of 512 bytes that its data occupies."""
    mode: int
    """Kind and permission bits, as in st_mode."""
    links: int
    """Names."""
    uid: int
    """Owner."""
    gid: int
    """Group."""
    atime_ns: int
    """Last access."""
    mtime_ns: int
    """Last change of the data."""
    ctime_ns: int
    """Last change of the inode."""


Exported = Union[int, bytes, Attributes]


class ChainFailed(OSError):
    """An operation of a chain failed. `errno` and `strerror` are those of the operation."""

    operation: Value
    """The operation that failed."""
    answer: Answer
    """What became of all operations."""

    def __init__(self, errno: int, strerror: str, operation: Value, answer: Answer) -> None:
        super().__init__(errno, strerror)
        self.operation, self.answer = operation, answer

    def __str__(self) -> str:
        return f"{self.operation} failed: {self.strerror}"

    def __reduce__(self) -> Tuple[Any, ...]:
        return ChainFailed, (self.errno, self.strerror, self.operation, self.answer)


class Answer:
    """What became of a chain that has run. `answer[value]` is what an operation gave that Chain.export named."""

    __slots__ = ("_operations", "_outcomes", "_values", "_failed")

    def __init__(self, operations: List[Value], outcomes: List[Outcome], values: Dict[int, Exported], failed: Optional[Tuple[int, int]]):
        self._operations, self._outcomes, self._values, self._failed = operations, outcomes, values, failed

    @property
    def error(self) -> Optional[ChainFailed]:
        """Why the chain failed; None when it did not."""
        return None if self._failed is None else self._error(*self._failed)

    def _error(self, number: int, errno: int) -> ChainFailed:
        return ChainFailed(errno, os.strerror(errno), self._operations[number - 1], self)

    def outcome(self, operation: Value) -> Outcome:
        """What became of an operation."""
        return self._outcomes[self._place(operation)]

    @overload
    def __getitem__(self, operation: NumberValue) -> int: ...
    @overload
    def __getitem__(self, operation: BytesValue) -> bytes: ...
    @overload
    def __getitem__(self, operation: AttributesValue) -> Attributes: ...
    def __getitem__(self, operation: Value) -> Exported:
        """What an operation gave. LookupError: it was skipped or not exported. ChainFailed: it failed."""
        outcome = self._outcomes[self._place(operation)]
        if outcome is Outcome.FAILED and self._failed is not None:
            raise self._error(*self._failed)
        if outcome is Outcome.SKIPPED:
            raise LookupError(f"{operation} was skipped")
        if operation.number not in self._values:
            raise LookupError(f"{operation} was not exported; pass it to Chain.export before the chain runs")
        return self._values[operation.number]

    def _place(self, operation: Value) -> int:
        if not isinstance(operation, Value):
            raise TypeError(f"an answer is asked by the value of an operation, not by {type(operation).__name__}")
        place = operation.number - 1
        # An answer that was pickled has copies of its operations.
        if place >= len(self._operations) or self._operations[place]._raw.chain != operation._raw.chain:
            raise ValueError(f"{operation} is of another chain than this answer")
        return place

    def __repr__(self) -> str:
        what = "done" if self._failed is None else f"failed at operation {self._failed[0]}"
        return f"<weft.Answer of {len(self._operations)} operations, {what}>"


def take(raw: c_void_p, operations: List[Value], exported: List[Value], has_guards: bool) -> Answer:
    """Copies an answer of the library, and frees that."""
    try:
        failed, errno = c.RawValue(), c_int()
        c.answer_failed(raw, byref(failed), byref(errno))
        if has_guards:
            outcomes = [_outcome(raw, operation) for operation in operations]
        else:
            # Nothing is skipped but what comes behind a failure.
            at = failed.operation
            outcomes = [Outcome.DONE] * (at - 1 if at else len(operations))
            if at:
                outcomes += [Outcome.FAILED] + [Outcome.SKIPPED] * (len(operations) - at)
        done = (value for value in exported if outcomes[value.number - 1] is Outcome.DONE)
        values = {value.number: _value(raw, value) for value in done}
    finally:
        c.answer_free(raw)
    return Answer(operations, outcomes, values, (failed.operation, errno.value) if failed.operation else None)


def _outcome(raw: c_void_p, operation: Value) -> Outcome:
    outcome = c_uint32()
    c.answer_outcome(raw, operation._raw, byref(outcome), None)
    return Outcome(outcome.value)


def _value(raw: c_void_p, operation: Value) -> Exported:
    if isinstance(operation, NumberValue):
        number = c_uint64()
        c.answer_number(raw, operation._raw, byref(number))
        return number.value
    if isinstance(operation, BytesValue):
        data, length = c_void_p(), c_size_t()
        c.answer_bytes(raw, operation._raw, byref(data), byref(length))
        return ctypes.string_at(data, length.value)
    attributes = c.RawAttributes()
    c.answer_attributes(raw, operation._raw, byref(attributes))
    return Attributes(*(getattr(attributes, name) for name in Attributes._fields))
