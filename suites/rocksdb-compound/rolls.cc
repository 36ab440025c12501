// RocksDB that leaves a MANIFEST of 1 KiB for a new one, so that it rolls all the time. With ROLL=1 in the environment, rolls are programs (roll.h).
//   rolls DIR write FROM COUNT   puts FROM, FROM+1, ...; every eighth put is synced, and then printed, with the rolls so far
//   rolls DIR flush FROM COUNT   the same without a log: every 32nd put is followed by a flush of the memtable, and then printed
//   rolls DIR check COUNT MORE   that of COUNT puts all are there, and that all are right, as of MORE puts behind them
//   rolls DIR roundtrip KEYS     fills, overwrites, deletes and compacts, with several opens; then as `same`
//   rolls DIR same KEYS          compares each key of a roundtrip, and hashes all
//   rolls DIR open TIMES         microseconds of each open and close
//   rolls DIR tables COUNT       microseconds of each of COUNT tables that are written, one by one
//   rolls DIR held               what a held file shows, what becomes of it, and sizes up to and above what a program carries
// On standard error: how many renames were programs, and how many held files were made the plain way.
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/utilities/checkpoint.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include "roll.h"
using namespace rocksdb;

static std::string key(unsigned long i) { char b[32]; snprintf(b, sizeof b, "key%010u", (unsigned)i * 2654435761u); return b; }
static std::string value(unsigned long i, unsigned version = 0) {
  std::string v;
  while (v.size() < 100 + i % 1900) v += std::to_string(i * 31 + version * 7 + v.size()) + "-";
  return v;
}
static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void need(const Status& s, const char* what) {
  if (s.ok()) return;
  fprintf(stderr, "%s: %s\n", what, s.ToString().c_str());
  exit(1);
}
static void expect(bool holds, const char* what) { need(holds ? Status::OK() : Status::Corruption("does not hold"), what); }

static std::shared_ptr<weft::RollFileSystem> g_rolls;
static Options g_options;
static std::string g_dir;

static std::unique_ptr<DB> Open() {
  DB* db;
  need(DB::Open(g_options, g_dir, &db), "open");
  return std::unique_ptr<DB>(db);
}
static unsigned newest(unsigned long i) { return (i >= 2 && (i - 2) % 3 == 0) ? 2 : (i >= 1 && (i - 1) % 2 == 0) ? 1 : 0; }

static int Same(unsigned long keys) {
  unsigned long bad = 0, count = 0;
  unsigned long long hash = 1469598103934665603ull;
  std::unique_ptr<DB> db = Open();
  std::string got;
  for (unsigned long i = 0; i < keys; i++) {
    Status s = db->Get(ReadOptions(), key(i), &got);
    bad += i % 5 == 0 ? !s.IsNotFound() : !s.ok() || got != value(i, newest(i));
  }
  std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next(), count++)
    for (char c : it->value().ToString()) hash = (hash ^ (unsigned char)c) * 1099511628211ull;
  need(it->status(), "scan");
  need(db->VerifyChecksum(), "verify");
  printf("%lu keys, hash %llx, %lu wrong\n", count, hash, bad);
  return bad != 0;
}

// A roll as RocksDB does it, by hand: `size` bytes in parts, then the .dbtmp; renamed to `to`.
static std::unique_ptr<FSWritableFile> Manifest(FileSystem* fs, const std::string& name, const std::string& bytes) {
  std::unique_ptr<FSWritableFile> file;
  need(fs->NewWritableFile(name, FileOptions(), &file, nullptr), "MANIFEST");
  for (size_t at = 0; at < bytes.size(); at += 100000)
    need(file->Append(Slice(bytes).ToString().substr(at, 100000), IOOptions(), nullptr), "append to the MANIFEST");
  need(file->Sync(IOOptions(), nullptr), "sync of the MANIFEST");
  return file;
}
static IOStatus SetCurrent(FileSystem* fs, const std::string& name, const std::string& to) {
  need(WriteStringToFile(fs, name + "\n", g_dir + "/000009.dbtmp", true), "dbtmp");
  return fs->RenameFile(g_dir + "/000009.dbtmp", to, IOOptions(), nullptr);
}
static void Is(FileSystem* fs, const std::string& name, const std::string& want, const char* what) {
  std::string got;
  need(ReadFileToString(fs, name, &got), what);
  expect(got == want, what);
}

static int Held() {
  FileSystem* fs = g_rolls.get();
  const auto base = FileSystem::Default();
  const auto there = [&](const std::string& name) { return base->FileExists(name, IOOptions(), nullptr).ok(); };
  need(fs->CreateDirIfMissing(g_dir, IOOptions(), nullptr), "folder");
  const std::string current = g_dir + "/CURRENT";
  std::string bytes(6 << 20, 0);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = (i * 2654435761u) >> 13;
  // The first MANIFEST is not held: there is no CURRENT.
  Manifest(fs, g_dir + "/MANIFEST-000001", "one");
  expect(there(g_dir + "/MANIFEST-000001"), "the first MANIFEST is there before CURRENT");
  need(SetCurrent(fs, "MANIFEST-000001", current), "first rename");
  expect(g_rolls->programs == 1 && g_rolls->plain == 0, "the first CURRENT is a program");
  unsigned number = 10;
  const size_t most = (4 << 20) - (64 << 10);
  for (size_t size : {size_t(0), size_t(1), size_t(4096), size_t(100000), size_t(1 << 20), most, most + 1, size_t(6 << 20)}) {
    const std::string name = "MANIFEST-0000" + std::to_string(number++), path = g_dir + "/" + name, old = bytes.substr(0, size);
    const uint64_t programs = g_rolls->programs, plain = g_rolls->plain;
    auto file = Manifest(fs, path, old);
    expect(there(path) == (size > most), "a MANIFEST is held up to what a program carries");
    need(SetCurrent(fs, name, current), "rename");
    expect(g_rolls->programs == programs + 1 && g_rolls->plain == plain + (size > most), "a roll is one program");
    expect(there(path) && !there(g_dir + "/000009.dbtmp"), "MANIFEST and CURRENT are there");
    Is(base.get(), current, name + "\n", "content of CURRENT");
    Is(base.get(), path, old, "content of the MANIFEST");
    need(file->Append("more", IOOptions(), nullptr), "append after the roll");
    need(file->Sync(IOOptions(), nullptr), "sync after the roll");
    expect(file->GetFileSize(IOOptions(), nullptr) == size + 4, "size of the file");
    need(file->Close(IOOptions(), nullptr), "close");
    Is(base.get(), path, old + "more", "content with the append");
  }
  // Whoever asks gets the file; the roll goes on.
  for (unsigned ask = 0; ask < 6; ask++) {
    const std::string name = "MANIFEST-0001" + std::to_string(number++), path = g_dir + "/" + name;
    auto file = Manifest(fs, path, "held");
    expect(!there(path), "held");
    uint64_t size = 0;
    std::vector<std::string> names;
    std::vector<FileAttributes> attributes;
    if (ask == 0) need(fs->GetFileSize(path, IOOptions(), &size, nullptr), "size"), expect(size == 4, "size of a held file");
    if (ask == 1) need(fs->FileExists(path, IOOptions(), nullptr), "a held file exists");
    if (ask == 2) need(fs->GetChildren(g_dir, IOOptions(), &names, nullptr), "children");
    if (ask == 3) need(fs->GetChildrenFileAttributes(g_dir + "/", IOOptions(), &attributes, nullptr), "attributes");
    if (ask == 4) Is(fs, path, "held", "read of a held file");
    if (ask == 5) need(fs->RenameFile(g_dir, g_dir + "-moved", IOOptions(), nullptr), "rename of the folder");
    if (ask == 5) need(base->RenameFile(g_dir + "-moved", g_dir, IOOptions(), nullptr), "rename of the folder back");
    bool listed = ask < 2 || ask > 3;
    for (const auto& n : names) listed |= n == name;
    for (const auto& a : attributes) listed |= a.name == name && a.size_bytes == 4;
    expect(listed && there(path), "a held file is there for who asks");
    need(file->Append("+", IOOptions(), nullptr), "append to a file that was held");
    need(file->Sync(IOOptions(), nullptr), "sync of a file that was held");
    need(SetCurrent(fs, name, current), "rename after the question");
    Is(base.get(), path, "held+", "content after the question");
  }
  // Somebody asks for the .dbtmp alone: the rename needs both.
  auto asked = Manifest(fs, g_dir + "/MANIFEST-000190", "asked");
  need(WriteStringToFile(fs, "MANIFEST-000190\n", g_dir + "/000009.dbtmp", true), "dbtmp");
  need(fs->FileExists(g_dir + "/000009.dbtmp", IOOptions(), nullptr), "a held .dbtmp exists");
  need(fs->RenameFile(g_dir + "/000009.dbtmp", current, IOOptions(), nullptr), "rename of a .dbtmp that was asked for");
  Is(base.get(), g_dir + "/MANIFEST-000190", "asked", "the MANIFEST that the .dbtmp names");
  // No program leads out of the volume: such a roll is made the plain way.
  std::string away = std::string(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp") + "/weft-away.XXXXXX";
  const std::string folder = g_dir;
  expect(mkdtemp(&away[0]) && symlink(away.c_str(), (g_dir + "/away").c_str()) == 0, "symlink out of the volume");
  g_dir += "/away";
  need(WriteStringToFile(base.get(), "MANIFEST-000001\n", g_dir + "/CURRENT"), "CURRENT outside");
  const uint64_t programs = g_rolls->programs, plain = g_rolls->plain;
  auto outside = Manifest(fs, g_dir + "/MANIFEST-000191", "outside");
  expect(!there(g_dir + "/MANIFEST-000191"), "held outside");
  need(SetCurrent(fs, "MANIFEST-000191", g_dir + "/CURRENT"), "rename outside");
  expect(g_rolls->programs == programs && g_rolls->plain == plain + 2, "a roll outside is no program");
  Is(base.get(), away + "/CURRENT", "MANIFEST-000191\n", "CURRENT outside");
  Is(base.get(), away + "/MANIFEST-000191", "outside", "MANIFEST outside");
  for (const char* name : {"/CURRENT", "/MANIFEST-000191"}) unlink((away + name).c_str());
  rmdir(away.c_str());
  g_dir = folder;
  // Dropped, closed without a rename, and a rename that fails.
  auto dropped = Manifest(fs, g_dir + "/MANIFEST-000200", "dropped");
  need(fs->DeleteFile(g_dir + "/MANIFEST-000200", IOOptions(), nullptr), "delete of a held file");
  expect(!dropped->Append("x", IOOptions(), nullptr).ok(), "append to a deleted file");
  dropped.reset();
  expect(fs->FileExists(g_dir + "/MANIFEST-000200", IOOptions(), nullptr).IsNotFound(), "a deleted file is not there");
  Manifest(fs, g_dir + "/MANIFEST-000201", "closed").reset();
  Is(base.get(), g_dir + "/MANIFEST-000201", "closed", "closed without a rename");
  auto failed = Manifest(fs, g_dir + "/MANIFEST-000202", "failed");
  expect(!SetCurrent(fs, "MANIFEST-000202", g_dir + "/nowhere/CURRENT").ok(), "a rename into no folder fails");
  need(fs->DeleteFile(g_dir + "/000009.dbtmp", IOOptions(), nullptr), "delete of the dbtmp");
  Is(fs, g_dir + "/MANIFEST-000202", "failed", "the MANIFEST of a roll that failed");
  return puts("held files hold"), 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  g_dir = argv[1];
  const std::string what = argv[2];
  const unsigned long first = argc > 3 ? strtoul(argv[3], nullptr, 10) : 0, count = argc > 4 ? strtoul(argv[4], nullptr, 10) : 0;
  std::unique_ptr<Env> env;
  if (getenv("ROLL") || what == "held") {
    g_rolls = std::make_shared<weft::RollFileSystem>(FileSystem::Default());
    env = NewCompositeEnv(g_rolls);
    g_options.env = env.get();
  }
  g_options.create_if_missing = what != "check" && what != "same";
  g_options.compression = kNoCompression;
  g_options.max_manifest_file_size = 1024;
  g_options.write_buffer_size = 64 << 10;
  g_options.target_file_size_base = 256 << 10;
  g_options.max_bytes_for_level_base = 1 << 20;
  g_options.stats_persist_period_sec = 0;
  WriteOptions plain, sync;
  sync.sync = true;
  int status = 0;
  std::string got;
  if (what == "held") {
    status = Held();
  } else if (what == "write" || what == "flush") {
    const bool logged = what == "write";
    plain.disableWAL = !logged;
    std::unique_ptr<DB> db = Open();
    for (unsigned long i = first; i < first + count; i++) {
      const bool durable = logged ? i % 8 == 7 : i % 32 == 31;
      need(db->Put(durable && logged ? sync : plain, key(i), value(i)), "put");
      if (!durable) continue;
      if (!logged) need(db->Flush(FlushOptions()), "flush");
      printf("done %lu %lu\n", i + 1, g_rolls ? (unsigned long)g_rolls->programs : 0), fflush(stdout);
      // Most kills come now, when nothing behind the flush has made it durable.
      if (!logged) usleep(20000);
    }
  } else if (what == "check") {
    // A synced put makes all before it durable, also those in older logs; and so does a flush.
    std::unique_ptr<DB> db = Open();
    unsigned long lost = 0, wrong = 0, all = 0, next = 0, scanned = 0;
    for (unsigned long i = 0; i < first + count; i++) {
      Status s = db->Get(ReadOptions(), key(i), &got);
      if (!s.IsNotFound()) need(s, "get");
      if (s.ok()) all++, next = i + 1, wrong += got != value(i);
      if (!s.ok() && i < first) lost++;
    }
    std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
    for (it->SeekToFirst(); it->Valid(); it->Next()) scanned++;
    need(it->status(), "scan");
    printf("next %lu, %lu lost, %lu wrong, %ld unknown\n", next, lost, wrong, (long)(scanned - all));
    status = lost || wrong || scanned != all;
  } else if (what == "roundtrip") {
    for (unsigned v = 0; v < 3; v++) {
      std::unique_ptr<DB> db = Open();
      for (unsigned long i = v; i < first; i += v + 1) need(db->Put(i % 1000 == 0 ? sync : plain, key(i), value(i, v)), "put");
    }
    std::unique_ptr<DB> db = Open();
    for (unsigned long i = 0; i < first; i += 5) need(db->Delete(plain, key(i)), "delete");
    need(db->CompactRange(CompactRangeOptions(), nullptr, nullptr), "compact");
    // A checkpoint copies the MANIFEST, and writes CURRENT without a rename.
    Checkpoint* checkpoint;
    need(Checkpoint::Create(db.get(), &checkpoint), "checkpoint");
    need(std::unique_ptr<Checkpoint>(checkpoint)->CreateCheckpoint(g_dir + "-checkpoint"), "checkpoint");
    db.reset();
    status = Same(first);
  } else if (what == "same") {
    status = Same(first);
  } else if (what == "open") {
    Open();
    const double start = now();
    for (unsigned long i = 0; i < first; i++) Open();
    printf("%.1f\n", (now() - start) / first);
  } else if (what == "tables") {
    g_options.disable_auto_compactions = true;
    g_options.max_manifest_file_size = 1;
    std::unique_ptr<DB> db = Open();
    const double start = now();
    for (unsigned long i = 0; i < first; i++) {
      need(db->Put(plain, key(i), value(i)), "put");
      need(db->Flush(FlushOptions()), "flush");
    }
    printf("%.1f\n", (now() - start) / first);
  } else {
    status = 2;
  }
  if (g_rolls) fprintf(stderr, "%lu programs, %lu plain\n", (unsigned long)g_rolls->programs, (unsigned long)g_rolls->plain);
  return status;
}
