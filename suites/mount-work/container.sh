# What a container does, with a static busybox: a root file system on the mount, chroot and pivot_root into it, mounts of its own,
# overlayfs with the mount as its lower layer.
prepare() {
  need /bin/busybox busybox-static
  need unshare util-linux
  if file -L /bin/busybox 2>/dev/null | grep -q dynamic; then echo "MISSING  a static busybox: install busybox-static"; return 3; fi
}
work() {
  mkdir -p root/{bin,dev,proc,sys,tmp,etc,data,old,mnt}
  cp /bin/busybox root/bin/
  # A setuid copy, and a device.
  mkdir setuid; cp /usr/bin/id setuid/ && chmod 4755 setuid/id
  mknod -m 666 root/dev/null c 1 3
  mknod -m 666 root/dev/zero c 1 5
  cat >root/etc/script <<'S'
set -e
cd /data
for i in $(seq 1 300); do mkdir -p "d$((i % 20))"; echo "line $i" >"d$((i % 20))/f$i"; done
dd if=/dev/zero of=zero bs=64k count=16 2>/dev/null
tar cf ../tmp/all.tar . && gzip -k ../tmp/all.tar && mkdir /tmp/again && tar xzf /tmp/all.tar.gz -C /tmp/again
diff -r /data /tmp/again && echo "the archive is the same"
find . -type f | sort | xargs cat | md5sum
ln -s ../data/d1 /tmp/link; ls /tmp/link/ | wc -l
awk '{ s += $2 } END { print s }' d*/f*
sed -i s/line/LINE/ d1/*; grep -c LINE d1/* | wc -l
mkfifo pipe; (echo through >pipe) & cat pipe
sort -r d0/f* | head -3
echo out >/dev/null
vi -c 'wq' d0/f20 </dev/null >/dev/null 2>&1 || true
rm -rf /tmp/again /tmp/all.tar; ls -A /tmp
S
  chroot root /bin/busybox --install -s /bin
  find root/bin -type l | wc -l
  chroot root /bin/env PATH=/bin /bin/sh /etc/script
  # Programs that a set-id bit gives rights.
  setpriv --reuid=65534 --regid=65534 --clear-groups setuid/id -u
  # As a container's runtime: namespaces, a bind mount of itself, pivot_root, /proc, tmpfs.
  unshare --mount --pid --ipc --uts --fork sh -euc '
    mount --make-rprivate /
    mount --bind root root && cd root
    mount --bind data mnt
    mount -t tmpfs none tmp
    mount -t proc proc proc
    pivot_root . old
    exec chroot . /bin/env PATH=/bin /bin/sh -euc "
      umount -l /old
      hostname inside; hostname
      echo \"process \$\$\"
      ls /mnt | wc -l; echo bound >/mnt/bound; cat /data/bound
      df / | tail -1 | wc -l; grep -c \" / \" /proc/mounts
      (sleep 0.2; echo from a child) & wait
      mount -o remount,bind,ro /mnt; (echo no >/mnt/no) 2>/dev/null || echo \"read-only\""
  '
  ls root/data | wc -l; cat root/data/bound
  # Overlayfs: the mount below, memory above.
  unshare --mount sh -euc '
    mount --make-rprivate /
    mkdir lower upper merged; mount -t tmpfs none upper; mkdir upper/up upper/work
    cp -a root/data lower/; setfattr -n user.note -v kept lower/data/d2
    mount -t overlay overlay -o "lowerdir=$D/lower,upperdir=$D/upper/up,workdir=$D/upper/work" merged
    cd merged/data
    find . -type f | wc -l; cat d3/f3; getfattr --only-values -n user.note d2; echo
    echo more >>d3/f3; rm d4/f4; rm -r d5; mkdir d5; echo new >d5/new; mv d6/f6 d6/moved; chmod 600 d7/f7
    ln d8/f8 d8/linked; echo through >>d8/linked; cat d8/f8
    find . -type f | wc -l; cat d3/f3 d5/new d6/moved; stat -c %a d7/f7
    cd "$D"; umount merged
    (cd upper/up && find . | sort | wc -l)
    cat lower/data/d3/f3; ls lower/data/d5 | wc -l'
  # The same with the upper layer on the mount.
  unshare --mount sh -euc '
    mount --make-rprivate /
    mkdir up work
    if mount -t overlay overlay -o "lowerdir=$D/lower,upperdir=$D/up,workdir=$D/work" merged 2>"$D/refused"; then
      (cd merged/data; echo more >>d3/f3; rm d4/f4; rm -r d5; mkdir d5; mv d6/f6 d6/moved; find . | wc -l; cat d3/f3) >"$D/above" 2>&1
      echo works; umount merged
    else echo "refused: $(cat "$D/refused")"; fi' >upper-layer 2>&1
  cat upper-layer above
}
