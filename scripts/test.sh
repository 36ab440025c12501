#!/usr/bin/env bash
# Builds the tests of all crates, and runs two test programs at a time: many wait for something, or are one thread long.
# What a program prints comes when it has ended. Fails when one of them has failed, after all have run.
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
# The programs that take longest begin first.
LONG="command slices probes names acl"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$CARGO" test --workspace --locked --no-run --message-format=json-render-diagnostics >"$scratch/built"
python3 - "$scratch/built" "$LONG" >"$scratch/programs" <<'PY'
import json, os, sys
long = sys.argv[2].split()
programs = []
for line in open(sys.argv[1]):
    built = json.loads(line)
    if built["reason"] == "compiler-artifact" and built["profile"]["test"] and built["executable"]:
        name, folder = built["target"]["name"], os.path.dirname(built["manifest_path"])
        rank = long.index(name) if name in long else len(long)
        programs.append((rank, folder, name, built["executable"]))
for _, folder, name, program in sorted(programs):
    print(f"{folder}\t{name}\t{program}")
PY

export scratch
run() {
  IFS=$'\t' read -r folder name program <<<"$1"
  log=$(mktemp "$scratch/log.XXXXXX") status=0
  (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program") >"$log" 2>&1 || status=$?
  {
    flock 9
    echo "     Running $name ($program)"
    cat "$log"
    [ $status = 0 ] || { echo "error: $name ended with $status"; echo "$folder $name" >>"$scratch/failed"; }
  } 9>>"$scratch/lock"
  rm "$log"
}
export -f run
xargs -d '\n' -n 1 -P 2 bash -c 'run "$0"' <"$scratch/programs"
"$CARGO" test --workspace --locked --doc || echo "documentation" >>"$scratch/failed"
if [ -e "$scratch/failed" ]; then
  echo "error: tests failed:" >&2
  cat "$scratch/failed" >&2
  exit 1
fi
