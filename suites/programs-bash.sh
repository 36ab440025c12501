#!/usr/bin/env bash
# bash, dash and their pipes and redirections; make, cron-like jobs, named pipes, here documents, globbing, job control.
source "$(dirname "$0")/programs/prepare.sh"
need dash dash
version "bash $(bash --version | sed -n '1s/.*version \([^ ]*\).*/\1/p')"
new_volume 512M
like "redirections of all forms" <<'S'
echo out >f; echo err >&2 2>e; cat f e; { echo one; echo two >&2; } >o 2>o2; cat o o2; { echo a; echo b >&2; } &>both; cat both; echo more >>f; cat <f; : >f; wc -c <f
exec 5<>rw; echo hello >&5; cat <&5; exec 5>&-; cat rw; exec 6>six 7>&6; echo x >&6; echo y >&7; exec 6>&- 7>&-; cat six; exec {v}>auto; echo $((v >= 10)) >&$v; exec {v}>&-; cat auto
set -C; echo no >rw; echo $?; echo yes >|rw; cat rw; set +C; cat <<E >h
here $((1 + 2))
E
cat h - <<<"string"; cat <(echo sub) <(cat h); echo to > >(cat >ps); sleep 0.3; cat ps; echo $(<h); read -r l <h; echo "$l"; mapfile -t a < <(seq 5); echo ${#a[@]}; while read -r x; do echo "<$x>"; done <h
exec 3>&1 1>all; echo into all; seq 3; exec 1>&3 3>&-; cat all; (exec >sub; echo in sub); cat sub; echo appended 1>>sub 2>&1; cat sub; ls nothing 2>no; sed 's/.*: //' no; cat <no >/dev/null; echo $?
S
like "pipes, process substitution, co-processes, many writers of one file" <<'S'
seq 100000 | tee copy | gzip | gunzip | sort -n | md5sum; md5sum <copy; yes | head -3; set -o pipefail; false | true; echo $?; set +o pipefail; diff <(seq 5) <(seq 6); coproc C { while read -r l; do echo "got $l" | tee -a co; done; }; echo hi >&${C[1]}; read -r r <&${C[0]}; echo $r; p=$C_PID; eval "exec ${C[1]}>&-"; wait $p; cat co
for i in 1 2 3 4 5 6 7 8; do (for j in $(seq 200); do echo "$i $j" >>log; done) & done; wait; wc -l <log; sort log | uniq | wc -l
{ for i in 1 2 3 4; do (seq 500 | sed "s/^/$i /") & done; wait; } >shared; wc -l <shared; sort shared | uniq | wc -l; exec 8<copy; head -c 5 <&8 | wc -c; (read -r x <&8; echo "$x"); read -r y <&8; echo "$y"; exec 8<&-; cat copy | (read -r a; read -r b; echo $a $b; cat | wc -l)
S
like "named pipes" <<'S'
mkfifo p; stat -c %F p; test -p p && echo pipe; seq 10000 >p & md5sum <p; wait; mkfifo -m 600 q; stat -c %a q; (cat p | tr a-z A-Z >q) & (echo loud >p) & cat q; wait; exec 9<>p; echo nine >&9; read -r n <&9; echo $n; exec 9>&-; ln p p2; mv p p3; (echo by another name >p3) & cat p2; wait; timeout 0.2 cat p3; echo $?
tail -n 1 <p3 & for i in 1 2 3; do echo $i; done >p3; wait; rm p2 p3 q; ls p* q 2>&1 | wc -l
S
like "scripts on the volume: #!, source, exec, functions, traps, getopts, arrays, arithmetic, dash" <<'S'
printf '#!/bin/bash\necho "$0 $# $*" | sed "s|.*/||"\nexit 7\n' >s; chmod +x s; ./s a "b c"; echo $?; bash s x; . ./s 2>/dev/null | head -1 | sed 's|.*/||'
mkdir bin; printf '#!/bin/sh\necho found $1\n' >bin/tool; chmod +x bin/tool; PATH=$PWD/bin:$PATH tool it; printf '#!%s/s one\n' "$PWD" >nested; chmod +x nested; ./nested two | sed 's|/[^ ]*/||g'; cp /bin/echo bin/said; bin/said copied program; (cd bin && ./said from here); dash -c 'echo $0; . ./lib; f 3' 2>&1 | tail -1 | sed 's/.*: //'; echo 'f() { echo "f $1"; }' >lib; dash -c '. ./lib; f 3'
trap 'echo bye >bye' EXIT; (trap 'echo term >t; exit 3' TERM; echo $BASHPID >pid; while :; do sleep 0.05; done) & b=$!; while [ ! -s pid ]; do sleep 0.05; done; kill $(cat pid); wait $b; echo $?; cat t; exec bash -c 'echo replaced; cat nothing bye 2>/dev/null; echo done'
S
like "cd, pwd, globs, tests, umask, hash of names, deep and long names, many files, ulimit" <<'S'
mkdir -p a/b/c; cd a/b/c; pwd | sed "s|$D||"; cd ../..; echo *; cd -L b/..; echo $OLDPWD | sed "s|$D||"; cd; cd "$D"; ln -s a/b link; cd link; pwd | sed "s|$D||"; pwd -P | sed "s|$D||"; cd ..; touch .hid "x y" '*'; ls -A | wc -l; echo [x]*; echo "*"; shopt -s globstar dotglob; printf '%s\n' **/ | wc -l
umask 077; touch private; stat -c %a private; umask 022; [ private -nt a ] && echo newer; [ -w private ] && [ ! -x private ] && [ -O private ] && echo mine; n=$(printf 'n%.0s' $(seq 255)); touch $n && ls n* | wc -c; touch ${n}n 2>&1 | sed 's/.*: //'; p=deep; for i in $(seq 60); do p=$p/level$i; done; mkdir -p $p && cd $p && pwd | sed "s|$D||" | wc -c && touch end && cd "$D" && find deep -name end | wc -l; rm -r deep; mkdir many; cd many; for i in $(seq 3000); do : >f$i; done; ls | wc -l; echo f1?? | wc -w; rm f*; ls | wc -l; cd ..; (ulimit -n 64; exec 20<private; cat <&20 | wc -c)
S
fsck_clean
summary
