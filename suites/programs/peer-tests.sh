# Shared by the suites that run a peer's own test programs. Source it in place of prepare.sh.
source "$(dirname "${BASH_SOURCE[0]}")/prepare.sh"
LIMIT=${LIMIT:-600} # seconds for one test program
# unpack ARCHIVE FOLDER
unpack() { mkdir -p "$2" && tar -xf "$1" -C "$2" --strip-components=1; }
# verdicts: reads what a program of googletest prints; prints each test that failed or was skipped, and how many ran.
verdicts() {
  sed -n -e 's/ ([0-9]* ms)$//' -e 's/^\[  FAILED  \] \([^ ,]*\).*/failed \1/p' -e 's/^\[  SKIPPED \] \([^ ,]*\).*/skipped \1/p' \
    -e 's/^\[==========\] \([0-9]*\) tests\{0,1\} from.*ran\..*/ran \1/p' | sort -u
}
# ends_alike PROGRAM [ARGUMENT...]: runs a test program natively and on a fresh volume and compares status and verdicts.
ends_alike() {
  local name native volume
  name=$(basename "$1")
  rm -rf "$NATIVE"; mkdir -p "$NATIVE"
  (cd "$NATIVE"; TEST_TMPDIR=$NATIVE timeout "$LIMIT" "$@") >"$SCRATCH/native.out" 2>&1 </dev/null && native=0 || native=$?
  new_volume "${VOLUME_SIZE:-4G}"
  (cd "$SCRATCH"; TEST_TMPDIR=/weft timeout "$LIMIT" "$WEFT" run --quiet --volume "$IMAGE" "${WEFT_ARGS[@]}" -- \
    sh -c 'cd /weft && exec "$@"' sh "$@") >"$SCRATCH/volume.out" 2>&1 </dev/null && volume=0 || volume=$?
  native="status $native; $(verdicts <"$SCRATCH/native.out" | tr '\n' ';')"
  volume="status $volume; $(verdicts <"$SCRATCH/volume.out" | tr '\n' ';')"
  if [ "$native" = "$volume" ]; then
    pass "$name ($native)"
  else
    fail "$name"
    diff <(tr ';' '\n' <<<"$native") <(tr ';' '\n' <<<"$volume") || true
    mkdir -p "${KEEP:=${TMPDIR:-/tmp}/weft-peer-tests}"
    cp "$SCRATCH/volume.out" "$KEEP/$name.volume"; cp "$SCRATCH/native.out" "$KEEP/$name.native"
    echo "      what it printed: $KEEP/$name.volume and .native"
  fi
}
