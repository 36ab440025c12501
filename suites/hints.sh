#!/usr/bin/env bash
# RocksDB's write-lifetime hints: refused by the kernel as the program gives them, taken under `weft run --hints`.
# Prints how many of db_bench's F_SET_RW_HINT calls succeeded and failed each way, and fails when one failed under weft.
. "$(dirname "$0")/lib.sh"
scripts/need-db-bench.sh
command -v strace >/dev/null || { echo "needs strace: apt-get install strace" >&2; exit 2; }

dir=$SCRATCH
bench=(db_bench --benchmarks=fillrandom,compact --num=200000 --value_size=400 --compression_type=none
       --write_buffer_size=$((4 << 20)) --target_file_size_base=$((4 << 20)) --max_bytes_for_level_base=$((16 << 20)))

strace -f -qq -e trace=fcntl -o "$dir/native.log" "${bench[@]}" --db="$dir/native" >/dev/null 2>&1
"$WEFT" run --hints -- strace -f -qq -e trace=fcntl -o "$dir/weft.log" "${bench[@]}" --db="$dir/weft" \
    >/dev/null 2>"$dir/report"

count() { grep -cE "(F_SET_RW_HINT|0x40c\b).*= $2" "$1" || true; }
native_ok=$(count "$dir/native.log" 0) native_bad=$(count "$dir/native.log" -1)
weft_ok=$(count "$dir/weft.log" 0) weft_bad=$(count "$dir/weft.log" -1)
sed -n "/^hints/,\$p" "$dir/report"
printf '%-10s %8s %8s\n' '' taken refused
printf '%-10s %8s %8s\n' natively "$native_ok" "$native_bad" 'weft' "$weft_ok" "$weft_bad"
if (( weft_ok > 0 && weft_bad == 0 )); then
    pass "all $weft_ok hints were taken under weft; natively $native_bad of $((native_ok + native_bad)) were refused"
else
    fail "$weft_bad of $((weft_ok + weft_bad)) hints were refused under weft"
fi
summary
