#!/usr/bin/env bash
# The B+tree experiment of ADAPT (section 5.2) on weft's tree, a tree stored whole, LMDB and redb; prints a table.
# Usage: btree.sh [OPTIONS of btree-peers], such as --full --runs 5 --stores weft,file --json btree.json
# Needs liblmdb-dev (Debian) for LMDB; without it that row is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
features=redb
if [ -e /usr/include/lmdb.h ]; then
  features=$features,lmdb
else
  echo "without lmdb: its development package is not installed" >&2
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
CARGO_TARGET_DIR=$target cargo build --release --locked --quiet --manifest-path suites/kv-peers/Cargo.toml \
  --bin btree-peers --no-default-features --features "$features"
exec "$target/release/btree-peers" --dir "$target/btree-peers" "$@"
