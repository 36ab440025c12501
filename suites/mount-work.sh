#!/usr/bin/env bash
# Work that people do, through a mount: a build of OpenSSL, git, PostgreSQL, Go, Java, a container, databases, a million files, copies of
# trees. Each does the same on the file system of TMPDIR, on a mount, and on a mount with -o writeback, and has to print the same.
# mount-work.sh [WORK...]     WORK: a file of suites/mount-work; all by default. MODES: default, writeback or both (default). Run it as root.
#                             What a work lacks on this machine is installed from Debian, or the work is skipped.
source "$(dirname "$0")/programs/prepare.sh"
stop() { echo "mount-work.sh: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || stop "some work takes on the identities of others: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
MODES=${MODES:-default writeback}
WORKS=("$@")
[ $# -gt 0 ] || WORKS=(openssl git postgresql go java container sqlite rocksdb trees million)
for work in "${WORKS[@]}"; do [ -f "suites/mount-work/$work.sh" ] || stop "no such work: $work"; done
MOUNT=$SCRATCH/mount
mkdir "$MOUNT"
unmount() { [ ! -e "$IMAGE" ] || "$WEFT" unmount --lazy "$MOUNT" 2>/dev/null || true; finish; }
trap unmount EXIT

# Of a work's file: `prepare` finds what the work needs, before and outside; `work` does it in an empty folder $D, and prints what has to be
# the same everywhere. `fact` tells what may differ. SIZE is that of the volume.
export WEFT ROOT SCRATCH FACTS=$SCRATCH/facts
fact() { echo "$*" >>"$FACTS"; }
export -f fact
# work_in PLACE FOLDER: does the work, prints what it has to say.
work_in() {
  mkdir -m 1777 "$2/tmp"
  : >"$FACTS"
  D=$2 TMPDIR=$2/tmp bash -euo pipefail -c 'source "$0"; cd "$D"; work' "suites/mount-work/$work.sh" \
    2>"$SCRATCH/$work.$1.log" </dev/null || echo "status $?"
}
facts() { sed "s/^/      $1: /" "$FACTS"; }
seconds() { echo "$(date +%s.%N) $1" | awk '{ printf "%.1f", $1 - $2 }'; }
memory() { # the server's largest memory, in MiB
  local pid; pid=$(pgrep -o -f "^[^ ]*weft mount .*$IMAGE" || true)
  awk '/VmHWM/ { printf "%d MiB", $2 / 1024 }' "/proc/$pid/status" 2>/dev/null || echo unknown
}
# on_mount MODE: the work on a new volume.
on_mount() {
  local begun options=suid,dev status=0
  new_volume "$SIZE"
  # An image is allocated as a whole; what is not written needs no room.
  fallocate --dig-holes "$IMAGE" 2>/dev/null || true
  [ "$1" = default ] || options=$options,$1
  : >"$SCRATCH/log"
  "$WEFT" mount --daemon --quiet --log "$SCRATCH/log" -o "$options" "$IMAGE" "$MOUNT"
  begun=$(date +%s.%N)
  work_in "$1" "$MOUNT" >"$SCRATCH/got"
  fact "peak memory of the server $(memory)"
  "$WEFT" unmount "$MOUNT" >"$SCRATCH/out" 2>&1 || status=$?
  took=$(seconds "$begun")
  if diff "$SCRATCH/want" "$SCRATCH/got" >"$SCRATCH/differs"; then
    pass "$work, $1 ($(wc -l <"$SCRATCH/got") lines alike, $took s)"
  else
    fail "$work, $1"; head -20 "$SCRATCH/differs"; tail -5 "$SCRATCH/$work.$1.log"
  fi
  facts "$1"
  if [ "$status" != 0 ]; then
    fail "$work, $1: unmount"; cat "$SCRATCH/out"; fuser -vm "$MOUNT" || true; "$WEFT" unmount --lazy "$MOUNT" || true
  fi
  check "$work, $1: weft fsck" "$WEFT" fsck "$IMAGE"
  same "$work, $1: messages of the mount" "" "$(grep -E 'WARN|ERROR|panicked' "$SCRATCH/log" || true)"
  rm -f "$IMAGE"
}
TABLE=()
for work in "${WORKS[@]}"; do
  echo "== $work"
  SIZE=4G
  source "suites/mount-work/$work.sh"
  # In a subshell: `need` ends it where something is missing. What it exports goes through a file.
  if ! (prepare && export -p >"$SCRATCH/environment"); then
    echo "skipped: $work"
    TABLE+=("$work|skipped||")
    continue
  fi
  source "$SCRATCH/environment"
  rm -rf "$NATIVE"; mkdir "$NATIVE"
  begun=$(date +%s.%N)
  work_in disk "$NATIVE" >"$SCRATCH/want"
  sync -f "$NATIVE"
  row="$work|$(seconds "$begun")"
  rm -rf "$NATIVE"
  if grep -q '^status' "$SCRATCH/want"; then
    fail "$work, on the disk"; tail -20 "$SCRATCH/$work.disk.log"
  fi
  facts disk
  sed 's/^/      | /' "$SCRATCH/want"
  for mode in default writeback; do
    took=
    case " $MODES " in *" $mode "*) on_mount "$mode" ;; esac
    row="$row|$took"
  done
  TABLE+=("$row")
  [ -z "${KEEP_LOGS:-}" ] || cp "$SCRATCH/$work".*.log "$KEEP_LOGS"/
done
echo
echo "Seconds, one run each, unmount or sync included: no benchmark."
printf '%-12s %10s %10s %10s\n' work disk mount writeback
for row in "${TABLE[@]}"; do
  IFS='|' read -r -a cells <<<"$row"
  printf '%-12s %10s %10s %10s\n' "${cells[0]}" "${cells[1]:-}" "${cells[2]:-}" "${cells[3]:-}"
done
summary
