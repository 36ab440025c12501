// Programs of weft's server for C++: a volume, a chain with its answer, and short names for what LevelDB and RocksDB add to it.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <weft.h>

// The volume of `weft run`. Without one, it has no files.
struct Volume {
  Volume() {
    const char *socket = getenv("WEFT_SOCKET"), *mount_point = getenv("WEFT_AT");
    if (!socket) return;
    at = mount_point ? mount_point : "/weft";
    if (weft_files_connect(nullptr, nullptr, &files) == 0) return;
    fprintf(stderr, "%s\n", weft_error_message());
    abort();
  }
  bool Has(const std::string& name) const { return files && name.compare(0, at.size() + 1, at + "/") == 0; }
  // Where a name is, from the root of the volume.
  const char* Path(const std::string& name) const { return name.c_str() + at.size(); }

  weft_files* files = nullptr;
  std::string at;
};

struct Program {
  Program(const Volume& v, bool durable) : volume(v) {
    weft_chain_new(WEFT_CHAIN_ALL, &chain);
    if (durable) weft_chain_durable(chain);
  }
  ~Program() {
    weft_answer_free(answer);
    weft_chain_free(chain);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // `file`, unless null, is the one of Given(). False: weft_error_message() says why.
  bool Run(const weft_file* file = nullptr) { return (status = weft_chain_run(volume.files, chain, file, file ? 1 : 0, &answer)) == 0; }
  weft_value Given() { return weft_chain_given(chain, 0); }
  weft_value Open(const std::string& name, int flags) { return weft_chain_open(chain, At(name), flags); }
  weft_value Size(weft_value file) { return Export(weft_chain_field(chain, weft_chain_stat(chain, file), WEFT_FIELD_SIZE)); }
  weft_value Read(weft_value file, weft_number at, uint64_t bytes) {
    return Export(weft_chain_read(chain, file, at, weft_num(bytes)));
  }
  void Append(weft_value file, weft_bytes data) { weft_chain_append(chain, file, data); }
  void Sync(weft_value file) { weft_chain_sync(chain, file); }
  // Makes a file with this content, or replaces the content of the file that is there.
  weft_value Make(const std::string& name, const std::string& content, uint32_t mode = 0644) {
    weft_value file = weft_chain_create(chain, At(name), 0, mode);
    weft_chain_truncate(chain, file, weft_num(0));
    Append(file, Bytes(content));
    return file;
  }
  void Rename(const std::string& from, const std::string& to) { weft_chain_rename(chain, At(from), At(to), 0); }
  weft_number Math(weft_number left, uint32_t arith, weft_number right) {
    return weft_num_of(weft_chain_arith(chain, left, arith, right));
  }
  weft_number Math(weft_number left, uint32_t arith, uint64_t right) { return Math(left, arith, weft_num(right)); }
  weft_number Crc(weft_bytes bytes) { return weft_num_of(weft_chain_crc32c(chain, bytes)); }
  weft_bytes Pack(weft_number number, uint32_t width) { return weft_data_of(weft_chain_pack(chain, number, width)); }
  weft_bytes Concat(weft_bytes first, weft_bytes second) {
    weft_bytes parts[] = {first, second};
    return weft_data_of(weft_chain_concat(chain, parts, 2));
  }
  // Of a string or a leveldb::Slice.
  template <typename S> static weft_bytes Bytes(const S& s) {
    return weft_data(reinterpret_cast<const uint8_t*>(s.data()), s.size());
  }

  const Volume& volume;
  weft_chain* chain = nullptr;
  weft_answer* answer = nullptr;
  int status = 0;  // Of Run()

 private:
  weft_path At(const std::string& name) const { return weft_at(volume.Path(name)); }
  weft_value Export(weft_value value) {
    weft_chain_export(chain, value);
    return value;
  }
};

// The end of a file: one program opens the file, and reads its size and at most so many bytes.
struct End {
  explicit End(const Volume& volume) : p(volume, false) {}
  bool Read(const std::string& name, uint64_t bytes_max) {
    weft_value file = p.Open(name, O_RDONLY), all = p.Size(file);
    weft_number bytes = p.Math(weft_num_of(all), WEFT_MIN, bytes_max);
    weft_value read = p.Read(file, p.Math(weft_num_of(all), WEFT_SUB, bytes), bytes_max);
    return p.Run() && weft_answer_number(p.answer, all, &size) == 0 && weft_answer_bytes(p.answer, read, &data, &count) == 0;
  }
  // Bytes at an offset of the file, or null when not all of them are here.
  const char* Find(uint64_t at, size_t bytes) const {
    const bool here = at + bytes <= size && at + count >= size;
    return here ? reinterpret_cast<const char*>(data) + (at + count - size) : nullptr;
  }

  Program p;
  const uint8_t* data = nullptr;
  size_t count = 0;
  uint64_t size = 0;
};
