#!/usr/bin/env bash
# PostgreSQL with data checksums: initdb, pgbench, restart, kill and recovery, dump, checks by its own tools.
# Everything runs as a user who is not root; the image is that user's.
# programs-postgresql.sh [SECONDS [SCALE]]: of the mixed load with eight clients; pgbench's scale factor.
source "$(dirname "$0")/programs/prepare.sh"
SECONDS_OF_LOAD=${1:-60}
SCALE=${2:-10}
need /usr/lib/postgresql/*/bin/initdb postgresql postgresql-contrib
PG=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
version "$("$PG/postgres" --version)"

# The user's own copy of weft and folder.
OWNER=$(id -un)
[ "$(id -u)" != 0 ] || OWNER=postgres
as_owner() { if [ "$OWNER" = "$(id -un)" ]; then "$@"; else setpriv --reuid="$OWNER" --regid="$OWNER" --init-groups "$@"; fi; }
HOME_OF_TEST=$SCRATCH/home
mkdir -p "$HOME_OF_TEST/bin" "$HOME_OF_TEST/native"
cp "$WEFT" "$(dirname "$WEFT")/libweft_shim.so" "$HOME_OF_TEST/bin/"
chown -R "$OWNER" "$HOME_OF_TEST"
WEFT=$HOME_OF_TEST/bin/weft
IMAGE=$HOME_OF_TEST/image
as_owner "$WEFT" format --quiet $(of_core 4M) --size 3G "$IMAGE"
export PATH=$PG:$PATH PGHOST=$HOME_OF_TEST PGDATABASE=bench PGTZ=UTC HOME=$HOME_OF_TEST
export SECONDS_OF_LOAD SCALE

# on PLACE FUNCTION: runs a function of this script natively or on the volume, D being the folder for data.
on() {
  local place=$1 step=$2
  local line="set -euo pipefail; cd /; $(declare -f start stop counts "$step"); $step"
  case $place in
    native) as_owner env D="$HOME_OF_TEST/native" bash -c "$line" ;;
    volume) as_owner "$WEFT" run --quiet --volume "$IMAGE" -- env D=/weft bash -c "$line" ;;
  esac
}
start() { pg_ctl -s -w -t 120 -D "$D/pg" -l "$D/log" -o "-c listen_addresses= -c unix_socket_directories=$PGHOST -c max_wal_size=256MB $*" start; }
stop() { pg_ctl -s -w -D "$D/pg" -m fast stop; }
counts() {
  psql -qAt <<'SQL'
SELECT count(*), sum(abalance), md5(string_agg(aid || ':' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts;
SELECT sum(tbalance) FROM pgbench_tellers;
SELECT sum(bbalance) FROM pgbench_branches;
SELECT count(*), sum(delta) FROM pgbench_history;
SQL
}
make() { initdb -D "$D/pg" --data-checksums -A trust -U "$(id -un)" --locale=C.UTF-8; }
fill() {
  start
  createdb bench
  PGOPTIONS=--client_min_messages=warning pgbench -q -i -s "$SCALE" --foreign-keys bench 2>/dev/null
  # One client with a given seed does the same everywhere.
  pgbench -n -c 1 -t 2000 --random-seed=7 bench >/dev/null 2>&1
  counts
  stop
}
features() {
  start
  mkdir "$D/space"
  psql -qAt <<SQL
CREATE TABLESPACE space LOCATION '$D/space';
CREATE TABLE here(id int PRIMARY KEY, v text) TABLESPACE space;
INSERT INTO here SELECT i, repeat(md5(i::text), 1 + i % 200) FROM generate_series(1, 20000) i;
SET work_mem = '256kB';
SELECT md5(string_agg(v, '' ORDER BY v DESC)) FROM here;
SELECT count(*) FROM here a JOIN here b ON a.v = b.v;
CREATE INDEX here_gin ON here USING gin (to_tsvector('simple', left(v, 64)));
COPY here TO '$D/copy.csv' CSV;
CREATE TABLE again(LIKE here);
COPY again FROM '$D/copy.csv' CSV;
SELECT count(*), sum(length(v)) FROM again;
CREATE UNLOGGED TABLE u AS SELECT * FROM here;
DELETE FROM here WHERE id % 3 = 0;
VACUUM (FULL, ANALYZE) here;
REINDEX TABLE here;
SELECT count(*), sum(length(v)), pg_size_pretty(pg_total_relation_size('here')) FROM here;
SELECT lo_import('$D/copy.csv', 4711);
SELECT md5(lo_get(4711));
SELECT sum(temp_files) > 0 FROM pg_stat_database;
SQL
  pg_dump -T pgbench_history bench | grep -v '^--\|TABLESPACE\|restrict' | md5sum
  pg_basebackup -D "$D/backup" -T "$D/space=$D/space2" -c fast -X stream
  pg_verifybackup "$D/backup"
  stop
}
load() {
  start
  pgbench -n -c 8 -j 2 -T "$SECONDS_OF_LOAD" bench 2>/dev/null >"$D/load"
  grep -E 'actually processed|failed|^tps' "$D/load" >&2
  psql -qAt <<'SQL'
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history);
SQL
  processed=$(sed -n 's/.*actually processed: \([0-9]*\).*/\1/p' "$D/load")
  [ "$(psql -qAtc 'SELECT count(*) FROM pgbench_history')" = $((2000 + processed)) ] && echo "all transactions are there"
  stop
}
again() { start; counts | md5sum; stop; }
killed() {
  start
  pgbench -n -c 4 -j 2 -T 30 bench >"$D/killed" 2>&1 &
  load=$!
  sleep 5
  acked=$(psql -qAtc 'SELECT count(*) FROM pgbench_history')
  # The postmaster and its children, at once: nobody tidies up.
  postmaster=$(head -1 "$D/pg/postmaster.pid")
  children=$(ps -o pid= --ppid "$postmaster")
  kill -9 "$postmaster" $children
  wait $load || true
  for _ in $(seq 100); do ps -p "$postmaster" $children >/dev/null || break; sleep 0.1; done
  rm -f "$PGHOST"/.s.PGSQL*
  start 2>/dev/null
  grep -c 'automatic recovery in progress' "$D/log"
  psql -qAt -v acked="$acked" <<'SQL'
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT count(*) FROM pgbench_history) >= :acked;
SQL
  stop
}
verify() {
  pg_checksums --check -D "$D/pg" | grep -E 'Bad checksums|Data checksum version'
  start
  pg_amcheck --all --install-missing --heapallindexed && echo "pg_amcheck found nothing"
  stop
}

check "initdb natively" on native make
check "initdb on the volume" on volume make
want=$(on native fill)
same "pgbench -i -s $SCALE and 2,000 transactions" "$(echo $want)" "$(echo $(on volume fill))"
want=$(on native features 2>&1)
got=$(on volume features 2>&1)
same "table space, sorts on disk, COPY, large object, VACUUM FULL, dump, base backup" "$(echo "$want" | md5sum)" "$(echo "$got" | md5sum)"
[ "$want" = "$got" ] || diff <(echo "$want") <(echo "$got") | head
got=$(on volume load 2>"$SCRATCH/tps") || cat "$SCRATCH/tps"
same "pgbench $SECONDS_OF_LOAD s, 8 clients: the sums agree" "t all transactions are there" "$(echo $got)"
fact "volume: $(sed -n 's/^tps = \([0-9]*\).*/\1 transactions\/s/p' "$SCRATCH/tps")"
first=$(on volume again)
same "restart: the same rows" "$first" "$(on volume again)"
same "kill -9 of all processes under load: recovery, nothing acknowledged is lost" "1 t" "$(echo $(on volume killed))"
same "pg_checksums and pg_amcheck" "Bad checksums: 0 Data checksum version: 1 pg_amcheck found nothing" "$(echo $(on volume verify 2>&1))"
fsck_clean
summary
