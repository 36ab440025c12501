"""What operations of a chain take and give.

Each argument is checked here, before the library sees it: a mistake raises TypeError or ValueError, and the chain is as it was.
"""

from __future__ import annotations

import operator
import os
from typing import Any, Mapping, Optional, TypeVar, Union

from ._library import RawBytes, RawNumber, RawPath, RawValue

NUMBER_MAX = 2**64 - 1
PERM_MAX = 0o7777

_NONE = RawValue(0, 0)


class Value:
    """An operation of a chain. Later operations of the chain take what it gives; this one gives nothing."""

    __slots__ = ("number", "name", "_raw")

    number: int
    """Its place in the chain, from 1."""
    name: str
    """What it does: "open", "read", ..."""

    def __init__(self, raw: RawValue, name: str) -> None:
        self.number, self.name, self._raw = raw.operation, name, raw

    def __str__(self) -> str:
        return f"operation {self.number} ({self.name})"

    def __repr__(self) -> str:
        return f"<weft {self}>"

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth value before the chain has run; compare with Chain.when or Chain.expect")


class FileValue(Value):
    """An operation that gives a file."""

    __slots__ = ()


class NumberValue(Value):
    """An operation that gives a number."""

    __slots__ = ()


class BytesValue(Value):
    """An operation that gives bytes."""

    __slots__ = ()


class AttributesValue(Value):
    """An operation that gives the attributes of a file."""

    __slots__ = ()


Number = Union[int, NumberValue]
Data = Union[bytes, bytearray, memoryview, BytesValue]
LiteralPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
PathLike = Union[LiteralPath, BytesValue]

_V = TypeVar("_V", bound=Value)


def of_chain(chain: int, value: Any, kind: type[_V], what: str) -> _V:
    """A value of this kind, of the chain with this number."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} is {_told(value)}; pass {_KINDS[kind]}")
    if value._raw.chain != chain:
        raise ValueError(f"{what} is {value} of another chain; pass one of this chain")
    return value


_KINDS = {
    Value: "what an operation of the chain has returned",
    FileValue: "the value of an operation that opens a file (open, create, given)",
    AttributesValue: "the value of stat",
    NumberValue: "an int or the value of an operation that gives a number",
    BytesValue: "bytes or the value of an operation that gives bytes",
}


def _told(value: object) -> str:
    return str(value) if isinstance(value, Value) else f"of type {type(value).__name__}"


def literal_number(number: Any, what: str, most: int = NUMBER_MAX, least: int = 0) -> int:
    """A number in a range."""
    # A truth value is an int in Python, and a mistake here.
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} is {_told(number)}; pass an int")
    whole: int = operator.index(number)
    if not least <= whole <= most:
        raise ValueError(f"{what} is {whole}; pass {least} to {most}")
    return whole


def literal_bytes(data: Any, what: str) -> bytes:
    """A copy of bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    hint = "; text becomes bytes by its method encode()" if isinstance(data, str) else ""
    raise TypeError(f"{what} is {_told(data)}; pass bytes, a bytearray or a memoryview{hint}")


def literal_path(path: Any, what: str) -> bytes:
    """The bytes of a path."""
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{what} is {_told(path)}; pass str, bytes or an os.PathLike") from None
    if b"\0" in encoded:
        raise ValueError(f"{what} {path!r} has a zero byte; no path has one")
    return encoded


def choice(value: Any, choices: Mapping[str, int], what: str) -> int:
    """The number of a word."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {_told(value)}; pass one of {', '.join(map(repr, choices))}")
    if value not in choices:
        raise ValueError(f"{what} is {value!r}; pass one of {', '.join(map(repr, choices))}")
    return choices[value]


def number(chain: int, given: Any, what: str) -> RawNumber:
    """A number, or the operation that gives it."""
    if isinstance(given, Value):
        return RawNumber(0, of_chain(chain, given, NumberValue, what)._raw)
    return RawNumber(literal_number(given, what), _NONE)


def data(chain: int, given: Any, what: str) -> RawBytes:
    """Bytes, or the operation that gives them."""
    if isinstance(given, Value):
        return RawBytes(None, 0, of_chain(chain, given, BytesValue, what)._raw)
    copied = literal_bytes(given, what)
    return RawBytes(copied, len(copied), _NONE)


def path_bytes(chain: int, given: Any, what: str) -> RawBytes:
    """The bytes of a path, or the operation that gives them."""
    if isinstance(given, Value):
        return data(chain, given, what)
    encoded = literal_path(given, what)
    return RawBytes(encoded, len(encoded), _NONE)


def path(chain: int, given: Any, dir: Optional[FileValue], what: str, dir_what: str) -> RawPath:
    """A path, from the root or from an open directory."""
    below = _NONE if dir is None else of_chain(chain, dir, FileValue, dir_what)._raw
    return RawPath(below, path_bytes(chain, given, what))
