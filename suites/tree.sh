#!/usr/bin/env bash
# cp -a, ls -lR, find, md5sum, tar, rm -r on a tree of 10,000 files: the same results as natively.
source "$(dirname "$0")/lib.sh"
FILES=${1:-10000}
IMAGE=$SCRATCH/image
new_volume 512M 4M "$IMAGE" >/dev/null 2>&1
T=$SCRATCH/tree
python3 - "$T" "$FILES" <<'PY'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)
for i in range(files):
    d = os.path.join(root, f"d{i % 50:02}", f"e{i % 7}")
    os.makedirs(d, exist_ok=True)
    path = os.path.join(d, f"file {i}.dat")
    size = rng.choice([0, 1, 100, 1000, 4095, 4096, 4097, 10000, 30000])
    with open(path, "wb") as f:
        f.write(rng.randbytes(size))
    os.chmod(path, rng.choice([0o644, 0o600, 0o755, 0o444]))
    os.utime(path, ns=(10**18 + i * 10**9 + 5, 10**18 + i * 10**9 + i))
    if i % 100 == 0:
        os.symlink(f"file {i}.dat", path + ".link")
    if i % 150 == 0:
        os.link(path, path + ".hard")
PY
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 md5sum | md5sum); }
# A directory's size is the file system's own affair.
listing() { (cd "$1" && find . -type d -printf '%p %y %m %n %T@\n' -o -printf '%p %y %m %s %n %T@ %l\n' | sort | md5sum); }
export -f sums listing
check "cp -a in" weft_run cp -a "$T" /weft/tree
same "find: names, types, modes, sizes, links, times" "$(find "$T" -printf '%P %y %m %s %n %T@ %l\n' | grep -v ' d ' | sort | md5sum)" \
  "$(weft_run find /weft/tree -printf '%P %y %m %s %n %T@ %l\n' | grep -v ' d ' | sort | md5sum)"
same "md5sum of every file" "$(sums "$T")" "$(weft_run bash -c 'sums /weft/tree')"
same "ls -lR" "$(cd "$T" && ls -lR --time-style=full-iso . | grep -v '^total\|^d' | md5sum)" \
  "$(weft_run bash -c "cd /weft/tree && ls -lR --time-style=full-iso . | grep -v '^total\|^d' | md5sum")"
check "tar out of the volume" weft_run tar --format=posix -cf "$SCRATCH/t.tar" -C /weft tree
mkdir "$SCRATCH/out2" && tar -xf "$SCRATCH/t.tar" -C "$SCRATCH/out2"
same "tar's content" "$(listing "$T")" "$(listing "$SCRATCH/out2/tree")"
check "tar into the volume" weft_run tar -xf "$SCRATCH/t.tar" -C /weft --transform 's/^tree/tree2/'
same "md5sum after tar" "$(sums "$T")" "$(weft_run bash -c 'sums /weft/tree2')"
check "cp -a out" weft_run cp -a /weft/tree2 "$SCRATCH/back"
same "what came back" "$(listing "$T")" "$(listing "$SCRATCH/back")"
check "diff -r" weft_run diff -r "$T" /weft/tree
check "rm -r" weft_run rm -r /weft/tree /weft/tree2
same "nothing is left" "" "$(weft_run ls /weft)"
check "weft fsck" "$WEFT" fsck "$IMAGE"
summary
