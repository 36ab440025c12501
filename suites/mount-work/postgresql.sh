# PostgreSQL with checksums, as a user who is not root: pgbench, restarts, an immediate stop under load, its own checks.
prepare() {
  need /usr/lib/postgresql/*/bin/initdb postgresql postgresql-contrib
  export PG=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
}
start() { pg_ctl -s -w -t 120 -D "$D/pg/data" -l "$D/pg/log" -o "-c listen_addresses= -c unix_socket_directories=$D/pg -c max_wal_size=256MB" start; }
# The sums over accounts, tellers, branches and history are one.
sums() {
  psql -qAt <<'SQL'
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history);
SQL
}
rows() { psql -qAtc 'SELECT count(*) FROM pgbench_history'; }
as_postgres() {
  export PATH=$PG:$PATH PGHOST=$D/pg PGDATABASE=bench PGTZ=UTC HOME=$D/pg
  cd "$D/pg"
  postgres --version; id -un
  initdb -D data --data-checksums -A trust --locale=C.UTF-8 >&2
  start
  createdb bench
  pgbench -q -i -s 20 --foreign-keys >&2 2>&1
  pgbench -n -c 8 -j 2 -t 1500 >load 2>&1
  fact "pgbench, 8 clients: $(sed -n 's/^tps = \([0-9]*\).*/\1 transactions\/s/p' load)"
  rows; sums
  pg_ctl -s -w -D data -m fast -l log restart
  rows; sums
  pgbench -n -c 4 -j 2 -T 60 >killed 2>&1 & load=$!
  sleep 8
  acknowledged=$(rows)
  pg_ctl -s -w -D data -m immediate stop
  wait $load || true
  start
  grep -c 'automatic recovery in progress' log
  [ "$(rows)" -ge "$acknowledged" ] && echo "nothing acknowledged is lost"
  sums
  fact "$acknowledged transactions before the immediate stop, $(rows) after it"
  pg_amcheck --all --install-missing --heapallindexed && echo "pg_amcheck found nothing"
  pg_dump -T pgbench_history bench >dump.sql; grep -c '' dump.sql
  pg_ctl -s -w -D data -m fast stop
  pg_checksums --check -D data | grep -E 'Bad checksums|Data checksum version'
}
work() {
  mkdir -m 700 pg; chown postgres: pg
  export -f as_postgres start sums rows
  touch "$FACTS"; chmod 666 "$FACTS"
  setpriv --reuid=postgres --regid=postgres --init-groups bash -euo pipefail -c as_postgres
}
