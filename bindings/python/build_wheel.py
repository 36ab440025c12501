#!/usr/bin/env python3
"""Builds the wheel of the package weft: the package, and the C library in it. Needs nothing but Python.

    build_wheel.py --library target/release/libweft_c.so --out target

prints the path of the wheel. The same files make the same wheel, byte for byte.
"""

import argparse
import base64
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "weft"
LIBRARY = "libweft_c.so"
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]
# The first moment that a zip archive can name.
MOMENT = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: weft
Version: {version}
Summary: Compound operations on weft volumes: programs of file operations that a server runs as one
License: Apache-2.0 OR MIT
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: weft
Root-Is-Purelib: false
Tag: {tag}
"""


def version_of_workspace() -> str:
    """The version in the section [workspace.package] of Cargo.toml."""
    text = (ROOT / "Cargo.toml").read_text()
    found = re.search(r'^\[workspace\.package\]\n(?:[^\[].*\n|\n)*?version = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{ROOT / 'Cargo.toml'} has no version in [workspace.package]")
    return found.group(1)


def without_debug_information(library: Path) -> bytes:
    """The library's bytes. Most of what Cargo builds is debug information, which 'strip' takes away where there is one."""
    strip = shutil.which("strip")
    if strip is None:
        return library.read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        stripped = Path(scratch) / LIBRARY
        subprocess.run([strip, "--strip-debug", "-o", stripped, library], check=True)
        return stripped.read_bytes()


def build(library: Path, out: Path) -> Path:
    """Builds the wheel in the directory `out`."""
    version, tag = version_of_workspace(), f"py3-none-linux_{platform.machine()}"
    info = f"weft-{version}.dist-info"
    files = {f"weft/{source.name}": source.read_bytes() for source in PACKAGE.iterdir() if source.name == "py.typed" or source.suffix == ".py"}
    files[f"weft/{LIBRARY}"] = without_debug_information(library)
    files.update({f"{info}/{name}": (ROOT / name).read_bytes() for name in LICENSES})
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = [f"{name},sha256={digest(content)},{len(content)}\n" for name, content in sorted(files.items())]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"weft-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        # The metadata at the end, as the format recommends.
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, files[name])
    return wheel


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the wheel of the Python package weft.")
    parser.add_argument("--library", type=Path, required=True, help=f"the {LIBRARY} that Cargo has built")
    parser.add_argument("--out", type=Path, required=True, help="directory for the wheel")
    arguments = parser.parse_args()
    if not arguments.library.is_file():
        sys.exit(f"there is no library {arguments.library}; build it with 'cargo build --release -p weft-capi'")
    print(build(arguments.library, arguments.out))


if __name__ == "__main__":
    main()
