"""Every operation of a chain: what it does to the volume, what it gives, and how it fails."""

from __future__ import annotations

import errno
import operator
import pathlib
import stat
import unittest

import weft
from served import ServedCase

COMPARES = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Files(ServedCase):
    def test_create_makes_a_file_with_its_permission_bits_and_opens_one_that_exists(self) -> None:
        chain = weft.Chain()
        made = chain.export(chain.stat(chain.create(self.at("new"), perm=0o604)))
        again = chain.export(chain.stat(chain.create(self.at("new"))))
        usual = chain.export(chain.stat(chain.create(self.at("usual"))))
        answer = self.volume.run(chain)
        self.assertEqual(answer[made].mode, stat.S_IFREG | 0o604)
        self.assertEqual(answer[again].ino, answer[made].ino)
        self.assertEqual(answer[usual].mode, stat.S_IFREG | 0o644)
        chain = weft.Chain()
        self.fails(chain, errno.EEXIST, chain.create(self.at("new"), exclusive=True))

    def test_open_gives_what_its_access_allows(self) -> None:
        self.volume.open_write(self.at("file"), b"abc")
        for access, reads, writes in [("read", True, False), ("write", False, True), ("read_write", True, True), ("path", False, False)]:
            with self.subTest(access=access):
                chain = weft.Chain()
                read = chain.read(chain.open(self.at("file"), access), 3)
                if reads:
                    self.volume.run(chain)
                else:
                    self.fails(chain, errno.EBADF, read)
                chain = weft.Chain()
                written = chain.write(chain.open(self.at("file"), access), b"x")
                if writes:
                    self.volume.run(chain)
                else:
                    self.fails(chain, errno.EBADF, written)

    def test_open_refuses_a_symlink_when_it_is_not_to_follow(self) -> None:
        chain = weft.Chain()
        chain.symlink("file", self.at("link"))
        chain.create(self.at("file"))
        chain.open(self.at("link"))
        self.volume.run(chain)
        chain = weft.Chain()
        self.fails(chain, errno.ELOOP, chain.open(self.at("link"), follow=False))

    def test_paths_are_text_bytes_objects_and_values(self) -> None:
        chain = weft.Chain()
        chain.create(self.at("text"))
        chain.create(self.at("bytes").encode())
        chain.create(pathlib.PurePosixPath(self.at("object")))
        chain.create(chain.concat([self.directory.encode(), b"/", b"value"]))
        directory = chain.open(self.directory, "path")
        chain.create("below", dir=directory)
        chain.create(b"not-utf8-\xff", dir=directory)
        chain.rename("not-utf8-\udcff", "renamed", dir=directory, to=directory)
        self.volume.run(chain)
        for name in ["text", "bytes", "object", "value", "below", "renamed"]:
            self.assertTrue(self.exists(name), name)

    def test_read_write_and_append_use_offsets(self) -> None:
        chain = weft.Chain()
        file = chain.create(self.at("file"))
        written = chain.export(chain.write(file, b"0123456789"))
        chain.write(file, bytearray(b"ab"), 4)
        appended = chain.export(chain.append(file, memoryview(b"END")))
        part = chain.export(chain.read(file, 4, 3))
        short = chain.export(chain.read(file, 100, appended))
        copied = chain.export(chain.write(file, part, chain.len(b"four....")))
        answer = self.volume.run(chain)
        self.assertEqual([answer[value] for value in (written, appended, copied)], [0, 10, 8])
        self.assertEqual((answer[part], answer[short]), (b"3ab6", b"END"))
        self.assertEqual(self.content("file"), b"0123ab673ab6D")

    def test_truncate_cuts_and_fills_with_zeros(self) -> None:
        self.volume.open_write(self.at("file"), b"0123456789")
        chain = weft.Chain()
        file = chain.open(self.at("file"), "write")
        chain.truncate(file, 3)
        chain.truncate(file, 5)
        self.volume.run(chain)
        self.assertEqual(self.content("file"), b"012\0\0")

    def test_fallocate_has_its_modes(self) -> None:
        block = 4096
        for mode, size, zeroed in [
            ("extend", 4 * block, False),
            ("keep_size", 2 * block, False),
            ("punch_hole", 2 * block, True),
            ("zero", 4 * block, True),
            ("zero_keep_size", 2 * block, True),
        ]:
            with self.subTest(mode=mode):
                self.volume.open_write(self.at(mode), b"x" * 2 * block)
                chain = weft.Chain()
                chain.fallocate(chain.open(self.at(mode), "write"), 3 * block, block, mode=mode)
                self.volume.run(chain)
                after = b"\0" if zeroed else b"x"
                content = self.volume.open_read(self.at(mode), 8 * block)
                self.assertEqual(content, (b"x" * block + after * block).ljust(size, b"\0"))

    def test_stat_and_field_tell_the_attributes(self) -> None:
        chain = weft.Chain("each")
        file = chain.create(self.at("file"), perm=0o640)
        chain.write(file, b"seven..")
        chain.link(self.at("file"), self.at("second"))
        attributes = chain.export(chain.stat(file))
        names = ["size", "mode", "links", "uid", "gid", "mtime_ns", "ctime_ns"]
        fields = [chain.export(chain.field(attributes, name)) for name in names]
        answer = self.volume.run(chain)
        told = answer[attributes]
        self.assertIsInstance(told, weft.Attributes)
        self.assertEqual([answer[field] for field in fields], [getattr(told, name) for name in names])
        self.assertEqual((told.size, told.mode, told.links), (7, stat.S_IFREG | 0o640, 2))
        self.assertGreater(told.ino, 0)
        self.assertGreater(told.mtime_ns, 10**18)
        self.assertGreater(told.atime_ns, 10**18)

    def test_close_ends_the_use_of_a_file_in_the_chain(self) -> None:
        chain = weft.Chain()
        file = chain.create(self.at("file"))
        chain.close(file)
        self.refused([(ValueError, "which the chain has closed", lambda: chain.append(file, b"x"))])
        self.volume.run(chain)
        self.assertTrue(self.exists("file"))

    def test_extended_attributes_are_set_read_and_removed(self) -> None:
        chain = weft.Chain()
        file = chain.create(self.at("file"))
        chain.set_xattr(file, "user.one", b"1", mode="create")
        chain.set_xattr(file, b"user.one", b"2", mode="replace")
        chain.set_xattr(file, "user.two", b"any")
        one, two = (chain.export(chain.get_xattr(file, name)) for name in ("user.one", "user.two"))
        chain.remove_xattr(file, "user.two")
        answer = self.volume.run(chain)
        self.assertEqual((answer[one], answer[two]), (b"2", b"any"))
        for fault, add in [
            (errno.EEXIST, lambda chain, file: chain.set_xattr(file, "user.one", b"", mode="create")),
            (errno.ENODATA, lambda chain, file: chain.set_xattr(file, "user.two", b"", mode="replace")),
            (errno.ENODATA, lambda chain, file: chain.get_xattr(file, "user.two")),
            (errno.ENODATA, lambda chain, file: chain.remove_xattr(file, "user.two")),
        ]:
            chain = weft.Chain()
            self.fails(chain, fault, add(chain, chain.open(self.at("file"), "read_write")))

    def test_sync_is_an_operation_of_each_policy(self) -> None:
        for policy in ("all", "prefix", "each"):
            chain = weft.Chain(policy)
            file = chain.create(self.at(policy))
            synced = chain.sync(file)
            self.assertIs(self.volume.run(chain).outcome(synced), weft.Outcome.DONE)


class Codecs(ServedCase):
    def test_what_is_compressed_comes_back_and_what_is_no_module_is_not_called(self) -> None:
        for codec in ("lz4", "lz4-block", "zstd"):
            chain = weft.Chain()
            packed = chain.compress(b"x" * 10_000, codec)
            whole = chain.export(chain.decompress(packed, 10_000, codec))
            length = chain.export(chain.len(packed))
            answer = self.volume.run(chain)
            self.assertEqual(answer[whole], b"x" * 10_000)
            self.assertLess(answer[length], 500)
            chain = weft.Chain()
            self.fails(chain, errno.EBADMSG, chain.decompress(b"no frame at all", 10_000, codec))
        with self.assertRaises(ValueError):
            weft.Chain().compress(b"", "gzip")  # type: ignore[arg-type]
        chain = weft.Chain()
        self.fails(chain, errno.ENOEXEC, chain.call(b"no module", b"input", 1000))


class Names(ServedCase):
    def test_mkdir_rmdir_and_unlink(self) -> None:
        chain = weft.Chain()
        chain.mkdir(self.at("usual"))
        chain.mkdir(self.at("own"), perm=0o700)
        modes = [chain.export(chain.stat(chain.open(self.at(name), "path"))) for name in ("usual", "own")]
        chain.mkdir(self.at("gone"))
        chain.rmdir(self.at("gone"))
        chain.create(self.at("file"))
        chain.unlink(self.at("file"))
        answer = self.volume.run(chain)
        self.assertEqual([answer[mode].mode for mode in modes], [stat.S_IFDIR | 0o755, stat.S_IFDIR | 0o700])
        self.assertFalse(self.exists("gone") or self.exists("file"))
        chain = weft.Chain()
        self.fails(chain, errno.EISDIR, chain.unlink(self.at("own")))

    def test_link_and_symlink(self) -> None:
        chain = weft.Chain()
        chain.append(chain.create(self.at("file")), b"content")
        directory = chain.open(self.directory, "path")
        chain.link("file", "hard", dir=directory, to=directory)
        chain.symlink(b"file", "soft", dir=directory)
        chain.symlink(pathlib.PurePosixPath("hard"), self.at("second"))
        self.volume.run(chain)
        self.assertEqual([self.content(name) for name in ("hard", "soft", "second")], [b"content"] * 3)

    def test_rename_replaces_exchanges_or_refuses(self) -> None:
        self.volume.open_write(self.at("a"), b"of a")
        self.volume.open_write(self.at("b"), b"of b")
        chain = weft.Chain()
        self.fails(chain, errno.EEXIST, chain.rename(self.at("a"), self.at("b"), flags="no_replace"))
        chain = weft.Chain()
        chain.rename(self.at("a"), self.at("b"), flags="exchange")
        self.volume.run(chain)
        self.assertEqual((self.content("a"), self.content("b")), (b"of b", b"of a"))
        chain = weft.Chain()
        chain.rename(self.at("a"), self.at("b"))
        self.volume.run(chain)
        self.assertEqual(self.content("b"), b"of b")
        self.assertFalse(self.exists("a"))


class Computations(ServedCase):
    def test_bytes_are_cut_joined_searched_and_patched(self) -> None:
        chain = weft.Chain()
        values = {
            chain.slice(b"0123456789", 2, 3): b"234",
            chain.concat([b"a", bytearray(b"b"), memoryview(b"c"), chain.slice(b"xdx", 1, 1)]): b"abcd",
            chain.concat([]): b"",
            chain.len(b"four"): 4,
            chain.find(b"one two two", b"two"): 4,
            chain.find(b"one two two", b"two", 5): 8,
            chain.find(b"one", b"two"): weft.NOT_FOUND,
            chain.patch(b"a red box", b"big", 2): b"a big box",
            chain.patch(b"abc", b"x"): b"xbc",
            chain.slice(b"a\0b", 0, 3): b"a\0b",
        }
        for value in values:
            chain.export(value)
        answer = self.volume.run(chain)
        self.assertEqual({value: answer[value] for value in values}, values)

    def test_numbers_are_packed_and_computed(self) -> None:
        chain = weft.Chain()
        values = {
            chain.pack(0x0102, 2): b"\2\1",
            chain.pack(2**64 - 1, 8): b"\xff" * 8,
            chain.unpack(b"\2\1", 2): 0x0102,
            chain.unpack(b"..\1\2\3", 3, 2): 0x030201,
            chain.arith(7, "add", 3): 10,
            chain.arith(7, "sub", 3): 4,
            chain.arith(7, "mul", 3): 21,
            chain.arith(7, "div", 3): 2,
            chain.arith(7, "rem", 3): 1,
            chain.arith(7, "min", 3): 3,
            chain.arith(7, "max", chain.len(b"eight...")): 8,
            chain.crc32c(b"123456789"): 0xE3069283,
        }
        for value in values:
            chain.export(value)
        answer = self.volume.run(chain)
        self.assertEqual({value: answer[value] for value in values}, values)
        chain = weft.Chain()
        chain.verify(b"123456789", 0xE3069283)
        self.volume.run(chain)

    def test_what_does_not_fit_fails(self) -> None:
        for fault, add in [
            (errno.ERANGE, lambda chain: chain.slice(b"abc", 2, 2)),
            (errno.ERANGE, lambda chain: chain.unpack(b"abc", 4)),
            (errno.ERANGE, lambda chain: chain.patch(b"abc", b"xy", 2)),
            (errno.EOVERFLOW, lambda chain: chain.pack(256, 1)),
            (errno.EOVERFLOW, lambda chain: chain.arith(1, "sub", 2)),
            (errno.EOVERFLOW, lambda chain: chain.arith(1, "div", 0)),
            (errno.EOVERFLOW, lambda chain: chain.arith(2**63, "mul", 2)),
            (errno.EBADMSG, lambda chain: chain.verify(b"damaged", 0)),
            (errno.ECANCELED, lambda chain: chain.expect(1, "==", 2)),
            (errno.EBADF, lambda chain: chain.stat(chain.given(15))),
            (errno.ENOENT, lambda chain: chain.open("/no/such/file")),
        ]:
            chain = weft.Chain()
            operation = add(chain)
            with self.assertRaises(weft.ChainFailed) as caught:
                self.volume.run(chain)
            self.assertEqual(caught.exception.errno, fault, operation)

    def test_comparisons_guard_the_next_operation_and_what_uses_its_value(self) -> None:
        sides = [(1, 2), (2, 2), (3, 2), (b"ab", b"abc"), (b"ab", b"ab"), (b"b", b"abc")]
        for compare, holds in COMPARES.items():
            chain = weft.Chain()
            guarded = []
            for left, right in sides:
                packed = chain.when(left, compare, right).pack(1, 1)
                guarded.append((packed, chain.len(packed)))
            behind = chain.pack(1, 1)
            answer = self.volume.run(chain)
            for (left, right), values in zip(sides, guarded):
                expected = weft.Outcome.DONE if holds(left, right) else weft.Outcome.SKIPPED
                self.assertEqual([answer.outcome(value) for value in values], [expected] * 2, (left, compare, right))
            self.assertIs(answer.outcome(behind), weft.Outcome.DONE)

    def test_expectations_hold_or_cancel_the_chain(self) -> None:
        for compare, holds in COMPARES.items():
            for left, right in [(1, 2), (2, 2), (3, 2), (b"ab", b"abc"), (b"b", b"abc")]:
                chain = weft.Chain()
                of_values = isinstance(left, int)
                expected = chain.expect(chain.len(b"x" * left) if of_values else chain.concat([left]), compare, right)
                if holds(left, right):
                    self.volume.run(chain)
                else:
                    self.fails(chain, errno.ECANCELED, expected)


class Policies(ServedCase):
    def left_of(self, policy: str) -> set:
        chain = weft.Chain(policy)
        chain.create(self.at(f"{policy}-first"))
        chain.expect(1, "==", 2)
        chain.create(self.at(f"{policy}-second"))
        with self.assertRaises(weft.ChainFailed):
            self.volume.run(chain)
        return {name for name in ("first", "second") if self.exists(f"{policy}-{name}")}

    def test_a_failure_leaves_what_the_policy_says(self) -> None:
        self.assertEqual(self.left_of("all"), set())
        self.assertEqual(self.left_of("prefix"), {"first"})
        self.assertEqual(self.left_of("each"), {"first"})

    def test_a_swap_is_seen_whole(self) -> None:
        self.volume.open_write(self.at("config"), b"old")
        chain = weft.Chain(durable=True)
        new = chain.create(self.at("config.new"), exclusive=True)
        chain.write(new, b"new")
        chain.rename(self.at("config.new"), self.at("config"))
        self.volume.run(chain)
        self.assertEqual(self.content("config"), b"new")
        self.assertFalse(self.exists("config.new"))


if __name__ == "__main__":
    unittest.main()
