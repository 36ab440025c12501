#!/usr/bin/env bash
# The long campaigns of flash at three levels: power cut at each of 20,000 operations on each level and in the exchange of
# LUNs; 20,000 seeds of the monitor and of each level with cuts in operation and while opening, reads that fail and bad blocks;
# a million legal and illegal raw commands against a model; Table I at three sizes. A quarter of an hour.
#   suites/flash-levels.sh
cd "$(dirname "$0")/.." || exit 2
WEFT_CAMPAIGN=1 cargo test --release --locked -p weft-flash --test power_cut --test raw_oracle --test recovery_monitor \
    --test recovery_function --test recovery_policy --test scale -- --nocapture
