#include "server/disk/threaded_block_file.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "proto/status_macros.h"

namespace kaon::disk {

absl::StatusOr<std::unique_ptr<ThreadedBlockFile>> ThreadedBlockFile::Open(const Options& options) {
  CHECK_GE(options.num_threads, 1);
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<ReservedFile> file,
                        ReservedFile::Open(options.path, options.size_bytes));
  return std::unique_ptr<ThreadedBlockFile>(
      new ThreadedBlockFile(std::move(file), options.num_threads));
}

ThreadedBlockFile::ThreadedBlockFile(std::unique_ptr<const ReservedFile> file, int num_threads)
    : SystemBlockFile(std::move(file)) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadedBlockFile::~ThreadedBlockFile() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    wake_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadedBlockFile::Start(std::vector<Piece> pieces) {
  MutexLock lock(mu_);
  for (Piece& piece : pieces) {
    pieces_.push_back(std::move(piece));
    wake_.NotifyOne();
  }
}

void ThreadedBlockFile::Run() {
  while (true) {
    Piece piece;
    {
      MutexLock lock(mu_);
      while (pieces_.empty() && !ending_) wake_.Wait(mu_);
      if (pieces_.empty()) return;
      piece = std::move(pieces_.front());
      pieces_.pop_front();
    }
    std::optional<absl::Status> status;
    while (!status.has_value()) {
      const auto offset = static_cast<off_t>(piece.offset);
      const ssize_t count = piece.is_write
                                ? ::pwrite(fd(), piece.memory.data(), piece.memory.size(), offset)
                                : ::pread(fd(), piece.memory.data(), piece.memory.size(), offset);
      status = OnResult(piece, count < 0 ? -errno : count);
    }
    End(piece, *std::move(status));
  }
}

}  // namespace kaon::disk
