#!/usr/bin/env bash
# MariaDB with default options: installed and loaded on a volume, its process killed under load again and again, and checked.
# Engines: InnoDB, Aria, and RocksDB where its plugin is installed.
#   suites/mariadb.sh [ROUNDS=5 [ROWS=20000]]
# After each kill: CHECK TABLE; every row that was acknowledged is there, whole, and no later one without its predecessors;
# what one transaction did in two tables agrees.
source "$(dirname "$0")/programs/prepare.sh"
ROUNDS=${1:-5}
ROWS=${2:-20000}
need mariadbd mariadb-server
need mariadb-install-db mariadb-server
version "$(mariadbd --version | sed 's/.*Ver \([^ ]*\).*/\1/')"
SOCK=$SCRATCH/mariadb.sock
PID=$SCRATCH/mariadb.pid
ENGINES=(InnoDB Aria)
PLUGINS=()
if compgen -G '/usr/lib/mysql/plugin/ha_rocksdb.so' >/dev/null; then
  ENGINES+=(RocksDB)
  PLUGINS=(--plugin-load-add=ha_rocksdb)
fi
fact "engines: ${ENGINES[*]}"
new_volume 3G

sql() { mariadb --no-defaults -u root -S "$SOCK" -N -B "$@"; }
RUN=
start() {
  rm -f "$SOCK" "$PID"
  weft_run mariadbd --no-defaults --datadir=/weft/db --socket="$SOCK" --pid-file="$PID" --skip-networking \
    --user="$(id -un)" --log-error=/weft/log "${PLUGINS[@]}" >"$SCRATCH/server" 2>&1 &
  RUN=$!
  for _ in $(seq 600); do
    [ ! -S "$SOCK" ] || ! sql -e 'SELECT 1' >/dev/null 2>&1 || return 0
    kill -0 "$RUN" 2>/dev/null || break
    sleep 0.1
  done
  echo "the server does not start:"; cat "$SCRATCH/server"; weft_run tail -20 /weft/log; return 1
}
stop() { mariadb-admin --no-defaults -u root -S "$SOCK" shutdown; wait "$RUN"; }
trap '[ ! -s "$PID" ] || kill -9 "$(cat "$PID")" 2>/dev/null || true; finish' EXIT

install_db() {
  weft_run timeout -k 5 120 mariadb-install-db --no-defaults --datadir=/weft/db --skip-test-db --user="$(id -un)" \
    --auth-root-authentication-method=normal
}
# What a row of a client holds follows from its number.
TEXT="REPEAT(MD5(CONCAT(c, '-', k)), 1 + k % 40)"
load() {
  sql -e 'CREATE DATABASE weft; CREATE TABLE weft.sums(c INT PRIMARY KEY, n BIGINT) ENGINE=InnoDB'
  local engine
  for engine in "${ENGINES[@]}"; do
    sql weft <<SQL
CREATE TABLE $engine(c INT, k BIGINT, v TEXT, PRIMARY KEY(c, k), KEY(k)) ENGINE=$engine;
INSERT INTO $engine SELECT 0, seq, REPEAT(MD5(CONCAT(0, '-', seq)), 1 + seq % 40) FROM seq_1_to_$ROWS;
SQL
  done
}
loaded() { local engine; for engine in "${ENGINES[@]}"; do sql weft -e "SELECT COUNT(*), SUM(LENGTH(v)) FROM $engine WHERE c = 0"; done; }
want=$(awk -v rows="$ROWS" 'BEGIN { for (k = 1; k <= rows; k++) n += 32 * (1 + k % 40); print rows "\t" n }')

# writer ENGINE CLIENT: inserts rows, one transaction each; prints the number of each that the server acknowledged.
writer() {
  local engine=$1 client=$2 from
  from=$(sql weft -e "SELECT COALESCE(MAX(k), 0) FROM $engine WHERE c = $client")
  awk -v from="$from" -v c="$client" -v t="$engine" 'BEGIN {
    for (k = from + 1; ; k++) {
      printf "BEGIN; INSERT INTO %s SELECT c, k, REPEAT(MD5(CONCAT(c, \x27-\x27, k)), 1 + k %% 40) FROM (SELECT %d c, %d k) x;\n", t, c, k
      if (t == "InnoDB") printf "INSERT INTO sums VALUES(%d, 1) ON DUPLICATE KEY UPDATE n = n + 1;\n", c
      printf "COMMIT; SELECT %d;\n", k
    }
  }' 2>/dev/null | sql -n weft 2>/dev/null || true
}
# verify ENGINE CLIENT ACKNOWLEDGED: prints what is wrong.
verify() {
  local engine=$1 client=$2 acked=$3 found
  found=$(sql weft -e "SELECT COUNT(*) = COALESCE(MAX(k), 0), COALESCE(MAX(k), 0) >= $acked, COALESCE(SUM(MD5(v) <> MD5($TEXT)), 0)
    FROM $engine WHERE c = $client")
  [ "$found" = $'1\t1\t0' ] || echo "$engine, client $client, $acked acknowledged: $found"
  if [ "$engine" = InnoDB ]; then
    found=$(sql weft -e "SELECT COALESCE((SELECT n FROM sums WHERE c = $client), 0) = (SELECT COUNT(*) FROM InnoDB WHERE c = $client)")
    [ "$found" = 1 ] || echo "InnoDB, client $client: the sum differs from the rows"
  fi
}
tables_sound() {
  local engine found
  for engine in "${ENGINES[@]}"; do
    found=$(sql weft -e "CHECK TABLE $engine EXTENDED" | cut -f3,4)
    [ "$found" = $'status\tOK' ] || echo "CHECK TABLE $engine: $found"
  done
}

check "mariadb-install-db" install_db
start
load
same "$ROWS rows in each engine" "$want" "$(loaded | sort -u)"
stop
start
same "restart: the same rows" "$want" "$(loaded | sort -u)"
fact "innodb_use_native_aio: $(sql -e 'SELECT @@innodb_use_native_aio')"

bad=0 acknowledged=0
for round in $(seq "$ROUNDS"); do
  clients=()
  number=0
  for engine in "${ENGINES[@]}" InnoDB; do
    number=$((number + 1))
    writer "$engine" "$number" >"$SCRATCH/acked.$number" &
    clients+=($!)
  done
  sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"
  kill -9 "$(cat "$PID")"
  wait "$RUN" 2>/dev/null || true
  wait "${clients[@]}" 2>/dev/null || true
  if ! start; then bad=$((bad + 1)); break; fi
  wrong=$(
    number=0
    for engine in "${ENGINES[@]}" InnoDB; do
      number=$((number + 1))
      verify "$engine" "$number" "$(tail -1 "$SCRATCH/acked.$number" | grep -x '[0-9]*' || echo 0)" 2>&1
    done
    tables_sound 2>&1
  )
  lines=$(cat "$SCRATCH"/acked.* | wc -l)
  acknowledged=$((acknowledged + lines))
  if [ -n "$wrong" ]; then bad=$((bad + 1)); echo "round $round:"; echo "$wrong"; fi
done
fact "$ROUNDS kills, $acknowledged transactions acknowledged"
same "rounds with a lost or torn row, or an unsound table" 0 "$bad"
same "a load that did something" 1 "$((acknowledged > 20 * ROUNDS))"
same "the rows of the beginning" "$want" "$(loaded | sort -u)"
dump() { mariadb-dump --no-defaults -u root -S "$SOCK" --skip-dump-date --single-transaction weft | md5sum; }
before=$(dump)
stop
start
same "shut down and started: the same dump" "$before" "$(dump)"
stop
check "innochecksum of all tables" weft_run bash -c 'for f in $(find /weft/db -name "*.ibd"); do innochecksum "$f" || exit 1; done'
check "aria_chk" weft_run bash -c 'cd /weft/db/weft && aria_chk --check --silent *.MAI'
fsck_clean
summary
