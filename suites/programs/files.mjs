// What node's interfaces for files do in a folder: prints it without anything that differs between two folders.
import fs, { promises as fsp } from 'node:fs';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createHash } from 'node:crypto';
import { createGzip, createGunzip } from 'node:zlib';
import { Worker, isMainThread, workerData } from 'node:worker_threads';
import { execFileSync } from 'node:child_process';

const dir = process.cwd();
const hash = (data) => createHash('sha256').update(data).digest('hex').slice(0, 16);
const say = (...what) => console.log(...what);
const bytes = (size, seed) => {
  const out = Buffer.alloc(size);
  let x = seed * 2654435761 >>> 0;
  for (let i = 0; i < size; i++) { x = (Math.imul(x, 1664525) + 1013904223) >>> 0; out[i] = x >>> 24; }
  return out;
};
const fails = async (what, act) => { try { await act(); say(what, 'ok'); } catch (e) { say(what, e.code, e.syscall); } };

if (!isMainThread) {
  for (let i = 0; i < 50; i++) fs.appendFileSync('threads', `${workerData} ${i}\n`);
} else {
  // Whole files, many at once.
  await fsp.mkdir('a/b/c', { recursive: true });
  const names = Array.from({ length: 300 }, (_, i) => `a/b/c/${i}`);
  await Promise.all(names.map((name, i) => fsp.writeFile(name, bytes(i * 137 % 70000, i))));
  const read = await Promise.all(names.map((name) => fsp.readFile(name)));
  say('300 files', hash(Buffer.concat(read)), read.every((data, i) => data.equals(bytes(i * 137 % 70000, i))));
  say((await fsp.readdir('a/b/c')).length, (await fsp.readdir('a', { recursive: true })).length);
  for await (const entry of await fsp.opendir('a')) say(entry.name, entry.isDirectory());
  // Parts of an open file.
  const file = await fsp.open('parts', 'w+');
  await Promise.all(Array.from({ length: 64 }, (_, i) => file.write(bytes(4096, i), 0, 4096, i * 4096)));
  await file.datasync();
  await file.sync();
  const part = Buffer.alloc(5000);
  say((await file.read(part, 0, 5000, 10000)).bytesRead, hash(part));
  say((await file.writev([Buffer.from('one'), Buffer.from('two')], 70000)).bytesWritten);
  const into = [Buffer.alloc(3), Buffer.alloc(3)];
  say((await file.readv(into, 70000)).bytesRead, into.join(' '));
  await file.truncate(100000);
  say((await file.stat()).size, hash(await fsp.readFile('parts')));
  await file.utimes(1000, 2000);
  say((await file.stat()).mtimeMs);
  await file.close();
  // Streams.
  await pipeline(fs.createReadStream('parts'), createGzip(), fs.createWriteStream('parts.gz'));
  await pipeline(fs.createReadStream('parts.gz'), createGunzip(), fs.createWriteStream('parts.again'));
  say(hash(await fsp.readFile('parts.again')));
  let lines = 0;
  await fsp.writeFile('lines', Array.from({ length: 5000 }, (_, i) => `line ${i}\n`).join(''));
  const text = await fsp.open('lines');
  for await (const line of text.readLines()) lines += line.length;
  say(lines);
  // Names.
  await fsp.copyFile('parts', 'copy');
  await fsp.rename('copy', 'moved');
  await fsp.symlink('moved', 'link');
  await fsp.link('moved', 'hard');
  say(await fsp.readlink('link'), (await fsp.stat('hard')).nlink, path.relative(dir, await fsp.realpath('link')));
  await fsp.cp('a', 'a2', { recursive: true });
  say((await fsp.readdir('a2/b/c')).length);
  await fsp.rm('a2', { recursive: true });
  await fsp.chmod('moved', 0o640);
  say(((await fsp.stat('moved')).mode & 0o777).toString(8));
  say((await fsp.mkdtemp('temp-')).length);
  await fails('access', () => fsp.access('none'));
  await fails('exclusive', () => fsp.open('moved', 'wx'));
  await fails('rmdir', () => fsp.rmdir('a'));
  await fails('read of a folder', () => fsp.readFile('a'));
  await fails('unlink', () => fsp.unlink('hard'));
  // Without promises; threads; a child.
  const fd = fs.openSync('sync', 'a+');
  for (let i = 0; i < 1000; i++) fs.writeSync(fd, `${i} `);
  fs.fsyncSync(fd);
  fs.closeSync(fd);
  say(hash(fs.readFileSync('sync')));
  await Promise.all([1, 2, 3, 4].map((n) => new Promise((done) =>
    new Worker(new URL(import.meta.url), { workerData: n }).on('exit', done))));
  say(fs.readFileSync('threads', 'utf8').trim().split('\n').length);
  say(execFileSync('cat', ['link']).length);
}
