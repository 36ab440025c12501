#!/usr/bin/env bash
# SIGKILL of the server at random moments: the program gets EIO, everything fsynced is there, fsck is clean, the volume
# takes new writes.
#   suites/kill-server.sh [ROUNDS=50]
source "$(dirname "$0")/lib.sh"
ROUNDS=${1:-50}
IMAGE=$SCRATCH/image
P=$(program append_records.c)
new_volume 256M 4M "$IMAGE" >/dev/null 2>&1
serve() {
  : >"$SCRATCH/serve.log"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
}
lost=0 dirty=0 status=0 refused=0
for round in $(seq "$ROUNDS"); do
  serve
  weft_run "$P" "$SCRATCH/counters" /weft/kill 4 sync "$round" 2>/dev/null & run=$!
  sleep "0.$(printf '%03d' $((RANDOM % 500 + 100)))"
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null || true; SERVER=
  code=0; wait "$run" || code=$?
  [ "$code" = 3 ] || { status=$((status + 1)); echo "round $round: the program ended with $code, not with EIO"; }
  "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); echo "round $round:"; tail -3 "$SCRATCH/out"; }
  weft_run "$P" "$SCRATCH/counters" /weft/kill 4 verify-synced >"$SCRATCH/out" 2>&1 ||
    { lost=$((lost + 1)); echo "round $round:"; head -5 "$SCRATCH/out"; }
  weft_run sh -c 'echo new > /weft/new && cat /weft/new' >"$SCRATCH/out" 2>/dev/null
  grep -qx new "$SCRATCH/out" || refused=$((refused + 1))
done
same "rounds with lost synced data" 0 "$lost"
same "rounds with an unclean fsck" 0 "$dirty"
same "rounds in which the program did not get EIO" 0 "$status"
same "rounds in which the volume took no new writes" 0 "$refused"
summary
