#!/usr/bin/env bash
# sqlite3 under weft against a native run: rollback journal and WAL, inserts, updates, integrity check, reopened.
source "$(dirname "$0")/lib.sh"
ROWS=${1:-100000}
IMAGE=$SCRATCH/image
new_volume 512M 4M "$IMAGE" >/dev/null 2>&1
script() { # journal mode
  cat <<SQL
PRAGMA journal_mode=$1;
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
CREATE INDEX t_k ON t(k);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < $ROWS)
INSERT INTO t SELECT i, (i*7919) % 100003, printf('%0*d', 20 + i % 80, i) FROM n;
COMMIT;
UPDATE t SET v = v || 'x' WHERE k % 10 = 3;
DELETE FROM t WHERE k % 10 = 7;
$(for i in $(seq 200); do echo "INSERT INTO t VALUES($((ROWS + i)), $i, 'single $i');"; done)
VACUUM;
PRAGMA integrity_check;
SELECT count(*), sum(k), sum(length(v)) FROM t;
SQL
}
again="PRAGMA integrity_check; SELECT count(*), sum(k), sum(length(v)) FROM t; UPDATE t SET k = k + 1; SELECT sum(k) FROM t;"
for mode in DELETE TRUNCATE PERSIST WAL; do
  want=$(script $mode | sqlite3 "$SCRATCH/$mode.db")
  got=$(script $mode | weft_run sqlite3 "/weft/$mode.db")
  same "$mode: filled" "$(echo "$want" | tr '\n' ' ')" "$(echo "$got" | tr '\n' ' ')"
  want=$(sqlite3 "$SCRATCH/$mode.db" "$again")
  got=$(weft_run sqlite3 "/weft/$mode.db" "$again")
  same "$mode: reopened" "$(echo "$want" | tr '\n' ' ')" "$(echo "$got" | tr '\n' ' ')"
done
check "weft fsck" "$WEFT" fsck "$IMAGE"
summary
