#!/usr/bin/env bash
# LMDB (Debian's liblmdb), which reads by a map, and writes by calls or by a shared map: filled, reopened, copied, killed
# under load and recovered. programs-lmdb.sh [KEYS]
source "$(dirname "$0")/programs/prepare.sh"
KEYS=${1:-20000}
need cc gcc libc6-dev
need lib:lmdb liblmdb-dev
need mdb_copy lmdb-utils
version "LMDB $(dpkg-query -W -f '${Version}' liblmdb-dev)"
P=$(program lmdb_roundtrip.c -llmdb)
new_volume 1G
for kind in calls writemap; do
  mode=; [ $kind = calls ] || mode=writemap
  mkdir "$NATIVE/$kind"
  weft_run mkdir /weft/$kind /weft/copy-$kind
  want=$(timeout 280 "$P" "$NATIVE/$kind" fill "$KEYS" $mode)
  same "$kind: filled" "$want" "$(weft_run timeout 280 "$P" /weft/$kind fill "$KEYS" $mode 2>&1)"
  same "$kind: reopened" "$want" "$(weft_run timeout 280 "$P" /weft/$kind check "$KEYS" $mode 2>&1)"
  check "$kind: mdb_copy -c" weft_run timeout 280 mdb_copy -c /weft/$kind /weft/copy-$kind
  same "$kind: the copy" "$want" "$(weft_run timeout 280 "$P" /weft/copy-$kind check "$KEYS" 2>&1)"
  same "$kind: mdb_stat" "$(mdb_stat "$NATIVE/$kind")" "$(weft_run mdb_stat /weft/$kind)"
  for round in 1 2 3; do
    weft_run bash -c 'mkdir "/weft/killed-$2$4"; "$1" "/weft/killed-$2$4" acknowledge 1 $5 >"$3" & sleep 2; kill -9 $!; wait' \
      sh "$P" $kind "$SCRATCH/acknowledged" $round $mode 2>/dev/null || true
    acknowledged=$(tail -1 "$SCRATCH/acknowledged")
    there=$(weft_run timeout 280 "$P" /weft/killed-$kind$round check 1 2>&1 | sed -n 's/^\([0-9]*\) records.*/\1/p')
    if [ "${there:-0}" -ge "${acknowledged:-1}" ]; then
      pass "$kind: kill -9, nothing acknowledged is lost ($acknowledged acknowledged, $there there)"
    else
      fail "$kind: $acknowledged acknowledged, ${there:-none} there"
    fi
  done
done
fsck_clean
summary
