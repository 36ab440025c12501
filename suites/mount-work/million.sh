# A million files in a thousand folders: made, listed, counted, found, removed. FILES: how many, in thousands.
SIZE=8G
prepare() {
  need gcc gcc libc6-dev
  export FILES=${FILES:-1000} MAKE_FILES
  MAKE_FILES=$(program make_files.c) || return 3
}
# step NAME COMMAND...: runs a command and tells its seconds.
step() { local name=$1 begun; shift; begun=$(date +%s.%N); "$@"; fact "$name: $(echo "$(date +%s.%N) $begun" | awk '{ printf "%.1f s", $1 - $2 }')"; }
list() { ls -lR "$1" | awk '/^-/ { n++; s += $5 } END { print n, s }'; }
found() { find "$1" -type f -size -20c -name '*7' | wc -l; find "$1" -printf '%y\n' | sort | uniq -c; }
inodes() { du -s --inodes "$1" | cut -f1; }
order() { find "$1" -type f -printf '%P %s\n' | LC_ALL=C sort | md5sum; }
work() {
  step make "$MAKE_FILES" "$D/files" "$FILES" 1000
  step "ls -lR" list files
  step "ls -lR again" list files
  step du inodes files
  step find found files
  step "find and sort" order files
  # One directory with as many entries as fit a hundred of the others.
  mkdir one
  step "one directory" "$MAKE_FILES" "$D/one" 1 $((FILES * 100))
  step "ls of one" bash -c 'ls one/d0 | wc -l; ls -f one/d0 | sort | uniq -d | wc -l'
  step "mv of a tree" mv files moved
  list moved
  step "rm -rf of one" rm -rf one
  step "rm -rf of all" rm -rf moved
  ls -A
}
