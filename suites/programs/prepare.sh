# Shared by the program suites: packages, a volume for whom, the facts for the table. Source it in place of lib.sh.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
export LC_ALL=C.UTF-8
chmod 755 "$SCRATCH"
IMAGE=$SCRATCH/image

# need COMMAND|FILE|lib:NAME PACKAGE...: installs what a suite runs; without it the suite ends with status 3.
need() {
  local thing=$1; shift
  have "$thing" && return 0
  if command -v apt-get >/dev/null; then
    local as_root=; [ "$(id -u)" = 0 ] || as_root="sudo -n"
    { $as_root apt-get update -qq
      $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$SCRATCH/apt" 2>&1 || true
  fi
  have "$thing" && return 0
  echo "MISSING  $thing: install $*, then run this again"
  [ ! -s "$SCRATCH/apt" ] || tail -5 "$SCRATCH/apt"
  exit 3
}
have() {
  case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    lib:*) echo 'int main(void){return 0;}' | cc -x c - -o /dev/null "-l${1#lib:}" 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}
# version TEXT / fact TEXT: what the table says of this program.
version() { echo "version  $*"; }
fact() { echo "fact  $*"; }
# like NAME: runs stdin as a bash script natively and on the volume, D being its folder, and compares what they print.
# Both start in their folder; what they print must not name it. SHOW=1 prints it.
like() {
  local script=$SCRATCH/like.sh want got
  cat >"$script"
  want=$(cd "$NATIVE" && D=$NATIVE bash "$script" 2>&1 </dev/null; echo "status $?")
  got=$(weft_run bash -c 'cd /weft && D=/weft exec bash "$0"' "$script" 2>&1 </dev/null; echo "status $?")
  if [ "$want" = "$got" ]; then
    pass "$1 ($(printf '%s' "$want" | wc -l) lines alike)"
    [ -z "${SHOW:-}" ] || echo "$want" | sed 's/^/    | /'
  else
    fail "$1"
    diff <(echo "$want") <(echo "$got") | head -20 || true
  fi
}
NATIVE=$SCRATCH/native
mkdir -p "$NATIVE"
fsck_clean() { check "weft fsck" "$WEFT" fsck "$IMAGE"; }
# source_of PACKAGE: fetches the package's upstream source archive by apt, prints its path.
source_of() {
  local dir=$SCRATCH/source lists
  lists=$dir/lists; mkdir -p "$lists/partial"; chmod -R 777 "$dir"
  (
    cd "$dir"
    . /etc/os-release
    # The archive that the machine's own packages of this release come from.
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(CREATED_BY)' | awk -v r="$VERSION_CODENAME" '$2 == r && $3 == "Packages" { print $1; exit }')
    echo "deb-src $site $VERSION_CODENAME main" >list
    apt=(apt-get -qq -o Dir::Etc::SourceList="$dir/list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$lists")
    [ -n "$(ls "$lists" | grep Sources)" ] || timeout 120 "${apt[@]}" update
    timeout 120 "${apt[@]}" source --download-only "$1"
  ) >"$SCRATCH/apt" 2>&1 || { echo "MISSING  source of $1" >&2; tail -3 "$SCRATCH/apt" >&2; return 3; }
  ls "$dir/$1"_*.orig.tar.?z
}
