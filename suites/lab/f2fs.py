"""Runs db_bench on weft and on f2fs in turns on one zoned drive, and prints both with their ratio."""
import json
import os
import re
import statistics
import subprocess
import sys

WEFT, ZONED, PLAIN, PAIRS, OUT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
PHASES = [("fillrandom", []), ("overwrite", ["--use_existing_db=1"])]
MOUNT = "/mnt/f2fs"
BLOCK = 4096
ERRORS = re.compile(r"I/O Cmd|I/O error|zones exceeded|Corrupted write pointer|timeout, ")


PHASE_SECONDS_MAX = 600


def run(*command):
    """What a command prints. db_bench waits for ever when a volume is full, so it gets a limit."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PHASE_SECONDS_MAX).stdout
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}: not done after {PHASE_SECONDS_MAX} s; is the volume full? Lower KEYS or raise DRIVE")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{' '.join(command)}: exit status {failed.returncode}\n{failed.stderr[-2000:]}")


def sectors_written(device):
    return int(open(f"/sys/block/{os.path.basename(device)}/stat").read().split()[6])


def operations(text, phase):
    return int(re.search(rf"^{phase}\s*:.*?(\d+) ops/sec", text, re.M).group(1))


def bench(prefix, directory, phase, more):
    command = [*prefix, "scripts/leveled.sh", directory, f"{phase},waitforcompaction", *more]
    return operations(run(*command), phase)


def measured(phases):
    """Drive bytes around each phase, and what the phase returns."""
    result = {}
    for phase, work in phases:
        before = [sectors_written(d) for d in (ZONED, PLAIN)]
        result[phase] = work()
        os.sync()
        after = [sectors_written(d) for d in (ZONED, PLAIN)]
        result[phase]["drive_bytes"] = (after[0] - before[0]) * 512
        result[phase]["plain_bytes"] = (after[1] - before[1]) * 512
    return result


def weft():
    run("blkzone", "reset", ZONED)
    run(WEFT, "format", "--quiet", ZONED)
    report = "/tmp/report.json"

    def work(phase, more):
        def go():
            prefix = [WEFT, "run", "--quiet", "--report", report, "--volume", ZONED, "--"]
            ops = bench(prefix, "/weft/db", phase, more)
            device = json.load(open(report))["during"]["device"]
            return {"ops": ops, "gc_bytes": device["gc_bytes"]}

        return go

    return measured([(phase, work(phase, more)) for phase, more in PHASES])


def f2fs_moved():
    base = f"/sys/fs/f2fs/{os.path.basename(PLAIN)}"
    names = ("moved_blocks_background", "moved_blocks_foreground")
    return sum(int(open(f"{base}/{name}").read()) for name in names) * BLOCK


def f2fs():
    run("blkzone", "reset", ZONED)
    run("mkfs.f2fs", "-q", "-f", "-m", "-c", ZONED, PLAIN)
    os.makedirs(MOUNT, exist_ok=True)
    run("mount", "-t", "f2fs", PLAIN, MOUNT)

    def work(phase, more):
        def go():
            before = f2fs_moved()
            ops = bench([], f"{MOUNT}/db", phase, more)
            return {"ops": ops, "gc_bytes": f2fs_moved() - before}

        return go

    try:
        return measured([(phase, work(phase, more)) for phase, more in PHASES])
    finally:
        run("umount", MOUNT)


def kernel_errors():
    return sum(1 for line in run("dmesg").splitlines() if ERRORS.search(line))


pairs = []
for pair in range(PAIRS):
    sides = [("weft", weft), ("f2fs", f2fs)]
    of = {}
    for name, side in sides if pair % 2 == 0 else reversed(sides):
        of[name] = side()
        print(f"pair {pair + 1}, {name}: " + ", ".join(f"{p} {r['ops']} op/s" for p, r in of[name].items()), flush=True)
    pairs.append(of)

errors = kernel_errors()
json.dump({"keys": int(os.environ["KEYS"]), "pairs": pairs, "kernel_errors": errors}, open(OUT, "w"), indent=2)
mib = 1 << 20
print(f"\n{'':12}{'weft op/s':>12}{'f2fs op/s':>12}{'ratio':>8}{'(range)':>16}"
      f"{'GC weft':>10}{'GC f2fs':>10}{'drive weft':>12}{'drive f2fs':>12}")
for phase, _ in PHASES:
    def of(side, field):
        return statistics.median(p[side][phase][field] for p in pairs)

    ratios = sorted(p["weft"][phase]["ops"] / p["f2fs"][phase]["ops"] for p in pairs)
    print(f"{phase:12}{of('weft', 'ops'):12.0f}{of('f2fs', 'ops'):12.0f}{statistics.median(ratios):8.2f}"
          f"{f'{ratios[0]:.2f}-{ratios[-1]:.2f}':>16}"
          f"{of('weft', 'gc_bytes') / mib:9.1f}M{of('f2fs', 'gc_bytes') / mib:9.1f}M"
          f"{of('weft', 'drive_bytes') / mib:11.1f}M"
          f"{(of('f2fs', 'drive_bytes') + of('f2fs', 'plain_bytes')) / mib:11.1f}M")
print(f"failed commands in the kernel log: {errors}")
sys.exit(errors != 0)
