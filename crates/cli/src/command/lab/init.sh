#!/bin/busybox sh
# The first process of the lab's guest: loads modules, puts the host's files, the drives and the folders in place, runs
# the command, tells its exit status, powers off. What it needs to know stands in /control, which the host shares.
b() { /bin/busybox "$@"; }
die() {
  echo "lab: $*"
  [ ! -d /control/. ] || echo "$*" >/control/failure
  b sync
  b poweroff -f
}
b mount -t proc proc /proc
b mount -t sysfs sys /sys
b mount -t devtmpfs dev /dev
load() { # load LIST: the modules of a list, in its order
  while read -r module; do
    b insmod "/modules/$module.ko" || echo "lab: module $module cannot be loaded"
  done <"$1"
}
load /modules/order

plan9() { b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2"; }
plan9 control /control rw,cache=none || die "the control folder cannot be mounted"
for module in $(b cat /control/modules); do load "/modules/order-$module"; done
plan9 host /host ro,cache=loose || die "the host's files cannot be mounted"

# Folders that would be hidden below the guest's own /tmp, /mnt and /run are kept aside first.
n=0
while read -r folder; do
  n=$((n + 1))
  b mkdir -p "/seen/$n"
  b mount -o bind "/host$folder" "/seen/$n" || die "$folder cannot be shown in the guest"
done </control/seen
for folder in tmp mnt run; do b mount -t tmpfs -o mode=1777 "$folder" "/host/$folder"; done
n=0
while read -r folder; do
  n=$((n + 1))
  b mkdir -p "/host$folder"
  b mount -o bind "/seen/$n" "/host$folder"
done </control/seen
b mkdir -p /host/mnt/share
plan9 share /host/mnt/share rw,cache=none || die "the shared folder cannot be mounted"

b mkdir -p /dev/pts /dev/shm
b mount -t devpts devpts /dev/pts
b mount -t tmpfs shm /dev/shm
b ln -sf /proc/self/fd /dev/fd
b ln -sf /proc/self/fd/0 /dev/stdin
b ln -sf /proc/self/fd/1 /dev/stdout
b ln -sf /proc/self/fd/2 /dev/stderr
b mount -t debugfs debug /sys/kernel/debug 2>/dev/null
for folder in proc sys dev; do b mount -o rbind "/$folder" "/host/$folder"; done
b ifconfig lo 127.0.0.1 up
b hostname lab

# Drives appear a moment after their driver, and in any order: their serial numbers identify them.
drive() { # drive SERIAL: prints the device's path
  for block in /sys/block/*; do
    [ -e "$block/device/serial" ] && serial=$block/device/serial || serial=$block/serial
    [ "$(b tr -d ' \n' <"$serial" 2>/dev/null)" != "$1" ] || { echo "/dev/${block##*/}"; return; }
  done
}
: >/drives
for want in $(b cat /control/drives); do
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    path=$(drive "weft-$want")
    [ -z "$path" ] || break
    b sleep 0.2
  done
  [ -n "$path" ] || die "the drive weft-$want did not appear"
  name=$(echo "$want" | b tr a-z A-Z)
  echo "export WEFT_LAB_$name=$path" >>/drives
  [ "$want" != zoned ] || echo mq-deadline >"/sys/block/${path##*/}/queue/scheduler"
done
port() { # port NAME: prints the path of a channel to the host
  for p in /sys/class/virtio-ports/*; do
    [ "$(b cat "$p/name")" != "$1" ] || echo "/dev/${p##*/}"
  done
}
b cat /control/start >/host/run/lab-start
b sed -i "1r /drives" /host/run/lab-start
b mkfifo /out /err
b cat /out >"$(port out)" & out=$!
b cat /err >"$(port err)" & err=$!
b chroot /host /bin/sh /run/lab-start </dev/null >/out 2>/err
status=$?
# What the command left running may still hold its output open.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  b kill -0 $out 2>/dev/null || b kill -0 $err 2>/dev/null || break
  b sleep 0.1
done
echo $status >/control/status
b sync
b poweroff -f
