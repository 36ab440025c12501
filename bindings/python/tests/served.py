"""What the tests share: a connection to the volume that WEFT_SOCKET names, and a directory of each test's own on it."""

from __future__ import annotations

import itertools
import os
import unittest
from typing import Any, Callable, Iterable, Tuple, Type

import weft

_numbers = itertools.count()


class ServedCase(unittest.TestCase):
    """A test on the volume."""

    def setUp(self) -> None:
        self.volume = weft.connect()
        self.addCleanup(self.volume.close)
        self.directory = f"/test-{os.getpid()}-{next(_numbers)}"
        chain = weft.Chain()
        chain.mkdir(self.directory)
        self.volume.run(chain)

    def at(self, name: str) -> str:
        """A path in the test's directory."""
        return f"{self.directory}/{name}"

    def content(self, name: str) -> bytes:
        return self.volume.open_read(self.at(name), 1 << 20)

    def exists(self, name: str) -> bool:
        chain = weft.Chain()
        chain.open(self.at(name), "path", follow=False)
        try:
            self.volume.run(chain)
        except weft.ChainFailed:
            return False
        return True

    def fails(self, chain: weft.Chain, errno: int, operation: weft.Value, **run: Any) -> weft.ChainFailed:
        """The chain fails at this operation."""
        with self.assertRaises(weft.ChainFailed) as caught:
            self.volume.run(chain, **run)
        self.assertEqual(caught.exception.errno, errno, str(caught.exception))
        self.assertIs(caught.exception.operation, operation)
        return caught.exception

    def refused(self, mistakes: Iterable[Tuple[Type[Exception], str, Callable[[], object]]]) -> None:
        """Each call raises exactly this exception, with this text in it."""
        for kind, text, call in mistakes:
            with self.subTest(text=text):
                with self.assertRaises(kind) as caught:
                    call()
                self.assertIs(type(caught.exception), kind)
                self.assertIn(text, str(caught.exception))
