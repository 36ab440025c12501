#!/usr/bin/env bash
# RocksDB's own test programs in a folder of the file system and on a volume: each must end alike.
# programs-rocksdb-tests.sh [BUILD [TEST...]]: BUILD keeps what is built (default: a scratch folder; building takes an hour or
# two on two cores). Without names the tests below run; they take some hours.
LIMIT=${LIMIT:-3600} # some of them run for half an hour
source "$(dirname "$0")/programs/peer-tests.sh"
need c++ g++
need make make
BUILD=${1:-$SCRATCH/build}
[ $# = 0 ] || shift
TESTS=("$@")
[ $# -gt 0 ] || TESTS=(db_basic_test db_test db_test2 db_wal_test db_flush_test db_compaction_test db_options_test db_sst_test
  db_io_failure_test transaction_test write_prepared_transaction_test optimistic_transaction_test db_universal_compaction_test backup_engine_test
  checkpoint_test env_test io_posix_test external_sst_file_test corruption_test fault_injection_test repair_test
  db_blob_basic_test obsolete_files_test column_family_test prefix_test)
mkdir -p "$BUILD"
BUILD=$(cd "$BUILD" && pwd)
if [ ! -e "$BUILD/source/Makefile" ]; then
  archive=$(source_of rocksdb) || exit 3
  unpack "$archive" "$BUILD/source"
fi
DISABLE_WARNING_AS_ERROR=1 LIB_MODE=shared USE_RTTI=1 ROCKSDB_DISABLE_JEMALLOC=1 EXTRA_CXXFLAGS="-g0 -Wno-error" \
  make -C "$BUILD/source" -j"$(nproc)" DEBUG_LEVEL=1 "${TESTS[@]}" >"$BUILD/log" 2>&1 ||
  { echo "MISSING  RocksDB's tests do not build, see $BUILD/log"; tail -5 "$BUILD/log"; exit 3; }
version "RocksDB $(awk '/define ROCKSDB_(MAJOR|MINOR|PATCH)/ { printf("%s%s", n++ ? "." : "", $3) }' \
  "$BUILD/source/include/rocksdb/version.h")"
export LD_LIBRARY_PATH=$BUILD/source VOLUME_SIZE=${VOLUME_SIZE:-8G}
for test in "${TESTS[@]}"; do
  ends_alike "$BUILD/source/$test"
done
fsck_clean
summary
