#!/usr/bin/env bash
# Power cuts through a mount, with and without -o writeback: crates/fuse/tests/power_cut.rs for as long as it takes.
#   suites/cut-mount.sh [CUTS=2000]      at least so many of each mount
# SEED=N (1) begins elsewhere. Needs root and /dev/fuse.
cd "$(dirname "$0")/.." || exit 2
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || { echo "cut-mount.sh: only root can mount here, and needs /dev/fuse" >&2; exit 2; }
export WEFT_CUTS=${1:-2000} WEFT_SEED=${SEED:-1}
exec cargo test --release --locked -p weft-fuse --test power_cut -- --nocapture --test-threads 1
