#!/usr/bin/env bash
# RocksDB by one front, and tar, rsync and sha256sum by the other, at the same time.
#   suites/both-rocksdb.sh [KEYS=150000]
# db_bench fills and overwrites a database under weft run, while programs read its directory through a mount. Then it overwrites the database
# through the mount, while the same programs read it under weft run. Tables never change once they are complete (their last eight bytes say
# so), and their numbers are never used again: whatever read a complete table must have read the same bytes. In the end the whole
# directory is the same by both fronts, and RocksDB's own tools accept a copy of it.
source "$(dirname "$0")/lib.sh"
export KEYS=${1:-150000}
for tool in db_bench ldb sst_dump rsync; do command -v $tool >/dev/null || { echo "$tool is missing" >&2; exit 2; }; done
[ -e /dev/fuse ] || { echo "this kernel has no /dev/fuse" >&2; exit 2; }
IMAGE=$SCRATCH/image MOUNT=$SCRATCH/mount SEEN=$SCRATCH/seen
away() { ! mountpoint -q "$MOUNT" || "$WEFT" unmount --lazy "$MOUNT" 2>/dev/null || true; finish; }
trap away EXIT
new_volume 768M 4M "$IMAGE"
mkdir "$MOUNT"
"$WEFT" mount --daemon --quiet --log "$SCRATCH/log" "$IMAGE" "$MOUNT"
native() { "$@"; }
# One line for each complete table of a folder: its name, the sum of its bytes, and who saw it. Compaction removes tables meanwhile.
cat >"$SCRATCH/sums" <<'S'
import glob, hashlib, os, sys
for path in glob.glob(sys.argv[1] + "/*.sst"):
    try:
        data = open(path, "rb").read()
    except FileNotFoundError:
        continue
    if data[-8:].hex() == "f7cff485b741e288":
        print(os.path.basename(path), hashlib.sha256(data).hexdigest(), sys.argv[2])
S
tables() { "$2" python3 "$SCRATCH/sums" "$3" "$1" >>"$SEEN"; } # tables WHO FRONT FOLDER
# while_it_runs NAME PID FRONT FOLDER: tar, rsync and sha256sum read the folder by a front until the process has ended.
while_it_runs() {
  local name=$1 pid=$2 front=$3 folder=$4 rounds=0 status
  while kill -0 "$pid" 2>/dev/null; do
    [ "$("$front" sh -c 'ls "$1" | grep -c sst' sh "$folder" 2>/dev/null)" -gt 0 ] 2>/dev/null || { sleep 0.2; continue; }
    rm -rf "$SCRATCH/untarred" "$SCRATCH/copied"; mkdir "$SCRATCH/untarred"
    # 1 and 24: files changed or went while they were read.
    "$front" tar -cf "$SCRATCH/live.tar" -C "$folder" . 2>"$SCRATCH/tar.err" || { status=$?; [ $status = 1 ] || grep -q 'File removed\|Cannot stat' "$SCRATCH/tar.err" || fail "tar, $name: $status, $(tail -1 "$SCRATCH/tar.err")"; }
    tar -xf "$SCRATCH/live.tar" -C "$SCRATCH/untarred"
    "$front" rsync -a "$folder/" "$SCRATCH/copied" 2>"$SCRATCH/rsync.err" || { status=$?; [ $status = 24 ] || fail "rsync, $name: $status, $(tail -1 "$SCRATCH/rsync.err")"; }
    tables tar native "$SCRATCH/untarred"
    tables rsync native "$SCRATCH/copied"
    tables mount native "$MOUNT/db"
    tables library weft_run /weft/db
    rounds=$((rounds + 1))
  done
  wait "$pid" && pass "db_bench, $name" || { fail "db_bench, $name"; tail -5 "$SCRATCH/bench"; }
  [ $rounds -gt 1 ] && pass "$rounds rounds of readers, $name" || fail "db_bench ended after $rounds rounds of readers, $name: give more KEYS"
}
judge() { # judge NAME: of all that was seen of a table, no two differ, and both fronts saw enough
  awk '{ if (($1 in sum) && sum[$1] != $2) print $1, $3, "differs from" who[$1]; else { sum[$1] = $2; who[$1] = who[$1] " " $3 } }' "$SEEN" >"$SCRATCH/differ"
  same "tables of which two readers saw different bytes, $1" "" "$(head -5 "$SCRATCH/differ")"
  awk '{ seen[$1, $3] = 1; name[$1] = 1 } END { for (n in name) if ((n, "library") in seen && ((n, "mount") in seen) && ((n, "tar") in seen) && ((n, "rsync") in seen)) all++; print all + 0 }' "$SEEN" >"$SCRATCH/all"
  [ "$(cat "$SCRATCH/all")" -ge 5 ] && pass "$(cat "$SCRATCH/all") of $(cut -d' ' -f1 "$SEEN" | sort -u | wc -l) tables were seen by all readers, $1" || fail "only $(cat "$SCRATCH/all") tables were seen by all readers, $1"
}
listing() { # listing FRONT FOLDER: every file with its size, times and bytes
  "$1" bash -c 'cd "$1" && find . -type f -printf "%p %s %m %T@\n" | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum' listing "$2"
}
whole() { # whole NAME: the directory by both fronts, and a copy through the mount
  listing native "$MOUNT/db" >"$SCRATCH/by-mount"
  listing weft_run /weft/db >"$SCRATCH/by-library"
  check "the directory by both fronts, $1 ($(grep -c sst "$SCRATCH/by-mount") tables)" diff "$SCRATCH/by-mount" "$SCRATCH/by-library"
  rm -rf "$SCRATCH/copy"
  check "a copy through the mount, $1" cp -a "$MOUNT/db" "$SCRATCH/copy"
  listing native "$SCRATCH/copy" >"$SCRATCH/by-copy"
  check "the copy is the same, $1" diff "$SCRATCH/by-mount" "$SCRATCH/by-copy"
  sst_dump --file="$SCRATCH/copy" --command=verify >"$SCRATCH/out" 2>&1 || true
  same "tables of the copy that sst_dump finds corrupt, $1" 0 "$(grep -ciE 'corrupt|not ok|error' "$SCRATCH/out" || true)"
  check "ldb checkconsistency of the copy, $1" ldb --db="$SCRATCH/copy" checkconsistency
  check "readrandom in the copy, $1" scripts/leveled.sh "$SCRATCH/copy" readrandom --use_existing_db=1 --reads=50000
  grep -oE '\([0-9]+ of [0-9]+ found\)' "$SCRATCH/out" | tail -1
  check "readrandom under weft run, $1" weft_run scripts/leveled.sh /weft/db readrandom --use_existing_db=1 --reads=50000
}
# The tools may write to the directory of a database that they open: it is compared first.
weft_run scripts/leveled.sh /weft/db fillrandom,overwrite,waitforcompaction >"$SCRATCH/bench" 2>&1 &
while_it_runs "under weft run" $! native "$MOUNT/db"
judge "written under weft run"
whole "written under weft run"
: >"$SEEN"
scripts/leveled.sh "$MOUNT/db" overwrite,waitforcompaction --use_existing_db=1 --writes=$((KEYS / 3)) >"$SCRATCH/bench" 2>&1 &
while_it_runs "through the mount" $! weft_run /weft/db
judge "written through the mount"
whole "written through the mount"
check "unmount" "$WEFT" unmount "$MOUNT"
check "weft fsck" "$WEFT" fsck "$IMAGE"
same "messages of the mount" "" "$(grep -E 'WARN|ERROR' "$SCRATCH/log" || true)"
summary
