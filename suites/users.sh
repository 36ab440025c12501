#!/usr/bin/env bash
# Users, access control lists, set-id and sticky directories through both fronts at once: nobody gets what ext4 refuses.
#   suites/users.sh [CALLS=100000] [SEED=1]
# Four processes take turns on one tree: two use a mount, two run under weft run at the same path. For each call, one of them becomes one
# of four users, mostly not the superuser, and tries something (crates/shim/tests/probes/acl.c). The same sequence runs on ext4, call by
# call with what the object of the call is afterwards; each of the four shows the whole tree in the end. Calls are made in sequences of
# EACH=5000, each with a tree and a seed of its own. Needs the superuser.
source "$(dirname "$0")/lib.sh"
CALLS=${1:-100000} seed=${2:-1} EACH=${EACH:-5000}
[ "$(id -u)" = 0 ] || { echo "only the superuser can become other users" >&2; exit 2; }
[ -e /dev/fuse ] || { echo "this kernel has no /dev/fuse" >&2; exit 2; }
[ "$(stat -f -c %T "$SCRATCH")" = ext2/ext3 ] || { echo "TMPDIR must be on ext4" >&2; exit 2; }
chmod 755 "$SCRATCH"
AT=$SCRATCH/at IMAGE=$SCRATCH/image
away() { ! mountpoint -q "$AT" || "$WEFT" unmount --lazy "$AT" 2>/dev/null || true; finish; }
trap away EXIT
cc -O2 -Wall -o "$SCRATCH/acl" crates/shim/tests/probes/acl.c
new_volume 256M 4M "$IMAGE"
mkdir "$AT"
made=0 refused=0 different=0 sequences=0
while [ "$made" -lt "$CALLS" ]; do
  mkdir -p "$SCRATCH/native"
  timeout 300 "$SCRATCH/acl" "$SCRATCH/native" "$seed" "$EACH" both >"$SCRATCH/ext4" 2>&1 || fail "seed $seed ends on ext4: $(tail -1 "$SCRATCH/ext4")"
  rm -rf "$SCRATCH/native"
  "$WEFT" mount --daemon --quiet --log "$SCRATCH/log" --socket "$SCRATCH/socket" "$IMAGE" "$AT"
  # Programs under weft run connect before they become others.
  mkdir "$AT/$seed"
  FRONT="$WEFT run --quiet --socket $SCRATCH/socket --at $AT --" \
    timeout 300 "$SCRATCH/acl" "$AT/$seed" "$seed" "$EACH" both >"$SCRATCH/weft" 2>&1 || fail "seed $seed ends on the volume: $(tail -1 "$SCRATCH/weft")"
  "$WEFT" unmount "$AT"
  if ! cmp -s "$SCRATCH/ext4" "$SCRATCH/weft"; then
    different=$((different + 1))
    echo "DIFFERENT: suites/users.sh $EACH $seed"
    paste -d $'\001' "$SCRATCH/ext4" "$SCRATCH/weft" | awk -F $'\001' '
      $1 != $2 { for (i = NR - 12; i < NR; i++) if (i > 0) print "      " line[i % 12]; print "ext4  " $1; print "weft  " $2; exit }
      { line[NR % 12] = $1 }' || true
  fi
  made=$((made + EACH)) sequences=$((sequences + 1)) seed=$((seed + 1))
  refused=$((refused + $(grep -cE '= -(1|13) ' "$SCRATCH/ext4" || true)))
done
echo "$made calls in $sequences sequences, $refused of them refused (EACCES, EPERM)"
same "sequences with a difference" 0 "$different"
[ "$refused" -gt $((made / 20)) ] && pass "ext4 refused enough of them" || fail "ext4 refused only $refused of $made calls"
check "weft fsck" "$WEFT" fsck "$IMAGE"
same "messages of the mount" "" "$(grep -E 'WARN|ERROR' "$SCRATCH/log" || true)"
summary
