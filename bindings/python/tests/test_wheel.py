"""The wheel: what it holds, and that it is the same whenever it is built."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import weft

BUILD = Path(__file__).resolve().parent.parent / "build_wheel.py"


class Wheel(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def build(self, library: str, out: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, BUILD, "--library", library, "--out", self.scratch / out]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_the_record_names_all_files_with_their_hashes(self) -> None:
        library = os.environ.get("WEFT_LIBRARY") or str(Path(weft.__file__).parent / "libweft_c.so")
        built = [Path(self.build(library, out).stdout.strip()) for out in ("first", "second")]
        self.assertEqual(built[0].read_bytes(), built[1].read_bytes())
        name, version, tag = built[0].stem.split("-", 2)
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(built[0]) as wheel:
            record = list(csv.reader(wheel.read(f"{info}/RECORD").decode().splitlines()))
            self.assertEqual(sorted(entry[0] for entry in record), sorted(wheel.namelist()))
            self.assertIn("weft/libweft_c.so", wheel.namelist())
            self.assertIn("weft/py.typed", wheel.namelist())
            for path, hashed, length in record:
                if path != f"{info}/RECORD":
                    content = wheel.read(path)
                    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual((hashed, int(length)), (f"sha256={digest}", len(content)), path)
            self.assertIn(f"\nTag: {tag}\n", wheel.read(f"{info}/WHEEL").decode())
            self.assertIn(f"\nVersion: {version}\n", wheel.read(f"{info}/METADATA").decode())

    def test_a_missing_library_is_named(self) -> None:
        told = self.build("/no/such/library", "none")
        self.assertNotEqual(told.returncode, 0)
        self.assertIn("there is no library /no/such/library; build it", told.stderr)


if __name__ == "__main__":
    unittest.main()
