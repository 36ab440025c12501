#!/usr/bin/env bash
# What secure deletion costs: 20,000 files of 16 KiB are made, read after a restart, and deleted with a sync; of the first 5 % the flag s is set or
# not, as in "ADAPT", figure 5.5.1. Files a second: medians of rounds in turns, for each core.
#   suites/secure-cost.sh [ROUNDS=5] [FILES=20000]
source "$(dirname "$0")/lib.sh"
IMAGE=$SCRATCH/vol.img
ROUNDS=${1:-5} FILES=${2:-20000}
cat >"$SCRATCH/work.py" <<'PY'
import fcntl, os, struct, sys, time
what, files, secure = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "secure"
EACH, DATA = 1000, b"16 KiB of a file" * 1024
def paths():
    for number in range(files):
        yield f"/weft/d{number // EACH}/file{number}"
begun = time.monotonic()
if what == "create":
    for number in range(-(-files // EACH)):
        os.mkdir(f"/weft/d{number}")
        if number == 0 and secure:
            fd = os.open("/weft/d0", os.O_RDONLY)
            fcntl.ioctl(fd, 0x40086602, struct.pack("l", 1))  # FS_IOC_SETFLAGS, FS_SECRM_FL
            os.close(fd)
    for path in paths():
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
        os.write(fd, DATA)
        os.close(fd)
    os.sync()
elif what == "read":
    for path in paths():
        fd = os.open(path, os.O_RDONLY)
        assert os.read(fd, 1 << 20) == DATA
        os.close(fd)
else:
    for path in paths():
        os.unlink(path)
    os.sync()
print(f"{files / (time.monotonic() - begun):.0f}")
PY
for _ in $(seq "$ROUNDS"); do
  for core in lfs tagfs; do
    for side in plain secure-0 secure-3; do
      CORE=$core new_volume 4G
      for what in create read delete; do
        rate=$("$WEFT" run --quiet --erase-passes "$([ "$side" = secure-3 ] && echo 3 || echo 0)" --volume "$IMAGE" -- \
          python3 "$SCRATCH/work.py" "$what" "$FILES" "${side%-*}") || { fail "$what on $core, $side"; continue; }
        printf '%s, %s\t%s\t%s\n' "$core" "$what" "$side" "$rate" >>"$SCRATCH/measures"
      done
    done
  done
done
python3 - "$SCRATCH/measures" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    row, side, rate = line.rstrip("\n").split("\t")
    rows.setdefault(row, {}).setdefault(side, []).append(float(rate))
sides = ["plain", "secure-0", "secure-3"]
print("| files a second | no flag | 5 % with the flag | with 3 passes of random bytes | with the flag / no flag | with passes / no flag |")
print("|---|" + "---|" * 5)
for row, of in rows.items():
    mid = {side: statistics.median(of[side]) for side in sides}
    cells = [f"{mid[side]:,.0f} ({min(of[side]):,.0f} to {max(of[side]):,.0f})" for side in sides]
    print("| " + " | ".join([row, *cells, f"{mid['secure-0'] / mid['plain']:.2f}", f"{mid['secure-3'] / mid['plain']:.2f}"]) + " |")
PY
summary
