// A BlockFile of the operating system: threads of its own call pread and pwrite with O_DIRECT. Long
// operations are cut into pieces that several threads work on. Thread-safe. The tier owns it.
#ifndef KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_
#define KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/mutex.h"
#include "server/disk/block_file.h"

namespace kaon::disk {

class ThreadedBlockFile final : public BlockFile {
 public:
  struct Options {
    std::string path;
    // A multiple of kBlockBytes, > 0.
    uint64_t size_bytes = 0;
    // Operations that the disk gets at once, >= 1.
    int num_threads = 4;
  };

  // Opens the file for this object alone, or creates it with zeros, and reserves all its blocks. A
  // longer file keeps its length. Warns on the log if the file system has no O_DIRECT, as a tmpfs:
  // the page cache then takes memory that no budget counts. Each error names the path:
  //   RESOURCE_EXHAUSTED   the file system has not enough free bytes; both numbers
  //   NOT_FOUND            its directory is missing
  //   FAILED_PRECONDITION  another process uses the file, or it cannot be written
  // After an error a file that existed is as it was, and no other is left.
  static absl::StatusOr<std::unique_ptr<ThreadedBlockFile>> Open(const Options& options);
  ~ThreadedBlockFile() override;

  void Read(uint64_t offset, absl::Span<std::byte> to, Done done) override;
  void Write(uint64_t offset, absl::Span<const std::byte> from, Done done) override;
  absl::Status Sync() override;
  uint64_t size_bytes() const override { return options_.size_bytes; }
  const std::string& path() const override { return options_.path; }

  // Returns whether reads and writes go past the page cache.
  bool is_direct() const { return is_direct_; }

 private:
  class Operation;
  // A part of an operation.
  struct Piece {
    std::shared_ptr<Operation> operation;
    bool is_write = false;
    uint64_t offset = 0;
    // Written for a read only.
    absl::Span<std::byte> memory;
  };

  // Takes ownership of the open file `fd`.
  ThreadedBlockFile(Options options, int fd, bool is_direct);
  void Start(bool is_write, uint64_t offset, absl::Span<std::byte> memory, Done done);
  void Run();
  absl::Status Transfer(const Piece& piece) const;

  const Options options_;
  const int fd_;
  const bool is_direct_;

  Mutex mu_;
  // Signaled when a piece waits, or at the end.
  CondVar wake_;
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_
