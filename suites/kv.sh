#!/usr/bin/env bash
# The key-value workload of ADAPT on weft's key-value store, on a bound, and on other stores; prints a table.
# Usage: kv.sh [OPTIONS of `kv-peers run`], such as --pairs 1000000 --runs 5 --stores weft,bound --json kv.json
# Needs for the peers: libleveldb-dev liblmdb-dev librocksdb-dev libtkrzw-dev (Debian); what is missing is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
features=redb,fjall
for library in leveldb:leveldb/c.h lmdb:lmdb.h rocksdb:rocksdb/c.h tkrzw:tkrzw_langc.h; do
  if [ -e "/usr/include/${library#*:}" ]; then
    features=$features,${library%%:*}
  else
    echo "without ${library%%:*}: its development package is not installed" >&2
  fi
done
target=${CARGO_TARGET_DIR:-$PWD/target}
CARGO_TARGET_DIR=$target cargo build --release --locked --quiet --manifest-path suites/kv-peers/Cargo.toml \
  --no-default-features --features "$features"
exec "$target/release/kv-peers" run --dir "$target/kv-peers" "$@"
