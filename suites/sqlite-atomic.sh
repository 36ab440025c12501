#!/usr/bin/env bash
# SQLite built with SQLITE_ENABLE_BATCH_ATOMIC_WRITE: its transactions are atomic writes of the database file, without a journal. Counts
# journals and flushes, then kills the program and the server at random moments: each transaction is there as a whole, or not at all.
#   suites/sqlite-atomic.sh [ROUNDS=20] [INSERTS=300] [MEASURES=0]
# MEASURES: how often the speed of one-insert transactions is measured for each kind of journal.
source "$(dirname "$0")/programs/prepare.sh"
ROUNDS=${1:-20} INSERTS=${2:-300} MEASURES=${3:-0}
if [ -z "${SQLITE_BATCH:-}" ]; then
  need cc gcc
  need make make
  need tclsh tcl
  archive=$(source_of sqlite3) || exit 3
  mkdir "$SCRATCH/sqlite" "$SCRATCH/built"
  tar -xf "$archive" -C "$SCRATCH/sqlite" --strip-components 1
  (cd "$SCRATCH/built" && ../sqlite/configure -q && make -s sqlite3.c shell.c &&
    cc -O2 -DSQLITE_ENABLE_BATCH_ATOMIC_WRITE -o sqlite3 sqlite3.c shell.c -lpthread -ldl -lm) >"$SCRATCH/build" 2>&1 ||
    { tail -5 "$SCRATCH/build"; echo "FAIL  SQLite does not build"; exit 1; }
  SQLITE_BATCH=$SCRATCH/built/sqlite3
fi
version "sqlite3 $("$SQLITE_BATCH" --version | cut -d' ' -f1) with batch atomic writes"
same "the build has batch atomic writes" ENABLE_BATCH_ATOMIC_WRITE \
  "$("$SQLITE_BATCH" :memory: 'PRAGMA compile_options' | grep BATCH)"
pairs() { bash suites/programs/sqlite_pairs.sh "$@" 2>/dev/null; }
INVARIANT="SELECT (SELECT count(*) FROM a) = (SELECT count(*) FROM b) AND (SELECT count(*) FROM a) = (SELECT max(i) FROM a)
  AND (SELECT sum(n) FROM a) + (SELECT sum(n) FROM b) = 0 AND (SELECT count(*) FROM a JOIN b USING(i) WHERE a.n + b.n <> 0) = 0;"
# report FIELD: of the last run. journals: files that SQLite made for its rollback journal; flushes: of the device.
report() {
  python3 - "$SCRATCH/report.json" "$1" <<'PY'
import json, sys
during = json.load(open(sys.argv[1]))["during"]
if sys.argv[2] == "flushes":
    print(during["device"]["flushes"])
else:
    print(sum(s["files"] for s in during["streams"] if s["name"] == "sqlite.journal"))
PY
}
counted() { # counted COMMAND...: a run on the volume whose report is read
  rm -f "$SCRATCH/report.json"
  "$WEFT" run --quiet --report "$SCRATCH/report.json" --volume "$IMAGE" -- "$@"
}

new_volume 512M
pairs 1 "$INSERTS" | counted "$SQLITE_BATCH" /weft/counted.db >"$SCRATCH/said"
same "transactions that were committed" "$INSERTS" "$(grep -c '^done' "$SCRATCH/said")"
flushes=$(report flushes)
echo "      $flushes flushes of the device for $INSERTS transactions"
# SQLite makes no batch of the transaction that finds the file empty.
same "journals that were made" 1 "$(report journals)"
same "less than 1.2 flushes for a transaction" yes "$([ $((flushes * 10)) -lt $((INSERTS * 12 + 200)) ] && echo yes || echo "$flushes")"
same "whole" "ok 1" "$(weft_run sqlite3 /weft/counted.db 'PRAGMA integrity_check' "$INVARIANT" | xargs)"
# A transaction that does not fit into a batch goes by the journal.
big="CREATE TABLE big(v); BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) INSERT INTO big SELECT zeroblob(6000) FROM n; COMMIT; SELECT count(*) FROM big; PRAGMA integrity_check"
same "a transaction of more than 4 MiB" "900 ok" "$(counted "$SQLITE_BATCH" /weft/big.db "$big" | xargs)"
same "a map of the database: by the journal" "1000 1 ok" "$(counted "$SQLITE_BATCH" /weft/mapped.db \
  'PRAGMA mmap_size=1000' 'CREATE TABLE t(i); INSERT INTO t VALUES(1); SELECT count(*) FROM t; PRAGMA integrity_check' | xargs)"

# verify NAME: the transactions of $SCRATCH/said are there, and nothing is there in part.
torn=0 lost=0 total=0
verify() {
  local acked found
  acked=$(sed -n 's/^done \([0-9]*\)$/\1/p' "$SCRATCH/said" | tail -1)
  found=$(weft_run sqlite3 /weft/killed.db 'PRAGMA integrity_check' "$INVARIANT" 'SELECT max(i) FROM a' 2>"$SCRATCH/out" | xargs) || found="status $? $(tail -1 "$SCRATCH/out")"
  case $found in "ok 1 "*) ;; *) torn=$((torn + 1)); echo "$1: '$found'"; head -3 "$SCRATCH/errors" "$SCRATCH/serve.log" || true ;; esac
  last=${found##* }
  [ "${last:-0}" -ge "${acked:-0}" ] || { lost=$((lost + 1)); echo "$1: $acked acknowledged, $last found"; }
  total=$((total + ${acked:-$next} - next))
  next=$((last + 1))
}
next=1
pairs 1 3 | weft_run "$SQLITE_BATCH" /weft/killed.db >"$SCRATCH/said"
verify "before"
for round in $(seq "$ROUNDS"); do
  : >"$SCRATCH/serve.log"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
  pairs "$next" 4000 >"$SCRATCH/script"
  # Unbuffered, so that what was printed was committed.
  "$WEFT" run --quiet --volume "$IMAGE" -- sh -c 'echo $$ >"$1"; exec stdbuf -oL "$2" /weft/killed.db' sh "$SCRATCH/pid" "$SQLITE_BATCH" \
    <"$SCRATCH/script" >"$SCRATCH/said" 2>"$SCRATCH/errors" & run=$!
  for _ in $(seq 400); do grep -q '^done' "$SCRATCH/said" && break; sleep 0.05; done
  sleep "0.$(printf '%03d' $((RANDOM % 600)))"
  if [ $((round % 2)) = 0 ]; then kill -KILL "$SERVER"; else kill -KILL "$(cat "$SCRATCH/pid")" || true; fi
  wait "$run" 2>/dev/null || true
  kill "$SERVER" 2>/dev/null || true
  wait "$SERVER" 2>/dev/null || true
  SERVER=
  verify "round $round"
done
echo "      $ROUNDS kills, $total transactions"
same "rounds with a transaction in parts" 0 "$torn"
same "rounds with a lost transaction" 0 "$lost"
fsck_clean

if [ "$MEASURES" -gt 0 ]; then
  for round in $(seq "$MEASURES"); do
    for kind in batch DELETE WAL; do
      new_volume 512M
      program=$SQLITE_BATCH mode=DELETE
      case $kind in DELETE) program=${SQLITE_PLAIN:-sqlite3} ;; WAL) mode=WAL ;; esac
      "$WEFT" run --quiet --volume "$IMAGE" -- "$program" /weft/m.db "PRAGMA journal_mode=$mode; CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT)" >/dev/null
      { echo "PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL;"
        for _ in $(seq 1000); do echo "INSERT INTO t(v) VALUES(hex(randomblob(50)));"; done; } >"$SCRATCH/inserts"
      start=$(date +%s%N)
      counted "$program" /weft/m.db <"$SCRATCH/inserts" >/dev/null
      echo "measure $kind $((1000 * 1000000000 / ($(date +%s%N) - start))) inserts/s, $(report flushes) flushes"
    done
  done
fi
summary
