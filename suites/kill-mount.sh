#!/usr/bin/env bash
# SIGKILL of the server of a mount while processes work there, natively (suites/programs/mount_records.c).
#   suites/kill-mount.sh [ROUNDS=100]     rounds of each of four mounts: with and without -o restart, with and without -o writeback
# Without -o restart, programs get EIO, ECONNABORTED, ENOTCONN, or SIGBUS from a map; unmounted, the volume is clean, what was synced is
# there, and it mounts again and takes writes. With it, programs go on: EIO tells them what may be lost, they write it once more, and
# what was synced is there after each kill. SEED=N makes other rounds; MOUNTS="writeback restart" makes fewer mounts.
source "$(dirname "$0")/lib.sh"
ROUNDS=${1:-100}
[ "$(id -u)" = 0 ] || { echo "kill-mount.sh: run it as root, which mounts without a helper" >&2; exit 2; }
[ -e /dev/fuse ] || { echo "kill-mount.sh: this kernel has no /dev/fuse" >&2; exit 2; }
RANDOM=${SEED:-$RANDOM}
MOUNTS=${MOUNTS:-plain writeback restart restart,writeback}
IMAGE=$SCRATCH/image MOUNT=$SCRATCH/mount COUNTERS=$SCRATCH/counters LOG=$SCRATCH/log
P=$(program mount_records.c)
mkdir "$MOUNT"
KEEPER= RUN=
clean_up() {
  [ -z "$RUN" ] || kill -KILL "$RUN" 2>/dev/null || true
  [ -z "$KEEPER" ] || kill "$KEEPER" 2>/dev/null || true
  umount -l "$MOUNT" 2>/dev/null || true
  finish
}
trap clean_up EXIT
# mounted OPTIONS...: mounts the volume; KEEPER is the process of the command.
mounted() {
  : >"$SCRATCH/said"
  "$WEFT" mount --quiet "$@" "$IMAGE" "$MOUNT" >"$SCRATCH/said" 2>>"$LOG" & KEEPER=$!
  for _ in $(seq 400); do grep -q . "$SCRATCH/said" && return; kill -0 "$KEEPER" 2>/dev/null || break; sleep 0.02; done
  echo "not mounted: $(tail -2 "$LOG")"; return 1
}
server_of() { local all; read -r all _ <"/proc/$1/task/$1/children" 2>/dev/null || true; echo "${all%% *}"; }
unmounted() { # the mount ends, by its command or after it
  "$WEFT" unmount "$MOUNT" >"$SCRATCH/out" 2>&1 || umount "$MOUNT" 2>>"$SCRATCH/out" || return 1
  wait "$KEEPER" 2>/dev/null || true
  KEEPER=
}
pause() { local ms=$(($1 + RANDOM % ($2 - $1))); sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"; }
wrong() { echo "round $round: $1"; head -5 "$SCRATCH/out"; }
takes_writes() { echo "new $round" >"$MOUNT/new" && [ "$(cat "$MOUNT/new")" = "new $round" ]; }
count() { read -r -a counted < <("$P" count "$COUNTERS"); }
begun() { # until each kind has been done by somebody, in this round
  for _ in $(seq 200); do count; [ "$((counted[0] + counted[1]))" -gt "$1" ] && return; sleep 0.01; done
}

for title in $MOUNTS; do
  case $title in plain) how= ;; writeback) how=writeback ;; *) continue ;; esac
  rm -f "$IMAGE" "$COUNTERS"
  new_volume 192M 2M "$IMAGE"
  lost=0 dirty=0 status=0 refused=0 stuck=0 round=0
  for round in $(seq "$ROUNDS"); do
    mounted ${how:+-o "$how"}
    count; before=$((counted[0] + counted[1]))
    timeout -s KILL 60 "$P" run "$COUNTERS" "$MOUNT/w" "$RANDOM" ends 2>"$SCRATCH/out" & RUN=$!
    begun "$before"
    pause 20 500
    kill -KILL "$KEEPER"; wait "$KEEPER" 2>/dev/null || true
    code=0; wait "$RUN" 2>/dev/null || code=$?; RUN=
    [ "$code" = 3 ] || { status=$((status + 1)); wrong "the processes ended with $code, not with the mount"; }
    unmounted || { stuck=$((stuck + 1)); wrong "it cannot be unmounted"; umount -l "$MOUNT" || true; KEEPER=; }
    "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); wrong "fsck"; }
    mounted ${how:+-o "$how"}
    "$P" verify "$COUNTERS" "$MOUNT/w" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong lost; }
    takes_writes || { refused=$((refused + 1)); wrong "no new writes"; }
    unmounted || { stuck=$((stuck + 1)); wrong "it cannot be unmounted again"; }
    "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); wrong "fsck at the end"; }
  done
  count
  echo "$title, $ROUNDS rounds: ${counted[0]} records, ${counted[1]} stores, ${counted[2]} files replaced, ${counted[3]} files made, all synced"
  same "$title: rounds with lost synced data" 0 "$lost"
  same "$title: rounds with an unclean fsck" 0 "$dirty"
  same "$title: rounds in which a process did not end with the mount's errors" 0 "$status"
  same "$title: rounds in which the volume took no new writes" 0 "$refused"
  same "$title: rounds in which it could not be unmounted" 0 "$stuck"
done

for how in $MOUNTS; do
  case $how in restart*) ;; *) continue ;; esac
  rm -f "$IMAGE" "$COUNTERS"
  new_volume 192M 2M "$IMAGE"
  lost=0 dirty=0 status=0 refused=0 gone=0 round=0
  begin() {
    mounted -o "$how"
    "$P" run "$COUNTERS" "$MOUNT/w" "$RANDOM" goes-on 2>"$SCRATCH/errors" & RUN=$!
  }
  end() { # the processes have met nothing that they could not mend, and everything is there
    "$P" stop "$COUNTERS"
    code=0; wait "$RUN" 2>/dev/null || code=$?; RUN=
    [ "$code" = 0 ] || { status=$((status + 1)); cp "$SCRATCH/errors" "$SCRATCH/out"; wrong "the processes ended with $code"; }
    "$P" verify "$COUNTERS" "$MOUNT/w" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong "lost at the end"; }
    unmounted || { status=$((status + 1)); wrong "it cannot be unmounted"; umount -l "$MOUNT" || true; }
    "$WEFT" fsck "$IMAGE" >"$SCRATCH/out" 2>&1 || { dirty=$((dirty + 1)); wrong "fsck"; }
  }
  begin
  for round in $(seq "$ROUNDS"); do
    # Now and then long enough not to be given up: a server that ends 20 times in turn within a second is.
    if [ $((round % 10)) = 0 ]; then pause 1100 1300; else pause 30 700; fi
    server=$(server_of "$KEEPER")
    [ -n "$server" ] && kill -KILL "$server" || { gone=$((gone + 1)); wrong "there is no server"; break; }
    timeout -s KILL 60 "$P" verify "$COUNTERS" "$MOUNT/w" >"$SCRATCH/out" 2>&1 || { lost=$((lost + 1)); wrong "lost"; }
    takes_writes || { sleep 0.1; takes_writes; } || { refused=$((refused + 1)); wrong "no new writes"; }
    # Everything from the image, now and then.
    if [ $((round % 20)) = 0 ] && [ "$round" != "$ROUNDS" ]; then end; begin; fi
  done
  end
  count
  echo "$how, $ROUNDS rounds: ${counted[0]} records, ${counted[1]} stores, ${counted[2]} files replaced, ${counted[3]} files made, all synced; ${counted[4]} calls met EIO"
  same "$how: rounds with lost synced data" 0 "$lost"
  same "$how: an unclean fsck" 0 "$dirty"
  same "$how: processes that could not go on" 0 "$status"
  same "$how: rounds in which the volume took no new writes" 0 "$refused"
  same "$how: rounds without another server" 0 "$gone"
done
summary
