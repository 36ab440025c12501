#!/usr/bin/env bash
# The long campaigns of flash at three levels: power cut at each of 20,000 operations on each level and in the exchange of
# LUNs; 20,000 seeds of the monitor and of each level with cuts in operation and while opening, reads that fail, bad blocks and
# errors of the host; 2,000 seeds of each level and drive with crashes of the host, kills and syncs that fail; worn-out flash and a
# full disk after each cut; a disk whose storage runs out (as root); the longest names on 1,024 LUNs; a million legal and illegal raw
# commands against a model; a server of flash killed a hundred times; tenants beside each other; Table I at three sizes. Hours.
#   suites/flash-levels.sh
cd "$(dirname "$0")/.." || exit 2
set -e
export WEFT_CAMPAIGN=1
cargo test --release --locked -p weft-flash --test power_cut --test raw_oracle --test recovery_monitor --test recovery_function \
    --test recovery_policy --test recovery_raw --test recovery_drive --test host_errors_in_planes --test scale --test server_kills \
    --test isolation --test worn_out --test monitor_log --test host_crash --test thin_storage -- --nocapture
cargo test --release --locked -p weft-device --test drive_image -- --nocapture
cargo test --release --locked -p weft-sim --test table1 -- --nocapture
