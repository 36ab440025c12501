#!/usr/bin/env bash
# Real zoned drives, in the lab: RocksDB and SIGKILL campaigns on the raw device and on zonefs, and a comparison with f2fs
# on the same drive in the same guest. Needs QEMU (docs/how-to/lab.md).
#   suites/lab.sh [PART...]     parts: zoned zonefs capacity f2fs (default: all)
#   KEYS=40000 ROUNDS=5 PAIRS=3 suites/lab.sh zonefs
set -euo pipefail
cd "$(dirname "$0")/.."
export WEFT=${WEFT:-$PWD/target/release/weft}
[ -x "$WEFT" ] || { echo "build first: make build (no $WEFT)" >&2; exit 2; }
export KEYS=${KEYS:-40000} ROUNDS=${ROUNDS:-5} PAIRS=${PAIRS:-3}
SHARE=$(mktemp -d "${TMPDIR:-/tmp}/weft-lab-suite.XXXXXX")
trap 'rm -rf "$SHARE"' EXIT
cc -O2 -Wall -o "$SHARE/append_records" suites/programs/append_records.c
cc -O2 -Wall -o "$SHARE/crash_group" suites/programs/crash_group.c -lpthread
failed=0
part() { # part NAME LAB-OPTIONS... -- SCRIPT ARGS...
  echo "== $1"
  local name=$1; shift
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  "$WEFT" lab --quiet --timeout "${LIMIT:-3000}" --share "$SHARE" "${options[@]}" -- "$@" || { failed=1; echo "FAIL  part $name"; }
}
[ $# -gt 0 ] || set -- zoned zonefs capacity f2fs
for name in "$@"; do
  case $name in
    zoned) part zoned --size 512M -- suites/lab/drive.sh zoned ;;
    zonefs) part zonefs --size 512M -- suites/lab/drive.sh zonefs ;;
    capacity) part capacity --size 512M --zone-capacity 12M --max-open 5 --max-active 6 -- suites/lab/drive.sh zoned ;;
    f2fs)
      command -v mkfs.f2fs >/dev/null || { echo "mkfs.f2fs is missing: apt-get install f2fs-tools" >&2; exit 2; }
      part f2fs --size "${DRIVE:-128M}" --zone-size "${ZONE:-4M}" --plain-size "${PLAIN:-48M}" -- suites/lab/f2fs.sh
      [ -z "${KEEP_REPORTS:-}" ] || cp "$SHARE"/f2fs.json "$KEEP_REPORTS"/
      ;;
    *) echo "no part is named '$name'; there are zoned, zonefs, capacity and f2fs" >&2; exit 2 ;;
  esac
done
exit "$failed"
