# A tree with links, attributes, lists, sparse files and names of all sorts, copied onto the mount, on it, and back by cp, tar and rsync.
prepare() {
  need rsync rsync
  need getfacl acl
  need getfattr attr
  need tar tar
}
# What a tree consists of: names, modes, owners, sizes (but of folders), links, times; contents, lists, attributes; names of one file.
say() {
  ( cd "$1"
    find . -type d -printf '%y %m %U %G %n %T@ %p\n' -o -printf '%y %m %U %G %s %n %T@ %p %l\n' | sort
    find . -type f -print0 | sort -z | xargs -0 md5sum
    find . -print0 | sort -z | xargs -0 getfacl -n --physical 2>/dev/null
    find . -print0 | sort -z | xargs -0 getfattr -h -d -m '^user|^trusted|^security.capability' 2>/dev/null
    find . -type f -links +1 -printf '%i %p\n' | sort -k2 | awk '{ if (!($1 in n)) n[$1] = ++c; print n[$1], $2 }' )
}
# again FOLDER HOW: the folder is as its source.
again() {
  say "$1" >"$SCRATCH/tree.got"
  if cmp -s "$SCRATCH/tree.want" "$SCRATCH/tree.got"; then echo "$2: the same"; else
    echo "$2 differs"; diff "$SCRATCH/tree.want" "$SCRATCH/tree.got" | head -10 || true
  fi
}
make_tree() {
  mkdir -p "$1" && cd "$1"
  cp -a "$ROOT/crates" "$ROOT/docs" .
  for i in $(seq 300); do
    mkdir -p "t/d$((i % 30))"
    head -c $((i * 37)) /dev/zero | tr '\0' "\\$((i % 8 + 60))" >"t/d$((i % 30))/f$i"
    ln -s "../d$((i % 7))/f$i" "t/d$((i % 30))/s$i"
    ln "t/d$((i % 30))/f$i" "t/h$i"
    setfattr -n user.number -v "$i" "t/h$i"
  done
  setfattr -n user.large -v "$(head -c 3000 /dev/zero | tr '\0' v)" t/d1
  setfattr -n trusted.root -v yes t/d2/f2
  setfacl -m u:1234:rwx,g:2345:r,m::rx t/d3/f3
  setfacl -d -m u:1234:rwX,o::- t/d4
  mkdir t/d4/inherits && : >t/d4/inherits/file
  for size in 1 70000 100000000; do truncate -s $size t/sparse$size; done
  printf middle | dd of=t/sparse100000000 bs=1 seek=50000000 conv=notrunc 2>/dev/null
  printf end | dd of=t/sparse100000000 bs=1 seek=99999990 conv=notrunc 2>/dev/null
  : >'t/with space'; : >$'t/new\nline'; : >t/ünïcödé; : >"t/$(head -c 255 /dev/zero | tr '\0' n)"; : >'t/*?[a]'
  mkfifo t/fifo; mknod t/null c 1 3
  chmod 4755 t/h1; chmod 1777 t/d5; chmod 0 t/h2; chown 1234:2345 t/h3 t/d6; chown -h 1234 t/d7/s7
  setcap cap_net_raw+ep t/h4 2>/dev/null || true
  touch -d '1999-12-31 23:59:59.123456789' t/h5; touch -h -d '2000-01-01' t/d8/s8; touch -d '2099-01-01' t/d9
  ln -s nowhere t/dangling; ln -s "$(head -c 4000 /dev/zero | tr '\0' l)" t/long
  cd "$D"
}
work() {
  local source=$SCRATCH/tree-source
  [ -d "$source" ] || (make_tree "$source") >&2
  say "$source" >"$SCRATCH/tree.want"
  find "$source" | wc -l
  cp -a "$source" cp; again cp "cp -a onto it"
  rsync -aAXHS --numeric-ids "$source/" rsync; again rsync "rsync -aAXHS onto it"
  rsync -ancAXH --delete -i --numeric-ids "$source/" rsync | wc -l
  tar -C "$source" -c --xattrs --xattrs-include='*' --acls -S -f packed.tar .
  mkdir tar; tar -C tar -x -p --numeric-owner --xattrs --xattrs-include='*' --acls -f packed.tar; again tar "tar onto it"
  cp -a cp within; again within "cp -a on it"
  rsync -aAXHS --numeric-ids within/ within2; again within2 "rsync on it"
  rsync -ancAXH --delete -i --numeric-ids within2/ cp | wc -l
  (cd within && tar c --xattrs --xattrs-include='*' --acls -S .) | (mkdir within3 && cd within3 && tar xp --xattrs --xattrs-include='*' --acls); again within3 "tar on it"
  back=$SCRATCH/tree-back; rm -rf "$back"
  rsync -aAXHS --numeric-ids within/ "$back"; again "$back" "rsync back"
  rsync -ancAXH --delete -i --numeric-ids "$source/" "$back" | wc -l
  rm -rf "$back"; cp -a within2 "$back"; again "$back" "cp -a back"; rm -rf "$back"
  diff -r --no-dereference cp/docs within3/docs && echo "diff finds nothing"
  fact "$(du -sm cp | cut -f1) MiB for a copy by cp -a, $(du -sm within | cut -f1) by cp -a on it, $(du -sm rsync | cut -f1) by rsync -S"
  rm -rf cp within within2 within3 rsync tar
  ls
}
