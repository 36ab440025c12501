#!/usr/bin/env bash
# The speed of a mount, and of programs of `weft run`, beside the file system of their image and beside FUSE servers that pass everything
# to that file system: medians of rounds in which all take turns. mount-speed.sh [ROUNDS]     Run it as root: it drops the kernel's caches.
# ROWS: large (a file of 1 GiB), synced (an fsync after each write), small (18,000 files), tree (untar, ls -lR, rm -rf), filebench, and
#       openssl (Configure and make; only when it is named, as it takes minutes a side)
# SIDES: by default all below that this machine has. weft-run makes and deletes the small files and runs varmail, no more.
#       passthrough_hp lets the kernel pass data on; with -writeback and -io_uring, the server has the data.
# PASSTHROUGH=DIR: libfuse's built examples. FUSE_PEERS=PROGRAM: the server of suites/fuse-peers (target/release/fuse-peers by default).
# FILEBENCH=PROGRAM: an installed filebench (that of PATH by default). SCALE=100: a hundredth of all, to try the suite itself.
source "$(dirname "$0")/programs/prepare.sh"
ALL_SIDES="ext4 weft weft-writeback weft-io_uring weft-writeback-io_uring weft-run passthrough_hp passthrough_hp-writeback passthrough_hp-io_uring passthrough fuse-backend-rs"
ALL_ROWS="large synced small tree filebench openssl"
ROUNDS=${1:-5} SCALE=${SCALE:-1} SIDES=${SIDES:-$ALL_SIDES} ROWS=${ROWS:-${ALL_ROWS% openssl}}
PASSTHROUGH=${PASSTHROUGH:-/nonexistent} FUSE_PEERS=${FUSE_PEERS:-$ROOT/target/release/fuse-peers}
FILEBENCH=${FILEBENCH:-$(command -v filebench || true)}
stop() { echo "mount-speed.sh: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || stop "only the superuser drops caches and mounts for all: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
for name in ${SIDES//,/ } ${ROWS//,/ }; do
  case " $ALL_SIDES $ALL_ROWS " in *" $name "*) ;; *) stop "'$name' is none of the sides ($ALL_SIDES) and rows ($ALL_ROWS)" ;; esac
done
P=$(program lfs_files.c)
LARGE=$(((1 << 30) / SCALE / 524288 * 524288)) SYNCED=$((2000 / SCALE)) FILES=$((18000 / SCALE)) ENTRIES=$((20000 / SCALE))
# filebench waits forever when its files are too few.
BENCH_FILES=$((SCALE > 1 ? 400 : 2000)) BENCH_SECONDS=$((SCALE > 1 ? 2 : 15))
MOUNT=$SCRATCH/mount BACK=$SCRATCH/back
mkdir "$MOUNT"

# missing NAME: why this machine cannot run a side or a row; nothing when it can.
missing() {
  case $1 in
    passthrough*) [ -x "$PASSTHROUGH/${1%%-*}" ] || echo "PASSTHROUGH, the folder of libfuse's built examples, has no ${1%%-*}" ;;
    fuse-backend-rs) [ -x "$FUSE_PEERS" ] || echo "build suites/fuse-peers, or give its program as FUSE_PEERS" ;;
    filebench) [ -x "$FILEBENCH" ] || echo "give the program as FILEBENCH" ;;
    openssl)
      (source suites/mount-work/openssl.sh; prepare && echo "$OPENSSL_SOURCE" >"$SCRATCH/openssl") >&2 ||
        echo "its source or what builds it is missing" ;;
  esac
  case $1 in *io_uring)
    grep -qs Y /sys/module/fuse/parameters/enable_uring || echo "/sys/module/fuse/parameters/enable_uring is not Y" ;;
  esac
}
present() { # present NAME...: those that this machine can run
  local name why
  for name; do
    why=$(missing "$name")
    if [ -z "$why" ]; then echo "$name"; else echo "skipped: $name ($why)" >&2; fi
  done
}
mapfile -t sides < <(present ${SIDES//,/ })
rows=" $(present ${ROWS//,/ } | tr '\n' ' ')"

# begin SIDE: makes an empty file system at $D; what is to run there runs by "${RUN[@]}".
begin() {
  local options=
  rm -rf "$BACK" "$IMAGE"; mkdir "$BACK"
  D=$MOUNT RUN=()
  case $1 in
    ext4) D=$BACK ;;
    weft-run) new_volume 8G; D=/weft RUN=("$WEFT" run --quiet --volume "$IMAGE" --) ;;
    weft*)
      options=${1#weft}; options=${options#-}
      new_volume 8G; "$WEFT" mount --daemon --quiet ${options:+-o "${options//-/,}"} "$IMAGE" "$MOUNT" >/dev/null ;;
    passthrough_hp) "$PASSTHROUGH/passthrough_hp" "$BACK" "$MOUNT" >/dev/null 2>&1 ;;
    passthrough_hp-writeback) "$PASSTHROUGH/passthrough_hp" --nopassthrough "$BACK" "$MOUNT" >/dev/null 2>&1 ;;
    passthrough_hp-io_uring) "$PASSTHROUGH/passthrough_hp" --nopassthrough -o io_uring "$BACK" "$MOUNT" >/dev/null 2>&1 ;;
    passthrough) "$PASSTHROUGH/passthrough" "$MOUNT" >/dev/null 2>&1; D=$MOUNT$BACK ;;
    fuse-backend-rs) "$FUSE_PEERS" "$BACK" "$MOUNT" ;;
  esac
  sleep 0.3
}
end() {
  case $1 in
    ext4 | weft-run) ;;
    weft*) "$WEFT" unmount "$MOUNT" >/dev/null ;;
    *) umount "$MOUNT" ;;
  esac
}
trap 'umount -l "$MOUNT" 2>/dev/null || true; finish' EXIT
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }
# row NAME COMMAND...: notes the figure that the command prints.
row() {
  local name=$1 figure; shift
  figure=$("$@") || { echo "failed: $name, $side" >&2; FAILURES=$((FAILURES + 1)); return 0; }
  printf '%s\t%s\t%s\n' "$name" "$side" "$figure" >>"$SCRATCH/figures"
}
files() { "${RUN[@]}" "$P" "$D" "$@"; }
seconds() { # seconds COMMAND...: how long it took
  local begun; begun=$(date +%s.%N)
  "$@" >"$SCRATCH/said" 2>&1 || { tail -3 "$SCRATCH/said" >&2; return 1; }
  echo "$(date +%s.%N) $begun" | awk '{ printf "%.3f\n", $1 - $2 }'
}

large() {
  # As in the papers: written in order, read; overwritten in random order, read.
  local call order bytes
  for call in 4096 32768; do
    rm -f "$D/large"
    for order in seq random; do
      bytes=$LARGE; [ $order = seq ] || bytes=$((LARGE / 16))
      row "write $order $((call / 1024))K, MB/s" files write $LARGE $call $order
      cold; row "read $order $((call / 1024))K cold, MB/s" files read $bytes $call $order
    done
  done
  rm -f "$D/large"; files write $LARGE 32768 seq >/dev/null
  files read $LARGE 32768 seq >/dev/null
  row "read seq 4K warm, MB/s" files read $LARGE 4096 seq
  rm -f "$D/large"
}
synced() {
  local call order
  for call in 4096 32768; do
    for order in seq random; do
      row "write $order $((call / 1024))K + fsync, writes/s" files synced $((SYNCED * call)) $call $order
    done
    rm -f "$D/large"
  done
}
small() {
  row "create 16K, files/s" files create $FILES 16384
  if [ "$side" != weft-run ]; then
    cold; row "read 16K cold, files/s" files show $FILES 16384
    row "stat, files/s" files stat $FILES 0
  fi
  cold; row "delete, files/s" files delete $FILES 0
}
unpack() { mkdir "$1/tree" && tar xf "$SCRATCH/tree.tar" -C "$1/tree" && sync -f "$1"; }
tree() {
  row "untar, s" seconds unpack "$D"
  cold; row "ls -lR cold, s" seconds ls -lR "$D"
  row "ls -lR warm, s" seconds ls -lR "$D"
  row "rm -rf, s" seconds rm -rf "$D/tree"
}
personality() { # personality NAME: runs one of filebench's own for a while, prints operations a second
  sed -E "s|^(set \\\$dir)=.*|\1=$D|; s/^(set \\\$nfiles)=.*/\1=$BENCH_FILES/; s/^(set \\\$nthreads)=.*/\1=4/; s/^run .*/run $BENCH_SECONDS/" \
    "$(dirname "$FILEBENCH")/../share/filebench/workloads/$1.f" >"$SCRATCH/$1.f"
  # With addresses that vary, its processes do not find their shared memory.
  "${RUN[@]}" setarch -R "$FILEBENCH" -f "$SCRATCH/$1.f" >"$SCRATCH/said" 2>&1 || true
  sed -n 's|.*IO Summary:.* \([0-9.]*\) ops/s.*|\1|p' "$SCRATCH/said" | grep . || { tail -3 "$SCRATCH/said" >&2; return 1; }
}
filebench() {
  local name
  for name in varmail fileserver webserver; do
    [ "$side,$name" = weft-run,varmail ] || [ "$side" != weft-run ] || continue
    row "filebench $name, ops/s" personality $name
    "${RUN[@]}" rm -rf "$D/bigfileset" "$D/logfiles"
  done
}
openssl() {
  mkdir "$D/openssl"; tar xf "$(cat "$SCRATCH/openssl")" -C "$D/openssl" --strip-components=1
  row "OpenSSL Configure, s" seconds env -C "$D/openssl" ./Configure -O0 linux-x86_64
  row "OpenSSL make, s" seconds make -C "$D/openssl" -j2 $([ "$SCALE" = 1 ] || echo build_generated)
  rm -rf "$D/openssl"
}

case $rows in *" tree "*)
  # Headers of this system, and weft's sources.
  find /usr/include "$ROOT" \( -name target -o -name .git \) -prune -o -print | awk "NR <= $ENTRIES" |
    tar cf "$SCRATCH/tree.tar" --no-recursion -T - 2>/dev/null || true
  echo "tree: $(tar tf "$SCRATCH/tree.tar" | wc -l) entries, $(stat -c %s "$SCRATCH/tree.tar") bytes" ;;
esac
: >"$SCRATCH/figures"
FAILURES=0
for ((round = 0; round < ROUNDS; round++)); do
  for side in "${sides[@]}"; do
    begin "$side"
    for name in $rows; do
      case $side,$name in weft-run,small | weft-run,filebench) ;; weft-run,*) continue ;; esac
      "$name"
    done
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
    digits = 2 if name.endswith(", s") else 0
    cells = [f"{statistics.median(by_side[side]):,.{digits}f}" if side in by_side else "" for side in sides]
    print(f"| {name} | " + " | ".join(cells) + " |")
PY
[ "$FAILURES" = 0 ] || { echo "$FAILURES measurements failed" >&2; exit 1; }
