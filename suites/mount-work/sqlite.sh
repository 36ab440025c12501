# SQLite: every mode of its journal with memory maps, many processes at once, killed. ROWS: how many.
prepare() {
  need sqlite3 sqlite3
  export ROWS=${ROWS:-100000}
}
work() {
  sqlite3 --version | cut -d' ' -f1
  for mode in DELETE TRUNCATE PERSIST MEMORY WAL; do
    sqlite3 $mode.db <<Q
PRAGMA mmap_size=268435456;
PRAGMA journal_mode=$mode;
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
CREATE INDEX t_k ON t(k);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < $ROWS)
INSERT INTO t SELECT i, (i*7919) % 100003, printf('%0*d', 20 + i % 80, i) FROM n;
UPDATE t SET v = v || 'x' WHERE k % 10 = 3;
DELETE FROM t WHERE k % 10 = 7;
VACUUM;
SELECT count(*), sum(k), sum(length(v)) FROM t WHERE k BETWEEN 100 AND 90000;
Q
    for i in $(seq 40); do sqlite3 $mode.db "UPDATE t SET v = 'again $i' WHERE id = $i * 10"; done
    sqlite3 $mode.db "PRAGMA integrity_check" ".sha3sum t"
  done
  sqlite3 many.db "PRAGMA journal_mode=WAL; CREATE TABLE t(p INTEGER, i INTEGER, v TEXT); CREATE INDEX ti ON t(p, i);"
  for p in 1 2 3 4 5 6; do
    (for i in $(seq 40); do sqlite3 many.db ".timeout 60000" "INSERT INTO t VALUES($p, $i, hex(zeroblob(500)))" || echo failed; done) &
  done
  for r in 1 2; do (for i in $(seq 30); do sqlite3 -readonly many.db ".timeout 60000" "SELECT count(*) - max(0, count(*)) FROM t"; done | sort | uniq -c) & done
  wait
  sqlite3 many.db "SELECT count(*), sum(i), sum(length(v)) FROM t; PRAGMA integrity_check"
  for mode in DELETE WAL; do
    sqlite3 killed.$mode "PRAGMA journal_mode=$mode; CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT)"
    # Each number is printed when its transaction has been committed.
    seq 1000000 | sed 's/.*/INSERT INTO t VALUES(&, hex(randomblob(300))); SELECT &;/' >inserts
    (echo "PRAGMA synchronous=FULL;"; cat inserts) | stdbuf -oL sqlite3 killed.$mode >acknowledged & writer=$!
    sleep 4; kill -9 $writer; wait $writer 2>/dev/null || true
    last=$(grep -x '[0-9]*' acknowledged | sed '$d' | tail -1)
    fact "$mode: kill -9 after $last acknowledged"
    sqlite3 killed.$mode "PRAGMA integrity_check; SELECT count(*) >= ${last:-1} AND count(*) = max(i) FROM t"
  done
}
