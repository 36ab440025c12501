#!/usr/bin/env bash
# Random sequences of libc calls by processes and threads, on ext4 and on a volume: the same results, call by call.
#   suites/differential.sh [CALLS=200000] [SEED=1]
#   NAMES=1 suites/differential.sh [CALLS=200000] [SEED=1]
#   BOTH=1 suites/differential.sh [CALLS=200000] [SEED=1]     (with NAMES=1, too)
#   suites/differential.sh once SEED USER [-f] [-m] [-u OTHER] [-b MASK] [-k KEPT]
# Calls are made in sequences of OPERATIONS=20000 operations, each with a seed of its own; every other one by a user who is
# not root, every fourth by threads that run freely (-f). With NAMES=1 most calls are about names, links and permissions (-m),
# and of the processes, which take turns, one is another user (-u; for the superuser only). A sequence that differs is shown with what came before, shortened
# to the operations that matter (at most SHORTEN=40 tries), and repeated with the second form, where -k names a file with the
# numbers of the operations that are kept. With BOTH=1 the volume is mounted: some of the three processes (-b, a mask of those) run under
# weft run, the others use the mount at the same path; the mask follows from the seed. docs/differential.md has what is called, compared and left out.
source "$(dirname "$0")/lib.sh"
# Through a mount, each call is a request.
case "${BOTH:-0} $* " in 1\ * | *" -b "*) OPERATIONS=${OPERATIONS:-5000} ;; *) OPERATIONS=${OPERATIONS:-20000} ;; esac
[ "${1:-}" != once ] || SHORTEN=${SHORTEN:-0}
SHORTEN=${SHORTEN:-40}
OTHER=54321
# Both sides see the folder at the same path, so that paths need no translation; the native one is gone by then. It is deep,
# so that a path with many ".." meets nothing else.
AT=$SCRATCH/at
BASE=$AT/1/2/3/4/5/6/7/8/9/a/b/c
fs=$(stat -f -c %T "$SCRATCH")
[ "$fs" = ext2/ext3 ] || { echo "TMPDIR must be on ext4, not on $fs" >&2; exit 2; }
case "${BOTH:-0} $* " in 1\ * | *" -b "*) [ -e /dev/fuse ] || { echo "this kernel has no /dev/fuse" >&2; exit 2; } ;; esac
P=$(program differential.c suites/programs/differential_*.c -Wno-nonnull -pthread)
chmod 755 "$SCRATCH"
# A mount that is left behind.
away() { ! mountpoint -q "$AT" || "$WEFT" unmount --lazy "$AT" 2>/dev/null || true; finish; }
trap away EXIT
as() { # as USER COMMAND...
  local user=$1; shift
  if [ "$user" = "$(id -u)" ]; then "$@"; else setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; fi
}
# Who takes turns does so in the same order on both sides.
by_actor() { case " $2 " in *" -f "*) sort -s -n -k 2,2 "$1" ;; *) cat "$1" ;; esac; }
sequence() { # sequence USER ARGS...: runs one on both sides; fails when $LOGS/ext4.txt and $LOGS/weft.txt differ
  local user=$1 ok=true; shift
  LOGS=$SCRATCH/logs
  rm -rf "$LOGS"; mkdir -p "$LOGS" "$BASE"
  [ "$(id -u)" != 0 ] || chown -R "$user:$user" "$AT" "$LOGS"
  as "$user" timeout 300 "$P" -o "$LOGS/ext4.log" "$@" "$BASE" 2>"$LOGS/ext4.err" || { ok=false; sed 's/^/on ext4: /' "$LOGS/ext4.err"; }
  chmod -R u+rwx "$AT"; rm -rf "$AT"
  case " $* " in *" -b "*) on_both "$user" "$@" || ok=false ;; *) under_weft "$user" "$@" || ok=false ;; esac
  [ ! -e "$AT" ] || { ok=false; echo "what belongs on the volume appeared in $AT"; rm -rf "$AT"; }
  for side in ext4 weft; do by_actor "$LOGS/$side.log" "$*" >"$LOGS/$side.txt" 2>/dev/null || ok=false; done
  $ok && cmp -s "$LOGS/ext4.txt" "$LOGS/weft.txt"
}
under_weft() { # under_weft USER ARGS...: all processes by the library
  local user=$1; shift
  as "$user" "$WEFT" format --quiet $(of_core 4M) --size 512M "$LOGS/image" >/dev/null 2>&1
  as "$user" timeout 300 "$WEFT" run --quiet --volume "$LOGS/image" --at "$AT" -- \
    bash -c 'mkdir -p "$1" && exec "$2" -o "$3" "${@:4}" "$1"' sequence "$BASE" "$P" "$LOGS/weft.log" "$@" 2>"$LOGS/weft.err" ||
    { sed 's/^/on the volume: /' "$LOGS/weft.err"; return 1; }
}
on_both() { # on_both USER ARGS...: the program natively at the mount, and those of its processes that are in -b's mask by the library
  local user=$1 ok=true; shift
  new_volume 512M 4M "$LOGS/image" >/dev/null 2>&1
  mkdir -p "$AT"
  "$WEFT" mount --daemon --quiet --log "$LOGS/mount.log" --socket "$LOGS/socket" "$LOGS/image" "$AT" || return 1
  chmod 777 "$LOGS/socket"
  mkdir -p "$BASE"
  [ "$(id -u)" != 0 ] || chown -R "$user:$user" "$AT"
  FRONT="$WEFT run --quiet --socket $LOGS/socket --at $AT --" as "$user" timeout 300 "$P" -o "$LOGS/weft.log" "$@" "$BASE" 2>"$LOGS/weft.err" ||
    { ok=false; sed 's/^/on the volume: /' "$LOGS/weft.err"; }
  "$WEFT" unmount --lazy "$AT" 2>"$LOGS/unmount.err" || { ok=false; cat "$LOGS/unmount.err"; }
  rmdir "$AT" || return 1
  "$WEFT" fsck "$LOGS/image" >"$LOGS/fsck" 2>&1 || { ok=false; cat "$LOGS/fsck"; }
  ! grep -E 'WARN|ERROR' "$LOGS/mount.log" || ok=false
  $ok
}
calls_of() { awk '/ operations, / { print $3 }' "$LOGS/weft.err"; }
# The first record that differs, with what came before it.
show() {
  paste -d $'\001' "$LOGS/ext4.txt" "$LOGS/weft.txt" | awk -F $'\001' -v before="${1:-20}" '
    $1 != $2 { for (i = NR - before; i < NR; i++) if (i > 0) print "      " line[i % before]; print "ext4  " $1; print "weft  " $2; exit }
    { line[NR % before] = $1 }' || true # paste may be told that nobody reads on
}
# Number of the operation that differs first.
first_operation() {
  local line
  line=$(cmp "$LOGS/ext4.txt" "$LOGS/weft.txt" 2>/dev/null | awk '{ print $NF }') || [ -n "$line" ] || return 0
  sed -n "${line}p" "$LOGS/ext4.txt" | grep -o '^[0-9]*'
}
# Leaves operations out as long as there is a difference: halves, quarters, ... of what is left.
shorten() { # shorten USER ARGS...
  local tries=0 size last kept=$SCRATCH/kept
  last=$(first_operation); [ -n "$last" ] || return 0
  seq 0 "$last" >"$kept"
  sequence "$@" -k "$kept" >/dev/null && return 0
  size=$((last / 2))
  while [ "$size" -gt 0 ] && [ "$tries" -lt "$SHORTEN" ]; do
    local from=1 total; total=$(wc -l <"$kept")
    while [ "$from" -le "$total" ] && [ "$tries" -lt "$SHORTEN" ]; do
      sed "${from},$((from + size - 1))d" "$kept" >"$kept.less"
      tries=$((tries + 1))
      # Another difference that comes to light is not the one that is sought.
      if sequence "$@" -k "$kept.less" >/dev/null || [ "$(first_operation)" != "$last" ]; then from=$((from + size))
      else mv "$kept.less" "$kept"; total=$(wc -l <"$kept"); fi
    done
    size=$((size / 2))
  done
  sequence "$@" -k "$kept" >/dev/null || { echo "shortened to $(wc -l <"$kept") operations: $(tr '\n' ' ' <"$kept" | cut -c1-400)"; show 12; }
}

if [ "${1:-}" = once ]; then
  seed=$2 user=$3; shift 3
  if sequence "$user" -n "$OPERATIONS" -s "$seed" "$@"; then echo "the same: $(calls_of) calls"; 
  else show; [ "$SHORTEN" = 0 ] || shorten "$user" -n "$OPERATIONS" -s "$seed" "$@"; exit 1; fi
  exit
fi
CALLS=${1:-200000} seed=${2:-1} made=0 different=0 sequences=0
other=$(id -u)
[ "$other" != 0 ] || ! as "$OTHER" test -x "$SCRATCH/." -a -x "$P" -a -x "$WEFT" || other=$OTHER
while [ "$made" -lt "$CALLS" ]; do
  user=$(id -u); [ $((seed % 2)) = 0 ] || user=$other
  args=(-n "$OPERATIONS" -s "$seed")
  if [ "${NAMES:-0}" = 1 ]; then
    user=$(id -u) args+=(-m)
    [ "$user" != 0 ] || args+=(-u "$OTHER")
  elif [ $((seed % 4)) = 3 ]; then args+=(-f); fi
  # One or two of the three by the library; now and then none or all.
  [ "${BOTH:-0}" != 1 ] || { masks=(2 5 1 6 4 3 5 2 0 3 7 6); args+=(-b "${masks[seed % 12]}"); }
  if ! sequence "$user" "${args[@]}"; then
    different=$((different + 1))
    echo "DIFFERENT: suites/differential.sh once $seed $user ${args[*]:4}"
    show
    [ "$SHORTEN" = 0 ] || [ "$different" -gt 3 ] || shorten "$user" "${args[@]}"
  fi
  sequences=$((sequences + 1)) calls=$(calls_of 2>/dev/null) || true
  made=$((made + ${calls:-1}))
  seed=$((seed + 1))
done
echo "$made calls in $sequences sequences"
same "sequences with a difference" 0 "$different"
summary
