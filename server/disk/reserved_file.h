// An open file of state: locked for this process, with blocks for all its bytes, read and written
// past the page cache. It transfers nothing itself; the BlockFile that owns it does. Thread-safe.
#ifndef KAON_SERVER_DISK_RESERVED_FILE_H_
#define KAON_SERVER_DISK_RESERVED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kaon::disk {

class ReservedFile {
 public:
  // Opens the file for this object alone, or creates it with zeros, and reserves all its blocks.
  // Waits 3 s at most for a process that has it and may be ending. `size_bytes` is a multiple of
  // kBlockBytes, > 0. A longer file keeps its length. Warns on the log if the file system has no
  // O_DIRECT, as a tmpfs: the page cache then takes memory that no budget counts. Each error names
  // the path:
  //   RESOURCE_EXHAUSTED   the file system has not enough free bytes; both numbers
  //   NOT_FOUND            its directory is missing
  //   FAILED_PRECONDITION  another process uses the file, or it cannot be written
  // After an error a file that existed is as it was, and no other is left.
  static absl::StatusOr<std::unique_ptr<ReservedFile>> Open(const std::string& path,
                                                            uint64_t size_bytes);
  ~ReservedFile();
  ReservedFile(const ReservedFile&) = delete;
  ReservedFile& operator=(const ReservedFile&) = delete;

  // Makes durable every write that has returned. Codes are those of disk.h.
  absl::Status Sync() const;

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // Returns the descriptor, which stays open as long as this object lives.
  int fd() const { return fd_; }
  // Returns whether reads and writes go past the page cache.
  bool is_direct() const { return is_direct_; }

 private:
  ReservedFile(std::string path, uint64_t size_bytes, int fd, bool is_direct);

  const std::string path_;
  const uint64_t size_bytes_;
  const int fd_;
  const bool is_direct_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_RESERVED_FILE_H_
