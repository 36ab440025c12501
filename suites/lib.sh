# Shared by the suites: where the binaries are, a scratch folder, messages. Source it.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
WEFT=${WEFT:-$ROOT/target/release/weft}
[ -x "$WEFT" ] || { echo "build first: make build (no $WEFT)" >&2; exit 2; }
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/weft-suite.XXXXXX")
SERVER=
# The command at which the suite ended before its summary.
ENDED=
trap 'ENDED="${BASH_SOURCE[0]##*/}, line $LINENO: ${BASH_COMMAND%%$'"'\\n'"'*} (status $?)"' ERR
finish() {
  [ -z "$ENDED" ] || { fail "the suite ended early: $ENDED"; summary || true; }
  [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true
  rm -rf "$SCRATCH"
}
trap finish EXIT
PASSED=0
FAILED=0
pass() { PASSED=$((PASSED + 1)); echo "ok    $*"; }
fail() { FAILED=$((FAILED + 1)); echo "FAIL  $*"; }
check() { # check NAME COMMAND...: passes when the command succeeds
  local name=$1; shift
  if "$@" >"$SCRATCH/out" 2>&1; then pass "$name"; else fail "$name"; tail -20 "$SCRATCH/out"; fi
}
same() { # same NAME WANTED GOT
  if [ "$2" = "$3" ]; then pass "$1 ($2)"; else fail "$1: wanted '$2', got '$3'"; fi
}
summary() {
  trap - ERR
  ENDED=
  echo "$PASSED passed, $FAILED failed"
  [ "$FAILED" = 0 ]
}
weft_run() { "$WEFT" run --quiet --volume "$IMAGE" "${WEFT_ARGS[@]}" -- "$@"; }
WEFT_ARGS=()
program() { # program NAME.c|NAME.cc [FLAGS...]: compiles a program of suites/programs, prints its path
  local source=suites/programs/$1 out; shift
  out=$SCRATCH/$(basename "${source%.*}")
  case $source in
    *.cc) c++ -O2 -o "$out" "$source" "$@" || return ;;
    *) cc -O2 -Wall -o "$out" "$source" "$@" || return ;;
  esac
  echo "$out"
}
# of_core ZONE: options of `weft format` for the core CORE: lfs (the default), on zones of so many bytes, or tagfs.
of_core() { if [ "${CORE:-lfs}" = lfs ]; then echo "--zone-size $1"; else echo "--core $CORE"; fi; }
# new_volume SIZE [ZONE=4M [IMAGE=$IMAGE]]: makes an empty volume for the core CORE; a volume that was there is gone.
new_volume() {
  rm -f "${3:-$IMAGE}"
  "$WEFT" format --quiet $(of_core "${2:-4M}") --size "$1" "${3:-$IMAGE}"
}
# volume_for BYTES ZONE IMAGE: formats a volume in which programs can store just about BYTES (as df counts).
volume_for() {
  python3 - "$1" "$2" "$3" "$WEFT" <<'PY'
import json, subprocess, sys
want, zone, image, weft = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
unit = int(zone[:-1]) << 20
zones = want // unit + 16
for _ in range(6):
    subprocess.run([weft, "format", "--force", "--size", str(zones * unit), "--zone-size", zone, image],
                   check=True, capture_output=True)
    total = json.loads(subprocess.run([weft, "df", "--json", image], check=True, capture_output=True).stdout)
    total = (total[0] if isinstance(total, list) else total)["total_bytes"]
    short = (want - total) / unit
    if 0 <= -short < 1.5:
        break
    zones += int(short) + (1 if short > 0 else 0)
print(f"volume of {zones} zones of {zone}, {total >> 20} MiB for programs")
PY
}
