"""Chains as a whole: mistakes, answers, inputs and batches."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import unittest
import weakref

import weft
from served import ServedCase


class Mistakes(ServedCase):
    def test_arguments_of_a_wrong_type_or_value_are_refused_at_once(self) -> None:
        chain = weft.Chain()
        file = chain.create(self.at("file"))
        found = chain.read(file, 1)
        size = chain.len(found)
        attributes = chain.stat(file)
        nothing = chain.sync(file)
        other = weft.Chain()
        of_other = other.create(self.at("other"))
        self.refused([
            (TypeError, "policy is of type int", lambda: weft.Chain(1)),
            (ValueError, "policy is 'some'", lambda: weft.Chain("some")),
            (TypeError, "path is of type int", lambda: chain.open(7)),
            (TypeError, "path is operation 1 (create)", lambda: chain.open(file)),
            (ValueError, "zero byte", lambda: chain.unlink("/a\0b")),
            (ValueError, "access is 'append'", lambda: chain.open("/x", "append")),
            (TypeError, "dir is operation 2 (read)", lambda: chain.open("x", dir=found)),
            (TypeError, "to is of type str", lambda: chain.link("/x", "y", to="/")),
            (TypeError, "perm is of type str", lambda: chain.mkdir("/x", perm="0755")),
            (ValueError, "perm is 4096", lambda: chain.create("/x", perm=0o10000)),
            (ValueError, "number is 16", lambda: chain.given(16)),
            (TypeError, "file is operation 2 (read)", lambda: chain.read(found, 1)),
            (TypeError, "file is of type str", lambda: chain.stat("/x")),
            (ValueError, "file is operation 1 (create) of another chain", lambda: chain.append(of_other, b"x")),
            (ValueError, "of another chain", lambda: weft.Chain().stat(file)),
            (TypeError, "length is of type float", lambda: chain.read(file, 1.0)),
            (TypeError, "length is of type bool", lambda: chain.read(file, True)),
            (ValueError, "offset is -1", lambda: chain.read(file, 1, -1)),
            (ValueError, "size is 18446744073709551616", lambda: chain.truncate(file, 2**64)),
            (TypeError, "offset is operation 2 (read)", lambda: chain.write(file, b"x", found)),
            (TypeError, "encode()", lambda: chain.write(file, "text")),
            (TypeError, "data is operation 3 (len)", lambda: chain.append(file, size)),
            (ValueError, "mode is 'shrink'", lambda: chain.fallocate(file, 1, mode="shrink")),
            (ValueError, "flags is 'replace'", lambda: chain.rename("/x", "/y", flags="replace")),
            (ValueError, "mode is 'never'", lambda: chain.set_xattr(file, "user.x", b"", mode="never")),
            (ValueError, "begins with 'user.'", lambda: chain.get_xattr(file, "trusted.x")),
            (ValueError, "zero byte", lambda: chain.remove_xattr(file, "user.\0")),
            (TypeError, "name is of type int", lambda: chain.get_xattr(file, 1)),
            (TypeError, "attributes is operation 1 (create)", lambda: chain.field(file, "size")),
            (ValueError, "field is 'atime_ns'", lambda: chain.field(attributes, "atime_ns")),
            (ValueError, "width is 0", lambda: chain.pack(1, 0)),
            (ValueError, "width is 9", lambda: chain.unpack(b"", 9)),
            (ValueError, "arithmetic is 'pow'", lambda: chain.arith(1, "pow", 2)),
            (TypeError, "parts is a single value", lambda: chain.concat(b"abc")),
            (TypeError, "part 1 is of type str", lambda: chain.concat([b"a", "b"])),
            (ValueError, "256 parts", lambda: chain.concat([b""] * 256)),
            (ValueError, "compare is '='", lambda: chain.expect(1, "=", 2)),
            (TypeError, "compared with something else", lambda: chain.expect(size, "==", b"x")),
            (TypeError, "compared with something else", lambda: chain.when(b"x", "==", 1)),
            (TypeError, "left is of type NoneType", lambda: chain.when(None, "==", b"")),
            (TypeError, "gives nothing that can be exported", lambda: chain.export(file)),
            (TypeError, "gives nothing that can be exported", lambda: chain.export(nothing)),
            (TypeError, "value is of type int", lambda: chain.export(1)),
            (ValueError, "place is 64", lambda: chain.input_number(64)),
            (TypeError, "has no truth value", lambda: bool(size)),
        ])
        # The chain is as it was.
        answer = self.volume.run(chain)
        self.assertIs(answer.outcome(nothing), weft.Outcome.DONE)

    def test_a_chain_that_breaks_a_rule_of_the_whole_does_not_run(self) -> None:
        def too_long(chain: weft.Chain) -> None:
            for _ in range(65):
                chain.len(b"")

        def many_files(chain: weft.Chain) -> None:
            for name in range(17):
                chain.create(self.at(f"wrong-{name}"))

        for text, build in [
            ("65 operations; 64 are allowed", too_long),
            ("opens 17 files; 16 are allowed", many_files),
            ("4194304 are allowed", lambda chain: chain.len(bytes((4 << 20) + 1))),
            ("has no operation behind it", lambda chain: chain.when(1, "==", 1)),
            ("there is a comparison for it already", lambda chain: chain.when(1, "==", 1).when(1, "==", 1)),
        ]:
            with self.subTest(text=text):
                chain = weft.Chain()
                with self.assertRaisesRegex(ValueError, text):
                    build(chain)
                    chain.check()
                with self.assertRaisesRegex(ValueError, text):
                    self.volume.run(chain)
        self.assertFalse(self.exists("wrong-0"))

    def test_a_chain_that_was_checked_does_not_change(self) -> None:
        chain = weft.Chain()
        chain.create(self.at("file"))
        chain.check()
        with self.assertRaisesRegex(ValueError, "has been checked"):
            chain.create(self.at("second"))
        self.volume.run(chain)
        self.assertTrue(self.exists("file"))
        self.assertFalse(self.exists("second"))


class Answers(ServedCase):
    def test_an_answer_tells_of_each_operation(self) -> None:
        self.volume.open_write(self.at("file"), b"version 7")
        chain = weft.Chain()
        file = chain.open(self.at("file"), "read_write")
        found = chain.export(chain.read(file, 100))
        kept = chain.len(found)
        skipped = chain.export(chain.when(kept, "==", 0).len(b""))
        same = chain.expect(found, "==", b"version 7")
        written = chain.export(chain.write(file, b"version 8"))
        answer = self.volume.run(chain)
        self.assertIsNone(answer.error)
        self.assertEqual((answer[found], answer[written]), (b"version 7", 0))
        with self.assertRaisesRegex(LookupError, r"operation 4 \(len\) was skipped"):
            answer[skipped]
        with self.assertRaisesRegex(LookupError, r"operation 3 \(len\) was not exported"):
            answer[kept]

        error = self.fails(chain, errno.ECANCELED, same)
        self.assertIsInstance(error, OSError)
        self.assertEqual(str(error), f"operation 5 (expect) failed: {os.strerror(errno.ECANCELED)}")
        self.assertEqual(error.strerror, os.strerror(errno.ECANCELED))
        outcomes = [error.answer.outcome(value) for value in (file, found, kept, skipped, same, written)]
        done, failed, gone = weft.Outcome.DONE, weft.Outcome.FAILED, weft.Outcome.SKIPPED
        self.assertEqual(outcomes, [done, done, done, gone, failed, gone])
        self.assertEqual(error.answer[found], b"version 8")
        self.assertEqual(error.answer.error.errno, errno.ECANCELED)
        with self.assertRaises(LookupError):
            error.answer[written]

    def test_a_value_of_the_operation_that_failed_raises_the_failure(self) -> None:
        chain = weft.Chain()
        before = chain.export(chain.len(b"abc"))
        failing = chain.export(chain.pack(256, 1))
        behind = chain.len(failing)
        error = self.fails(chain, errno.EOVERFLOW, failing)
        self.assertEqual(error.answer[before], 3)
        self.assertIs(error.answer.outcome(behind), weft.Outcome.SKIPPED)
        with self.assertRaises(weft.ChainFailed):
            error.answer[failing]

    def test_an_answer_is_asked_by_values_of_its_chain(self) -> None:
        chain, other = weft.Chain(), weft.Chain()
        chain.len(b"")
        values = [other.len(b""), other.len(b"")]
        answer = self.volume.run(chain)
        self.refused([
            (ValueError, "of another chain", lambda: answer.outcome(values[0])),
            (ValueError, "of another chain", lambda: answer[values[1]]),
            (TypeError, "not by int", lambda: answer[0]),
        ])

    def test_answers_and_failures_outlive_their_chain_and_are_pickled(self) -> None:
        chain = weft.Chain()
        found = chain.export(chain.concat([b"abc"]))
        chain.expect(1, "==", 2)
        with self.assertRaises(weft.ChainFailed) as caught:
            self.volume.run(chain)
        gone = weakref.ref(chain)
        del chain
        gc.collect()
        self.assertIsNone(gone())
        error = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((error.errno, str(error)), (errno.ECANCELED, str(caught.exception)))
        self.assertEqual(error.answer[found], b"abc")
        self.assertEqual(error.operation.number, 2)


class Inputs(ServedCase):
    def setUp(self) -> None:
        super().setUp()
        self.volume.open_write(self.at("numbers"), bytes(16))
        self.file = self.volume.open(self.at("numbers"), os.O_RDWR)
        self.addCleanup(self.file.close)
        self.chain = weft.Chain()
        given, at = self.chain.given(), self.chain.input_number(0)
        before = self.chain.unpack(self.chain.read(given, 8, at), 8)
        self.sum = self.chain.export(self.chain.arith(before, "add", self.chain.input_number(1)))
        self.chain.write(given, self.chain.pack(self.sum, 8), at)
        self.appends = weft.Chain()
        self.appends.append(self.appends.given(), self.appends.input_bytes(0))

    def test_a_chain_runs_with_other_inputs_each_time(self) -> None:
        for number in (1, 2, 3):
            answer = self.volume.run(self.chain, [8, number], files=[self.file])
            self.assertEqual(answer[self.sum], number * (number + 1) // 2)
        for data in (b"bytes ", bytearray(b"and "), memoryview(b"more")):
            self.volume.run(self.appends, [data], files=[self.file])
        self.assertEqual(self.content("numbers"), bytes(8) + b"\6" + bytes(7) + b"bytes and more")

    def test_inputs_that_the_chain_does_not_take_are_refused(self) -> None:
        def run(inputs: object) -> object:
            return lambda: self.volume.run(self.chain, inputs, files=[self.file])

        self.refused([
            (ValueError, "takes 2 inputs, and 0 were passed", run([])),
            (ValueError, "takes 2 inputs, and 3 were passed", run([1, 2, 3])),
            (TypeError, "input 1 is of type bytes", run([0, b"1"])),
            (ValueError, "input 0 is -1", run([-1, 0])),
            (TypeError, "single value", run(b"ab")),
            (TypeError, "input 0 is of type int", lambda: self.volume.run(self.appends, [1], files=[self.file])),
            (ValueError, "takes 0 inputs, and 1 were passed", lambda: self.volume.run(weft.Chain(), [1])),
            (ValueError, "used as a number and as bytes", lambda: takes_a_number().input_bytes(0)),
            (ValueError, "does not run through a mount", lambda: self.chain.run_at(0)),
        ])

    def test_a_batch_makes_its_runs_in_order_and_goes_on_behind_a_failure(self) -> None:
        batch = weft.Batch(self.volume)
        reads_nothing = weft.Chain()
        failing = reads_nothing.expect(reads_nothing.len(reads_nothing.input_bytes(0)), "==", 0)
        for number in range(64):
            if number == 32:
                batch.add(self.appends, [b"some text, which the batch copies"], files=[self.file])
            elif number == 7:
                batch.add(reads_nothing, [b"not empty"])
            else:
                batch.add(self.chain, [0, number], files=[self.file])
        self.assertEqual(len(batch), 64)
        with self.assertRaisesRegex(ValueError, "has 64 runs"):
            batch.add(self.chain, [0, 0], files=[self.file])
        answers = batch.run()
        self.assertEqual((len(answers), len(batch)), (64, 0))
        expected = 0
        for number, answer in enumerate(answers):
            if number == 7:
                self.assertEqual(answer.error.errno, errno.ECANCELED)
                self.assertIs(answer.error.operation, failing)
                continue
            self.assertIsNone(answer.error)
            if number != 32:
                expected += number
                self.assertEqual(answer[self.sum], expected)
        self.assertTrue(self.content("numbers").endswith(b"some text, which the batch copies"))
        # It is used again, and empty ones are nothing.
        self.assertEqual(batch.run(), [])
        batch.add(self.chain, [0, 5], files=[self.file])
        self.assertEqual([answer[self.sum] for answer in batch.run()], [expected + 5])

    def test_offsets_beyond_all_files_mean_the_same_alone_and_in_a_batch(self) -> None:
        batch = weft.Batch(self.volume)
        for policy in ("all", "prefix", "each"):
            for offset in (2**40, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1):
                chain = weft.Chain(policy)
                file = chain.given()
                nothing = chain.export(chain.read(file, 10, offset))
                # A program of the policy that only reads is run otherwise.
                chain.write(file, b"")
                too_large = chain.when(offset, ">", 2**41).write(file, b"x", offset)
                batch.add(chain, files=[self.file])
                answers = batch.run()
                try:
                    answers.append(self.volume.run(chain, files=[self.file]))
                except weft.ChainFailed as error:
                    answers.append(error.answer)
                for answer in answers:
                    with self.subTest(policy=policy, offset=offset):
                        self.assertEqual(answer[nothing], b"")
                        if offset > 2**41:
                            self.assertEqual(answer.error.errno, errno.EFBIG)
                            self.assertIs(answer.error.operation, too_large)
                        else:
                            self.assertIsNone(answer.error)

    def test_what_is_wrong_with_a_batch_runs_nothing(self) -> None:
        batch = weft.Batch(self.volume)
        self.refused([
            (ValueError, "takes 2 inputs", lambda: batch.add(self.chain, [1], files=[self.file])),
            (TypeError, "pass a list", lambda: batch.add(self.chain, [1, 2], files=self.file)),
        ])
        for _ in range(3):
            batch.add(self.appends, [bytes(100_000)], files=[self.file])
        with self.assertRaisesRegex(ValueError, "256 KiB"):
            batch.run()
        batch.add(self.appends, [b"x"], files=[self.file])
        self.file.close()
        with self.assertRaisesRegex(ValueError, "not open any more"):
            batch.run()
        self.assertEqual(self.content("numbers"), bytes(16))
        self.assertEqual(batch.run(), [])


def takes_a_number() -> weft.Chain:
    """A chain whose input 0 is a number."""
    chain = weft.Chain()
    chain.input_number(0)
    return chain


if __name__ == "__main__":
    unittest.main()
