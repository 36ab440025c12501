#!/usr/bin/env bash
# LevelDB whose table blocks, commits and table opens are programs of weft's server (suites/leveldb-compound/leveldb.patch), beside the
# unmodified one: each reads the databases of the other; the patched one and its server are killed while it writes; then all are measured.
#   suites/leveldb-compound.sh [KILLS=20] [ROUNDS=0] [BYTES=64M] [SIZES="100 1024 4096 16384"]
# ROUNDS: how often each row of the table is measured. BYTES: values that a row writes, at most 100,000. SIZES: bytes of a value.
# MEASURES=FILE keeps the measures; suites/leveldb-compound/plot.py draws them. BUILD=FOLDER keeps the built LevelDBs. VOLUME: size of the measured volumes (default 4G). LIBWEFT: weft's C library (default: that of 'make build').
source "$(dirname "$0")/programs/prepare.sh"
KILLS=${1:-20} ROUNDS=${2:-0} BYTES=$(numfmt --from=iec "${3:-64M}") SIZES=${4:-100 1024 4096 16384}
LIBWEFT=${LIBWEFT:-$ROOT/target/release/libweft_c.a}
[ -e "$LIBWEFT" ] || { echo "build first: make build (no $LIBWEFT)" >&2; exit 2; }
need c++ g++
need patch patch
need strace strace
need /usr/include/snappy.h libsnappy-dev
need /usr/include/gmock/gmock.h libgmock-dev # db_bench includes it
HERE=$PWD/suites/leveldb-compound
BUILD=${BUILD:-$SCRATCH/build}
mkdir -p "$BUILD"
BUILD=$(cd "$BUILD" && pwd)

# built NAME FLAG...: builds LevelDB and its programs of $BUILD/source-NAME as $BUILD/NAME-...
built() {
  local name=$1; shift
  (
    cd "$BUILD/source-$name"
    flags=(-std=c++14 -O2 -DNDEBUG -DLEVELDB_PLATFORM_POSIX=1 -DHAVE_SNAPPY=1 -DHAVE_FDATASYNC=1 -DHAVE_O_CLOEXEC=1 -I. -Iinclude
      -I"$HERE" -I"$ROOT/crates/capi/include")
    mkdir -p objects
    for file in db/*.cc table/*.cc util/*.cc; do
      case $file in *_test.cc | *_windows.cc | *util.cc) ;; *) echo "$file" ;; esac
    done | xargs -P "$(nproc)" -I{} sh -c 'file=$1; shift; exec c++ "$@" -c "$file" -o "objects/$(echo "$file" | tr / _).o"' sh {} "${flags[@]}"
    c++ "${flags[@]}" benchmarks/db_bench.cc util/testutil.cc objects/*.o "$@" -lsnappy -lpthread -o "$BUILD/$name-db_bench"
    for program in roundtrip synced; do
      c++ "${flags[@]}" "$ROOT/suites/programs/leveldb_$program.cc" objects/*.o "$@" -lsnappy -lpthread -o "$BUILD/$name-$program"
    done
  ) >"$BUILD/log" 2>&1 || { tail -5 "$BUILD/log"; echo "FAIL  LevelDB ($name) does not build"; exit 1; }
}
if ! cmp -s <(cat "$HERE"/* suites/programs/leveldb_*.cc "$LIBWEFT" | sha256sum) "$BUILD/done"; then
  archive=$(source_of leveldb) || exit 3
  for name in unmodified patched; do
    rm -rf "$BUILD/source-$name"
    mkdir "$BUILD/source-$name"
    tar -xf "$archive" -C "$BUILD/source-$name" --strip-components 1
  done
  patch -s -d "$BUILD/source-patched" -p1 <"$HERE/leveldb.patch"
  built unmodified
  built patched "$LIBWEFT" -lm -ldl
  cat "$HERE"/* suites/programs/leveldb_*.cc "$LIBWEFT" | sha256sum >"$BUILD/done"
fi
version "LevelDB $(sed -n 's/^project(leveldb VERSION \([0-9.]*\).*/\1/p' "$BUILD/source-patched/CMakeLists.txt")"
changed=$(grep -c '^[+-]\([^+-]\|$\)' "$HERE/leveldb.patch")
same "the patch has at most 150 lines" yes "$([ "$changed" -le 150 ] && echo yes || echo "$changed")"

# on_volume NAME PROGRAM ARGUMENT...: a program of the LevelDB NAME on the volume.
on_volume() {
  local program=$BUILD/$1-$2; shift 2
  "$WEFT" run --quiet ${REPORT:+--report "$REPORT"} --volume "$IMAGE" -- "$program" "$@"
}

new_volume 1G
want=$("$BUILD/unmodified-roundtrip" "$NATIVE/db" write 20000)
export WEFT_PARTS
for WEFT_PARTS in "" open block open,block; do
  parts=commit${WEFT_PARTS:+,$WEFT_PARTS}
  same "programs $parts: write and check" "$want" "$(on_volume patched roundtrip "/weft/$parts" write 20000)"
  same "read by the unmodified one" "$want" "$(on_volume unmodified roundtrip "/weft/$parts" check 20000)"
  same "and again by the patched one" "$want" "$(on_volume patched roundtrip "/weft/$parts" check 20000)"
  on_volume unmodified roundtrip "/weft/unmodified-$parts" write 20000 >/dev/null
  same "one of the unmodified LevelDB, read by the patched one" "$want" "$(on_volume patched roundtrip "/weft/unmodified-$parts" check 20000)"
done
fsck_clean

# Kills: the program, or the server, while it writes.
damaged=0 total=0 next=0
new_volume 1G
for round in $(seq "$KILLS"); do
  WEFT_PARTS=$([ $((round % 4)) -lt 2 ] || echo open,block)
  : >"$SCRATCH/serve.log" >"$SCRATCH/said"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
  "$WEFT" run --quiet --volume "$IMAGE" -- sh -c 'echo $$ >"$1"; exec "$2" /weft/killed write "$3" 1000000' sh "$SCRATCH/pid" \
    "$BUILD/patched-synced" "$next" >"$SCRATCH/said" 2>"$SCRATCH/errors" & run=$!
  for _ in $(seq 400); do grep -q '^done' "$SCRATCH/said" && break; sleep 0.05; done
  sleep "0.$(printf '%03d' $((RANDOM % 900)))"
  if [ $((round % 2)) = 0 ]; then kill -KILL "$SERVER"; else kill -KILL "$(cat "$SCRATCH/pid")" || true; fi
  wait "$run" 2>/dev/null || true
  kill "$SERVER" 2>/dev/null || true
  wait "$SERVER" 2>/dev/null || true
  SERVER=
  acked=$(sed -n 's/^done \([0-9]*\)$/\1/p' "$SCRATCH/said" | tail -1)
  found=$(on_volume unmodified synced /weft/killed check "${acked:-$next}" 20000 2>"$SCRATCH/out") || {
    damaged=$((damaged + 1)); echo "round $round, ${acked:-$next} acknowledged: $found $(tail -1 "$SCRATCH/out")"
    break
  }
  total=$((total + (${acked:-$next} - next) / 8)) next=${acked:-$next}
done
echo "      $KILLS kills, $total synced puts"
same "rounds with a lost or damaged put" 0 "$damaged"
fsck_clean

[ "$ROUNDS" -gt 0 ] || { summary; exit; }

# on SIDE PROGRAM ARGUMENT...: a program that works in the folder of a side. ext4: the unmodified LevelDB in the file system of TMPDIR; weft:
# the same on the volume; commit, open, block: the patched one, with so many of its parts.
on() {
  local side=$1 program=$2; shift 2
  case $side in
    ext4) "$BUILD/unmodified-$program" "${@//@/$NATIVE}" ;;
    weft) on_volume unmodified "$program" "${@//@//weft}" ;;
    commit) WEFT_PARTS= on_volume patched "$program" "${@//@//weft}" ;;
    open) WEFT_PARTS=open on_volume patched "$program" "${@//@//weft}" ;;
    block) WEFT_PARTS=open,block on_volume patched "$program" "${@//@//weft}" ;;
  esac
}
SIDES=(ext4 weft commit open block)
# bench SIDE ROW OPTION...: one benchmark of db_bench, and its microseconds an operation.
bench() {
  local side=$1 row=$2 took; shift 2
  took=$(on "$side" db_bench --db=@/bench "$@" 2>"$SCRATCH/out" | tr '\r' '\n' | sed -n 's/^.*: *\([0-9.]*\) micros.op.*/\1/p')
  [ -n "$took" ] || { fail "$row on $side"; tail -3 "$SCRATCH/out"; return; }
  printf '%s\t%s\t%s\n' "$row" "$side" "$took" >>"$SCRATCH/measures"
}
flushes() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["during"]["device"]["flushes"])' "$1"; }
kib() { [ "$1" -lt 1024 ] && echo "$1 B" || echo "$(($1 / 1024)) KiB"; }

for round in $(seq "$ROUNDS"); do
  for side in "${SIDES[@]}"; do
    for size in $SIZES; do
      new_volume "${VOLUME:-4G}"
      rm -rf "$NATIVE/bench"
      count=$((BYTES / size < 100000 ? BYTES / size : 100000))
      common=(--num="$count" --value_size="$size")
      bench "$side" "fillseq, $(kib "$size")" "${common[@]}" --benchmarks=fillseq
      bench "$side" "fillrandom, $(kib "$size")" "${common[@]}" --benchmarks=fillrandom
      bench "$side" "readrandom, $(kib "$size")" "${common[@]}" --benchmarks=readrandom --use_existing_db=1 --reads=20000
    done
    bench "$side" "fillrandom, 1 KiB, memtable of 64 KiB" --num=20000 --value_size=1024 --benchmarks=fillrandom --write_buffer_size=65536
    bench "$side" "fillsync, 100 B" --num=1000000 --benchmarks=fillsync
  done
done
# Opens of a database of many tables, each by a new process; the sides on the volume have the same one.
new_volume "${VOLUME:-4G}"
KEYS=100000
for side in ext4 weft; do on "$side" synced @/many fill 0 $KEYS >/dev/null; done
echo "      a database of $(ls "$NATIVE/many" | grep -c ldb) tables is opened, and read in 64 places"
for _ in $(seq $((ROUNDS * 5))); do
  for side in "${SIDES[@]}"; do
    read -r opened got < <(on "$side" synced @/many open 64 $KEYS)
    printf 'open\t%s\t%s\nfirst reads, each\t%s\t%s\n' "$side" "$opened" "$side" "$got" >>"$SCRATCH/measures"
  done
done
same "the database is as it was" "next $KEYS, 0 lost, 0 wrong, 0 unknown" "$(on weft synced @/many check $KEYS 0)"
for side in "${SIDES[@]:1}"; do
  REPORT=$SCRATCH/report-$side.json on "$side" synced @/many open 1 $KEYS >/dev/null
  printf 'flushes of an open\t%s\t%s\n' "$side" "$(flushes "$SCRATCH/report-$side.json")" >>"$SCRATCH/measures"
  REPORT=$SCRATCH/report-$side.json on "$side" db_bench --db=@/bench --num=20000 --value_size=1024 --benchmarks=fillrandom \
    --write_buffer_size=65536 >/dev/null 2>&1
  printf 'flushes of fillrandom, memtable of 64 KiB\t%s\t%s\n' "$side" "$(flushes "$SCRATCH/report-$side.json")" >>"$SCRATCH/measures"
done
fsck_clean
echo "System calls of the unmodified LevelDB (20,000 puts of 1 KiB in fillrandom, memtable of 64 KiB), as strace -f -c counts them:"
rm -rf "$NATIVE/bench"
strace -f -c -S calls -o "$SCRATCH/calls" "$BUILD/unmodified-db_bench" --db="$NATIVE/bench" --num=20000 --value_size=1024 \
  --benchmarks=fillrandom --write_buffer_size=65536 >/dev/null 2>&1
awk '$NF ~ /^(write|fdatasync|fsync|openat|close|rename|unlink|mmap|munmap|pread64|read|newfstatat|ftruncate|mkdir|fcntl)$/ { printf "  %-12s %8d\n", $NF, $4 }' \
  "$SCRATCH/calls"
[ -z "${MEASURES:-}" ] || cp "$SCRATCH/measures" "$MEASURES"
python3 - "$SCRATCH/measures" "${SIDES[@]}" <<'PY'
import statistics, sys
sides, rows = sys.argv[2:], {}
for line in open(sys.argv[1]):
    row, side, took = line.rstrip("\n").split("\t")
    rows.setdefault(row, {}).setdefault(side, []).append(float(took))
print("| us | " + " | ".join(sides) + " | weft / commit | weft / open | weft / block |")
print("|---|" + "---|" * (len(sides) + 3))
for row, of in rows.items():
    took = {side: statistics.median(of[side]) for side in sides if side in of}
    cells = [f"{took[side]:.{0 if took[side] >= 100 else 1}f}" if side in took else "" for side in sides]
    ratios = [f"{took['weft'] / took[side]:.2f}" if took.get(side) and "weft" in took else "" for side in sides[2:]]
    print("| " + " | ".join([row, *cells, *ratios]) + " |")
PY
summary
