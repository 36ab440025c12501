#!/usr/bin/env bash
# RocksDB, unmodified, whose rolls of the MANIFEST are programs of weft's server by a file system that it is given (suites/rocksdb-compound/roll.h),
# beside RocksDB without it: each reads the databases of the other; the program and the server are killed while it writes; then both are measured.
#   suites/rocksdb-compound.sh [KILLS=20] [ROUNDS=0] [OPENS=20] [TABLES=200]
# ROUNDS: how often each row of the table is measured. OPENS, TABLES: opens, and tables, of a measure. MEASURES=FILE keeps the measures.
# VOLUME: size of the measured volumes (default 1G). LIBWEFT: weft's C library (default: that of 'make build').
source "$(dirname "$0")/programs/prepare.sh"
KILLS=${1:-20} ROUNDS=${2:-0} OPENS=${3:-20} TABLES=${4:-200}
LIBWEFT=${LIBWEFT:-$ROOT/target/release/libweft_c.a}
[ -e "$LIBWEFT" ] || { echo "build first: make build (no $LIBWEFT)" >&2; exit 2; }
need c++ g++
need /usr/include/rocksdb/db.h librocksdb-dev
ROLLS=$SCRATCH/rolls
c++ -std=c++17 -O2 -Wall -Icrates/capi/include suites/rocksdb-compound/rolls.cc -o "$ROLLS" "$LIBWEFT" -lrocksdb -lpthread -lm -ldl \
  >"$SCRATCH/log" 2>&1 || { tail -5 "$SCRATCH/log"; echo "FAIL  the program does not build"; exit 1; }
version "RocksDB $(sed -n 's/^#define ROCKSDB_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' /usr/include/rocksdb/version.h | paste -sd.)"

# on SIDE WHAT ARGUMENT...: the program on a database of a side. ext4: in the file system of TMPDIR; weft: on the volume; roll: the same, with
# rolls that are programs.
on() {
  local side=$1; shift
  local run=("$WEFT" run --quiet ${REPORT:+--report "$REPORT"} --volume "$IMAGE" --)
  case $side in
    ext4) "$ROLLS" "${@/#@/$NATIVE}" ;;
    weft) "${run[@]}" "$ROLLS" "${@/#@//weft}" ;;
    roll) ROLL=1 "${run[@]}" "$ROLLS" "${@/#@//weft}" ;;
  esac
}
# programs_of FILE: of the last line that the program has written to FILE, how many renames were programs.
programs_of() { sed -n 's/^\([0-9]*\) programs, .*/\1/p' "$1" | tail -1; }

new_volume 1G
same "held files" "held files hold" "$(on roll @/held held 2>"$SCRATCH/out" || tail -1 "$SCRATCH/out")"
want=$(on ext4 @/db roundtrip 20000)
same "write, with rolls that are programs" "$want" "$(on roll @/roll roundtrip 20000 2>"$SCRATCH/counts" || tail -1 "$SCRATCH/counts")"
echo "      $(tail -1 "$SCRATCH/counts")"
same "at least 50 rolls were programs, and none was made the plain way" yes \
  "$([ "$(programs_of "$SCRATCH/counts")" -ge 50 ] 2>/dev/null && grep -q ' 0 plain$' "$SCRATCH/counts" && echo yes)"
same "read without them" "$want" "$(on weft @/roll same 20000)"
same "and again with them" "$want" "$(on roll @/roll same 20000 2>/dev/null)"
same "a checkpoint of it" "$want" "$(on weft @/roll-checkpoint same 20000)"
on weft @/weft roundtrip 20000 >/dev/null
same "one that was written without them, read with them" "$want" "$(on roll @/weft same 20000 2>/dev/null)"
fsck_clean

# Kills: the program, or the server, while it writes and rolls; every third time while it opens. In two rounds of four it
# writes no log, so that puts are durable by the roll alone.
damaged=0 total=0 next=0 rolls=0
new_volume 1G
for round in $(seq "$KILLS"); do
  : >"$SCRATCH/serve.log" >"$SCRATCH/said" >"$SCRATCH/pid"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
  how=$([ $((round % 4)) -lt 2 ] && echo write || echo flush)
  ROLL=1 "$WEFT" run --quiet --volume "$IMAGE" -- sh -c 'echo $$ >"$1"; exec "$2" /weft/killed "$3" "$4" 1000000' sh "$SCRATCH/pid" \
    "$ROLLS" "$how" "$next" >"$SCRATCH/said" 2>"$SCRATCH/errors" & run=$!
  for _ in $(seq 400); do grep -q . "$SCRATCH/pid" && break; sleep 0.02; done
  if [ $((round % 3)) = 0 ]; then
    sleep "0.$(printf '%03d' $((RANDOM % 300)))"
  else
    for _ in $(seq 400); do grep -q '^done' "$SCRATCH/said" && break; sleep 0.05; done
    sleep "0.$(printf '%03d' $((RANDOM % 900)))"
  fi
  if [ $((round % 2)) = 0 ]; then kill -KILL "$SERVER"; else kill -KILL "$(cat "$SCRATCH/pid")" || true; fi
  wait "$run" 2>/dev/null || true
  kill "$SERVER" 2>/dev/null || true
  wait "$SERVER" 2>/dev/null || true
  SERVER=
  read -r acked rolled < <(sed -n 's/^done \([0-9]* [0-9]*\)$/\1/p' "$SCRATCH/said" | tail -1) || acked=$next rolled=0
  # Before the first CURRENT there is no database to open: the next round makes it.
  [ "$acked" -gt 0 ] || continue
  side=$([ $((round % 8)) -lt 4 ] && echo weft || echo roll)
  found=$(on "$side" @/killed check "$acked" 20000 2>"$SCRATCH/out") || {
    damaged=$((damaged + 1)); echo "round $round, $acked acknowledged: $found $(tail -1 "$SCRATCH/out")"
    break
  }
  total=$((total + acked - next)) rolls=$((rolls + rolled)) next=$acked
done
echo "      $KILLS kills, $total acknowledged puts, $rolls rolls"
same "rounds with a lost or damaged put" 0 "$damaged"
[ "$KILLS" = 0 ] || same "at least two rolls and 32 acknowledged puts a round" yes \
  "$([ "$rolls" -ge $((2 * KILLS)) ] && [ "$total" -ge $((32 * KILLS)) ] && echo yes)"
fsck_clean

[ "$ROUNDS" -gt 0 ] || { summary; exit; }

SIDES=(ext4 weft roll)
# measure SIDE ROW WHAT COUNT: one measure of a new database, in microseconds.
measure() {
  local side=$1 row=$2 took; shift 2
  took=$(on "$side" @/measured "$@" 2>"$SCRATCH/out") || { fail "$row on $side"; tail -3 "$SCRATCH/out"; return 0; }
  printf '%s\t%s\t%s\n' "$row" "$side" "$took" >>"$SCRATCH/measures"
}
flushes() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["during"]["device"]["flushes"])' "$1"; }

for _ in $(seq "$ROUNDS"); do
  for row in "open $OPENS" "tables $TABLES"; do
    for side in "${SIDES[@]}"; do
      new_volume "${VOLUME:-1G}"
      rm -rf "$NATIVE/measured"
      measure "$side" "${row% *}, us" ${row}
    done
  done
done
# Flushes of one more open, and of one more table: the difference of two runs.
for side in weft roll; do
  for what in open tables; do
    for count in 10 110; do
      new_volume "${VOLUME:-1G}"
      REPORT=$SCRATCH/report-$count.json on "$side" @/counted $what $count >/dev/null 2>&1
    done
    printf '%s\t%s\t%s\n' "$what, flushes" "$side" \
      "$(python3 -c 'import sys; print((int(sys.argv[2]) - int(sys.argv[1])) / 100)' "$(flushes "$SCRATCH/report-10.json")" "$(flushes "$SCRATCH/report-110.json")")" \
      >>"$SCRATCH/measures"
  done
done
fsck_clean
[ -z "${MEASURES:-}" ] || cp "$SCRATCH/measures" "$MEASURES"
python3 - "$SCRATCH/measures" "${SIDES[@]}" <<'PY'
import statistics, sys
sides, rows = sys.argv[2:], {}
for line in open(sys.argv[1]):
    row, side, took = line.rstrip("\n").split("\t")
    rows.setdefault(row, {}).setdefault(side, []).append(float(took))
print("| | " + " | ".join(sides) + " | weft / roll |")
print("|---|" + "---|" * (len(sides) + 1))
for row, of in rows.items():
    took = {side: statistics.median(of[side]) for side in sides if side in of}
    show = lambda value: f"{value:.{0 if value >= 100 else 1}f}"
    cells = [f"{show(took[side])} ({show(min(of[side]))} to {show(max(of[side]))})" if len(of.get(side, [])) > 1 else show(took[side]) if side in took else ""
             for side in sides]
    print("| " + " | ".join([row, *cells, f"{took['weft'] / took['roll']:.2f}"]) + " |")
PY
summary
