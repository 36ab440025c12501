#!/usr/bin/env bash
# Several processes with threads, forked children, a shared file and shared maps. One or all of them are killed at a random
# moment, or the server is and another one serves while they still run.
#   suites/kill-group.sh [PROGRAM_ROUNDS=200 [SERVER_ROUNDS=50]]
#   VOLUME=/dev/nvme0n1 suites/kill-group.sh 5 5     on a volume that is there, such as one on a real drive
# With the programs killed, every write that had returned and every store through a map is there, and who was left alone
# met no error. With the server killed, they get EIO and nothing but EIO, and a new program finds what had been synced.
source "$(dirname "$0")/lib.sh"
PROGRAM_ROUNDS=${1:-200}
SERVER_ROUNDS=${2:-50}
IMAGE=${VOLUME:-$SCRATCH/image}
COUNTERS=$SCRATCH/counters
P=${CRASH_GROUP:-$(program crash_group.c -lpthread)}
SEED=${SEED:-$RANDOM}
[ -n "${VOLUME:-}" ] || new_volume 512M >/dev/null 2>&1
serve() {
  : >"$SCRATCH/serve.log"
  "$WEFT" serve --volume "$IMAGE" >"$SCRATCH/serve.log" 2>&1 & SERVER=$!
  for _ in $(seq 200); do grep -q . "$SCRATCH/serve.log" && break; sleep 0.05; done
}
start() { # start KINDS MODE: the processes, all at work
  rm -f "$COUNTERS"
  weft_run timeout -s KILL 90 "$P" run "$COUNTERS" /weft/kill "$SEED$round" "$2" "$1" >"$SCRATCH/said" 2>&1 & run=$!
  "$P" started "$COUNTERS" || { fail "round $round: not all began to work"; head -5 "$SCRATCH/said"; }
}
wrong() { echo "round $round ($kinds): $1"; head -5 "$2"; }
kinds_of() { case $(($1 % 3)) in 0) echo both ;; 1) echo writers ;; 2) echo maps ;; esac }
counted=(0 0 0 0)
count() {
  read -r -a of < <("$P" count "$COUNTERS")
  for i in 0 1 2 3; do counted[i]=$((counted[i] + of[i])); done
}
pause() { sleep "0.$(printf '%03d' $((RANDOM % $1 + 10)))"; }

serve
lost=0 harmed=0 all=0
for round in $(seq "$PROGRAM_ROUNDS"); do
  kinds=$(kinds_of "$round")
  start "$kinds" nosync
  pause 200
  killed=$("$P" kill "$COUNTERS" "$SEED$round")
  pause 100
  "$P" stop "$COUNTERS"
  code=0; wait "$run" 2>/dev/null || code=$?
  wanted=0
  [ "$killed" = one ] || { wanted=137; all=$((all + 1)); }
  [ "$code" = "$wanted" ] || { harmed=$((harmed + 1)); wrong "after killing $killed the others ended with $code" "$SCRATCH/said"; }
  weft_run "$P" verify "$COUNTERS" /weft/kill written "$kinds" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong lost "$SCRATCH/out"; }
  count
done
echo "$PROGRAM_ROUNDS rounds, $all of them with all killed: ${counted[0]} records, ${counted[1]} overwrites, ${counted[2]} stores"
same "rounds in which anything written or stored was lost" 0 "$lost"
same "rounds in which a survivor met an error" 0 "$harmed"
kill "$SERVER"; wait "$SERVER" || true; SERVER=
check "weft fsck" "$WEFT" fsck "$IMAGE"

lost=0 harmed=0 dirty=0 refused=0 counted=(0 0 0 0)
for round in $(seq "$SERVER_ROUNDS"); do
  kinds=$(kinds_of "$round")
  serve
  start "$kinds" sync
  pause 600
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null || true; SERVER=
  "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); wrong "fsck" "$SCRATCH/out"; }
  serve
  # The next program works while those of the dead server still run.
  weft_run "$P" verify "$COUNTERS" /weft/kill synced "$kinds" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong lost "$SCRATCH/out"; }
  weft_run sh -c 'echo new > /weft/new && cat /weft/new' >"$SCRATCH/out" 2>/dev/null
  grep -qx new "$SCRATCH/out" || refused=$((refused + 1))
  "$P" stop "$COUNTERS"
  code=0; wait "$run" 2>/dev/null || code=$?
  [ "$code" = 3 ] || { harmed=$((harmed + 1)); wrong "the programs ended with $code, not with EIO" "$SCRATCH/said"; }
  # What they did while they ended has harmed nothing.
  weft_run "$P" verify "$COUNTERS" /weft/kill synced "$kinds" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong "lost later" "$SCRATCH/out"; }
  count
  kill "$SERVER"; wait "$SERVER" || true; SERVER=
  "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); wrong "fsck at the end" "$SCRATCH/out"; }
done
echo "$SERVER_ROUNDS rounds: ${counted[0]} records, ${counted[1]} overwrites, ${counted[2]} stores, ${counted[3]} slots of maps synced"
same "rounds with lost synced data" 0 "$lost"
same "rounds with an unclean fsck" 0 "$dirty"
same "rounds in which a program did not get EIO, and only that" 0 "$harmed"
same "rounds in which the volume took no new writes" 0 "$refused"
[ "$SERVER_ROUNDS" -lt 3 ] || if [ "${counted[3]}" -gt 0 ]; then pass "stores were synced"; else fail "no store was ever synced"; fi
summary
