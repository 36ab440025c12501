#!/usr/bin/env bash
# Fuzzes what reads bytes that somebody else wrote, one target after the other, led by coverage (docs/fuzzing.md).
#   suites/fuzz.sh [SECONDS=600] [TARGET...]
# Without targets: all of them. SEED=N (1) begins elsewhere. Inputs that are findings are kept in FINDINGS
# (target/fuzz/findings), each with the command that does it again. As root the server's other users are other users;
# otherwise all are one.
cd "$(dirname "$0")/.." || exit 2
SECONDS_EACH=${1:-600}
shift
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
export WEFT_FUZZ_FINDINGS=${FINDINGS:-$CARGO_TARGET_DIR/findings}
# The counters are read in the program; nobody needs the profile that it would write at its end.
export LLVM_PROFILE_FILE=/dev/null
export RUSTFLAGS="-C instrument-coverage --cfg weft_coverage -C debug-assertions -C overflow-checks"
FUZZ=$CARGO_TARGET_DIR/release/weft-fuzz
cargo build --release --locked -p weft-fuzz || exit 2
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <("$FUZZ" --list)
findings=0
for target in "${targets[@]}"; do
  "$FUZZ" "$target" "$SECONDS_EACH" "${SEED:-1}" 2>"$CARGO_TARGET_DIR/$target.log"
  status=$?
  [ $status -ne 0 ] || continue
  findings=$((findings + 1))
  tail -n 20 "$CARGO_TARGET_DIR/$target.log"
  echo "again: $FUZZ $target --replay FILE"
done
exit $((findings > 0))
