"""Connections, open files and the calls that are whole chains; threads, forked processes, and what is freed when."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Callable
from unittest import mock

import weft
from served import ServedCase
from weft import _library


def descriptors() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


class Connections(ServedCase):
    def test_a_connection_is_made_by_its_socket_or_by_the_environment(self) -> None:
        self.volume.open_write(self.at("file"), b"content")
        socket = os.environ["WEFT_SOCKET"]
        for named in (None, socket, socket.encode(), Path(socket)):
            with weft.connect(named, mount_point="/weft") as volume:
                self.assertEqual(volume.open_read(self.at("file"), 100), b"content")

    def test_absolute_symlinks_below_the_mount_point_stay_on_the_volume(self) -> None:
        self.volume.open_write(self.at("file"), b"content")
        chain = weft.Chain()
        chain.symlink(f"/elsewhere{self.at('file')}", self.at("link"))
        self.volume.run(chain)
        with weft.connect(mount_point="/elsewhere") as volume:
            self.assertEqual(volume.open_read(self.at("link"), 100), b"content")
        with self.assertRaises(OSError):
            self.volume.open_read(self.at("link"), 100)

    def test_where_nobody_serves_a_volume_the_error_says_so(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            nobody = os.path.join(scratch, "socket")
            with self.assertRaisesRegex(FileNotFoundError, f"connect to {nobody}"):
                weft.connect(nobody)
        with mock.patch.dict(os.environ):
            del os.environ["WEFT_SOCKET"]
            with self.assertRaisesRegex(ValueError, "WEFT_SOCKET is not set"):
                weft.connect()
        with self.assertRaisesRegex(TypeError, "socket is of type int"):
            weft.connect(7)

    def test_a_closed_connection_is_refused_and_closes_its_files(self) -> None:
        volume = weft.connect()
        file = volume.open(self.at("file"), os.O_CREAT | os.O_RDWR)
        batch = weft.Batch(volume)
        chain = weft.Chain()
        chain.given()
        self.assertEqual((repr(volume), repr(file)), ("<weft.Connection, open>", "<weft.File, open>"))
        volume.close()
        volume.close()
        self.assertEqual((repr(volume), repr(file)), ("<weft.Connection, closed>", "<weft.File, closed>"))
        self.refused([
            (ValueError, "the connection is closed", lambda: volume.run(chain, files=[file])),
            (ValueError, "the connection is closed", lambda: volume.open("/x")),
            (ValueError, "the connection is closed", lambda: volume.open_read("/x", 1)),
            (ValueError, "the connection is closed", lambda: volume.open_write("/x", b"")),
            (ValueError, "the connection is closed", lambda: file.read_checksum(1)),
            (ValueError, "the connection is closed", batch.run),
            (ValueError, "the connection is closed", lambda: batch.add(chain)),
            (ValueError, "the connection is closed", lambda: weft.Batch(volume)),
        ])
        file.close()

    def test_connections_that_nobody_refers_to_end(self) -> None:
        before = descriptors()
        for _ in range(20):
            volume = weft.connect()
            file = volume.open(self.at("file"), os.O_CREAT | os.O_RDWR)
            batch = weft.Batch(volume)
            self.assertGreater(descriptors(), before)
            del volume, file, batch
            gc.collect()
        self.assertEqual(descriptors(), before)

    def test_a_connection_that_is_closed_during_a_call_ends_after_it(self) -> None:
        before = descriptors()
        volume = weft.connect()
        while_open = descriptors()
        with volume._handle, volume._handle:
            volume.close()
            self.assertEqual(descriptors(), while_open)
        self.assertEqual(descriptors(), before)

    def test_threads_that_use_a_connection_hear_that_it_is_closed(self) -> None:
        before = descriptors()
        volume = weft.connect()
        chain = weft.Chain()
        chain.open(self.directory)
        stopped = []
        begun = threading.Barrier(5)

        def run_until_closed() -> None:
            begun.wait()
            try:
                while True:
                    volume.run(chain)
            except ValueError as error:
                stopped.append(str(error))

        threads = [threading.Thread(target=run_until_closed) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        volume.close()
        for thread in threads:
            thread.join()
        self.assertEqual(stopped, ["the connection is closed"] * 4)
        self.assertEqual(descriptors(), before)


class Files(ServedCase):
    def test_files_are_given_to_chains(self) -> None:
        self.volume.open_write(self.at("from"), b"a line\n")
        chain = weft.Chain()
        source, log = chain.given(0), chain.given(1)
        chain.append(log, chain.read(source, 100))
        with self.volume.open(self.at("from")) as read, self.volume.open(self.at("log"), os.O_CREAT | os.O_WRONLY, 0o600) as written:
            for _ in range(3):
                self.volume.run(chain, files=[read, written])
        self.assertEqual(self.content("log"), b"a line\n" * 3)
        chain = weft.Chain()
        mode = chain.export(chain.field(chain.stat(chain.open(self.at("log"))), "mode"))
        self.assertEqual(self.volume.run(chain)[mode], 0o100600)

    def test_files_of_others_and_closed_ones_are_refused(self) -> None:
        chain = weft.Chain()
        chain.given()
        file = self.volume.open(self.at("file"), os.O_CREAT | os.O_RDWR)
        with weft.connect() as other:
            self.refused([
                (ValueError, "file 0 is of another connection", lambda: other.run(chain, files=[file])),
                (TypeError, "file 0 is of type int", lambda: self.volume.run(chain, files=[3])),
                (TypeError, "files is a single file", lambda: self.volume.run(chain, files=file)),
                (TypeError, "path is of type NoneType", lambda: self.volume.open(None)),
                (TypeError, "flags is of type str", lambda: self.volume.open("/x", "r")),
                (ValueError, "mode is 4096", lambda: self.volume.open("/x", os.O_CREAT | os.O_RDWR, 0o10000)),
                (FileNotFoundError, "open /none", lambda: self.volume.open("/none")),
            ])
        file.close()
        file.close()
        self.refused([
            (ValueError, "file 0 is closed", lambda: self.volume.run(chain, files=[file])),
            (ValueError, "the file is closed", lambda: file.write_close(b"x")),
            (ValueError, "the file is closed", lambda: file.write_checksum(b"x")),
        ])

    def test_files_that_nobody_refers_to_are_closed(self) -> None:
        file = self.volume.open(self.directory)
        raw = file._raw
        del file
        gc.collect()
        with self.volume._handle as connection, self.assertRaisesRegex(ValueError, "not open any more"):
            _library.file_close(connection, raw)


class OneCall(ServedCase):
    def test_open_read_and_open_write(self) -> None:
        self.volume.open_write(self.at("file"), b"0123456789", perm=0o640, durable=True)
        self.volume.open_write(self.at("file"), memoryview(b"abc"), 8)
        self.assertEqual(self.volume.open_read(self.at("file"), 4, 2), b"2345")
        self.assertEqual(self.volume.open_read(self.at("file"), 100, 7), b"7abc")
        self.assertEqual(self.volume.open_read(self.at("file"), 0), b"")
        self.refused([
            (FileNotFoundError, "operation 1 (open)", lambda: self.volume.open_read(self.at("none"), 1)),
            (FileNotFoundError, "operation 1 (create)", lambda: self.volume.open_write(self.at("none/file"), b"x")),
            (TypeError, "data is of type str", lambda: self.volume.open_write(self.at("none"), "text")),
            (ValueError, "length is -1", lambda: self.volume.open_read(self.at("none"), -1)),
            (ValueError, "4194304 are allowed", lambda: self.volume.open_write(self.at("none"), bytes(6 << 20))),
        ])
        half = bytes(3 << 20)
        self.volume.open_write(self.at("large"), half)
        self.volume.open_write(self.at("large"), half, len(half))
        self.assertEqual(len(self.volume.open_read(self.at("large"), 4 << 20)), 4 << 20)
        with self.assertRaises(OSError) as caught:
            self.volume.open_read(self.at("large"), (4 << 20) + 1)
        self.assertEqual(caught.exception.errno, errno.EMSGSIZE)

    def test_write_close(self) -> None:
        self.volume.open_write(self.at("file"), b"0123")
        with self.volume.open(self.at("file")) as file:
            with self.assertRaises(OSError) as caught:
                file.write_close(b"x")
            self.assertEqual(caught.exception.errno, errno.EBADF)
            self.assertEqual(repr(file), "<weft.File, open>")
        file = self.volume.open(self.at("file"), os.O_WRONLY)
        file.write_close(b"AB", 1, durable=True)
        self.assertEqual(repr(file), "<weft.File, closed>")
        self.assertEqual(self.content("file"), b"0AB3")

    def test_read_modify_write(self) -> None:
        self.volume.open_write(self.at("file"), b"0123456789")
        with self.volume.open(self.at("file"), os.O_RDWR) as file:
            self.assertEqual(file.read_modify_write(2, 6, 1, b"xy"), b"234567")
            self.assertEqual(file.read_modify_write(8, 6, 0, b"!", durable=True), b"89\0\0\0\0")
            with self.assertRaises(OSError) as caught:
                file.read_modify_write(8, 6, 2, b"xy")
        self.assertEqual(caught.exception.errno, errno.ERANGE)
        self.assertEqual(self.content("file"), b"012xy567!9")

    def test_data_with_its_checksum(self) -> None:
        with self.volume.open(self.at("log"), os.O_CREAT | os.O_RDWR) as file:
            self.assertEqual(file.write_checksum(b"123456789"), 0)
            second = file.write_checksum(b"second", durable=True)
            self.assertEqual(second, 13)
            self.assertEqual(file.write_checksum(b"SECOND", second), second)
            self.assertEqual(self.content("log"), b"123456789\x83\x92\x06\xe3SECOND" + self.content("log")[-4:])
            self.assertEqual(file.read_checksum(9), b"123456789")
            self.assertEqual(file.read_checksum(6, second), b"SECOND")
            self.volume.open_write(self.at("log"), b"e", second + 1)
            for length, fault in [(6, errno.EBADMSG), (7, errno.ERANGE)]:
                with self.assertRaises(OSError) as caught:
                    file.read_checksum(length, second)
                self.assertEqual(caught.exception.errno, fault)


class Threads(ServedCase):
    def test_two_threads_run_one_chain_on_one_connection(self) -> None:
        self.volume.open_write(self.at("counter"), bytes(8))
        chain = weft.Chain()
        file = chain.open(self.at("counter"), "read_write")
        after = chain.export(chain.arith(chain.unpack(chain.read(file, 8), 8), "add", chain.input_number(0)))
        chain.write(file, chain.pack(after, 8))
        seen = [[], []]

        def count(into: list) -> None:
            for _ in range(500):
                into.append(self.volume.run(chain, [1])[after])

        threads = [threading.Thread(target=count, args=(into,)) for into in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(seen[0] + seen[1]), list(range(1, 1001)))
        self.assertTrue(all(into == sorted(into) for into in seen))

    def test_two_threads_use_one_batch(self) -> None:
        chain = weft.Chain()
        given = chain.export(chain.arith(chain.input_number(0), "add", 0))
        batch, taken, lock = weft.Batch(self.volume), [], threading.Lock()

        def run(first: int) -> None:
            for number in range(first, first + 200):
                batch.add(chain, [number])
                answers = batch.run()
                with lock:
                    taken.extend(answer[given] for answer in answers)

        threads = [threading.Thread(target=run, args=(first,)) for first in (0, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(taken), list(range(400)))

    def test_errors_are_those_of_the_thread(self) -> None:
        wrong = []

        def fail(name: str) -> None:
            for _ in range(500):
                try:
                    self.volume.open_read(name, 1)
                except OSError as error:
                    if error.errno != errors[name]:
                        wrong.append(error)

        self.volume.open_write(self.at("file"), b"")
        errors = {self.at("none"): errno.ENOENT, self.at("file/below"): errno.ENOTDIR}
        threads = [threading.Thread(target=fail, args=(name,)) for name in errors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Forks(ServedCase):
    def in_child(self, act: Callable[[], None]) -> None:
        """Runs this in a forked child, which has half a minute."""
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                act()
                os._exit(0)
            except BaseException as error:
                os.write(2, f"in the child: {error!r}\n".encode())
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_child_does_not_use_its_parents_connection_and_connects_for_itself(self) -> None:
        file = self.volume.open(self.at("file"), os.O_CREAT | os.O_RDWR)
        batch = weft.Batch(self.volume)
        chain = weft.Chain()
        chain.append(chain.given(), b"parent ")
        self.volume.run(chain, files=[file])

        def child() -> None:
            of_parent = f"is of process {os.getppid()}"
            self.refused([
                (RuntimeError, of_parent, lambda: self.volume.run(chain)),
                (RuntimeError, of_parent, lambda: self.volume.open("/x")),
                (RuntimeError, of_parent, lambda: file.write_checksum(b"x")),
                (RuntimeError, of_parent, batch.run),
            ])
            file.close()
            self.volume.close()
            self.volume.close()
            with weft.connect() as volume, volume.open(self.at("file"), os.O_RDWR) as own:
                # The chain is as good as one of the child's.
                volume.run(chain, files=[own])
                volume.run(chain, files=[own])

        self.in_child(child)
        # What the child did to its copies is nothing to the parent.
        self.volume.run(chain, files=[file])
        self.assertEqual(self.content("file"), b"parent " * 4)
        batch.add(chain, files=[file])
        self.assertIsNone(batch.run()[0].error)

    def test_a_child_that_only_ends_leaves_its_parents_connection(self) -> None:
        volume = weft.connect()
        file = volume.open(self.at("file"), os.O_CREAT | os.O_RDWR)
        before = descriptors()
        for _ in range(10):
            child = os.fork()
            if child == 0:
                # As a child that returns from here would do it.
                del file, volume
                gc.collect()
                os._exit(0 if descriptors() < before else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(file.write_checksum(b"x"), 0)
        volume.close()

    def test_children_are_forked_while_other_threads_run_chains(self) -> None:
        stop = threading.Event()
        chain = weft.Chain()
        chain.append(chain.create(self.at("parents")), b"x")
        mistakes = []

        def run() -> None:
            try:
                while not stop.is_set():
                    self.volume.run(chain)
            except Exception as error:
                mistakes.append(error)

        def child() -> None:
            before = descriptors()
            self.volume.close()
            # Although calls of the parent's threads were under way.
            self.assertLess(descriptors(), before)
            with weft.connect() as volume:
                for _ in range(3):
                    own = weft.Chain()
                    own.append(own.create(self.at("childrens")), b"y")
                    volume.run(own)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                self.in_child(child)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(mistakes, [])
        self.assertEqual(self.content("childrens"), b"y" * 90)


class Library(unittest.TestCase):
    """Where the library is found: in the package, by WEFT_LIBRARY, beside an installed weft."""

    def setUp(self) -> None:
        package = Path(weft.__file__).parent
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.library = os.environ.get("WEFT_LIBRARY") or str(package / "libweft_c.so")
        (self.scratch / "weft").mkdir()
        for source in package.glob("*.py"):
            (self.scratch / "weft" / source.name).write_text(source.read_text())
        (self.scratch / "bin").mkdir()

    def told(self, **environment: str) -> str:
        """What a program says that imports a package without a library."""
        environment = {"PYTHONPATH": str(self.scratch), "PATH": str(self.scratch / "bin"), **environment}
        program = "import weft, weft._library; print(weft._library.LIBRARY._name)"
        run = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return run.stdout.strip().splitlines()[-1]

    def test_a_missing_library_says_where_it_was_looked_for(self) -> None:
        told = self.told()
        self.assertIn(f"ImportError: there is no libweft_c.so at {self.scratch}/weft/libweft_c.so;", told)
        self.assertIn("WEFT_LIBRARY", told)
        told = self.told(WEFT_LIBRARY="/no/such/library")
        self.assertIn("/weft/libweft_c.so, /no/such/library;", told)

    def test_a_library_that_is_none_is_refused(self) -> None:
        other = self.scratch / "other.so"
        other.write_text("not a library")
        self.assertIn(f"ImportError: {other} cannot be loaded", self.told(WEFT_LIBRARY=str(other)))

    def test_it_is_found_in_the_package_by_the_variable_and_beside_weft(self) -> None:
        self.assertEqual(self.told(WEFT_LIBRARY=self.library), self.library)
        command = self.scratch / "bin" / "weft"
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        for place in ("lib/libweft_c.so", "bin/libweft_c.so", "weft/libweft_c.so"):
            (self.scratch / place).parent.mkdir(exist_ok=True)
            (self.scratch / place).symlink_to(self.library)
            self.assertEqual(self.told(), str(self.scratch / place))
        # That of the package is before all others.
        self.assertEqual(self.told(WEFT_LIBRARY=self.library), str(self.scratch / "weft/libweft_c.so"))


if __name__ == "__main__":
    unittest.main()
