#!/usr/bin/env bash
# pjdfstest, the tests of POSIX file systems in C and shell, on a volume: what users may do by names, modes and owners. A test that
# fails here and not on the file system of DIR fails the suite, but for those that hand the system call a bad pointer: libc's
# functions, of which weft's take the place, may crash by one.
# pjdfstest.sh DIR [PART...]     DIR: a built pjdfstest (or PJDFSTEST=DIR); PART: chmod, rename/09, ...; all by default
source "$(dirname "$0")/lib.sh"
DIR=${1:-${PJDFSTEST:-}}
[ $# = 0 ] || shift
stop() { echo "pjdfstest.sh: $*" >&2; exit 2; }
how="get pjdfstest (the C one, by Pawel Jakub Dawidek), build it as its README says, and give its folder: pjdfstest.sh DIR"
[ -n "$DIR" ] || stop "no folder of pjdfstest is given; $how"
[ -d "$DIR/tests" ] || stop "$DIR has no tests; $how"
[ -x "$DIR/pjdfstest" ] || stop "$DIR is not built (there is no program $DIR/pjdfstest); $how"
[ "$(id -u)" = 0 ] || stop "only the superuser can take on the identities of others: run it as root"
DIR=$(cd "$DIR" && pwd)
chmod 755 "$SCRATCH"
IMAGE=$SCRATCH/image
new_volume 2G 4M "$IMAGE"

list() { # the tests of all parts
  local part
  for part in "${@:-.}"; do
    if [ -f "$DIR/tests/$part.t" ]; then echo "$part.t"; else (cd "$DIR/tests" && find "$part" -name '*.t' | sed 's|^\./||' | sort); fi
  done
}
list "$@" >"$SCRATCH/list"
[ -s "$SCRATCH/list" ] || stop "no such tests in $DIR/tests: $*"
mkdir -p "$SCRATCH/volume" "$SCRATCH/native" "$SCRATCH/folder"

# each FOLDER OUT TESTS: runs the tests that stdin names, each in a new folder below FOLDER; what it prints goes to a file in OUT.
cat >"$SCRATCH/each" <<'S'
while read -r name; do
  mkdir -p "$1/work" && chmod 755 "$1" "$1/work" && cd "$1/work" || exit 1
  timeout 600 sh "$3/$name" >"$2/${name//\//-}" 2>/dev/null </dev/null || echo "not ok - ended with status $?" >>"$2/${name//\//-}"
  cd / && rm -rf "$1/work"
done
S
weft_run bash "$SCRATCH/each" /weft "$SCRATCH/volume" "$DIR/tests" <"$SCRATCH/list"

fails() { grep '^not ok' "$1" | grep -v 'expected EFAULT' | sed 's/^not ok *//'; }
good=0 pointers=0
while read -r name; do
  out=$SCRATCH/volume/${name//\//-}
  good=$((good + $(grep -c '^ok' "$out" || true)))
  bad=$(grep '^not ok' "$out" | grep -c 'expected EFAULT' || true)
  pointers=$((pointers + bad))
  [ "$bad" = 0 ] || echo "pointer  $name: $bad"
  [ -n "$(fails "$out")" ] || { PASSED=$((PASSED + 1)); continue; }
  # What fails natively, too, is the machine's.
  echo "$name" | bash "$SCRATCH/each" "$SCRATCH/folder" "$SCRATCH/native" "$DIR/tests"
  new=$(comm -23 <(fails "$out" | sort) <(fails "$SCRATCH/native/${name//\//-}" | sort))
  if [ -n "$new" ]; then fail "$name"; echo "$new" | sed 's/^/      /'; else echo "native   $name: fails alike"; PASSED=$((PASSED + 1)); fi
done <"$SCRATCH/list"
echo "$good tests passed; $pointers of bad pointers ended by a signal"
check "weft fsck" "$WEFT" fsck "$IMAGE"
summary
