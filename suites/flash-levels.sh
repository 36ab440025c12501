#!/usr/bin/env bash
# The long campaigns of flash at three levels: power cut at each of 20,000 operations on each level and in the exchange of
# LUNs, and a million legal and illegal raw commands against a model. Some minutes.
#   suites/flash-levels.sh
cd "$(dirname "$0")/.." || exit 2
WEFT_CAMPAIGN=1 cargo test --release --locked -p weft-flash --test power_cut --test raw_oracle -- --nocapture
