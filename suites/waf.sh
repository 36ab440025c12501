#!/usr/bin/env bash
# Write amplification of leveled RocksDB by placement mode, exactly: db_bench is recorded once per table size, and each
# recording is played in every mode on volumes of 4 and 8 MiB zones that are 80 and 90 % full at the peak. Fails when
# rules <= suffix < off does not hold in a row in which any mode had something to relocate.
#   suites/waf.sh [KEYS] [TABLES_MIB="1 2 4 16"] [ZONES=4M,8M] [FULL=80,90]
# KEYS is 600,000, and 450,000 for tables of 16 MiB: with more of these the peak is one short compaction, the volume is far
# from full before and after it, and at zones of 4 MiB and 80 % nothing is relocated in any mode.
# Builds and installs what is missing. RECORDINGS=DIR keeps the recordings there, and uses those that are there already.
# Tables of 1 MiB are far smaller than a zone, those of 16 MiB larger. The tree is RocksDB's default, scaled to the
# tables: a write buffer as large as a table, a first level of four, compaction that may fall behind by at most twelve
# first levels.
cd "$(dirname "$0")/.."
[ -n "${WEFT:-}" ] || [ -x target/release/weft ] || make build || exit 2
source suites/lib.sh
scripts/need-db-bench.sh
TABLES=${2:-1 2 4 16} ZONES=${3:-4M,8M} FULL=${4:-80,90}
RECORDINGS=${RECORDINGS:-$SCRATCH}
for table in $TABLES; do
  if [ "$table" -lt 16 ]; then KEYS=${1:-600000}; else KEYS=${1:-450000}; fi
  export KEYS
  recording=$RECORDINGS/tables-of-$table-mib.rec
  if [ ! -s "$recording" ]; then
    bytes=$((table << 20)) level=$((table << 22))
    # In memory, several times as large as what the program stores: the recording does not depend on the volume.
    "$WEFT" run --quiet --volume "mem:$((KEYS * 6 / 1000 + 512))M" --record "$recording" -- \
      scripts/leveled.sh /weft/db fillrandom,overwrite,overwrite --value_size=1000 \
      --write_buffer_size=$bytes --target_file_size_base=$bytes --max_bytes_for_level_base=$level \
      --soft_pending_compaction_bytes_limit=$((3 * level)) --hard_pending_compaction_bytes_limit=$((12 * level)) \
      --level0_file_num_compaction_trigger=4 --level0_slowdown_writes_trigger=8 --level0_stop_writes_trigger=12 \
      >"$SCRATCH/out" 2>&1 || { fail "db_bench, tables of $table MiB"; tail -5 "$SCRATCH/out"; exit 1; }
  fi
  "$WEFT" replay --zone "$ZONES" --full "$FULL" --json "$recording" >"$SCRATCH/replay-$table.json"
  if python3 - "$SCRATCH/replay-$table.json" "$table" <<'PY'
import json, sys
[recording] = json.load(open(sys.argv[1]))["recordings"]
print(f"\ntables of {sys.argv[2]} MiB: {recording['written_bytes'] / 2**30:.1f} GiB written, "
      f"{recording['peak_bytes'] / 2**20:.0f} MiB at the peak")
print("   zone  full  zones     off  random  suffix   rules")
broken = 0
for row in recording["rows"]:
    waf = {cell["mode"]: cell["waf"] or 99 for cell in row["modes"]}
    # Where the peak passes quickly the volume is far from full for the rest of the run, and nothing needs cleaning.
    idle = max(waf.values()) == 1
    holds = waf["rules"] <= waf["suffix"] < waf["off"]
    broken += not (holds or idle)
    note = "  (nothing to relocate in any mode)" if idle else "" if holds else "  FAIL: rules <= suffix < off does not hold"
    print(f"{row['zone_bytes'] >> 20:3} MiB  {row['full_percent']} %  {row['zones']:5}"
          f"  {waf['off']:6.4f}  {waf['random']:6.4f}  {waf['suffix']:6.4f}  {waf['rules']:6.4f}"
          f"{note}")
sys.exit(broken > 0)
PY
  then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
done
summary
