# Shared by the suites: where the binaries are, a scratch folder, messages. Source it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
WEFT=${WEFT:-$ROOT/target/release/weft}
[ -x "$WEFT" ] || { echo "build first: make build (no $WEFT)" >&2; exit 2; }
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/weft-suite.XXXXXX")
SERVER=
finish() {
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
  echo "$PASSED passed, $FAILED failed"
  [ "$FAILED" = 0 ]
}
weft_run() { "$WEFT" run --quiet --volume "$IMAGE" "${WEFT_ARGS[@]}" -- "$@"; }
WEFT_ARGS=()
program() { # program NAME.c|NAME.cc [FLAGS...]: compiles a program of suites/programs, prints its path
  local source=suites/programs/$1 out; shift
  out=$SCRATCH/$(basename "${source%.*}")
  case $source in
    *.cc) c++ -O2 -o "$out" "$source" "$@" ;;
    *) cc -O2 -Wall -o "$out" "$source" "$@" ;;
  esac
  echo "$out"
}
