#!/usr/bin/env bash
# node's interfaces for files: promises, streams, synchronous calls, worker threads, modules on the volume.
source "$(dirname "$0")/programs/prepare.sh"
need node nodejs
version "node $(node --version)"
new_volume 1G
export SCRIPT=$PWD/suites/programs/files.mjs

like "promises, streams, names, threads" <<'S'
cp "$SCRIPT" script.mjs
node script.mjs
S
# UV_USE_IO_URING makes libuv ask for a ring; weft refuses it, and libuv uses its threads.
like "the same where libuv wants io_uring" <<'S'
mkdir ring; cd ring
cp "$SCRIPT" script.mjs
UV_USE_IO_URING=1 node script.mjs 2>errors
grep -v '^weft: io_uring: ' errors
true
S
like "modules of both kinds, JSON, an error's place" <<'S'
mkdir -p node_modules/both lib
echo '{"name": "both", "version": "1.2.3", "main": "main.js"}' >node_modules/both/package.json
echo 'exports.value = require("./package.json").version' >node_modules/both/main.js
echo 'export const twice = (x) => 2 * x; export { default as fs } from "node:fs"' >lib/twice.mjs
cat >main.mjs <<'M'
import both from 'both';
import { twice, fs } from './lib/twice.mjs';
console.log(both.value, twice(21), fs.existsSync(new URL('./lib', import.meta.url)));
const late = await import('./lib/twice.mjs');
console.log(late.twice(4));
M
node main.mjs
echo 'throw new Error("here")' >bad.js
node bad.js 2>&1 | grep -c 'bad.js:1'
S
fsck_clean
summary
