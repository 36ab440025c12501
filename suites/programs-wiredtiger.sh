#!/usr/bin/env bash
# WiredTiger (Debian's libwiredtiger), B-tree and LSM: filled by four threads beside checkpoints and readers, with a cache
# smaller than the data; reopened, verified, compacted; killed and recovered. A hang is a failure.
# programs-wiredtiger.sh [KEYS]
source "$(dirname "$0")/programs/prepare.sh"
KEYS=${1:-200000}
need cc gcc libc6-dev
need lib:wiredtiger libwiredtiger-dev
version "WiredTiger $(dpkg-query -W -f '${Version}' libwiredtiger-dev)"
P=$(program wiredtiger_roundtrip.c -lwiredtiger -lpthread)
new_volume 1G
for kind in btree lsm; do
  mkdir "$NATIVE/$kind"
  weft_run mkdir /weft/$kind
  want=$(timeout 280 "$P" "$NATIVE/$kind" fill $kind "$KEYS")
  same "$kind: filled by 4 threads" "$want" "$(weft_run timeout 280 "$P" /weft/$kind fill $kind "$KEYS" 2>&1)"
  same "$kind: reopened" "$want" "$(weft_run timeout 280 "$P" /weft/$kind check $kind "$KEYS" 2>&1)"
  same "$kind: verify, compact, verify" verified "$(weft_run timeout 280 "$P" /weft/$kind verify $kind "$KEYS" 2>&1)"
  same "$kind: after that" "$want" "$(weft_run timeout 280 "$P" /weft/$kind check $kind "$KEYS" 2>&1)"
  weft_run bash -c 'mkdir /weft/killed-$2; "$1" /weft/killed-$2 acknowledge $2 1 >"$3" & sleep 4; kill -9 $!; wait' \
    sh "$P" $kind "$SCRATCH/acknowledged" 2>/dev/null || true
  acknowledged=$(tail -1 "$SCRATCH/acknowledged")
  records=$(weft_run timeout 280 "$P" /weft/killed-$kind check $kind 1 2>&1 | sed -n 's/^\([0-9]*\) records.*/\1/p')
  if [ "${records:-0}" -ge "${acknowledged:-1}" ]; then
    pass "$kind: kill -9, nothing acknowledged is lost ($acknowledged acknowledged, $records there)"
  else
    fail "$kind: $acknowledged acknowledged, ${records:-none} there"
  fi
  same "$kind: verify after the kill" verified "$(weft_run timeout 280 "$P" /weft/killed-$kind verify $kind 1 2>&1)"
done
fsck_clean
summary
