#!/usr/bin/env bash
# SIGKILL of the program at random moments: every write that had returned is readable. Of the rounds, most append records; every
# fourth writes runs of blocks in the file, across its end and behind it.
#   suites/kill-program.sh [ROUNDS=200]
source "$(dirname "$0")/lib.sh"
ROUNDS=${1:-200}
IMAGE=$SCRATCH/image
P=$(program append_records.c)
new_volume 512M 4M "$IMAGE" >/dev/null 2>&1
: >"$SCRATCH/serve.log"
"$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
for _ in $(seq 100); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
bad=0 records=0
for round in $(seq "$ROUNDS"); do
  weft_run "$P" "$SCRATCH/counters" /weft/kill 4 nosync "$round" >/dev/null 2>&1 & run=$!
  sleep "0.$(printf '%03d' $((RANDOM % 250 + 30)))"
  pkill -KILL -f "^$P $SCRATCH/counters" || true
  wait "$run" 2>/dev/null || true
  if ! weft_run "$P" "$SCRATCH/counters" /weft/kill 4 verify-written >"$SCRATCH/out" 2>&1; then
    bad=$((bad + 1)); echo "round $round:"; head -5 "$SCRATCH/out"
  fi
  records=$((records + $(od -An -v -t u8 -N 32 "$SCRATCH/counters" | awk '{ for (i = 1; i <= NF; i++) n += $i } END { print n + 0 }')))
done
echo "$ROUNDS kills, $records records written"
S=$(program span_blocks.c -lpthread)
blocks=0
for round in $(seq $(((ROUNDS + 3) / 4))); do
  rm -f "$SCRATCH/blocks"
  weft_run sh -c 'rm -f /weft/spans; exec "$@"' sh "$S" write "$SCRATCH/blocks" /weft/spans "$round" $((round % 4 + 1)) >"$SCRATCH/said" 2>&1 & run=$!
  sleep "0.$(printf '%03d' $((RANDOM % 250 + 50)))"
  pkill -KILL -f "^$S write $SCRATCH/blocks" || true
  wait "$run" 2>/dev/null || true
  if ! weft_run "$S" verify "$SCRATCH/blocks" /weft/spans >"$SCRATCH/out" 2>&1; then
    bad=$((bad + 1)); echo "blocks, round $round:"; head -5 "$SCRATCH/out" "$SCRATCH/said"
  fi
  blocks=$((blocks + $(sed -n 's/.* writes, \([0-9]*\) blocks/\1/p' "$SCRATCH/out")))
done
echo "$(((ROUNDS + 3) / 4)) kills, $blocks blocks written"
same "rounds with a lost write" 0 "$bad"
kill "$SERVER"; wait "$SERVER" || true; SERVER=
check "weft fsck" "$WEFT" fsck "$IMAGE"
summary
