#!/usr/bin/env bash
# fio on a volume: every engine that works on files, what it wrote verified by its own checksums. io_uring is refused in one line.
# programs-fio.sh [SIZE=32m]: of each file.
source "$(dirname "$0")/programs/prepare.sh"
SIZE=${1:-32m}
need fio fio
version "$(fio --version)"
new_volume 2G
# fio leaves the state of what it verified where it runs.
cd "$SCRATCH"

# job ENGINE [OPTION...]: writes at random, reads, and verifies what it wrote; fsync now and then, requests of several sizes.
job() {
  local engine=$1; shift
  weft_run fio --name="$engine" --directory=/weft --ioengine="$engine" --rw=randrw --bsrange=512-64k --size="$SIZE" \
    --aux-path="$SCRATCH" --verify=crc32c --verify_fatal=1 --verify_dump=0 --fsync=64 --unlink=1 --minimal --output=/dev/null "$@"
}
for engine in sync psync vsync pvsync pvsync2 mmap posixaio; do
  check "$engine" job "$engine" --iodepth=8 --bsrange=4k-64k
done
check "libaio" job libaio --iodepth=32
check "libaio, direct" job libaio --iodepth=32 --direct=1 --bsrange=4k-64k
check "libaio, reaped from user space" job libaio --iodepth=16 --userspace_reap=1
check "libaio, batches of requests" job libaio --iodepth=64 --iodepth_batch_submit=40 --iodepth_batch_complete_min=8 --iodepth_batch_complete_max=32
check "libaio, four processes" job libaio --iodepth=16 --numjobs=4
WEFT_ARGS=(--intercept sud)
check "libaio, calls intercepted" job libaio --iodepth=16 --numjobs=2 --thread
WEFT_ARGS=()
# Written in one run, verified in another.
check "libaio, written" job libaio --iodepth=16 --rw=randwrite --unlink=0 --filename=kept --do_verify=0
check "psync verifies what libaio wrote" job psync --rw=randwrite --unlink=0 --filename=kept --verify_only=1
for args in "" "--intercept sud"; do
  WEFT_ARGS=($args)
  status=0
  weft_run fio --name=ring --directory=/weft --ioengine=io_uring --rw=randrw --size=1m >"$SCRATCH/out" 2>&1 || status=$?
  same "io_uring${args:+, calls intercepted}: refused in one line" "1 1" "$status $(grep -c '^weft: io_uring: ' "$SCRATCH/out")"
done
WEFT_ARGS=()
fsck_clean
summary
