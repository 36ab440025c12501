# RocksDB by Debian's db_bench: filled, overwritten, reopened, verified, killed. KEYS: how many.
prepare() {
  need db_bench rocksdb-tools
  need ldb rocksdb-tools
  need sst_dump rocksdb-tools
  export KEYS=${KEYS:-600000}
}
bench() { # bench BENCHMARKS [OPTION...]
  local benchmarks=$1; shift
  "$ROOT/scripts/leveled.sh" "$D/db" "$benchmarks" "$@" 2>&1 | tee -a "$D/tmp/bench" >&2
}
work() {
  dpkg-query -W -f '${Package} ${Version}\n' rocksdb-tools
  bench fillrandom,waitforcompaction
  bench overwrite,waitforcompaction --use_existing_db=1
  bench readrandom --use_existing_db=1 --reads=100000
  bench readrandom --use_existing_db=1 --reads=100000 --use_direct_reads --use_direct_io_for_flush_and_compaction
  bench readrandom --use_existing_db=1 --reads=100000 --mmap_read=1
  bench readwhilewriting --use_existing_db=1 --reads=20000 --benchmark_write_rate_limit=2000000
  grep -oE '\([0-9]+ of [0-9]+ found\)' tmp/bench | head -3
  fact "$(sed -nE 's/^(fillrandom|readrandom) .* ([0-9]+) ops\/sec.*/\1 \2\/s/p' tmp/bench | tr '\n' ' ')"
  ldb --db=db dump --count_only 2>/dev/null | grep -oE 'Keys in range: [0-9]+'
  ldb --db=db checkconsistency
  # Killed while it writes, each write synchronous.
  "$ROOT/scripts/leveled.sh" "$D/db" overwrite --use_existing_db=1 --sync=1 >&2 2>&1 & writer=$!
  sleep 5; kill -9 $writer; wait $writer 2>/dev/null || true
  ldb --db=db checkconsistency
  ldb --db=db dump --count_only 2>/dev/null | grep -oE 'Keys in range: [0-9]+'
  sst_dump --file=db --command=verify >tmp/verify 2>&1 || true
  grep -ciE 'corrupt|not ok|error' tmp/verify || true
  [ "$(grep -c sst tmp/verify)" -gt 5 ] && echo "sst_dump saw the tables"
}
