#!/usr/bin/env bash
# RocksDB under weft, unmodified: fill, overwrite, read while writing, at a given utilisation of the volume; closed,
# reopened in a new process; compared key by key count with a native run of the same seed; checked by RocksDB's own tools.
#   suites/rocksdb.sh [UTILISATION=80] [buffered|direct] [MODE=rules] [ZONE=4M] [KEYS=600000]
source "$(dirname "$0")/lib.sh"
UTIL=${1:-80} IO=${2:-buffered} MODE=${3:-rules} ZONE=${4:-4M} KEYS=${5:-600000}
export KEYS
COMMON=()
[ "$IO" = direct ] && COMMON+=(--use_direct_io_for_flush_and_compaction --use_direct_reads)
FILL=(fillrandom,waitforcompaction)
OVER=(overwrite,overwrite,waitforcompaction --use_existing_db=1)
MIX=(readwhilewriting --use_existing_db=1 --reads=20000 --benchmark_write_rate_limit=2000000)
READ=(readrandom --use_existing_db=1 --reads=100000)
found() { grep -oE '\([0-9]+ of [0-9]+ found\)' "$1" | tail -1; }

native=$SCRATCH/native
# What has to fit is the peak: compaction holds inputs and outputs at once. The volume is sized so that the peak is
# UTILISATION per cent of what programs can store.
watched() { python3 suites/programs/peak.py "$native" "$SCRATCH/peak" "$@"; }
watched scripts/leveled.sh "$native" "${FILL[@]}" "${COMMON[@]}" >"$SCRATCH/n1" 2>&1
watched scripts/leveled.sh "$native" "${OVER[@]}" "${COMMON[@]}" >"$SCRATCH/n2" 2>&1
scripts/leveled.sh "$native" "${READ[@]}" "${COMMON[@]}" >"$SCRATCH/n3" 2>&1
bytes=$(du -sb "$native" | cut -f1)
want_found=$(found "$SCRATCH/n3")
want_keys=$(ldb --db="$native" dump --count_only 2>/dev/null | grep -oE 'Keys in range: [0-9]+')
rm -rf "$native"
peak=$(cat "$SCRATCH/peak")
IMAGE=$SCRATCH/image
echo "database $((bytes >> 20)) MiB, peak $((peak >> 20)) MiB, $UTIL % at the peak, $IO I/O, mode $MODE"
volume_for $((peak * 100 / UTIL)) "$ZONE" "$IMAGE"
WEFT_ARGS=(--mode "$MODE" --report "$SCRATCH/report.json")
check "fillrandom" weft_run scripts/leveled.sh /weft/db "${FILL[@]}" "${COMMON[@]}"
cp "$SCRATCH/report.json" "$SCRATCH/fill.json" 2>/dev/null || true
check "overwrite x2" weft_run scripts/leveled.sh /weft/db "${OVER[@]}" "${COMMON[@]}"
cp "$SCRATCH/report.json" "$SCRATCH/overwrite.json" 2>/dev/null || true
check "readrandom in a new process" weft_run scripts/leveled.sh /weft/db "${READ[@]}" "${COMMON[@]}"
same "keys found by readrandom" "$want_found" "$(found "$SCRATCH/out")"
weft_run ldb --db=/weft/db dump --count_only >"$SCRATCH/out" 2>/dev/null || true
same "keys in the database" "$want_keys" "$(grep -oE 'Keys in range: [0-9]+' "$SCRATCH/out")"
check "readwhilewriting" weft_run scripts/leveled.sh /weft/db "${MIX[@]}" "${COMMON[@]}"
check "ldb checkconsistency" weft_run ldb --db=/weft/db checkconsistency
weft_run sst_dump --file=/weft/db --command=verify >"$SCRATCH/out" 2>&1 || true
same "tables that sst_dump finds corrupt" 0 "$(grep -ciE 'corrupt|not ok|error' "$SCRATCH/out" || true)"
[ "$(grep -c 'sst' "$SCRATCH/out")" -gt 5 ] && pass "sst_dump saw the tables" || fail "sst_dump saw no tables: $(head -3 "$SCRATCH/out")"
check "weft fsck" "$WEFT" fsck "$IMAGE"
"$WEFT" df "$IMAGE" 2>/dev/null || true
[ -z "${KEEP_REPORTS:-}" ] || cp "$SCRATCH"/*.json "$KEEP_REPORTS"/
summary
