#!/usr/bin/env bash
# A tag store on small file systems that fill up: fill, delete, fill again, with SIGKILL between; every command answers, and all that was there is there.
# Each size goes without and with secure deletion; with it, no deleted key is left in the file.
#   suites/tags-full.sh [SIZES=20] [FIRST_KIB=70000] [STEP_KIB=777]        needs the right to mount
source "$(dirname "$0")/lib.sh"
SIZES=${1:-20} FIRST=${2:-70000} STEP=${3:-777}
MOUNT=$SCRATCH/mount
mkdir "$MOUNT"
finish_mount() { umount "$MOUNT" 2>/dev/null || true; finish; }
trap finish_mount EXIT
pairs() { # pairs FIRST COUNT BYTES
  awk -v first="$1" -v count="$2" -v bytes="$3" 'BEGIN {
    value = sprintf("%" bytes "s", ""); gsub(/ /, "v", value)
    for (n = first; n < first + count; n++) printf "key%09d\t%s%d\n", n, value, n }'
}
answers() { # answers STORE: commands that read end well
  local listed counted
  counted=$("$WEFT" kv count "$1") || return
  listed=$("$WEFT" kv scan "$1" | wc -l) || return
  [ "$counted" = "$listed" ] && "$WEFT" tags stat "$1" >/dev/null && "$WEFT" tags check "$1" >/dev/null
}
round() { # round KIB SECURE: one file system; SECURE is on or off
  local store=$MOUNT/store left=$SCRATCH/rest key out
  mount -t tmpfs -o "size=$1k" tmpfs "$MOUNT"
  "$WEFT" tags create "$store" >/dev/null && "$WEFT" kv put "$store" first pair &&
    "$WEFT" tags snode --secure-delete "$2" "$store" s1 >/dev/null || { umount "$MOUNT"; return 1; }
  for turn in 1 2 3; do
    pairs "${turn}000000" 200000 "$((RANDOM % 900 + 1))" >"$left"
    if [ "$turn" = 2 ]; then
      "$WEFT" kv load --quiet --sync --batch 100 "$store" "$left" >"$SCRATCH/said" 2>&1 & run=$!
      sleep "0.$(printf '%03d' $((RANDOM % 900)))"
      kill -KILL "$run" 2>/dev/null || true
      wait "$run" 2>/dev/null || true
    fi
    if ! "$WEFT" kv load --quiet --batch 100 "$store" "$left" >"$SCRATCH/said" 2>&1; then
      grep -q 'full.*ENOSPC' "$SCRATCH/said" || { cat "$SCRATCH/said"; umount "$MOUNT"; return 1; }
    fi
    answers "$store" || { umount "$MOUNT"; return 1; }
    # A full store gives keys up one by one, and then takes pairs again.
    "$WEFT" kv scan "$store" | cut -f 1 | head -50 >"$SCRATCH/keys"
    while read -r key; do
      "$WEFT" kv delete "$store" "$key" >"$SCRATCH/said" 2>&1 || { cat "$SCRATCH/said"; umount "$MOUNT"; return 1; }
    done <"$SCRATCH/keys"
    if [ "$2" = on ] && grep -aoF -f "$SCRATCH/keys" "$store"; then
      echo "deleted keys are in the file"; umount "$MOUNT"; return 1
    fi
    "$WEFT" kv put "$store" after delete >/dev/null 2>&1 || true
    answers "$store" || { umount "$MOUNT"; return 1; }
  done
  out=$("$WEFT" tags shrink "$store" 2>&1) || { echo "$out"; umount "$MOUNT"; return 1; }
  answers "$store" || { umount "$MOUNT"; return 1; }
  umount "$MOUNT"
}
for at in $(seq 0 $((SIZES - 1))); do
  kib=$((FIRST + at * STEP))
  check "a file system of $kib KiB" round "$kib" off
  check "a file system of $kib KiB, secure deletion" round "$kib" on
done
summary
