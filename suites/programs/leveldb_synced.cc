// LevelDB with small tables, so that it writes tables and compacts all the time.
//   leveldb_synced DIR write FROM COUNT   puts FROM, FROM+1, ...; every eighth put is synced, and then printed
//   leveldb_synced DIR fill FROM COUNT    the same with a usual memtable, and without syncs
//   leveldb_synced DIR check COUNT MORE   that of COUNT puts all that were synced are there, and all are right, as of MORE puts behind them
//   leveldb_synced DIR open READS KEYS    microseconds of an open, and of READS gets spread over KEYS puts
#include <leveldb/db.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

static std::string key(unsigned long i) { char b[32]; snprintf(b, sizeof b, "key%010u", (unsigned)i * 2654435761u); return b; }
static std::string value(unsigned long i) {
  std::string v;
  while (v.size() < 100 + i % 1900) v += std::to_string(i * 31 + v.size()) + "-";
  return v;
}
static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const std::string what = argv[2];
  const unsigned long first = strtoul(argv[3], nullptr, 10), count = argc > 4 ? strtoul(argv[4], nullptr, 10) : 0;
  leveldb::Options options;
  options.create_if_missing = what == "write" || what == "fill";
  options.paranoid_checks = what != "open";
  if (what == "write") options.write_buffer_size = 128 << 10;
  options.max_file_size = 1 << 20;
  leveldb::DB *raw;
  const double start = now();
  leveldb::Status s = leveldb::DB::Open(options, argv[1], &raw);
  if (!s.ok()) return fprintf(stderr, "open: %s\n", s.ToString().c_str()), 1;
  std::unique_ptr<leveldb::DB> db(raw);
  const double opened = now();
  leveldb::WriteOptions plain, sync;
  sync.sync = true;
  std::string got;
  if (options.create_if_missing) {
    for (unsigned long i = first; i < first + count; i++) {
      const bool syncs = what == "write" && i % 8 == 7;
      s = db->Put(syncs ? sync : plain, key(i), value(i));
      if (!s.ok()) return fprintf(stderr, "put %lu: %s\n", i, s.ToString().c_str()), 1;
      if (syncs) printf("done %lu\n", i + 1), fflush(stdout);
    }
    db->CompactRange(nullptr, nullptr);
    return 0;
  }
  leveldb::ReadOptions verify;
  verify.verify_checksums = true;
  if (what == "open") {
    for (unsigned long i = 0; i < first; i++) {
      s = db->Get(leveldb::ReadOptions(), key(i * (count / first)), &got);
      if (!s.ok()) return fprintf(stderr, "get: %s\n", s.ToString().c_str()), 1;
    }
    return printf("%.1f %.1f\n", opened - start, (now() - opened) / first), 0;
  }
  // Others than synced puts may be lost with a server, also in the middle: LevelDB syncs only the newest of its logs.
  unsigned long lost = 0, wrong = 0, all = 0, next = 0;
  for (unsigned long i = 0; i < first + count; i++) {
    s = db->Get(verify, key(i), &got);
    if (!s.ok() && !s.IsNotFound()) return fprintf(stderr, "get %lu: %s\n", i, s.ToString().c_str()), 1;
    if (s.ok()) all++, next = i + 1, wrong += got != value(i);
    if (!s.ok() && i < first) lost += i % 8 == 7;
  }
  unsigned long scanned = 0;
  std::unique_ptr<leveldb::Iterator> it(db->NewIterator(verify));
  for (it->SeekToFirst(); it->Valid(); it->Next()) scanned++;
  if (!it->status().ok()) return fprintf(stderr, "scan: %s\n", it->status().ToString().c_str()), 1;
  printf("next %lu, %lu lost, %lu wrong, %ld unknown\n", next, lost, wrong, (long)(scanned - all));
  return lost || wrong || scanned != all;
}
