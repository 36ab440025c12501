#!/usr/bin/env bash
# Runs programs on a volume and prints a table. programs.sh [NAME...]: a NAME is that of a suites/programs-NAME.sh; without
# one all are run, in about 45 minutes. Each compares with a native run of the same; docs/programs.md tells what it does.
cd "$(dirname "$0")/.." || exit 2
NAMES=("$@")
[ $# -gt 0 ] || NAMES=(rocksdb leveldb leveldb-tests sqlite sqlite-atomic leveldb-compound rocksdb-compound wiredtiger lmdb java postgresql mariadb redis git tools fio node python gcc go bash)
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/weft-programs.XXXXXX")
table() { printf '%-12s %-8s %6s %6s %6s  %s\n' "$@"; }
ROWS=()
STATUS=0
for name in "${NAMES[@]}"; do
  suite=suites/programs-$name.sh
  [ -x "$suite" ] || suite=suites/$name.sh
  [ -x "$suite" ] || { echo "$name: no suites/programs-$name.sh" >&2; exit 2; }
  echo "== $suite"
  start=$SECONDS
  timeout 1500 "$suite" 2>&1 </dev/null | tee "$LOGS/$name"
  status=${PIPESTATUS[0]}
  passed=$(grep -c '^ok ' "$LOGS/$name")
  failed=$(grep -c '^FAIL ' "$LOGS/$name")
  case $status in
    0) outcome=passes ;;
    3) outcome=missing ;;
    124) outcome=hangs; STATUS=1 ;;
    *) outcome=fails; STATUS=1 ;;
  esac
  # A suite that ended without its summary did not do what it says.
  if [ "$status" = 0 ] && ! grep -q '^[0-9]* passed, 0 failed' "$LOGS/$name"; then outcome=fails; STATUS=1; fi
  ROWS+=("$name|$outcome|$passed|$failed|$((SECONDS - start)) s|$(sed -n 's/^version  //p' "$LOGS/$name" | head -1)")
done
echo
table program outcome passed failed time version
for row in "${ROWS[@]}"; do
  IFS='|' read -r -a cells <<<"$row"
  table "${cells[@]}"
done
rm -rf "$LOGS"
exit $STATUS
