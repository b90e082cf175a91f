// A BlockFile of the operating system: threads of its own call pread and pwrite with O_DIRECT. Long
// operations are cut into pieces that several threads work on. Thread-safe. The tier owns it.
#ifndef KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_
#define KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/disk/system_block_file.h"

namespace kaon::disk {

class ThreadedBlockFile final : public SystemBlockFile {
 public:
  struct Options {
    std::string path;
    // A multiple of kBlockBytes, > 0.
    uint64_t size_bytes = 0;
    // Operations that the disk gets at once, >= 1.
    int num_threads = 4;
  };

  // Opens the file. Errors are those of ReservedFile::Open.
  static absl::StatusOr<std::unique_ptr<ThreadedBlockFile>> Open(const Options& options);
  ~ThreadedBlockFile() override;

 private:
  ThreadedBlockFile(std::unique_ptr<const ReservedFile> file, int num_threads);
  void Start(std::vector<Piece> pieces) override;
  void Run();

  Mutex mu_;
  // Signaled when a piece waits, or at the end.
  CondVar wake_;
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_THREADED_BLOCK_FILE_H_
