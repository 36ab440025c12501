# Steps of every day, in an empty directory: the first argument. The second is the archive of a tree, the third that of sources.
# Prints a line NAME SECONDS for each; those whose program is not installed are left out.
set -eu
cd "$1"
rm -rf tree copy work db
row() { # row NAME COMMAND...
  local name=$1 begun=$EPOCHREALTIME
  shift
  "$@" >/dev/null
  local ended=$EPOCHREALTIME
  echo "$name $((${ended/./} - ${begun/./}))e-6"
}
has() { command -v "$1" >/dev/null; }

row 'tar -x' tar -xf "$2"
row 'ls -lR' ls -lR tree
row 'find -size' find tree -size +8k
row 'grep -r' grep -r -c nothing-like-it tree || true
row 'cp -a' cp -a tree copy
git() { command git -c user.name=bench -c user.email=bench@localhost -c gc.auto=0 -C copy "$@"; }
git init -q
row 'git add' git add -A
row 'git status' git status --short
row 'git commit' git commit -qm first
row 'git gc' git gc -q
row 'rm -rf' rm -rf tree

tar -xf "$3"
! has python3 || row 'python -m compileall' python3 -m compileall -q work/python
build() { make -s -C work/c; }
! has gcc || ! has make || row 'make, 100 files' build

rows() { # rows JOURNAL COUNT
  echo "pragma journal_mode=$1; create table t(k integer primary key, v text);"
  for ((i = 0; i < $2; i++)); do echo "insert into t values($i, 'a value of some thirty bytes');"; done
}
sql() { sqlite3 db <statements; }
rows wal 2000 >statements
row 'sqlite3 WAL, 2,000 transactions' sql
rm -f db db-wal db-shm
rows delete 500 >statements
row 'sqlite3 rollback, 500 transactions' sql

redis() {
  redis-server --port 0 --unixsocket "$socket" --dir "$PWD/redis" --appendonly yes --appendfsync always --save '' \
    --daemonize no >/dev/null &
  until redis-cli -s "$socket" ping >/dev/null 2>&1; do sleep 0.01; done
}
load() { redis-benchmark -s "$socket" -t set -n 3000 -c 4 -r 100000 -d 100 -q; }
if has redis-server && has redis-benchmark; then
  mkdir redis
  # Not on the volume: sockets belong to the kernel.
  socket=$(mktemp -u /tmp/weft-bench-redis-XXXXXX)
  redis
  row 'redis, AOF always, 3,000 sets' load
  redis-cli -s "$socket" shutdown nosave 2>/dev/null || true
  wait
fi
rm -rf copy work redis db db-journal statements
