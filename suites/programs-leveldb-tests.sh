#!/usr/bin/env bash
# LevelDB's own test programs, one by one, in a folder of the file system and on a volume: each must end alike.
# programs-leveldb-tests.sh [BUILD]: BUILD keeps what is built (default: a scratch folder; building takes some minutes).
source "$(dirname "$0")/programs/peer-tests.sh"
need c++ g++
need cmake cmake
need /usr/include/gmock/gmock.h libgmock-dev
need /usr/include/benchmark/benchmark.h libbenchmark-dev
need make make
BUILD=${1:-$SCRATCH/build}
mkdir -p "$BUILD"
BUILD=$(cd "$BUILD" && pwd)
if [ ! -e "$BUILD/done" ]; then
  archive=$(source_of leveldb) || exit 3
  unpack "$archive" "$BUILD/source"
  # googletest and benchmark are the distribution's.
  sed -i -e '/add_subdirectory("third_party/d' -e '/TARGET gtest/,/-Wno-missing/d' -e '/TARGET gmock/,/-Wno-missing/d' \
    "$BUILD/source/CMakeLists.txt"
  cmake -S "$BUILD/source" -B "$BUILD/tests" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-Wno-error -DCMAKE_CXX_STANDARD=14 \
    -DLEVELDB_BUILD_BENCHMARKS=OFF >"$BUILD/log" 2>&1 &&
    make -C "$BUILD/tests" -k -j"$(nproc)" >>"$BUILD/log" 2>&1 || { echo "MISSING  LevelDB's tests do not build"; tail -5 "$BUILD/log"; exit 3; }
  touch "$BUILD/done"
fi
version "LevelDB $(sed -n 's/^project(leveldb VERSION \([0-9.]*\).*/\1/p' "$BUILD/source/CMakeLists.txt")"
for test in "$BUILD"/tests/*_test; do
  ends_alike "$test"
done
fsck_clean
summary
