#!/usr/bin/env bash
# The speed of PostgreSQL (pgbench) and of overwrites in a B-tree of WiredTiger, in a folder of the file system and on a volume in
# turns: medians, and the ratio weft / file system of each pair (lowest to highest). It measures; programs-postgresql.sh
# and programs-wiredtiger.sh check what is stored.
# databases.sh [PAIRS [SECONDS]]: SECONDS of each pgbench.
source "$(dirname "$0")/programs/prepare.sh"
PAIRS=${1:-5}
SECONDS_OF_LOAD=${2:-15}
need /usr/lib/postgresql/*/bin/initdb postgresql postgresql-contrib
need lib:wiredtiger libwiredtiger-dev
PG=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
version "$("$PG/postgres" --version), WiredTiger $(dpkg-query -W -f '${Version}' libwiredtiger-dev), $PAIRS pairs"

# rows NAME UNIT FILE: of a file with the two figures of a pair in each line.
rows() {
  python3 - "$@" <<'PY'
import statistics, sys
name, unit, path = sys.argv[1:]
pairs = [tuple(map(float, line.split())) for line in open(path)]
native, weft = (statistics.median(column) for column in zip(*pairs))
ratios = [weft / native for native, weft in pairs]
print(f"fact  {name}: file system {native:.4g} {unit}, weft {weft:.4g}, "
      f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
PY
}

# PostgreSQL does not run as the superuser: the image is another user's then, who has a copy of weft and a folder.
OWNER=$(id -un)
[ "$(id -u)" != 0 ] || OWNER=postgres
as_owner() { if [ "$OWNER" = "$(id -un)" ]; then "$@"; else setpriv --reuid="$OWNER" --regid="$OWNER" --init-groups "$@"; fi; }
HOME_OF_TEST=$SCRATCH/home
mkdir -p "$HOME_OF_TEST/bin" "$HOME_OF_TEST/native"
cp "$WEFT" "$(dirname "$WEFT")/libweft_shim.so" "$HOME_OF_TEST/bin/"
chown -R "$OWNER" "$HOME_OF_TEST"
OWNERS_WEFT=$HOME_OF_TEST/bin/weft
as_owner "$OWNERS_WEFT" format --quiet $(of_core 4M) --size 4G "$HOME_OF_TEST/image"
export PATH=$PG:$PATH PGHOST=$HOME_OF_TEST PGDATABASE=bench HOME=$HOME_OF_TEST SECONDS_OF_LOAD
on() { # on native|volume FUNCTION: runs a function of this script, D being the folder for data
  local line="set -euo pipefail; cd /; $(declare -f start stop "$2"); $2"
  case $1 in
    native) as_owner env D="$HOME_OF_TEST/native" bash -c "$line" ;;
    volume) as_owner "$OWNERS_WEFT" run --quiet --volume "$HOME_OF_TEST/image" -- env D=/weft bash -c "$line" ;;
  esac
}
start() { pg_ctl -s -w -t 120 -D "$D/pg" -l "$D/log" -o "-c listen_addresses= -c unix_socket_directories=$PGHOST -c max_wal_size=256MB" start; }
stop() { pg_ctl -s -w -D "$D/pg" -m fast stop; }
fill() {
  initdb -D "$D/pg" --data-checksums -A trust -U "$(id -un)" --locale=C.UTF-8 >/dev/null
  start
  createdb bench
  PGOPTIONS=--client_min_messages=warning pgbench -q -i -s 10 bench 2>/dev/null
  stop
}
load() {
  start
  pgbench -n -c 4 -j 1 -T "$SECONDS_OF_LOAD" bench 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
  stop
}
on native fill
on volume fill
for ((pair = 0; pair < PAIRS; pair++)); do
  echo "$(on native load) $(on volume load)"
done >"$SCRATCH/pgbench"
rows "pgbench, 4 clients" transactions/s "$SCRATCH/pgbench"

P=$(program wiredtiger_overwrite.c -lwiredtiger)
new_volume 2G
KEYS=400000 COUNT=100000
mkdir "$NATIVE/wt"
weft_run mkdir /weft/wt
"$P" "$NATIVE/wt" fill $KEYS 0 1
weft_run "$P" /weft/wt fill $KEYS 0 1
for ((pair = 0; pair < PAIRS; pair++)); do
  sync
  echo "$("$P" "$NATIVE/wt" overwrite $KEYS $COUNT $pair) $(weft_run "$P" /weft/wt overwrite $KEYS $COUNT $pair)"
done >"$SCRATCH/wiredtiger"
rows "WiredTiger, $COUNT overwrites" s "$SCRATCH/wiredtiger"
