#!/usr/bin/env bash
# stress-ng's stressors for files with --verify, in a folder of the file system and on a volume: each must end alike.
# stress-ng.sh [SECONDS [STRESSOR...]]: how long each runs on either side (default 3; all of them take SECONDS x 3 minutes).
source "$(dirname "$0")/programs/prepare.sh"
SECONDS_EACH=${1:-3}
[ $# = 0 ] || shift
need stress-ng stress-ng
version "$(stress-ng --version | cut -d' ' -f1-3)"
STRESSORS=("$@")
# The classes `filesystem` and `io`, and those of other classes that work on files, without those for devices and mounts.
[ $# -gt 0 ] || STRESSORS=(access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup eventfd fallocate
  fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix ioprio lease link
  locka lockf lockofd mknod open procfs rename symlink sync-file touch utime verity xattr
  aio aiol io-uring readahead revio seek
  chroot fifo fork full get madvise mmap mmapaddr mmapfixed mmapfork mmapmany msync mremap msyncmany munmap pipe poll sendfile
  splice tee vm-splice sock sockdiag sockfd tmpfs unlink vfork exec spawn zombie close dev-shm memfd secretmem)
# Refused on a volume by design (docs/shim.md); the stressor says that it skips or fails.
declare -A BY_DESIGN=([dnotify]="directory notification is refused" [inotify]="inotify is refused"
  [fanotify]="fanotify is refused" [handle]="file handles are refused" [lease]="leases of fcntl are refused" [io-uring]="rings of io_uring are refused" [chroot]="chroot onto the volume is refused")
# outcome OUTPUT STATUS: how it ended, and what it complains of, without numbers.
outcome() {
  echo "status $2"
  sed -n -E -e 's/^stress-ng: (fail|error): +\[[0-9]+\] //p' "$1" | sed -E 's/[0-9]+/N/g; s#/[^ ]*stress-ng-[^ ]*#FILE#g' | sort -u | head -5
  if grep -qE 'skipped: [1-9]' "$1"; then echo skipped; fi
}
new_volume 4G
chmod 777 "$NATIVE"
for name in "${STRESSORS[@]}"; do
  limit=$((SECONDS_EACH * 5 + 60))
  common=(--"$name" 1 --timeout "${SECONDS_EACH}s" --verify --no-rand-seed --oomable --temp-path)
  timeout -k 5 $limit stress-ng "${common[@]}" "$NATIVE" >"$SCRATCH/native.out" 2>&1 </dev/null && a=0 || a=$?
  timeout -k 5 $limit "$WEFT" run --quiet --volume "$IMAGE" -- stress-ng "${common[@]}" /weft >"$SCRATCH/volume.out" 2>&1 </dev/null && b=0 || b=$?
  want=$(outcome "$SCRATCH/native.out" $a)
  got=$(outcome "$SCRATCH/volume.out" $b)
  if [ "$want" = "$got" ]; then
    pass "$name (${want//$'\n'/; })"
  elif [ -n "${BY_DESIGN[$name]:-}" ] && [ $b != 124 ] && [ $b != 137 ]; then
    pass "$name (differs by design: ${BY_DESIGN[$name]}; natively ${want//$'\n'/; }, here ${got//$'\n'/; })"
  else
    fail "$name"
    diff <(echo "$want") <(echo "$got") || true
  fi
done
# A stressor that ends in the middle leaves files that cannot be removed.
chattr -R -ia "$NATIVE" 2>/dev/null || true
fsck_clean
summary
