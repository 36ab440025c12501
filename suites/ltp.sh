#!/usr/bin/env bash
# Tests of file systems of the Linux Test Project through a mount, with the kernel keeping no data and with -o writeback: growfiles,
# ftest, stream, lftest, inode01 and openfile01 of its runtest/fs, and fsstress.
# ltp.sh DIR [TEST...]     DIR: a built LTP (or LTP=DIR), at least its testcases/kernel/fs; TEST: gf01, ftest03, fsstress, ...; all by
#                          default. MODES: default, writeback or both (default); JOBS: tests at a time (6): most run for a set time;
#                          LIMIT: seconds for a test (900)
source "$(dirname "$0")/lib.sh"
DIR=${1:-${LTP:-}}
[ $# = 0 ] || shift
MODES=${MODES:-default writeback} JOBS=${JOBS:-6} LIMIT=${LIMIT:-900}
stop() { echo "ltp.sh: $*" >&2; exit 2; }
how="get the Linux Test Project, and build: make autotools && ./configure && make -C testcases/kernel/fs; give its folder: ltp.sh DIR"
[ -n "$DIR" ] || stop "no folder of the Linux Test Project is given; $how"
[ -f "$DIR/runtest/fs" ] || stop "$DIR has no runtest/fs; $how"
FS=$DIR/testcases/kernel/fs
[ -x "$FS/doio/growfiles" ] && [ -x "$FS/fsstress/fsstress" ] || stop "$DIR is not built; $how"
[ "$(id -u)" = 0 ] || stop "some tests take on the identities of others: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
FS=$(cd "$FS" && pwd)
for part in doio ftest inode openfile stream lftest fsstress; do PATH=$FS/$part:$PATH; done
chmod 755 "$SCRATCH"
IMAGE=$SCRATCH/image MOUNT=$SCRATCH/mount
mkdir "$MOUNT"
unmount() {
  local job
  for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
  [ ! -e "$IMAGE" ] || "$WEFT" unmount --lazy "$MOUNT" 2>/dev/null || true
  finish
}
trap unmount EXIT

grep -E '^(gf[0-9]+|ftest[0-9]+|stream[0-9]+|lftest01|inode01|openfile01)[[:space:]]' "$DIR/runtest/fs" >"$SCRATCH/list"
for seed in 1 2; do
  # LTP's program, as its own list calls it for other file systems.
  echo "fsstress$seed fsstress -d \$TMPDIR -s $seed -n 3000 -p 8" >>"$SCRATCH/list"
done
if [ $# != 0 ]; then
  for name in "$@"; do grep -E "^${name}[0-9]?[[:space:]]" "$SCRATCH/list" || stop "no such test: $name"; done >"$SCRATCH/chosen"
  mv "$SCRATCH/chosen" "$SCRATCH/list"
fi
# run NAME COMMAND: one test in a folder of its own; its status goes to a file.
run() {
  local dir=$MOUNT/$1 status=0
  mkdir -m 1777 "$dir"
  (cd "$dir" && TMPDIR=$dir timeout -k 10 "$LIMIT" bash -c "$2") >"$SCRATCH/$1.out" 2>&1 </dev/null || status=$?
  rm -rf "$dir" || status="$status, and its files cannot be removed"
  echo "$status" >"$SCRATCH/$1.status"
}
for mode in $MODES; do
  new_volume 3G
  fallocate --dig-holes "$IMAGE" 2>/dev/null || true
  options=suid,dev
  [ "$mode" = default ] || options=$options,$mode
  : >"$SCRATCH/log"
  "$WEFT" mount --daemon --quiet --log "$SCRATCH/log" -o "$options" "$IMAGE" "$MOUNT"
  rm -f "$SCRATCH"/*.status
  while read -r name command; do
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n || true; done
    run "$name" "$command" &
  done <"$SCRATCH/list"
  wait
  while read -r name command; do
    same "$name, $mode" 0 "$(cat "$SCRATCH/$name.status")"
    [ "$(cat "$SCRATCH/$name.status")" = 0 ] || tail -5 "$SCRATCH/$name.out"
  done <"$SCRATCH/list"
  check "unmount, $mode" "$WEFT" unmount "$MOUNT"
  check "weft fsck, $mode" "$WEFT" fsck "$IMAGE"
  same "messages of the mount, $mode" "" "$(grep -E 'WARN|ERROR' "$SCRATCH/log" || true)"
done
summary
