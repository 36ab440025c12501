"""Prints a table of what the tests of xfstests did on weft and on its peers.
   xfstests_table.py RESULTS...     folders that suites/xfstests.sh kept (RESULTS=), each with a folder for each mode; a later
   one counts where both ran a test"""
import collections, pathlib, re, sys

MODES = {"default": "weft", "writeback": "weft writeback", "passthrough_hp": "passthrough_hp", "fuse-backend-rs": "fuse-backend-rs"}


def outcomes(output):
    """Of each test that `check` names in its summary: pass, fail or not run."""
    def named(kind):
        lines = re.findall(rf"^{kind}:(.*)$", output, re.MULTILINE)
        return lines[-1].split() if lines else []
    return dict.fromkeys(named("Ran"), "pass") | dict.fromkeys(named("Failures"), "**fail**") | dict.fromkeys(named("Not run"), "not run")


found = {}
for folder in map(pathlib.Path, sys.argv[1:]):
    for mode in MODES:
        if (folder / mode / "check.out").exists():
            found.setdefault(mode, {}).update(outcomes((folder / mode / "check.out").read_text(errors="replace")))
modes = [mode for mode in MODES if mode in found]
tests = sorted(set().union(*found.values()))
ran = [test for test in tests if any(found[mode].get(test, "not run") != "not run" for mode in modes)]
print("| test | " + " | ".join(MODES[mode] for mode in modes) + " |")
print("|---|" + "---|" * len(modes))
counts = {mode: collections.Counter(found[mode].get(test, "not run") for test in ran) for mode in modes}
for kind in ("pass", "**fail**", "not run"):
    print(f"| *{kind.strip('*')}, of {len(ran)}* | " + " | ".join(str(counts[mode][kind]) for mode in modes) + " |")
for test in ran:
    print(f"| {test} | " + " | ".join(found[mode].get(test, "not run") for mode in modes) + " |")
