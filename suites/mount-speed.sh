#!/usr/bin/env bash
# The speed of a mount, beside the file system of its image and beside FUSE servers that pass everything to that file system: medians of
# rounds in which all take turns. mount-speed.sh [ROUNDS]
# PASSTHROUGH=DIR: libfuse's built examples (passthrough, passthrough_hp), which are skipped without. It drops the kernel's caches.
source "$(dirname "$0")/lib.sh"
ROUNDS=${1:-5}
DIR=${PASSTHROUGH:-}
stop() { echo "mount-speed.sh: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || stop "only the superuser drops caches and mounts for all: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
P=$SCRATCH/lfs_files
cc -O2 -o "$P" "$(dirname "$0")/programs/lfs_files.c"
LARGE=$((1 << 30)) FILES=18000
MOUNT=$SCRATCH/mount BACK=$SCRATCH/back
mkdir "$MOUNT" "$BACK"
# A tree to unpack: sources and headers of this system.
tar cf "$SCRATCH/tree.tar" -C / usr/include "$(cd "$(dirname "$0")/.." && pwd)" --exclude=target --exclude=.git 2>/dev/null || true
echo "tree: $(tar tf "$SCRATCH/tree.tar" | wc -l) entries, $(stat -c %s "$SCRATCH/tree.tar") bytes"
end() { case $1 in
  ext4) ;;
  weft*) "$WEFT" unmount "$MOUNT" >/dev/null ;;
  *) umount "$MOUNT" ;;
esac; }
begin() { rm -rf "$BACK" "$SCRATCH/image"; mkdir "$BACK"; case $1 in
  ext4) ;;
  weft) "$WEFT" format --quiet --size 8G "$SCRATCH/image"; "$WEFT" mount --daemon --quiet "$SCRATCH/image" "$MOUNT" >/dev/null ;;
  weft-writeback) "$WEFT" format --quiet --size 8G "$SCRATCH/image"; "$WEFT" mount --daemon --quiet -o writeback "$SCRATCH/image" "$MOUNT" >/dev/null ;;
  weft-io_uring) "$WEFT" format --quiet --size 8G "$SCRATCH/image"; "$WEFT" mount --daemon --quiet -o io_uring "$SCRATCH/image" "$MOUNT" >/dev/null ;;
  passthrough_hp) "$DIR/passthrough_hp" "$BACK" "$MOUNT" >/dev/null 2>&1 ;;
  passthrough) "$DIR/passthrough" "$MOUNT" >/dev/null 2>&1 ;;
esac
sleep 0.3; }
trap 'umount -l "$MOUNT" 2>/dev/null || true; finish' EXIT
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }
seconds() { # seconds COMMAND...: how long it took
  local begun; begun=$(date +%s.%N); "$@" >/dev/null 2>&1; echo "$(date +%s.%N) $begun" | awk '{ printf "%.3f\n", $1 - $2 }'; }
unpack() { mkdir "$1/tree" && tar xf "$SCRATCH/tree.tar" -C "$1/tree" && sync -f "$1"; }
row() { # row NAME SIDE FIGURE
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$SCRATCH/figures"; }
sides=(ext4 weft weft-writeback)
if grep -qs Y /sys/module/fuse/parameters/enable_uring; then sides+=(weft-io_uring); else echo "skipped: -o io_uring (the kernel does not offer it)"; fi
[ -z "$DIR" ] || sides+=(passthrough_hp passthrough)
for ((round = 0; round < ROUNDS; round++)); do
  for side in "${sides[@]}"; do
    begin "$side"
    case $side in
      ext4) D=$BACK ;;
      passthrough) D=$MOUNT$BACK ;;
      *) D=$MOUNT ;;
    esac
    # As in the papers: written in order, read; overwritten in random order, read.
    for call in 4096 32768; do
      rm -f "$D/large"
      for order in seq random; do
        bytes=$LARGE; [ $order = seq ] || bytes=$((LARGE / 16))
        row "write $order $((call / 1024))K, MB/s" "$side" "$("$P" "$D" write $LARGE $call $order)"
        cold; row "read $order $((call / 1024))K cold, MB/s" "$side" "$("$P" "$D" read $bytes $call $order)"
      done
    done
    rm -f "$D/large"; "$P" "$D" write $LARGE 32768 seq >/dev/null
    "$P" "$D" read $LARGE 32768 seq >/dev/null
    row "read seq 4K warm, MB/s" "$side" "$("$P" "$D" read $LARGE 4096 seq)"
    row "create 16K, files/s" "$side" "$("$P" "$D" create $FILES 16384)"
    cold; row "read 16K cold, files/s" "$side" "$("$P" "$D" show $FILES 16384)"
    row "stat, files/s" "$side" "$("$P" "$D" stat $FILES 0)"
    cold; row "delete, files/s" "$side" "$("$P" "$D" delete $FILES 0)"
    row "untar, s" "$side" "$(seconds unpack "$D")"
    cold; row "ls -lR cold, s" "$side" "$(seconds ls -lR "$D")"
    row "ls -lR warm, s" "$side" "$(seconds ls -lR "$D")"
    row "rm -rf, s" "$side" "$(seconds rm -rf "$D/tree")"
    end "$side"
  done
  echo "round $((round + 1))/$ROUNDS" >&2
done
python3 - "$SCRATCH/figures" "${sides[@]}" <<'PY'
import collections, statistics, sys
sides = sys.argv[2:]
found = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    name, side, figure = line.rstrip("\n").split("\t")
    found[name][side].append(float(figure))
print("| | " + " | ".join(sides) + " |")
print("|---|" + "---|" * len(sides))
for name, by_side in found.items():
    medians = [statistics.median(by_side[side]) for side in sides]
    digits = 2 if name.endswith(", s") else 0
    print(f"| {name} | " + " | ".join(f"{figure:,.{digits}f}" for figure in medians) + " |")
PY
