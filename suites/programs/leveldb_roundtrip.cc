// LevelDB: fill, overwrite, delete, compact; close; reopen and check everything (reads are through mmap).
//   leveldb_roundtrip DIR write|check KEYS
#include <leveldb/db.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

static std::string key(unsigned i) { char b[32]; snprintf(b, sizeof b, "key%010u", i * 2654435761u); return b; }
static std::string value(unsigned i, unsigned version) {
  std::string v;
  while (v.size() < 100 + i % 400) v += std::to_string(i * 31u + version * 7u) + "-";
  return v;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  unsigned keys = atoi(argv[3]), bad = 0;
  bool write = std::string(argv[2]) == "write";
  leveldb::Options options;
  options.create_if_missing = write;
  options.paranoid_checks = true;
  options.compression = leveldb::kNoCompression;
  leveldb::DB *raw;
  leveldb::Status s = leveldb::DB::Open(options, argv[1], &raw);
  if (!s.ok()) return fprintf(stderr, "open: %s\n", s.ToString().c_str()), 1;
  std::unique_ptr<leveldb::DB> db(raw);
  if (write) {
    leveldb::WriteOptions plain, sync;
    sync.sync = true;
    for (unsigned v = 0; v < 3; v++)
      for (unsigned i = v; i < keys; i += v + 1) {
        s = db->Put(i % 1000 == 0 ? sync : plain, key(i), value(i, v));
        if (!s.ok()) return fprintf(stderr, "put: %s\n", s.ToString().c_str()), 1;
      }
    for (unsigned i = 0; i < keys; i += 5) db->Delete(plain, key(i));
    db->CompactRange(nullptr, nullptr);
  }
  leveldb::ReadOptions verify;
  verify.verify_checksums = true;
  unsigned long long hash = 1469598103934665603ull, count = 0;
  for (unsigned i = 0; i < keys; i++) {
    std::string got;
    s = db->Get(verify, key(i), &got);
    unsigned version = (i >= 2 && (i - 2) % 3 == 0) ? 2 : (i >= 1 && (i - 1) % 2 == 0) ? 1 : 0;
    bool deleted = i % 5 == 0;
    if (deleted ? !s.IsNotFound() : (!s.ok() || got != value(i, version))) bad++;
  }
  std::unique_ptr<leveldb::Iterator> it(db->NewIterator(verify));
  for (it->SeekToFirst(); it->Valid(); it->Next(), count++)
    for (char c : it->value().ToString()) hash = (hash ^ (unsigned char)c) * 1099511628211ull;
  if (!it->status().ok()) return fprintf(stderr, "scan: %s\n", it->status().ToString().c_str()), 1;
  printf("%llu keys, hash %llx, %u wrong\n", count, hash, bad);
  return bad != 0;
}
