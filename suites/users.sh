#!/usr/bin/env bash
# Users, access control lists, set-id and sticky directories through all fronts at once: nobody gets what ext4 refuses.
#   suites/users.sh [CALLS=100000] [SEED=1]
# Eight processes take turns on one tree. For each call, one of them becomes one of four users, mostly not the superuser, and tries
# something (crates/shim/tests/probes/acl.c). The same sequence runs on ext4, call by call with what the object of the call is afterwards;
# each of the eight shows the whole tree in the end. Two of the processes use
#   - a mount;
#   - weft run at the same path;
#   - programs of the C library at the server's socket (one of them beside weft run, and in batches): chains, weft_open_read and weft_open_write;
#   - programs by the ioctl on the mount.
# What a program cannot express (chmod, chown, lists, pipes) goes by the mount or by weft run. weft do and Python are not among them: they
# make the same request at the same socket as the C library.
# Calls are made in sequences of EACH=5000, each with a tree and a seed of its own. By turns, the mount gets its requests from /dev/fuse and
# by io_uring (where the kernel offers that). In every other pair of sequences, all processes use the mount, half of them its ioctl: the kernel
# then keeps names, attributes and lists. LIBWEFT is weft's C library (default: beside WEFT). Needs the superuser.
source "$(dirname "$0")/lib.sh"
CALLS=${1:-100000} seed=${2:-1} EACH=${EACH:-5000}
LIBWEFT=${LIBWEFT:-$(dirname "$WEFT")/libweft_c.a}
[ -e "$LIBWEFT" ] || { echo "build first: make build (no $LIBWEFT)" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "only the superuser can become other users" >&2; exit 2; }
[ -e /dev/fuse ] || { echo "this kernel has no /dev/fuse" >&2; exit 2; }
[ "$(stat -f -c %T "$SCRATCH")" = ext2/ext3 ] || { echo "TMPDIR must be on ext4" >&2; exit 2; }
chmod 755 "$SCRATCH"
AT=$SCRATCH/at IMAGE=$SCRATCH/image
away() { ! mountpoint -q "$AT" || "$WEFT" unmount --lazy "$AT" 2>/dev/null || true; finish; }
trap away EXIT
cc -O2 -Wall -DCHAINS -Icrates/capi/include -o "$SCRATCH/acl" crates/shim/tests/probes/acl.c "$LIBWEFT" -lpthread -lm -ldl
by_io_uring=()
if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ]; then
  by_io_uring=(-o io_uring)
else
  echo "without io_uring: 'echo Y >/sys/module/fuse/parameters/enable_uring' turns it on"
fi
new_volume 256M 4M "$IMAGE"
mkdir "$AT"
made=0 refused=0 different=0 sequences=0
while [ "$made" -lt "$CALLS" ]; do
  mkdir -p "$SCRATCH/native"
  timeout 300 "$SCRATCH/acl" "$SCRATCH/native" "$seed" "$EACH" fronts >"$SCRATCH/ext4" 2>&1 || fail "seed $seed ends on ext4: $(tail -1 "$SCRATCH/ext4")"
  rm -rf "$SCRATCH/native"
  options=()
  [ $((seed % 2)) = 1 ] || options=("${by_io_uring[@]}")
  "$WEFT" mount --daemon --quiet --log "$SCRATCH/log" --socket "$SCRATCH/socket" "${options[@]}" "$IMAGE" "$AT"
  chmod 666 "$SCRATCH/socket"
  # Programs under weft run connect before they become others.
  fronts=(FRONT="$WEFT run --quiet --socket $SCRATCH/socket --at $AT --" SOCKET="$SCRATCH/socket")
  [ $((seed % 4)) -lt 2 ] || fronts=()
  mkdir "$AT/$seed"
  env "${fronts[@]}" MOUNT="$AT" COUNTS="$SCRATCH/counts" \
    timeout 300 "$SCRATCH/acl" "$AT/$seed" "$seed" "$EACH" fronts >"$SCRATCH/weft" 2>&1 || fail "seed $seed ends on the volume: $(tail -1 "$SCRATCH/weft")"
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
by_programs() { awk -v way="$1" '$1 == way { calls += $2 } END { print calls + 0 }' "$SCRATCH/counts"; }
socket=$(by_programs socket) ioctl=$(by_programs ioctl)
echo "$made calls in $sequences sequences, $refused of them refused (EACCES, EPERM); by programs: $socket at the socket, $ioctl by the ioctl"
same "sequences with a difference" 0 "$different"
[ "$refused" -gt $((made / 20)) ] && pass "ext4 refused enough of them" || fail "ext4 refused only $refused of $made calls"
[ "$socket" -gt $((made / 25)) ] && [ "$ioctl" -gt $((made / 10)) ] && pass "programs made enough of them" || fail "programs made too few of $made calls"
check "weft fsck" "$WEFT" fsck "$IMAGE"
same "messages of the mount" "" "$(grep -E 'WARN|ERROR' "$SCRATCH/log" || true)"
summary
