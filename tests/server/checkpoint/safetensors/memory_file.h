// A file in memory, whose bytes a test can read and damage. Owned by the test; one thread.
#ifndef KAON_TESTS_SERVER_CHECKPOINT_SAFETENSORS_MEMORY_FILE_H_
#define KAON_TESTS_SERVER_CHECKPOINT_SAFETENSORS_MEMORY_FILE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "server/disk/disk.h"

namespace kaon::checkpoint {

class MemoryFile : public disk::File {
 public:
  // `bytes` outlives the file, which reads and writes it.
  explicit MemoryFile(std::string* bytes) : bytes_(*bytes) {}

  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override {
    for (const absl::string_view slice : slices) {
      if (bytes_.size() + slice.size() > capacity_) return absl::ResourceExhaustedError("full");
      bytes_.resize(std::max<size_t>(bytes_.size(), offset + slice.size()));
      std::copy(slice.begin(), slice.end(), bytes_.begin() + static_cast<int64_t>(offset));
      offset += slice.size();
    }
    return absl::OkStatus();
  }
  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override {
    ++reads_;
    if (offset >= bytes_.size()) return 0;
    return bytes_.copy(to, size, offset);
  }
  absl::StatusOr<uint64_t> Size() override { return bytes_.size(); }
  absl::Status Truncate(uint64_t size) override {
    bytes_.resize(size);
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    ++syncs_;
    return absl::OkStatus();
  }
  const std::string& path() const override { return path_; }

  // Makes writes beyond so many bytes fail.
  void SetCapacity(size_t bytes) { capacity_ = bytes; }
  int reads() const { return reads_; }
  int syncs() const { return syncs_; }

 private:
  std::string& bytes_;
  const std::string path_ = "f";
  size_t capacity_ = SIZE_MAX;
  int reads_ = 0;
  int syncs_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_TESTS_SERVER_CHECKPOINT_SAFETENSORS_MEMORY_FILE_H_
