#!/usr/bin/env bash
# In the lab's guest: db_bench fillrandom and overwrite on weft and on f2fs, on the same zoned drive, in turns. f2fs keeps
# what it must overwrite on the ordinary drive, weft has no use for one. Writes the figures to the shared folder.
source "$(dirname "$0")/../lib.sh"
python3 suites/lab/f2fs.py "$WEFT" "$WEFT_LAB_ZONED" "$WEFT_LAB_PLAIN" "$PAIRS" "$WEFT_LAB_SHARE/f2fs.json"
