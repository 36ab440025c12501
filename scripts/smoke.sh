#!/bin/sh
# Unmodified programs on a volume, and the same natively: the results must be equal. WEFT names the weft command.
set -eu
cd "$(dirname "$0")/.."
weft=${WEFT:-target/release/weft}
[ -n "${TMPDIR:-}" ] || mkdir -p target # builds may go elsewhere
dir=$(mktemp -d "${TMPDIR:-$PWD/target}/weft-smoke.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
image=$dir/vol.img
on() { "$weft" run --quiet --volume "$image" -- "$@"; }
same() {
    cmp -s "$2" "$3" || { echo "smoke: $1: differs" >&2; diff "$2" "$3" | head -20 >&2; exit 1; }
    echo "smoke: $1: ok"
}

# A tree with everything that ls shows.
mkdir -p "$dir/tree/sub/empty"
cp -r crates/core docs "$dir/tree/"
ln -s sub "$dir/tree/link"
ln "$dir/tree/core/Cargo.toml" "$dir/tree/sub/hard"
head -c 3000000 /dev/urandom >"$dir/tree/sub/random"
truncate -s 1M "$dir/tree/sub/hole"
chmod 640 "$dir/tree/sub/hard"

"$weft" format --quiet --size 256M "$image"
on cp -a "$dir/tree" /weft/
(cd "$dir/tree" && find . -type f -exec md5sum {} + | sort -k2) >"$dir/native.md5"
on sh -c 'cd /weft/tree && find . -type f -exec md5sum {} + | sort -k2' >"$dir/weft.md5"
same "cp -a, find and md5sum" "$dir/native.md5" "$dir/weft.md5"
listing() { sed -E 's/^total .*//; /^[d]/s/^([^ ]+ +[0-9]+ [^ ]+ +[^ ]+ +)[0-9]+/\1-/; s/ +/ /g'; }
(cd "$dir/tree" && ls -lR --time-style=+%s . | listing) >"$dir/native.ls"
on sh -c 'cd /weft/tree && ls -lR --time-style=+%s .' | listing >"$dir/weft.ls"
same "ls -lR" "$dir/native.ls" "$dir/weft.ls"
"$weft" cp -qr "$image:/tree" "$dir/out"
diff -r "$dir/tree" "$dir/out" && echo "smoke: weft cp -r: ok"
on tar -C /weft -cf /weft/tree.tar tree
on tar -C /weft -df /weft/tree.tar && echo "smoke: tar: ok"

if command -v sqlite3 >/dev/null; then
    for journal in delete wal; do
        on sqlite3 "/weft/$journal.db" "pragma journal_mode=$journal; create table t(a integer primary key, b text);
            with recursive n(i) as (select 1 union all select i+1 from n where i<20000)
            insert into t select i, hex(i*7919) from n;" >/dev/null
        on sqlite3 "/weft/$journal.db" "pragma integrity_check; select count(*), sum(length(b)) from t;" >"$dir/weft.sql"
        printf 'ok\n' | cat - "$dir/weft.sql" | sed 1d >"$dir/first"
        [ "$(head -1 "$dir/first")" = ok ] || { echo "smoke: sqlite3: $(cat "$dir/first")" >&2; exit 1; }
        echo "smoke: sqlite3, journal mode $journal, reopened: ok"
    done
fi

if command -v db_bench >/dev/null; then
    export KEYS=60000
    for where in /weft/db "$dir/db"; do
        run=
        [ "$where" = /weft/db ] && run=on
        $run scripts/leveled.sh "$where" fillrandom,overwrite >/dev/null 2>"$dir/db.err" ||
            { tail -5 "$dir/db.err" >&2; exit 1; }
        $run scripts/leveled.sh "$where" readrandom --reads=20000 --seed=7 --use_existing_db 2>/dev/null |
            grep -o '([0-9]* of [0-9]* found)' >"$dir/found.$(basename "$(dirname "$where")")"
    done
    same "db_bench, reopened" "$dir/found.weft" "$dir/found.$(basename "$dir")"
fi

on rm -r /weft/tree /weft/tree.tar
[ -z "$(on find /weft -name '*.rs')" ]
"$weft" fsck --quiet "$image" >/dev/null && echo "smoke: fsck: ok"
