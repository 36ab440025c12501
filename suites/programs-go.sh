#!/usr/bin/env bash
# Go programs that are linked dynamically (by cgo, or by the resolver of `net`), on a volume by `--intercept sud`: Go makes its
# system calls by itself, on the small stacks of its goroutines. programs-go.sh [GOROUTINES [ROUNDS]]
GOROUTINES=${1:-200}
ROUNDS=${2:-20}
source "$(dirname "$0")/programs/prepare.sh"
need go golang-go
version "$(go version | sed 's/go version go\([^ ]*\).*/go \1/')"
export GOCACHE=$SCRATCH/cache GOFLAGS=-mod=mod CGO_ENABLED=1
WEFT_ARGS=(--intercept sud)
new_volume 512M
for kind in cgo plain; do
  (cd suites/programs/go && go build -tags "$kind" -o "$SCRATCH/go-$kind" .)
  export PROGRAM=$SCRATCH/go-$kind GOROUTINES ROUNDS
  like "$kind: $GOROUTINES goroutines write, read, append, rename, list and remove, $ROUNDS rounds each" <<'S'
"$PROGRAM" "$D" "$GOROUTINES" "$ROUNDS"; echo $?; ls | wc -l; find . -type f | sort | xargs cat | md5sum; rm -r -- *
S
  like "$kind: on one and on eight processors" <<'S'
for n in 1 8; do GOMAXPROCS=$n "$PROGRAM" "$D" 50 5; echo $?; rm -r -- *; done
S
  like "$kind: preempted often, garbage collected at each allocation of a few KiB" <<'S'
GOGC=1 "$PROGRAM" "$D" 20 10; echo $?; rm -r -- *
S
done
fsck_clean
summary
