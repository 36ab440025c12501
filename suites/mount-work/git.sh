# git on a large repository: clone, checkouts of old revisions, status, gc, fsck. REPOSITORY: what is cloned; by default, that of these files.
prepare() {
  need git git
  export REPOSITORY=${REPOSITORY:-$(git rev-parse --path-format=absolute --git-common-dir)}
  if git -C "$REPOSITORY" rev-list --objects --missing=print HEAD | grep -q '^?'; then
    echo "MISSING  objects of $REPOSITORY"
    return 3
  fi
}
# What a working tree consists of: names, modes, contents, symbolic links.
tree() {
  { find . -path ./.git -prune -o -printf '%y %m %p %l\n' | sort
    find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum
  } | sha1sum
}
work() {
  export HOME=$D GIT_CONFIG_NOSYSTEM=1
  git config --global --add safe.directory '*'
  git config --global user.name A; git config --global user.email a@example.org
  git version
  # Not by links to the files of the repository, but by its packs.
  git clone -q --no-local "$REPOSITORY" r
  cd r
  git rev-list --count HEAD
  tree
  count=$(git rev-list --count --first-parent HEAD)
  for part in 2 4 8; do
    git checkout -q --detach "HEAD~$((count / part - 1))" 2>&1
    git rev-parse HEAD; git status --porcelain | wc -l; git ls-files | wc -l; tree
    git checkout -q --detach origin/HEAD
  done
  git switch -q -c side
  find . -path ./.git -prune -o -type f -name '*.c*' -print0 | sort -z | head -z -n 200 | xargs -0 sed -i '1i // changed'
  git status --porcelain | wc -l
  GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' git commit -qam changed
  git rev-parse HEAD
  git stash list | wc -l
  git worktree add -q "$D/second" "HEAD~$((count / 3))" 2>&1
  (cd "$D/second" && git status --porcelain | wc -l && tree)
  git gc -q --prune=now
  find .git/objects -name '*.pack' | wc -l
  git fsck --full --no-dangling --no-progress 2>&1
  git clone -q . "$D/linked" && git -C "$D/linked" fsck --no-progress --connectivity-only
  (cd "$D/linked" && tree)
  fact "$(git ls-files | wc -l) files of $(git rev-list --count HEAD) commits; .git has $(du -sm .git | cut -f1) MiB"
  rm -rf "$D/linked" "$D/second"
}
