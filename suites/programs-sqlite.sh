#!/usr/bin/env bash
# SQLite with mmap_size > 0 in all journal modes, as several processes, killed; then suites/sqlite.sh (without maps).
# programs-sqlite.sh [ROWS]
source "$(dirname "$0")/programs/prepare.sh"
ROWS=${1:-50000}
need sqlite3 sqlite3
version "sqlite3 $(sqlite3 --version | cut -d' ' -f1)"
new_volume 1G
export ROWS
for mode in DELETE TRUNCATE PERSIST MEMORY WAL; do
  export mode
  like "$mode, mmap_size 256 MiB: fill, update, delete, vacuum, check" <<'S'
sqlite3 $mode.db <<Q
PRAGMA mmap_size=268435456;
PRAGMA journal_mode=$mode;
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
CREATE INDEX t_k ON t(k);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < $ROWS)
INSERT INTO t SELECT i, (i*7919) % 100003, printf('%0*d', 20 + i % 80, i) FROM n;
UPDATE t SET v = v || 'x' WHERE k % 10 = 3;
DELETE FROM t WHERE k % 10 = 7;
PRAGMA incremental_vacuum; VACUUM;
SELECT count(*), sum(k), sum(length(v)) FROM t WHERE k BETWEEN 100 AND 90000;
PRAGMA integrity_check;
.sha3sum t
Q
for i in $(seq 30); do sqlite3 $mode.db "PRAGMA mmap_size=1000000; UPDATE t SET v = 'again $i' WHERE id = $i * 10; SELECT count(*) FROM t WHERE v LIKE 'again%'"; done
sqlite3 $mode.db "PRAGMA integrity_check" ".sha3sum t"
S
done
like "eight processes write, four read, with maps and WAL" <<'S'
sqlite3 many.db "PRAGMA journal_mode=WAL; CREATE TABLE t(p INTEGER, i INTEGER, v TEXT); CREATE INDEX ti ON t(p, i);" >/dev/null
for p in 1 2 3 4 5 6 7 8; do
  (for i in $(seq 40); do sqlite3 many.db ".timeout 60000" "PRAGMA mmap_size=100000000" "INSERT INTO t VALUES($p, $i, hex(zeroblob(500)))" >/dev/null || echo failed; done) &
done
for r in 1 2 3 4; do (for i in $(seq 20); do sqlite3 -readonly many.db ".timeout 60000" "PRAGMA mmap_size=100000000" "SELECT count(*) - max(0, count(*)) FROM t" | tail -1; done | sort | uniq -c) & done
wait
sqlite3 many.db "SELECT count(*), sum(i), sum(length(v)) FROM t; PRAGMA integrity_check"
S
for mode in DELETE WAL; do
  acked=$SCRATCH/acked
  weft_run bash -c '
    db=/weft/killed.$1
    sqlite3 $db "PRAGMA journal_mode=$1; PRAGMA synchronous=FULL; CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT)" >/dev/null
    # Each line is printed when its transaction has been committed.
    (echo "PRAGMA mmap_size=100000000; PRAGMA synchronous=FULL;"; i=0; while :; do i=$((i+1)); echo "INSERT INTO t VALUES($i, hex(randomblob(300))); SELECT $i;"; done) 2>/dev/null | stdbuf -oL sqlite3 $db >"$2" 2>/dev/null &
    sleep 4; kill -9 $(pgrep -P $$ -x sqlite3) ; wait' sh $mode "$acked" 2>/dev/null || true
  last=$(grep -x '[0-9]*' "$acked" | sed '$d' | tail -1)
  got=$(weft_run sqlite3 /weft/killed.$mode "PRAGMA mmap_size=100000000; PRAGMA integrity_check; SELECT count(*) >= ${last:-1} AND count(*) = max(i) FROM t" | tail -2)
  same "$mode: kill -9 ($last acknowledged): sound and complete" "ok 1" "$(echo $got)"
done
check "suites/sqlite.sh" suites/sqlite.sh "$ROWS"
fsck_clean
summary
