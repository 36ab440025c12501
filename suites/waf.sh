#!/usr/bin/env bash
# Write amplification of leveled RocksDB by placement mode: zones of 4 and 8 MiB, the volume 80 and 90 % full at the
# peak; tables as large as, far smaller than, and far larger than a zone.
#   suites/waf.sh [KEYS=600000] [ZONES="4M 8M"] [UTILISATIONS="80 90"] [TABLE_KIB="2048"] [REPEAT=1]
# WAF = (written for programs + relocated by the cleaner) / written for programs; "all" adds metadata and padding.
source "$(dirname "$0")/lib.sh"
KEYS=${1:-600000} ZONES=${2:-4M 8M} UTILS=${3:-80 90} TABLES=${4:-2048} REPEAT=${5:-1}
RESULTS=${RESULTS:-$SCRATCH/results}
mkdir -p "$RESULTS"
for table in $TABLES; do
  export KEYS
  extra="--target_file_size_base=$((table * 1024))"
  native=$SCRATCH/native
  rm -rf "$native" "$SCRATCH/peak"
  # shellcheck disable=SC2086
  python3 suites/programs/peak.py "$native" "$SCRATCH/peak" scripts/leveled.sh "$native" fillrandom,overwrite,overwrite $extra >/dev/null 2>&1
  peak=$(cat "$SCRATCH/peak")
  echo "tables of $table KiB: $(du -sm "$native" | cut -f1) MiB at the end, $((peak >> 20)) MiB at the peak"
  rm -rf "$native"
  for zone in $ZONES; do
    for util in $UTILS; do
      line=$(volume_for $((peak * 100 / util)) "$zone" "$SCRATCH/image")
      rm -f "$SCRATCH/image"
      zones=$(grep -oE 'of [0-9]+ zones' <<<"$line" | grep -oE '[0-9]+')
      json=$RESULTS/waf-$table-$zone-$util.json
      "$WEFT" compare --quiet --repeat "$REPEAT" --size $((zones * ${zone%M}))M --zone-size "$zone" --json "$json" -- \
        scripts/leveled.sh /weft/db fillrandom,overwrite,overwrite "$extra" \
        >"$SCRATCH/table" 2>"$SCRATCH/err" || { fail "zone $zone, $util %, tables $table KiB"; tail -5 "$SCRATCH/err"; continue; }
      python3 - "$json" "$zone" "$util" "$table" <<'PY'
import json, statistics, sys
path, zone, util, table = sys.argv[1:]
by_mode = {m["mode"]: m["runs"] for m in json.load(open(path))["modes"]}
cells, data = [], {}
for mode, reports in by_mode.items():
    data[mode] = statistics.median(r["data_waf"] for r in reports)
    total = statistics.median(r["waf"] for r in reports)
    cells.append(f"{mode} {data[mode]:.3f} (all {total:.3f}){' STATUS' if any(r['status'] for r in reports) else ''}")
order = data.get("rules", 9) <= data.get("suffix", 9) < data.get("off", 0)
print(f"zone {zone}, {util} %, tables {table} KiB:", ", ".join(cells), "| rules <= suffix < off:", order)
PY
    done
  done
done
