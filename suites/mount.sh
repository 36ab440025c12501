#!/usr/bin/env bash
# A mount, by tests of the field: pjdfstest, its port to Rust, and fsx through it, and programs of both fronts at once.
# mount.sh [DIR]     DIR: a built pjdfstest (or PJDFSTEST=DIR); PJDFSTEST_RS: the built port, the program target/release/pjdfstest of its
#                    folder rust; FSX: the program fsx ('cargo install fsx'). What is missing is skipped.
#                    OPTIONS: options of all mounts, such as io_uring
source "$(dirname "$0")/lib.sh"
DIR=${1:-${PJDFSTEST:-}}
PORT=${PJDFSTEST_RS:-}
FSX=${FSX:-$(command -v fsx || true)}
OPTIONS=${OPTIONS:-defaults}
stop() { echo "mount.sh: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || stop "only the superuser can take on the identities of others: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
chmod 755 "$SCRATCH"
IMAGE=$SCRATCH/image MOUNT=$SCRATCH/mount
new_volume 2G 4M "$IMAGE"
mkdir "$MOUNT"
unmount() { [ ! -e "$IMAGE" ] || "$WEFT" unmount --lazy "$MOUNT" 2>/dev/null || true; finish; }
trap unmount EXIT
"$WEFT" mount --daemon --quiet --log "$SCRATCH/log" -o "$OPTIONS" "$IMAGE" "$MOUNT"
# The port's tests take on two users. They sleep for longer than the clock of the kernel's times takes for a tick. What they need of the
# system and do not find by themselves; remounting is no feature of a mount.
cat >"$SCRATCH/port.toml" <<'T'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
T

# suites TITLE: what tests of the field say of what is mounted.
suites() {
  if [ -n "$DIR" ]; then
    [ -x "$DIR/pjdfstest" ] || stop "$DIR is not a built pjdfstest"
    DIR=$(cd "$DIR" && pwd)
    mkdir "$MOUNT/pjd"
    (cd "$MOUNT/pjd" && prove -r "$DIR/tests") >"$SCRATCH/prove" 2>&1 || true
    same "pjdfstest, $1" "PASS" "$(sed -n 's/^Result: //p' "$SCRATCH/prove")"
    tail -2 "$SCRATCH/prove"
    grep -E '^ *Failed test' "$SCRATCH/prove" | head -20 || true
  else
    echo "skipped: pjdfstest (give its folder)"
  fi

  if [ -n "$PORT" ]; then
    [ -x "$PORT" ] || stop "$PORT is not a program"
    mkdir -m 755 "$MOUNT/port"
    check "pjdfstest in Rust, $1" "$PORT" -c "$SCRATCH/port.toml" -p "$MOUNT/port" -s "$SCRATCH"
    sed -n 's/^Summary: //p' "$SCRATCH/out"
  else
    echo "skipped: pjdfstest in Rust (PJDFSTEST_RS)"
  fi

  if [ -n "$FSX" ]; then
    cat >"$SCRATCH/fsx.toml" <<'T'
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
invalidate = 1
fsync = 1
fdatasync = 1
punch_hole = 5
sendfile = 5
posix_fallocate = 2
copy_file_range = 3
posix_fadvise = 1
T
    for seed in 1 2 3 4; do
      check "fsx, seed $seed, $1" "$FSX" -N 5000 -S $seed "$MOUNT/fsx$seed"
      check "fsx with all calls, seed $seed, $1" "$FSX" -f "$SCRATCH/fsx.toml" -N 3000 -S $seed "$MOUNT/all$seed"
    done
  else
    echo "skipped: fsx ('cargo install fsx')"
  fi
}
suites "kernel without data"

# Names that a program of the library makes and removes, looked at through the mount; commands come and go meanwhile.
cat >"$SCRATCH/both" <<'S'
mount=$1 weft=$2 image=$3
mkdir -p /weft/both
(while [ ! -e "$mount/both/end" ]; do "$weft" ls "$image:/both" >/dev/null; sleep 0.1; done) &
for i in $(seq 1 300); do
  echo "$i" >"/weft/both/f$i"; mv "/weft/both/f$i" "/weft/both/g$i"; rm -f "/weft/both/g$((i - 1))"
  [ ! -e "$mount/both/f$i" ] && [ "$(cat "$mount/both/g$i")" = "$i" ] && [ ! -e "$mount/both/g$((i - 1))" ] || { echo "round $i"; exit 1; }
  echo more >>"$mount/both/g$i"
  [ "$(stat -c %s "/weft/both/g$i")" = "$(stat -c %s "$mount/both/g$i")" ] || { echo "size in round $i"; exit 1; }
done
touch "$mount/both/end"; wait
S
check "names of both fronts" weft_run bash "$SCRATCH/both" "$MOUNT" "$WEFT" "$IMAGE"
# A lock counter: programs of both fronts add to one file under its lock.
cat >"$SCRATCH/add" <<'S'
for i in $(seq 1 200); do flock "$1/lock" sh -c 'n=$(cat "$0/count"); echo $((n + 1)) >"$0/count"' "$1" || exit 1; done
S
echo 0 >"$MOUNT/count"; : >"$MOUNT/lock"
bash "$SCRATCH/add" "$MOUNT" & first=$!
bash "$SCRATCH/add" "$MOUNT" & second=$!
check "a counter under flock, library" weft_run bash "$SCRATCH/add" /weft
check "a counter under flock, mount" wait $first
check "a counter under flock, mount again" wait $second
same "the counter" 600 "$(cat "$MOUNT/count")"
# Thousands of threads that wait for one lock: the work must not grow with the square of them. By io_uring, 512 can for a processor.
LOCKS=$(program many_locks.c -pthread) THREADS=2000
[[ $OPTIONS != *io_uring* ]] || THREADS=400
for how in flock ofd; do
  rm -f "$MOUNT/number"
  timeout 60 "$LOCKS" "$MOUNT/number" $THREADS $how & first=$!
  check "$THREADS threads for one lock ($how), library" weft_run timeout 60 "$LOCKS" /weft/number $THREADS $how
  check "$THREADS threads for one lock ($how), mount" wait $first
  same "what they have added up" $((2 * THREADS)) "$(od -An -td8 "$MOUNT/number" | tr -d ' ')"
done

check "unmount" "$WEFT" unmount "$MOUNT"
rm -rf "$IMAGE"
new_volume 2G 4M "$IMAGE"
"$WEFT" mount --daemon --quiet --log "$SCRATCH/log" -o "writeback,$OPTIONS" "$IMAGE" "$MOUNT"
suites "writeback"
# A tree with its times comes back from the volume as it was.
mkdir "$MOUNT/tree"
check "a tree is unpacked" bash -o pipefail -c 'tar c --exclude=target --exclude=.git . | tar x -C "$1"' tar "$MOUNT/tree"
listing() { (cd "$MOUNT" && find . -type f -printf '%p %s %m %T@ %C@\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum); }
listing >"$SCRATCH/before"
check "unmount, writeback" "$WEFT" unmount "$MOUNT"
"$WEFT" mount --daemon --quiet --log "$SCRATCH/log" -o "writeback,$OPTIONS" "$IMAGE" "$MOUNT"
listing >"$SCRATCH/after"
check "a tree that was written back" diff "$SCRATCH/before" "$SCRATCH/after"
check "unmount again" "$WEFT" unmount "$MOUNT"
check "weft fsck" "$WEFT" fsck "$IMAGE"
same "messages of the mount" "" "$(grep -E 'WARN|ERROR' "$SCRATCH/log" || true)"
summary
