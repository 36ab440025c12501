#!/usr/bin/env bash
# A volume on each interface to a zoned drive, in the lab: a tree copied in, read back in another process, checked.
#   scripts/lab-smoke.sh            on the host
#   scripts/lab-smoke.sh inside     in the guest
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != inside ]; then
  exec "${WEFT:-target/release/weft}" lab --size 256M --zone-size 4M -- scripts/lab-smoke.sh inside
fi
tree() { # tree VOLUME
  weft format --quiet "$1"
  weft run --quiet --volume "$1" -- cp -r docs /weft
  weft run --quiet --volume "$1" -- diff -r docs /weft/docs
  weft fsck --quiet "$1" | tail -1
}
echo "zoned block device $WEFT_LAB_ZONED"
tree "$WEFT_LAB_ZONED"
echo "zonefs"
weft format --quiet --force --zonefs "$WEFT_LAB_ZONED"
mkdir -p /mnt/zones
mount -t zonefs -o explicit-open,errors=zone-ro "$WEFT_LAB_ZONED" /mnt/zones
tree zonefs:/mnt/zones
if dmesg | grep -E 'I/O Cmd|I/O error|zones exceeded|zonefs.*(WARNING|ERROR)'; then
  echo "the kernel log tells of failed zone commands" >&2
  exit 1
fi
echo "lab: all well"
