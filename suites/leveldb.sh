#!/usr/bin/env bash
# LevelDB (Debian's libleveldb) under weft against a native run.
source "$(dirname "$0")/lib.sh"
KEYS=${1:-200000}
IMAGE=$SCRATCH/image
P=$(program leveldb_roundtrip.cc -lleveldb -lpthread)
new_volume 512M 4M "$IMAGE" >/dev/null 2>&1
want=$("$P" "$SCRATCH/native" write "$KEYS")
same "write and check" "$want" "$(weft_run "$P" /weft/db write "$KEYS")"
same "reopened in a new process" "$want" "$(weft_run "$P" /weft/db check "$KEYS")"
check "weft fsck" "$WEFT" fsck "$IMAGE"
summary
