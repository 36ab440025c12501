#!/usr/bin/env bash
# xfstests, the tests of Linux's own file systems, through a mount: its group "quick", with the kernel keeping no data and with
# -o writeback. Which tests fail, and why, is known; others fail the suite. For comparison, it runs the same on peers of the mount, whose
# failures it only tells. At the end it prints a table of all.
# xfstests.sh DIR [TEST...]     DIR: a built xfstests (or XFSTESTS=DIR); TEST: generic/001, ...; the group quick by default
#                               MODES: default and writeback (both by default); peers: passthrough_hp, fuse-backend-rs;
#                               LIMIT: seconds for a test (900); RESULTS: a folder that keeps what the tests print
# The peers serve an ext4 in a file, so that tests that use up all space do not use up the machine's. PASSTHROUGH=DIR: libfuse's built examples; FUSE_PEERS=PROGRAM: the server of suites/fuse-peers
# (target/release/fuse-peers by default).
source "$(dirname "$0")/lib.sh"
DIR=${1:-${XFSTESTS:-}}
[ $# = 0 ] || shift
MODES=${MODES:-default writeback} LIMIT=${LIMIT:-900} FUSE_PEERS=${FUSE_PEERS:-$ROOT/target/release/fuse-peers}
stop() { echo "xfstests.sh: $*" >&2; exit 2; }
how="get xfstests, build it as its README says, and give its folder: xfstests.sh DIR"
[ -n "$DIR" ] || stop "no folder of xfstests is given; $how"
[ -x "$DIR/check" ] || stop "$DIR has no program check; $how"
[ -x "$DIR/ltp/fsstress" ] || stop "$DIR is not built; $how"
[ "$(id -u)" = 0 ] || stop "it mounts, and takes on the identities of others: run it as root"
[ -e /dev/fuse ] || stop "this kernel has no /dev/fuse"
for user in fsgqa fsgqa2 123456-fsgqa; do
  id "$user" >/dev/null 2>&1 || stop "the tests need a user $user: useradd -m $user (for 123456-fsgqa with --badname)"
done
for mode in $MODES; do
  case $mode in
    default | writeback) ;;
    passthrough_hp) [ -x "${PASSTHROUGH:-}/passthrough_hp" ] || stop "passthrough_hp: give the folder of libfuse's built examples as PASSTHROUGH" ;;
    fuse-backend-rs) [ -x "$FUSE_PEERS" ] || stop "fuse-backend-rs: build suites/fuse-peers and give the program as FUSE_PEERS" ;;
    *) stop "MODES: '$mode' is none of default, writeback, passthrough_hp, fuse-backend-rs" ;;
  esac
done
DIR=$(cd "$DIR" && pwd)

# Tests that are not run: name, reason.
LEFT_OUT="
069 074 089 339 438 476   they take more than ten minutes
103 310 460 531 551 597 598 650 750   they use up the machine (memory, links in /proc, processors), not the file system
"
# Tests whose failure is known: name, mode (both, default or writeback), reason.
KNOWN="
277   writeback the kernel keeps times of files by itself, and does not see the time of a change by chattr
424   both the kernel does not ask for flags by statx
079 553   writeback the kernel keeps writes, and times, of files that become immutable or are for appends
003   both strictatime means relatime; with writeback, the kernel answers reads of what it keeps
451   writeback the kernel keeps a page that it read while a direct write was under way
504   default the server has the locks, which exclude programs of weft run, too; the kernel does not show them (/proc/locks)
"
# Where no process may raise a limit again, as in some virtual machines, these tests cannot tidy up.
(ulimit -f 1048576 && ulimit -f unlimited) 2>/dev/null || KNOWN+="394 564   both nobody may raise the limit of a file's size here
"

peer() { case $1 in default | writeback) false ;; esac; }
# The program that mount(8) calls, as: SOURCE DIR -o OPTIONS. SOURCE is an image; a peer serves SOURCE.files.
helper() { # helper MODE
  local server
  case $1 in
    default | writeback) ln -s "$(realpath -s "$WEFT")" "$HELPER"; return ;;
    # In the mode in which the server sees the data, with write-back.
    passthrough_hp) server="'$(realpath "$PASSTHROUGH")/passthrough_hp' --nopassthrough -o allow_other,fsname=\$1" ;;
    fuse-backend-rs) server="'$(realpath "$FUSE_PEERS")' --name \$1" ;;
  esac
  # The peers know few options of mount(8), and no remount; what the kernel does by itself is set here. An inode that the kernel knows
  # is an open file of a peer.
  cat >"$HELPER" <<H
#!/bin/sh
case ,\$4, in *,remount,*) exec mount -i -o "\$4" "\$2" ;; esac
ulimit -n \$(ulimit -Hn)
$server "\$1.files" "\$2" && exec mount -i -o "remount,bind,suid,dev,relatime,\$4" "\$2"
H
  chmod 755 "$HELPER"
}
type_of() { if peer "$1"; then echo weft-peer; else echo weft; fi; }
for type in $(for mode in $MODES; do type_of "$mode"; done | sort -u); do
  [ ! -e "/sbin/mount.fuse.$type" ] && [ ! -L "/sbin/mount.fuse.$type" ] ||
    stop "/sbin/mount.fuse.$type exists; the suite makes one for what it tests"
done
HELPER=
chmod 755 "$SCRATCH"
WATCH= CHECK=
unmount() {
  [ -z "$WATCH" ] || kill "$WATCH" 2>/dev/null || true
  [ -z "$CHECK" ] || end_tree "$CHECK"
  local dir
  for dir in "$SCRATCH"/*/{scratch,test} "$SCRATCH"/*/*.files; do umount --lazy "$dir" 2>/dev/null || true; done
  rm -f $HELPER
  finish
}
trap unmount EXIT
cat >"$SCRATCH/df" <<H
#!/bin/sh
# Without names, of the tests' own file systems: another may not answer.
[ \$# -gt 0 ] || set -- / \$(grep -o " $SCRATCH/[^ ]*" /proc/mounts)
df -T -P "\$@" | sed 's/ fuse\.[^ ]* / fuse /'
H
chmod 755 "$SCRATCH/df"

# end_tree PID: ends a process and all that it has started, the youngest first.
end_tree() {
  local child
  for child in $(pgrep -P "$1"); do end_tree "$child"; done
  kill -KILL "$1" 2>/dev/null || true
}
# watch SESSION: ends the tests of a session that take too long.
watch() {
  local pid
  while sleep 5; do
    for pid in $(pgrep -s "$1" -f '^/bin/bash .*/tests/[a-z]*/[0-9]*$'); do
      [ "$(ps -o etimes= -p "$pid" || echo 0)" -lt "$LIMIT" ] || end_tree "$pid"
    done
  done
}
# tests KIND FILE: the tests that the summary of check names.
tests() { sed -n "s/^$1: //p" "$2" | tail -1 | tr ' ' '\n' | sed '/^$/d' | sort; }
# reason LIST TEST MODE: why a test is in a list.
reason() {
  local names mode why
  sed -n 's/^\([0-9 ]*[0-9]\)   \([a-z]*\) /\1;\2;/p' <<<"$1" | while IFS=';' read -r names mode why; do
    case " $names " in *" ${2#generic/} "*) ;; *) continue ;; esac
    case $mode in "$3" | both) echo "$why" ;; esac
  done
}

out_of=$(sed 's/   .*//' <<<"$LEFT_OUT" | tr -s ' \n' '\n' | sed '/^$/d; s|^|generic/|' | paste -sd,)
for mode in $MODES; do
  place=$SCRATCH/$mode results=${RESULTS:-$SCRATCH/results}/$mode
  mkdir -p "$place/test" "$place/scratch" "$results"
  options=-osuid,dev
  [ "$mode" != writeback ] || options=$options,writeback
  rm -f $HELPER
  HELPER=/sbin/mount.fuse.$(type_of "$mode")
  helper "$mode"
  for device in test scratch; do
    if peer "$mode"; then
      # Not by the name of the device, by which the tests would unmount it.
      truncate -s 3G "$place/$device.ext4"
      mkfs.ext4 -q "$place/$device.ext4"
      mkdir "$place/$device.img.files"
      mount -o loop "$place/$device.ext4" "$place/$device.img.files"
      continue
    fi
    new_volume 3G 4M "$place/$device.img"
    # The tests write little of it.
    fallocate --dig-holes "$place/$device.img" 2>/dev/null || true
  done
  cat >"$place/config" <<C
export FSTYP=fuse FUSE_SUBTYP=.$(type_of "$mode")
export TEST_DEV=$place/test.img TEST_DIR=$place/test SCRATCH_DEV=$place/scratch.img SCRATCH_MNT=$place/scratch
# The tests know the type by the name "fuse" only.
export DF_PROG=$SCRATCH/df
export MOUNT_OPTIONS="$options" TEST_FS_MOUNT_OPTS="$options" RESULT_BASE=$results
C
  begun=$SECONDS
  (cd "$DIR" && HOST_OPTIONS=$place/config exec setsid ./check -fuse -e "$out_of" ${@:--g quick}) >"$results/check.out" 2>&1 </dev/null &
  CHECK=$!
  watch $CHECK & WATCH=$!
  wait $CHECK || true
  CHECK=
  kill $WATCH; WATCH=
  grep -q '^Ran: ' "$results/check.out" || { tail -20 "$results/check.out"; fail "xfstests did not run, $mode"; continue; }
  tests Ran "$results/check.out" >"$place/listed"
  tests "Not run" "$results/check.out" >"$place/not"
  tests Failures "$results/check.out" >"$place/failed"
  comm -23 "$place/listed" "$place/not" >"$place/ran"
  failed=$(wc -l <"$place/failed") of=$(wc -l <"$place/ran")
  peer "$mode" && : >"$place/ran"
  while read -r name; do
    why=$(reason "$KNOWN" "$name" "$mode") has_failed=$(grep -cx "$name" "$place/failed" || true)
    case $has_failed,${why:+known} in
      0,) pass "$name, $mode" ;;
      0,known) pass "$name, $mode, which is known to fail: $why" ;;
      1,known) echo "known $name, $mode: $why"; PASSED=$((PASSED + 1)) ;;
      *) fail "$name, $mode"; head -30 "$results/$name.out.bad" 2>/dev/null | diff "$DIR/tests/$name.out" - | head -12 | sed 's/^/      /' || true ;;
    esac
  done <"$place/ran"
  echo "$mode: $of tests ran, $failed of them failed, in $((SECONDS - begun)) s; not run:"
  (cd "$results" && sed 's|.*|&.notrun|' "$place/not" | xargs -r cat) | sed "s|$place|DIR|g" | sort | uniq -c | sort -rn | sed 's/^/ /' | head -100
  for device in test scratch; do
    dir=$place/$device
    if peer "$mode"; then
      umount "$dir" 2>/dev/null || true
      umount --lazy "$dir.img.files"
      rm "$dir.ext4"
      continue
    fi
    mountpoint -q "$dir" && check "unmount $device, $mode" "$WEFT" unmount "$dir"
    check "weft fsck of $device, $mode" "$WEFT" fsck "$dir.img"
    rm -f "$dir.img"
  done
done
python3 suites/programs/xfstests_table.py "${RESULTS:-$SCRATCH/results}"
summary
