#!/usr/bin/env bash
# Python's own test modules with their files on the volume, beside a native run: each test ends the same way. Then a
# script that goes through open, os, shutil, mmap, subprocess, sqlite3, zipfile, tempfile and multiprocessing.
# programs-python.sh [MODULE...]
source "$(dirname "$0")/programs/prepare.sh"
need /usr/bin/python3 python3
PYTHON=/usr/bin/python3
V=$($PYTHON -c 'import sys; print("%d.%d" % sys.version_info[:2])')
need "/usr/lib/python$V/test/test_os.py" "libpython$V-testsuite"
version "$($PYTHON --version)"
MODULES=("$@")
[ $# -gt 0 ] || MODULES=(test_os test_posix test_mmap test_shutil test_io test_fileio test_file test_tempfile test_pathlib
  test_glob test_fcntl test_subprocess test_largefile test_bz2 test_gzip test_lzma test_tarfile test_zipfile test_mailbox
  test_dbm test_shelve test_filecmp test_fileinput test_linecache test_compileall test_py_compile test_import test_runpy
  test_popen test_pty test_select test_selectors test_sqlite3 test_logging test_multiprocessing_fork test_cmd_line_script
  test_posixpath test_genericpath test_netrc test_zipapp test_pickle test_fork1 test_threadedtempfile test_site test_venv)
# test_largefile copies a file of 2.5 GB.
new_volume 12G
# A user's setting that would keep compiled files from being written.
unset PYTHONDONTWRITEBYTECODE

# Tests that end differently, and why. The table of docs/programs.md repeats them.
DIFFERENT=$SCRATCH/different
cat >"$DIFFERENT" <<'WHY'
test_fcntl_64_bit      F_NOTIFY (directory notification) is refused
WHY
results() { # of a verbose run: one line for each test
  $PYTHON - "$1" <<'P'
import re, sys
text = open(sys.argv[1], errors="replace").read()
ends = r"^((?:test|setUp|tearDown)\w*) \(([\w.]+)\)(?:\n[^\n]*)?? \.\.\. .*?\b(ok|FAIL|ERROR|skipped|expected failure)\b"
for found in sorted(set(re.findall(ends, text, re.M | re.S))):
    print(*found)
P
}
run_module() { # MODULE PLACE
  local dir=$NATIVE out=$SCRATCH/$1.$2
  local run=(timeout 420 $PYTHON -m test -v "$1")
  case $2 in
    native) (cd "$NATIVE" && TMPDIR=$NATIVE "${run[@]}") ;;
    volume) weft_run sh -c 'cd /weft && TMPDIR=/weft exec "$@"' sh "${run[@]}" ;;
  esac >"$out" 2>&1 </dev/null || true
  results "$out" >"$out.results"
}
total=0
for module in "${MODULES[@]}"; do
  compgen -G "/usr/lib/python$V/test/$module*" >/dev/null || { echo "absent  $module"; continue; }
  run_module "$module" native
  run_module "$module" volume
  count=$(wc -l <"$SCRATCH/$module.native.results")
  total=$((total + count))
  difference=$(diff "$SCRATCH/$module.native.results" "$SCRATCH/$module.volume.results" | sed -n 's/^[<>] //p' | awk '{ print $1 }' | sort -u || true)
  unexplained=$(for t in $difference; do grep -q "^$t " "$DIFFERENT" || echo "$t"; done)
  if [ "$count" = 0 ]; then
    fail "$module: no test ran natively"; tail -3 "$SCRATCH/$module.native"
  elif [ -n "$unexplained" ]; then
    # A test that depends on timing gets a second chance; a difference that stays is one.
    run_module "$module" native; run_module "$module" volume
    again=$(diff "$SCRATCH/$module.native.results" "$SCRATCH/$module.volume.results" | sed -n 's/^[<>] //p' | awk '{ print $1 }' | sort -u || true)
    stays=$(for t in $unexplained; do ! grep -qx "$t" <<<"$again" || echo "$t"; done)
    if [ -n "$stays" ]; then fail "$module: $(echo $stays)"; diff "$SCRATCH/$module.native.results" "$SCRATCH/$module.volume.results" | head -20 || true
    else pass "$module: $count tests end as natively, at the second attempt ($(echo $unexplained))"; fi
  else
    pass "$module: $count tests end as natively${difference:+ but for $(echo $difference)}"
  fi
done
fact "$total of Python's own tests"
like "open, os, shutil, mmap, subprocess, sqlite3, zipfile, tempfile, multiprocessing" <<'S'
cat >script.py <<'P'
import mmap, multiprocessing, os, pickle, shutil, sqlite3, subprocess, sys, tempfile, zipfile, hashlib
with open("a", "w+", buffering=1) as f:
    for i in range(2000):
        f.write(f"line {i}\n")
    f.seek(0); print(len(f.read()))
with open("a", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:4] = b"LINE"; m.flush(); print(m.find(b"line 1999"), f.read(9))
    m.resize(4 * len(m)); print(os.fstat(f.fileno()).st_size)
os.makedirs("t/u/v", exist_ok=True)
for i in range(50):
    with open(f"t/u/f{i}", "wb") as f:
        f.write(bytes([i]) * i * 100)
shutil.copytree("t", "copy"); print(sorted(os.listdir("copy/u"))[:3])
print(shutil.make_archive("arch", "zip", "t").rsplit("/")[-1], len(zipfile.ZipFile("arch.zip").namelist()))
shutil.move("copy", "moved"); shutil.rmtree("t"); print(sum(len(f) for _, _, f in os.walk("moved")))
print(subprocess.run(["sort", "-r", "a"], stdout=open("sorted", "w")).returncode, open("sorted").readline().strip())
print(subprocess.check_output("wc -l < a; cat | tail -1", shell=True, input=b"x\ny\n").split())
db = sqlite3.connect("s.db"); db.execute("PRAGMA journal_mode=WAL"); db.execute("CREATE TABLE t(a, b)")
db.executemany("INSERT INTO t VALUES(?, ?)", ((i, str(i) * 9) for i in range(20000))); db.commit()
print(db.execute("SELECT count(*), sum(length(b)) FROM t").fetchall(), db.execute("PRAGMA integrity_check").fetchall())
with tempfile.NamedTemporaryFile(dir=".") as f, tempfile.TemporaryFile(dir=".") as g:
    f.write(b"n"); f.flush(); print(os.path.getsize(f.name)); g.write(b"xyz"); g.seek(1); print(g.read())
def work(i):
    with open("a", "rb") as f:
        f.seek(i); return hashlib.md5(f.read()).hexdigest()
with multiprocessing.Pool(4) as pool:
    print(hashlib.md5("".join(pool.map(work, range(64))).encode()).hexdigest())
pid = os.fork()
if pid == 0:
    fd = os.open("child", os.O_CREAT | os.O_WRONLY); os.write(fd, b"child"); os._exit(3)
print(os.waitpid(pid, 0)[1] >> 8, open("child").read())
fd = os.open("a", os.O_RDONLY); print(os.pread(fd, 4, 0), os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)); os.close(fd)
print(os.copy_file_range(r := os.open("a", os.O_RDONLY), w := os.open("b", os.O_CREAT | os.O_RDWR), 1000), os.fstat(w).st_size)
print(os.getcwd() == os.environ["D"], os.path.realpath("a") == os.environ["D"] + "/a")
P
/usr/bin/python3 script.py
S
check "a program and its modules on the volume: venv, import, compiled files" weft_run bash -c '
  cd /weft && mkdir -p pkg && echo "value = 42" >pkg/mod.py && touch pkg/__init__.py &&
  /usr/bin/python3 -c "import pkg.mod; assert pkg.mod.value == 42" && ls pkg/__pycache__/mod.*.pyc &&
  /usr/bin/python3 -m venv --without-pip env && ./env/bin/python -c "import sys; assert sys.prefix == \"/weft/env\", sys.prefix"'
fsck_clean
summary
