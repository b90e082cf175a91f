// A BlockFile of Linux: a thread of its own hands pieces of operations to an io_uring and calls
// back what they end with. Fewer threads and switches than ThreadedBlockFile, and more pieces at
// once. Many containers forbid io_uring. Thread-safe. The tier owns it.
#ifndef KAON_SERVER_DISK_URING_BLOCK_FILE_H_
#define KAON_SERVER_DISK_URING_BLOCK_FILE_H_

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

class UringBlockFile final : public SystemBlockFile {
 public:
  struct Options {
    std::string path;
    // A multiple of kBlockBytes, > 0.
    uint64_t size_bytes = 0;
    // Pieces that the disk gets at once, 1 .. 4096. More of them wait in this object.
    uint32_t depth = 16;
  };

  // Opens the file. UNIMPLEMENTED if this process may not use io_uring or the kernel has too little
  // of it; it says why, and the file is untouched. Other errors are those of ReservedFile::Open.
  static absl::StatusOr<std::unique_ptr<UringBlockFile>> Open(const Options& options);
  ~UringBlockFile() override;

 private:
  class Ring;

  UringBlockFile(std::unique_ptr<Ring> ring, std::unique_ptr<const ReservedFile> file);
  void Start(std::vector<Piece> pieces) override;
  void Run();
  // Gives waiting pieces to the ring as far as it has room. Returns false when nothing is left to
  // do and nothing will come.
  bool Fill(bool may_wait);

  // Used by the thread alone, except for Wake.
  const std::unique_ptr<Ring> ring_;

  Mutex mu_;
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mu_);
  // The thread waits in the ring, or is about to, and has room there.
  bool needs_wake_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_URING_BLOCK_FILE_H_
