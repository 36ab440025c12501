// A file system for RocksDB's databases on a volume of weft. When RocksDB rolls its MANIFEST, it writes and syncs the new MANIFEST, writes and
// syncs a .dbtmp with its name, renames that to CURRENT, and syncs the directory. Here, both files stay in memory until the rename, which then
// is one durable program: it makes both, and renames. RocksDB's syncs before have nothing to do: nothing reaches the new MANIFEST without
// CURRENT. Whoever asks for a held file by its name before gets it made the plain way.
#pragma once
#include <rocksdb/file_system.h>
#include <sys/stat.h>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include "../leveldb-compound/program.h"

namespace weft {
using namespace rocksdb;

class RollFileSystem final : public FileSystemWrapper {
 public:
  explicit RollFileSystem(const std::shared_ptr<FileSystem>& base) : FileSystemWrapper(base), umask_(umask(022)) { umask(umask_); }
  const char* Name() const override { return "WeftRollFileSystem"; }

  // Renames that were one program each, and held files that were made the plain way.
  std::atomic<uint64_t> programs{0}, plain{0};

  IOStatus NewWritableFile(const std::string& f, const FileOptions& o, std::unique_ptr<FSWritableFile>* r, IODebugContext* d) override {
    // Beside no CURRENT, a MANIFEST is the first one, or a copy (a checkpoint, a backup): RocksDB closes it, and may never rename.
    const bool held = weft_.Has(f) && !o.use_direct_writes &&
                      (IsTemporary(f) || (IsManifest(f) && target()->FileExists(Folder(f) + "CURRENT", IOOptions(), d).ok()));
    if (!held) return target()->NewWritableFile(f, o, r, d);
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Content>& content = held_[f];
    if (content) content->state = kGone;
    content = std::make_shared<Content>(f, o);
    r->reset(new File(this, content));
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& o, IODebugContext* d) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto tmp = held_.find(from);
    IOStatus s;
    if (tmp != held_.end() && tmp->second->closed && Roll(tmp->second, to, &s)) return s;
    // The plain way: first all that `to` may name, for it may be CURRENT.
    durable_.erase(to);
    s = MakeBelow(from);
    if (s.ok()) s = MakeBelow(Folder(to));
    return s.ok() ? target()->RenameFile(from, to, o, d) : s;
  }
  IOStatus DeleteFile(const std::string& f, const IOOptions& o, IODebugContext* d) override {
    const bool held = Forget(f);
    // A file that had the name before goes, too.
    IOStatus s = target()->DeleteFile(f, o, d);
    return held && s.IsPathNotFound() ? IOStatus::OK() : s;
  }
  IOStatus NewDirectory(const std::string& f, const IOOptions& o, std::unique_ptr<FSDirectory>* r, IODebugContext* d) override {
    IOStatus s = target()->NewDirectory(f, o, r, d);
    if (s.ok() && weft_.Has(f)) r->reset(new Directory(this, std::move(*r)));
    return s;
  }

  // By these names RocksDB looks at a MANIFEST, or at all that is in a folder: they see a file, not a held one.
  IOStatus NewSequentialFile(const std::string& f, const FileOptions& o, std::unique_ptr<FSSequentialFile>* r, IODebugContext* d) override {
    return Made(f, [&] { return target()->NewSequentialFile(f, o, r, d); });
  }
  IOStatus ReopenWritableFile(const std::string& f, const FileOptions& o, std::unique_ptr<FSWritableFile>* r, IODebugContext* d) override {
    return Made(f, [&] { return target()->ReopenWritableFile(f, o, r, d); });
  }
  IOStatus FileExists(const std::string& f, const IOOptions& o, IODebugContext* d) override {
    return Made(f, [&] { return target()->FileExists(f, o, d); });
  }
  IOStatus GetChildren(const std::string& f, const IOOptions& o, std::vector<std::string>* r, IODebugContext* d) override {
    return Made(f, [&] { return target()->GetChildren(f, o, r, d); });
  }
  IOStatus GetChildrenFileAttributes(const std::string& f, const IOOptions& o, std::vector<FileAttributes>* r, IODebugContext* d) override {
    return Made(f, [&] { return target()->GetChildrenFileAttributes(f, o, r, d); });
  }
  IOStatus GetFileSize(const std::string& f, const IOOptions& o, uint64_t* size, IODebugContext* d) override {
    return Made(f, [&] { return target()->GetFileSize(f, o, size, d); });
  }

 private:
  // A program carries at most 4 MiB; this leaves room for the .dbtmp and the names.
  static constexpr size_t kHeldBytesMax = (4 << 20) - (64 << 10);
  enum State { kHeld, kMade, kGone };
  // A new file. Held: `data` is all of it. Made: `file`, unless null, appends to it. Gone: deleted while it was held, or nobody knows whether the
  // program that made it has run.
  struct Content {
    Content(const std::string& n, const FileOptions& o) : name(n), options(o) {}
    const std::string name;
    const FileOptions options;
    State state = kHeld;
    std::string data;
    bool synced = false, closed = false;
    std::unique_ptr<FSWritableFile> file;
  };

  struct File final : public FSWritableFile {
    File(RollFileSystem* f, const std::shared_ptr<Content>& c) : fs(f), content(c) {}
    ~File() override { Close(IOOptions(), nullptr).PermitUncheckedError(); }
    IOStatus Append(const Slice& s, const IOOptions& o, IODebugContext* d) override {
      std::lock_guard<std::mutex> lock(fs->mutex_);
      const bool holds = content->state == kHeld && content->data.size() + s.size() <= kHeldBytesMax;
      IOStatus made = content->state == kHeld && !holds ? fs->Make(content) : Gone();
      if (made.ok() && !holds && !content->file)
        made = fs->target()->ReopenWritableFile(content->name, content->options, &content->file, d);
      if (made.ok()) size += s.size();
      if (holds) content->data.append(s.data(), s.size());
      return made.ok() && !holds ? content->file->Append(s, o, d) : made;
    }
    IOStatus Sync(const IOOptions& o, IODebugContext* d) override {
      {
        std::lock_guard<std::mutex> lock(fs->mutex_);
        content->synced = true;
        // Without an open file, it is held, or the program that has made it was durable.
        if (!content->file) return Gone();
      }
      return content->file->Sync(o, d);
    }
    IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
    IOStatus Close(const IOOptions& o, IODebugContext* d) override {
      std::lock_guard<std::mutex> lock(fs->mutex_);
      IOStatus s;
      // The rename of a .dbtmp comes when it is closed; that of a MANIFEST before.
      if (content->state == kHeld && !content->closed && !IsTemporary(content->name)) s = fs->Make(content);
      content->closed = true;
      if (content->file && s.ok()) s = content->file->Close(o, d);
      content->file.reset();
      return s;
    }
    uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size; }
    IOStatus Gone() const { return content->state == kGone ? IOStatus::IOError(content->name, "the file is gone") : IOStatus::OK(); }

    RollFileSystem* const fs;
    const std::shared_ptr<Content> content;
    uint64_t size = 0;
  };

  struct Directory final : public FSDirectoryWrapper {
    Directory(RollFileSystem* f, std::unique_ptr<FSDirectory>&& base) : FSDirectoryWrapper(std::move(base)), fs(f) {}
    IOStatus FsyncWithDirOptions(const IOOptions& o, IODebugContext* d, const DirFsyncOptions& why) override {
      if (why.reason == DirFsyncOptions::kFileRenamed) {
        std::lock_guard<std::mutex> lock(fs->mutex_);
        if (fs->durable_.erase(why.renamed_new_name) == 1) return IOStatus::OK();
      }
      return FSDirectoryWrapper::FsyncWithDirOptions(o, d, why);
    }
    RollFileSystem* const fs;
  };

  static std::string Folder(const std::string& f) { return f.substr(0, f.rfind('/') + 1); }
  static bool IsManifest(const std::string& f) { return f.compare(f.rfind('/') + 1, 9, "MANIFEST-") == 0; }
  // NUMBER.dbtmp becomes CURRENT or IDENTITY. RocksDB reads an OPTIONS-NUMBER.dbtmp before it renames that.
  static bool IsTemporary(const std::string& f) {
    const size_t digits = f.find_first_not_of("0123456789", f.rfind('/') + 1);
    return digits != std::string::npos && f.compare(digits, std::string::npos, ".dbtmp") == 0;
  }

  // One durable program: makes the .dbtmp and the MANIFEST that it names, and renames. False: nothing was done, and the plain way is open.
  bool Roll(const std::shared_ptr<Content>& tmp, const std::string& to, IOStatus* s) {
    const auto manifest = held_.find(Folder(tmp->name) + tmp->data.substr(0, tmp->data.find('\n')));
    const std::shared_ptr<Content> second = manifest == held_.end() ? nullptr : manifest->second;
    Program p(weft_, true);
    if (second) p.Make(second->name, second->data, 0644 & ~umask_);
    weft_value file = p.Make(tmp->name, tmp->data, 0644 & ~umask_);
    p.Rename(tmp->name, to);
    p.Sync(file);
    p.Run();
    if (p.status == WEFT_EFAILED || p.status == WEFT_EINVAL) return false;
    if (p.status != 0) *s = IOStatus::IOError(to, weft_error_message());
    for (const auto& content : {tmp, second}) {
      if (!content) continue;
      content->state = p.status == 0 ? kMade : kGone;
      content->data = std::string();
      held_.erase(content->name);
    }
    if (p.status == 0) durable_.insert(to), programs++;
    return true;
  }
  // The plain way. When it fails, the file is held as before.
  IOStatus Make(const std::shared_ptr<Content>& c) {
    IOStatus s = target()->NewWritableFile(c->name, c->options, &c->file, nullptr);
    if (s.ok()) s = c->file->Append(c->data, IOOptions(), nullptr);
    if (s.ok() && c->synced) s = c->file->Sync(IOOptions(), nullptr);
    if (s.ok() && c->closed) s = c->file->Close(IOOptions(), nullptr);
    if (!s.ok() || c->closed) c->file.reset();
    if (!s.ok()) return s;
    c->state = kMade, c->data = std::string(), plain++;
    held_.erase(c->name);
    return s;
  }
  bool Forget(const std::string& f) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = held_.find(f);
    if (at == held_.end()) return false;
    at->second->state = kGone;
    held_.erase(at);
    return true;
  }
  // The plain way, for a file and all in a folder of this name.
  IOStatus MakeBelow(const std::string& f) {
    std::set<std::shared_ptr<Content>> below;
    for (const auto& held : held_)
      if (held.first == f || Folder(held.first) == f + "/" || Folder(held.first) == f) below.insert(held.second);
    IOStatus s;
    for (const auto& content : below)
      if (s.ok()) s = Make(content);
    return s;
  }
  template <typename Call> IOStatus Made(const std::string& f, Call call) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      IOStatus s = MakeBelow(f);
      if (!s.ok()) return s;
    }
    return call();
  }

  const Volume weft_;
  const mode_t umask_;
  std::mutex mutex_;  // Of all below, and of what a Content has
  std::map<std::string, std::shared_ptr<Content>> held_;
  std::set<std::string> durable_;  // Renamed by a program, and not yet synced by RocksDB
};
}  // namespace weft
