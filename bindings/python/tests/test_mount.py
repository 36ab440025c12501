"""Chains through a mount: WEFT_MOUNT is where the volume is mounted. There is no connection here."""

from __future__ import annotations

import errno
import os
import tempfile
import unittest

import weft


@unittest.skipUnless("WEFT_MOUNT" in os.environ, "WEFT_MOUNT names no mount of a volume")
class Mount(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(dir=os.environ["WEFT_MOUNT"])
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.descriptor = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, self.descriptor)

    def content(self, name: str) -> bytes:
        with open(os.path.join(self.directory, name), "rb") as file:
            return file.read()

    def test_a_chain_runs_in_a_directory_of_the_mount(self) -> None:
        self.addCleanup(os.umask, os.umask(0o027))
        chain = weft.Chain()
        file = chain.create("/first", perm=0o666)
        where = chain.export(chain.append(file, b"text"))
        mode = chain.export(chain.stat(file))
        chain.link("first", "second")
        answer = chain.run_at(self.descriptor)
        self.assertEqual((answer[where], answer[mode].mode & 0o777), (0, 0o640))
        self.assertEqual((self.content("first"), self.content("second")), (b"text", b"text"))

    def test_a_chain_runs_on_an_open_file(self) -> None:
        chain = weft.Chain()
        chain.append(chain.given(), b"a line\n")
        with open(os.path.join(self.directory, "log"), "wb") as file:
            chain.run_at(file)
            chain.run_at(file.fileno())
        self.assertEqual(self.content("log"), b"a line\n" * 2)

    def test_a_failure_leaves_nothing_and_names_its_operation(self) -> None:
        chain = weft.Chain()
        chain.create("gone")
        above = chain.open("..")
        with self.assertRaises(weft.ChainFailed) as caught:
            chain.run_at(self.descriptor)
        self.assertIs(caught.exception.operation, above)
        self.assertEqual(caught.exception.errno, errno.EXDEV)
        self.assertEqual(os.listdir(self.directory), [])

    def test_what_is_no_mount_of_a_volume_is_refused(self) -> None:
        chain = weft.Chain()
        chain.create("file")
        with tempfile.TemporaryFile() as elsewhere:
            with self.assertRaises(OSError) as caught:
                chain.run_at(elsewhere)
        self.assertEqual(caught.exception.errno, errno.ENOTTY)
        with self.assertRaisesRegex(TypeError, "directory is of type str"):
            chain.run_at(self.directory)
        with self.assertRaisesRegex(ValueError, "directory is -1"):
            chain.run_at(-1)


if __name__ == "__main__":
    unittest.main()
