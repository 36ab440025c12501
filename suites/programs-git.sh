#!/usr/bin/env bash
# git: 5,000 files added and committed, gc, fsck; branches, merges, clones to and from the volume, worktrees, stash,
# bisect, archive. Object names are a hash of all content, so equal names are equal repositories.
# programs-git.sh [FILES]
source "$(dirname "$0")/programs/prepare.sh"
export FILES=${1:-5000}
need git git
version "$(git --version)"
new_volume 1G
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2026-01-02 03:04:05 +0000' GIT_COMMITTER_DATE='2026-01-02 03:04:05 +0000'
export GIT_CONFIG_GLOBAL=$SCRATCH/gitconfig GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git config --global init.defaultBranch main
git config --global protocol.file.allow always
git config --global gc.autoDetach false

like "init, add of $FILES files, commit" <<'S'
mkdir repo && cd repo && git init -q .
python3 - "$FILES" <<'P'
import os, random, sys
rng = random.Random(5)
words = [f"word{i}" for i in range(2000)]
for i in range(int(sys.argv[1])):
    d = f"d{i % 37:02}/e{i % 11}"
    os.makedirs(d, exist_ok=True)
    with open(f"{d}/file{i}.txt", "w") as f:
        f.write("\n".join(" ".join(rng.choices(words, k=9)) for _ in range(rng.randint(0, 60))))
os.symlink("d00", "link")
os.chmod("d01/e1/file1.txt", 0o755)
P
git add . && git commit -qm first && git rev-parse HEAD HEAD^{tree}
git status --short | wc -l; git ls-files | wc -l
S
like "status, diff, commit -a, rename, rm, tag, log" <<'S'
cd repo
for f in d00/e0/*.txt; do echo changed >>$f; done
git diff --stat | tail -1
git mv d02 moved; git rm -rq d03; git commit -qam second; git tag -m v1 v1
git log --stat -M --oneline | tail -3; git rev-parse HEAD v1; git grep -c word7 | md5sum; git blame -s d00/e0/file0.txt | md5sum
S
like "branch, merge, conflict, rebase, stash, cherry-pick" <<'S'
cd repo
git checkout -qb side HEAD~1; echo side >d05/new; git add d05/new; git commit -qm side
git checkout -q main; git merge -q -m merged side; git rev-parse HEAD
git checkout -qb c1; echo one >clash; git add clash; git commit -qm one; git checkout -q main; git checkout -qb c2; echo two >clash; git add clash; git commit -qm two
git merge c1 2>&1 | tail -1; git status --short | head -3; git merge --abort; echo x >>clash; git stash -q; git stash pop -q; git checkout -q clash
git rebase -q side 2>&1 | tail -1; git rev-parse HEAD; git checkout -q main; git cherry-pick c1 >/dev/null; git rev-parse HEAD
S
like "gc, repack, fsck, count-objects" <<'S'
cd repo
git gc -q --prune=now; git fsck --full --strict; git count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
git repack -qadf --depth=20 --window=20; git fsck --full; git verify-pack -v .git/objects/pack/*.idx | grep -c blob
git commit-graph write --reachable; git commit-graph verify 2>&1; git multi-pack-index write; git multi-pack-index verify 2>&1 | tail -1
S
like "clone (linked, copied, by protocol), fetch, push, worktree, submodule" <<'S'
git clone -q repo linked; git clone -q --no-hardlinks repo copied; git clone -q "file://$PWD/repo" wire; git clone -q --bare repo bare.git
for c in linked copied wire bare.git; do git -C $c rev-parse HEAD; git -C $c fsck --full 2>&1 | grep -v '^dangling'; done
cd wire; git remote set-url origin "file://$(cd ..; pwd)/bare.git"; echo w >w; git add w; git commit -qm w; git push -q origin main 2>&1; git -C ../bare.git rev-parse main
cd ../linked; git worktree add -q ../tree HEAD~1; ls ../tree | wc -l; git worktree list | wc -l; git submodule -q add ../copied sub; git submodule status | cut -c1-50
S
like "archive, bundle, bisect, clean, reset --hard, filter by attributes" <<'S'
cd repo
git archive --format=tar HEAD | md5sum; git bundle create -q ../b main; git bundle verify -q ../b; git clone -q ../b fromb; git -C fromb rev-parse HEAD; rm -rf fromb
git bisect start HEAD HEAD~2 >/dev/null; git bisect run true >/dev/null 2>&1; git bisect reset -q
touch junk; mkdir junkdir; touch junkdir/x; git clean -fdxq; rm -rf d1*; git reset -q --hard; git status --short | wc -l; git checkout -q HEAD~1; git checkout -q main
echo '*.txt text eol=crlf' >.gitattributes; git add --renormalize . ; rm d00/e0/file0.txt; git checkout d00/e0/file0.txt 2>&1; file d00/e0/file0.txt 2>/dev/null | grep -c CRLF
S
# Everything once more after the volume was taken down and brought up, and between the volume and elsewhere.
same "fsck of all repositories, volume mounted anew" "" "$(weft_run bash -c 'for r in repo linked wire bare.git copied; do git -C /weft/$r fsck --full 2>&1 | grep -v "^dangling" || true; done')"
check "clone out of the volume" weft_run git clone -q /weft/repo "$SCRATCH/out-of-it"
same "its commit" "$(git -C "$NATIVE/repo" rev-parse HEAD)" "$(git -C "$SCRATCH/out-of-it" rev-parse HEAD)"
check "fsck of it" git -C "$SCRATCH/out-of-it" fsck --full --strict
check "clone into the volume" weft_run git clone -q "$SCRATCH/out-of-it" /weft/into
same "its commit" "$(git -C "$NATIVE/repo" rev-parse HEAD)" "$(weft_run git -C /weft/into rev-parse HEAD)"
fsck_clean
summary
