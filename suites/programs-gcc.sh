#!/usr/bin/env bash
# gcc and make: two C projects are unpacked, configured, built and tested on the volume; the programs that come out are
# the same bytes as natively (both are built below the same path name in the debug information's eyes).
source "$(dirname "$0")/programs/prepare.sh"
need gcc gcc libc6-dev
need make make
need dpkg-source dpkg-dev
need xz xz-utils
version "$(gcc --version | head -1), $(make --version | head -1)"
new_volume 2G
LUA=$(source_of lua5.4)
DIFFUTILS=$(source_of diffutils)
export LUA DIFFUTILS CFLAGS=-O1
like "Lua: unpack, make, run" <<'S'
tar -xf "$LUA" && cd lua-*/ && find . -name '*.c' | wc -l
make -j2 linux >log 2>&1; echo $?; grep -c '^gcc' log
src/lua -e 'local t = {} for i = 1, 1000 do t[i] = i * i end print(#t, t[1000])'
src/luac -o chunk.luac - <<<'print("compiled", ...)' && src/lua chunk.luac 1 2
md5sum src/*.o src/lua src/luac src/liblua.a
S
like "diffutils, more than 300 C files: configure, make -j4, run" <<'S'
tar -xf "$DIFFUTILS" && cd diffutils-*/ && find . -name '*.c' | wc -l
./configure -q --disable-nls >log 2>&1; echo $?; grep -c '#define' config.h
make -j4 >>log 2>&1; echo $?; find . -name '*.o' | wc -l
md5sum src/diff src/cmp src/sdiff lib/libdiffutils.a config.h
seq 100 >x; seq 2 101 >y; src/diff -u x y | tail -n +3; src/cmp x y
make -C tests check >>log 2>&1; echo $?
S
like "make again builds nothing, after touch one thing, clean removes" <<'S'
cd diffutils-*/ && make >again 2>&1; grep -c 'CC ' again; touch src/cmp.c; make >again 2>&1; grep 'CC ' again; make clean >/dev/null 2>&1; find . -name '*.o' | wc -l
S
like "shared library, dlopen, gcov, ar, ld, strip, precompiled header" <<'S'
mkdir -p so && cd so
echo 'int twice(int x) { return 2 * x; }' >twice.c
cat >main.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include "all.h"
int main(void) { void *l = dlopen("./libtwice.so", RTLD_NOW); int (*f)(int) = dlsym(l, "twice"); printf("%d\n", f(ANSWER)); return 0; }
C
echo '#define ANSWER 21' >all.h
gcc all.h && gcc -shared -fPIC -o libtwice.so twice.c && gcc --coverage -o main main.c && ./main && gcov -n main-main.gcda 2>/dev/null | grep -c Lines
ar rc lib.a twice.c && ar t lib.a; strip main -o stripped && ./stripped; ls | wc -l
S
fsck_clean
summary
