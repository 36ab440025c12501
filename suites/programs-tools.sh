#!/usr/bin/env bash
# tar, cp -a, rsync, diff -r, find, sort, grep, sed, awk, xargs, dd, split, install, truncate, zip and more on the volume and
# across its border; then suites/tree.sh (10,000 files).
# programs-tools.sh [FILES]
source "$(dirname "$0")/programs/prepare.sh"
export FILES=${1:-2000}
need rsync rsync
need zip zip unzip
need unzip unzip
need bsdtar libarchive-tools
need cpio cpio
need ed ed
version "tar $(tar --version | sed -n '1s/.* //p'), coreutils $(cp --version | sed -n '1s/.* //p'), rsync $(rsync --version | sed -n '1s/.*version \([^ ]*\).*/\1/p'), findutils $(find --version | sed -n '1s/.* //p')"
new_volume 2G
export OUTSIDE=$SCRATCH/outside
mkdir "$OUTSIDE"
python3 - "$OUTSIDE/tree" "$FILES" <<'P'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
rng = random.Random(11)
for i in range(files):
    d = os.path.join(root, f"d{i % 23:02}", f"e{i % 5}")
    os.makedirs(d, exist_ok=True)
    path = os.path.join(d, rng.choice(["plain", "with space", "ünïcode", "new\nline"]) + f"{i}")
    with open(path, "wb") as f:
        f.write(rng.randbytes(rng.choice([0, 1, 100, 4095, 4096, 4097, 30000, 70000])))
    os.chmod(path, rng.choice([0o644, 0o600, 0o755, 0o444, 0o4755]))
    os.utime(path, ns=(10**18 + i * 10**9 + 5, 10**18 + i * 10**9 + i))
    if i % 40 == 0:
        os.symlink(os.path.basename(path), path + ".link")
        os.link(path, path + ".hard")
        os.setxattr(path, b"user.weft", b"value %d" % i)
with open(os.path.join(root, "sparse"), "wb") as f:
    f.seek(5 << 20); f.write(b"end"); f.seek(1 << 20); f.write(b"middle")
P
tree() { # what a tree is: names, types, modes, sizes, links, times, content, attributes
  (cd "$1" && find . -type d -printf '%p %y %m %n %T@\n' -o -printf '%p %y %m %s %n %T@ %l\n' | LC_ALL=C sort | md5sum
   find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | md5sum
   find . -type f -name '*.hard' -print0 | LC_ALL=C sort -z | xargs -0 python3 -c 'import os, sys
for p in sys.argv[1:]: print(p, os.listxattr(p), os.getxattr(p, "user.weft"))' | md5sum)
}
export -f tree
like "cp -a in, copies of copies, cp --reflink=auto --sparse, cp -l, cp -u" <<'S'
cp -a "$OUTSIDE/tree" t && tree t; cp -a t t2 && tree t2; cp -al t linked && find linked -type f -links 1 | wc -l; cp -au t t2; echo $?
cp --sparse=always t/sparse sp && cmp sp t/sparse && cp --reflink=auto t/sparse sp2 && cmp sp2 t/sparse; cp -r --preserve=all t/d00 d00; diff -r t/d00 d00; echo $?
S
like "tar, bsdtar, cpio, zip: there and back" <<'S'
tar --xattrs --sort=name -cf t.tar t && tar -tf t.tar | wc -l; mkdir x1 && tar --xattrs -xf t.tar -C x1 && tree x1/t; tar -df t.tar; echo $?
tar -cz t | tar -tz | wc -l; tar -cJf t.txz t/d01 && tar -tJf t.txz | wc -l; tar -Scf s.tar t/sparse && mkdir x4 && tar -xf s.tar -C x4 && cmp x4/t/sparse t/sparse; tar -rf t.tar sp && tar -tf t.tar | tail -1
bsdtar -cf b.tar t && mkdir x2 && bsdtar -xpf b.tar -C x2 && (cd x2/t && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | md5sum)
find t/d02 -print0 | cpio -0 -o --quiet -H newc >c.cpio; mkdir x3 && (cd x3 && cpio -idm --quiet <../c.cpio; find . | wc -l)
zip -qry z.zip t/d03 && unzip -tqq z.zip && mkdir x5 && unzip -qq z.zip -d x5 && diff -r t/d03 x5/t/d03; echo $?
S
like "rsync: first, again, changed, deleted, checksums, in place, append, hard links, out and in" <<'S'
rsync -aHX t/ r1/ && tree r1; rsync -aHXni t/ r1/ | wc -l; echo changed >>t/sparse; touch t/new; touch -d @1000000000 t/new t/sparse t; rm -r r1/d04
rsync -aHX --delete --stats t/ r1/ | grep -E 'Number of (created|deleted|regular files transferred)'; rsync -acn --itemize-changes t/ r1/ | wc -l
rsync -a --inplace --no-whole-file t/sparse r2 && cmp r2 t/sparse; head -c 100000 t/sparse >r3; rsync --append-verify t/sparse r3 && cmp r3 t/sparse
rsync -aHX t/ "$OUTSIDE/r-$(basename "$D")/" && tree "$OUTSIDE/r-$(basename "$D")"; rsync -aHX "$OUTSIDE/tree/" r4/ && tree r4; rsync -a --partial --bwlimit=50000 --temp-dir="$D" t/d05 r5/; diff -r t/d05 r5/d05; echo $?
rsync -a --backup --suffix=.old --link-dest="$D/t" t/ r6/; find r6 -links 1 -type f | wc -l; rm t/new; cp -a "$OUTSIDE/tree/sparse" t/sparse
S
like "diff -r, cmp, comm, patch" <<'S'
diff -r t r4; echo $?; cp -a t/d06 p6; for f in $(find p6 -name 'plain*' | sort | head -5); do echo line >>"$f"; done; diff -rq t/d06 p6 | wc -l
seq 1000 >a; seq 1000 | sed 's/^500$/five hundred/' >b; diff -u a b | tail -n +3; diff -u a b >ab.patch; cp a c; patch -s c ab.patch && cmp b c; echo $?; comm -3 a b 2>/dev/null | wc -l
S
like "find: by every attribute, -exec, -delete, -newer, -samefile, -xdev, fprintf" <<'S'
find t -type f -size +40k | wc -l; find t -perm -4000 | wc -l; find t -type l | wc -l; find t -newermt '2001-09-09 02:00' -type f | wc -l; find t -empty | wc -l; find t -links 2 -type f | wc -l
find t -type f -exec stat -c '%s %a' {} + | sort | md5sum; find t -name '*.link' -xtype f | wc -l; find t -samefile t/d00/e0/*0.hard 2>/dev/null | wc -l; find t -maxdepth 2 -type d -printf '%f\n' | sort | md5sum; find t -inum "$(stat -c %i t/sparse)"
find t -type f -fprintf list '%p\0'; tr -cd '\0' <list | wc -c; find t -type f -size 1c -execdir md5sum {} \; | sort -u | wc -l; find x3 -depth -delete; ls -d x3 2>&1 | sed 's/.*: //'; find . -xdev -maxdepth 1 | wc -l; du -s --apparent-size -b t/d07/e*/ | wc -l
S
like "sort: external with temporary files on the volume, parallel, -m, -u, -c, -o onto its input" <<'S'
awk 'BEGIN { srand(3); for (i = 0; i < 400000; i++) printf("%d %d line\n", rand() * 1e9, i) }' >big; mkdir tmp
sort -S 1M -T tmp --parallel=2 big -o sorted; sort -c sorted; echo $?; md5sum <sorted; ls tmp | wc -l
sort -n -S 1M -T tmp --batch-size=4 big | md5sum; sort -n -u -k1,1 -S 2M -T tmp --compress-program=gzip big | md5sum; cp big self; sort -S 1M -T tmp self -o self; cmp self sorted; split -n l/5 big part.; for p in part.*; do sort -o $p $p; done; sort -m part.* | cmp - sorted; echo $?
shuf --random-source=big big | sort -S 1M -T tmp | cmp - sorted; join <(sort -k2,2 big | head -100) <(sort -k2,2 big | head -100) -1 2 -2 2 | md5sum
S
like "dd, split, truncate, install, tee, head, tail -f, shred, fallocate, cat, tac, od, sha, gzip, xz" <<'S'
dd if=big of=d1 bs=4k conv=fsync status=none; cmp d1 big; dd if=big of=d1 bs=1000 seek=3 skip=5 count=7 conv=notrunc status=none; md5sum <d1; dd if=/dev/zero of=d2 bs=1M count=8 oflag=direct status=none; stat -c %s d2; dd if=d1 of=d3 bs=512 iflag=fullblock oflag=append conv=notrunc status=none; cmp d1 d3; echo $?
split -b 100k big s. && cat s.* | cmp - big; truncate -s 12345 d1 && stat -c %s d1; truncate -s 1G d1 && stat -c '%s' d1; truncate -s 0 d1; install -D -m 700 big i/n/s && stat -c '%a %s' i/n/s; echo x | tee t1 t2f | cat; tee -a t1 <t2f >/dev/null; cat t1
(timeout 20 tail -n +1 -f grow & p=$!; sleep 0.3; for i in 1 2 3; do echo $i >>grow; sleep 0.2; done; sleep 1.2; kill $p; wait $p) 2>/dev/null; fallocate -l 3M fa && stat -c %s fa; fallocate -p -o 4096 -l 8192 big && md5sum <big; fallocate -d fa; shred -n 1 -u fa; ls fa 2>&1 | sed 's/.*: //'
tac sorted | md5sum; od -A d -t x1 sorted | tail -1; sha256sum sorted | cut -c1-64; gzip -k sorted && zcat sorted.gz | cmp - sorted; xz -0k sorted && xzcat sorted.xz | cmp - sorted; bzip2 -k part.aa && bunzip2 -c part.aa.bz2 | cmp - part.aa; zstd --version >/dev/null 2>&1 && zstd -qk sorted && zstd -dcq sorted.zst | cmp - sorted; df . | wc -l; sync -f .; sync sorted; echo $?
S
like "grep -r, sed -i, awk, xargs -P, ed, mv, ln, rename, rm, mktemp, chmod -R, touch, ls" <<'S'
grep -rlZ end t | tr '\0' '\n' | wc -l; cp sorted g; sed -i.bak 's/line/LINE/' g; grep -c LINE g; cmp g.bak sorted; awk '{ print $2 > "col" NR % 3 }' part.aa; wc -l col* | tail -1; find t/d08 -type f -print0 | xargs -0 -P4 -n 3 md5sum | sort | md5sum
printf '1,5d\nw\nq\n' | ed -s g; wc -l <g; mv t/d09 moved && mv -T moved t/d09; mv t/d10 "$OUTSIDE/m-$(basename "$D")" && mv "$OUTSIDE/m-$(basename "$D")" t/d10; diff -r t/d10 "$OUTSIDE/tree/d10"; echo $?; ln -s t/d11 l && ls l | wc -l; ln -sfn t/d12 l && readlink l; ln sorted hard && stat -c %h sorted; mktemp -p . XXXX | wc -c; mktemp -d -p . XXXX | wc -c
chmod -R u+w,go-rwx t/d13 && find t/d13 -perm /077 ! -type l | wc -l; chown -R 12:34 t/d14 && find t/d14 -uid 12 -gid 34 | wc -l; touch -d '2020-02-02 02:02:02.123456789' when && stat -c '%y' when | cut -c1-29; touch -r when when2 && [ ! when -nt when2 ] && [ ! when -ot when2 ] && echo equal; ls -laR --time-style=full-iso t/d15 | grep -v '^d\|^total' | md5sum; rm -rf t; ls -d t 2>&1 | sed 's/.*: //'
S
check "suites/tree.sh" suites/tree.sh
fsck_clean
summary
