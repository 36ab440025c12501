#!/bin/sh
# The main job, seen from end to end: an unmodified RocksDB on a zoned volume that is 85 % full, reopened by another
# process, checked against a native run, and compared across placement modes. WEFT names the weft command.
set -eu
cd "$(dirname "$0")/.."
weft=${WEFT:-target/release/weft}
dir=$(mktemp -d "${TMPDIR:-$PWD/target}/weft-demo.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
image=$dir/vol.img
step() { printf '\n=== %s\n' "$*"; }
results() { grep -E 'micros/op|rror' || true; }

step "format a volume of 512 MiB in zones of 4 MiB"
"$weft" format --size 512M --zone-size 4M "$image"

step "db_bench on it, unmodified: fillrandom, overwrite"
"$weft" run --volume "$image" -- scripts/leveled.sh /weft/db fillrandom,overwrite >"$dir/fill.out" 2>"$dir/fill.err" ||
    { tail -20 "$dir/fill.out" "$dir/fill.err"; exit 1; }
results <"$dir/fill.out"
sed -n '/^weft: /,$p' "$dir/fill.err"
"$weft" df "$image"

step "the same database, opened by a new process"
"$weft" run --quiet --volume "$image" -- scripts/leveled.sh /weft/db readrandom --reads=200000 --seed=7 --use_existing_db \
    2>"$dir/read.err" | results | tee "$dir/read.out"

step "the same on this machine's file system: as many keys must be found"
scripts/leveled.sh "$dir/native" fillrandom,overwrite 2>/dev/null | results
scripts/leveled.sh "$dir/native" readrandom --reads=200000 --seed=7 --use_existing_db 2>/dev/null |
    results | tee "$dir/native.out"
rm -rf "$dir/native"
found() { sed -n 's/.*(\([0-9]* of [0-9]*\) found).*/\1/p' "$1"; }
if [ -z "$(found "$dir/read.out")" ] || [ "$(found "$dir/read.out")" != "$(found "$dir/native.out")" ]; then
    echo "found on the volume: $(found "$dir/read.out"); natively: $(found "$dir/native.out")" >&2
    exit 1
fi
echo "found on the volume and natively: $(found "$dir/read.out")"

step "the volume is sound, and its zones look like this"
"$weft" fsck "$image"
"$weft" zones "$image"
rm -f "$image"

step "the same workload in each placement mode, each on a fresh volume"
"$weft" compare --quiet --size 512M --zone-size 4M -- scripts/leveled.sh /weft/db fillrandom,overwrite
