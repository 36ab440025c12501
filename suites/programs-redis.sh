#!/usr/bin/env bash
# Redis with an append-only file, with snapshots, with both: filled, restarted, killed, restarted; redis-benchmark.
source "$(dirname "$0")/programs/prepare.sh"
REQUESTS=${1:-100000}
need redis-server redis-server redis-tools
version "$(redis-server --version | cut -d' ' -f1-3)"
new_volume 1G
export REQUESTS SOCK=$SCRATCH/redis.sock

# on PLACE FUNCTION MODE...: runs a function of this script natively or on the volume, D being its folder.
on() {
  local place=$1 step=$2 line; shift 2
  line="set -euo pipefail; $(declare -f start stop cli state "$step"); $step $*"
  case $place in
    native) D=$NATIVE bash -c "$line" ;;
    volume) weft_run env D=/weft bash -c "$line" ;;
  esac
}
cli() { redis-cli -s "$SOCK" "$@"; }
start() { # MODE: aof, rdb, both or always
  local o
  case $1 in
    aof) o="--appendonly yes --save ''" ;;
    rdb) o="--appendonly no --save 1 1" ;;
    both) o="--appendonly yes --save 1 1" ;;
    always) o="--appendonly yes --appendfsync always --aof-use-rdb-preamble no --save ''" ;;
  esac
  mkdir -p "$D/$1"
  eval redis-server --port 0 --unixsocket "$SOCK" --dir "$D/$1" --daemonize yes --pidfile "$SOCK.pid" \
    --logfile "$D/$1/log" --enable-debug-command yes $o >/dev/null
  for _ in $(seq 100); do [ "$(cli ping 2>&1)" != PONG ] || return 0; sleep 0.1; done
  tail -5 "$D/$1/log"; return 1
}
stop() { local pid; pid=$(cli info server | sed -n 's/process_id:\([0-9]*\).*/\1/p'); cli shutdown >/dev/null; while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done; }
state() { cli dbsize; cli debug digest; }
fill() {
  start "$1"
  # The same keys everywhere: what redis-benchmark draws is random, so it comes later.
  awk 'BEGIN { for (i = 0; i < 20000; i++) {
    printf "SET s:%d value-%d\r\nHSET h:%d f%d %d\r\nRPUSH l:%d %d\r\nZADD z:%d %d m%d\r\nSADD set:%d %d\r\nXADD x 1-%d f %d\r\n",
      i, i * 7, i % 500, i, i, i % 100, i, i % 50, i, i, i % 300, i, i + 1, i } }' | redis-cli -s "$SOCK" --pipe | tail -1
  cli del s:17 s:19 h:3 >/dev/null
  [ "$1" = rdb ] || { cli bgrewriteaof >/dev/null; while cli info persistence | grep -q 'aof_rewrite_in_progress:1\|aof_rewrite_scheduled:1'; do sleep 0.1; done; }
  cli set after rewrite
  state
  stop
}
look() { start "$1"; state; stop; }
bench() {
  start "$1"
  redis-benchmark -s "$SOCK" -q --csv -n "$REQUESTS" -r 100000 -t set,get,incr,lpush,hset,zadd 2>/dev/null | grep -v test | cut -d, -f1,2 >&2
  cli info persistence | grep -E 'last_bgsave_status|last_bgrewrite_status|aof_last_write_status' | tr -d '\r'
  state
  stop
}
killed() {
  start "$1"
  redis-benchmark -s "$SOCK" -q -n 1000000 -r 100000 -t set >/dev/null 2>&1 &
  sleep 2
  # An acknowledged write that has been synced, then the kill.
  cli set marker "$1" >/dev/null
  [ "$1" != rdb ] || cli save >/dev/null
  [ "$1" = always ] || sleep 2
  kill -9 "$(cat "$SOCK.pid")"
  wait
  rm -f "$SOCK"
  start "$1"
  cli get marker
  stop
}
for mode in aof rdb both always; do
  want=$(on native fill $mode)
  same "$mode: filled" "$(echo $want)" "$(echo $(on volume fill $mode))"
  same "$mode: restarted, the same keys" "$(echo $(echo "$want" | tail -2))" "$(echo $(on volume look $mode))"
done
for mode in both always; do
  got=$(on volume bench $mode 2>"$SCRATCH/rate")
  same "$mode: redis-benchmark, the writes were accepted" 3 "$(echo "$got" | grep -c 'status:ok')"
  fact "$mode, requests/s: $(tr -d '"' <"$SCRATCH/rate" | awk -F, '{ printf("%s%s %d", NR > 1 ? ", " : "", $1, $2) }')"
  same "$mode: restarted after it, the same keys" "$(echo $(echo "$got" | tail -2))" "$(echo $(on volume look $mode))"
done
for mode in aof rdb always; do
  same "$mode: kill -9 under load, restarted" $mode "$(on volume killed $mode 2>/dev/null)"
done
check "redis-check-aof" weft_run sh -c 'redis-check-aof /weft/always/appendonlydir/*.manifest'
check "redis-check-rdb" weft_run redis-check-rdb /weft/rdb/dump.rdb
fsck_clean
summary
