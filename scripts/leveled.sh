#!/bin/sh
# db_bench with leveled compaction, scaled to fill a volume of 512 MiB to about 85 %.
#
#   leveled.sh DIR BENCHMARKS [db_bench options]
#
# The tree is a RocksDB in small: tables of 2 MiB, five levels. Compaction may not fall behind (the limits on pending
# bytes and level 0), because an emulated device takes writes faster than the flash that it models, and the backlog
# would need the room that is to be full. KEYS sets the number of keys.
set -eu
dir=$1
benchmarks=$2
shift 2
exec db_bench --db="$dir" --benchmarks="$benchmarks" --num="${KEYS:-930000}" --value_size=400 --threads=1 --seed=1 \
    --compression_type=none --compaction_style=0 --level_compaction_dynamic_level_bytes=true \
    --write_buffer_size=1048576 --target_file_size_base=2097152 --max_bytes_for_level_base=8388608 \
    --level0_file_num_compaction_trigger=2 --level0_slowdown_writes_trigger=6 --level0_stop_writes_trigger=10 \
    --soft_pending_compaction_bytes_limit=25165824 --hard_pending_compaction_bytes_limit=100663296 \
    --stats_interval=100000000 "$@"
