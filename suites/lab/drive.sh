#!/usr/bin/env bash
# In the lab's guest: RocksDB written, overwritten, reopened and verified on a real drive, then SIGKILL of the server, and
# a kernel log without a failed zone command.
#   suites/lab/drive.sh zoned|zonefs
source "$(dirname "$0")/../lib.sh"
KIND=$1
P=$WEFT_LAB_SHARE/append_records
zone_errors() { # lines of the kernel log that tell of a command that a drive refused or failed
  dmesg | grep -cE 'I/O Cmd|I/O error|zones exceeded|zonefs.*(WARNING|ERROR)|Corrupted write pointer|timeout, ' || true
}
found() { grep -oE '\([0-9]+ of [0-9]+ found\)' "$1" | tail -1; }
case $KIND in
  zoned) IMAGE=$WEFT_LAB_ZONED ;;
  zonefs)
    mkdir -p /mnt/zones
    check "format --zonefs" "$WEFT" format --zonefs --label lab "$WEFT_LAB_ZONED"
    check "mount of the zonefs" mount -t zonefs -o explicit-open,errors=zone-ro "$WEFT_LAB_ZONED" /mnt/zones
    IMAGE=zonefs:/mnt/zones
    ;;
esac
FILL=(fillrandom,waitforcompaction)
OVER=(overwrite,waitforcompaction --use_existing_db=1)
READ=(readrandom --use_existing_db=1 --reads=5000 --verify_checksum=1)

native=$SCRATCH/native
scripts/leveled.sh "$native" "${FILL[@]}" >"$SCRATCH/n1" 2>&1
scripts/leveled.sh "$native" "${OVER[@]}" >"$SCRATCH/n2" 2>&1
scripts/leveled.sh "$native" "${READ[@]}" >"$SCRATCH/n3" 2>&1
want_found=$(found "$SCRATCH/n3")
want_keys=$(ldb --db="$native" dump --count_only 2>/dev/null | grep -oE 'Keys in range: [0-9]+')
rm -rf "$native"

check "weft format" "$WEFT" format "$IMAGE"
if "$WEFT" format "$IMAGE" >/dev/null 2>&1; then fail "a drive that holds data was formatted"; else pass "a drive that holds data is not formatted"; fi
check "fillrandom" weft_run scripts/leveled.sh /weft/db "${FILL[@]}"
check "overwrite" weft_run scripts/leveled.sh /weft/db "${OVER[@]}"
check "readrandom in a new process" weft_run scripts/leveled.sh /weft/db "${READ[@]}"
same "keys found by readrandom" "$want_found" "$(found "$SCRATCH/out")"
weft_run ldb --db=/weft/db dump --count_only >"$SCRATCH/out" 2>/dev/null || true
same "keys in the database" "$want_keys" "$(grep -oE 'Keys in range: [0-9]+' "$SCRATCH/out")"
check "ldb checkconsistency" weft_run ldb --db=/weft/db checkconsistency
weft_run sst_dump --file=/weft/db --command=verify >"$SCRATCH/out" 2>&1 || true
same "tables that sst_dump finds corrupt" 0 "$(grep -ciE 'corrupt|not ok|error' "$SCRATCH/out" || true)"
seen=$(grep -c '^Process .*\.sst' "$SCRATCH/out" || true)
same "tables that sst_dump saw" "$(weft_run ls /weft/db 2>/dev/null | grep -c '\.sst$')" "$seen"
check "weft fsck" "$WEFT" fsck "$IMAGE"
same "failed zone commands in the kernel log" 0 "$(zone_errors)"

serve() {
  : >"$SCRATCH/serve.log"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q serving "$SCRATCH/serve.log" && break; sleep 0.1; done
}
lost=0 dirty=0 status=0 refused=0 synced=0
for round in $(seq "$ROUNDS"); do
  serve
  weft_run "$P" "$SCRATCH/counters" /weft/kill 4 sync "$round" 2>/dev/null & run=$!
  sleep "$((RANDOM % 4 + 3)).$((RANDOM % 10))"
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null || true; SERVER=
  code=0; wait "$run" || code=$?
  [ "$code" = 3 ] || { status=$((status + 1)); echo "round $round: the program ended with $code, not with EIO"; }
  "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); echo "round $round:"; tail -3 "$SCRATCH/out"; }
  weft_run "$P" "$SCRATCH/counters" /weft/kill 4 verify-synced >"$SCRATCH/out" 2>&1 ||
    { lost=$((lost + 1)); echo "round $round:"; head -5 "$SCRATCH/out"; }
  promised=$(python3 -c 'import struct,sys; print(sum(struct.unpack_from("<16Q", open(sys.argv[1], "rb").read(), 128)))' "$SCRATCH/counters")
  synced=$((synced + promised))
  weft_run sh -c 'echo new > /weft/new && cat /weft/new' >"$SCRATCH/out" 2>/dev/null
  grep -qx new "$SCRATCH/out" || refused=$((refused + 1))
done
same "rounds with lost synced data" 0 "$lost"
[ "$synced" -gt 0 ] && pass "$synced records were promised over $ROUNDS rounds" || fail "no record was ever synced"
same "rounds with an unclean fsck" 0 "$dirty"
same "rounds in which the program did not get EIO" 0 "$status"
same "rounds in which the volume took no new writes" 0 "$refused"

# Several processes, a shared file and shared maps; they are killed, and the server under them.
if VOLUME=$IMAGE CRASH_GROUP=$WEFT_LAB_SHARE/crash_group suites/kill-group.sh "$ROUNDS" "$ROUNDS" >"$SCRATCH/group" 2>&1; then
  pass "kills of several processes and of their server: $(grep -oE '[0-9]+ records, .* synced' "$SCRATCH/group")"
else
  fail "kills of several processes and of their server"; cat "$SCRATCH/group"
fi

# RocksDB killed with its server, and opened again.
serve
weft_run scripts/leveled.sh /weft/db overwrite --use_existing_db=1 >/dev/null 2>&1 & run=$!
sleep 4
kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null || true; SERVER=
wait "$run" 2>/dev/null || true
check "weft fsck after RocksDB lost its server" "$WEFT" fsck "$IMAGE"
check "ldb checkconsistency after it" weft_run ldb --db=/weft/db checkconsistency
check "readrandom after it" weft_run scripts/leveled.sh /weft/db "${READ[@]}"
same "failed zone commands in the kernel log" 0 "$(zone_errors)"
[ "$(zone_errors)" = 0 ] || dmesg | tail -20
summary
