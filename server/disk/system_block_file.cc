#include "server/disk/system_block_file.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "server/disk/device_error.h"
#include "server/disk/system_error.h"

namespace kaon::disk {

// One call of Read or Write, until its last piece.
class SystemBlockFile::Operation {
 public:
  Operation(size_t num_pieces, Done done) : left_(num_pieces), done_(std::move(done)) {}

  void OnPiece(absl::Status status) {
    {
      MutexLock lock(mu_);
      status_.Update(std::move(status));
      if (--left_ > 0) return;
    }
    // No copy stays here: to TSan, the library's count of references is no synchronisation.
    done_(std::move(status_));
  }

 private:
  Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_);
  // First error. No other thread writes it after the last piece.
  absl::Status status_;
  const Done done_;
};

SystemBlockFile::SystemBlockFile(std::unique_ptr<const ReservedFile> file)
    : file_(std::move(file)) {}

void SystemBlockFile::Read(uint64_t offset, absl::Span<std::byte> to, Done done) {
  Cut(false, offset, to, std::move(done));
}

void SystemBlockFile::Write(uint64_t offset, absl::Span<const std::byte> from, Done done) {
  Cut(true, offset, {const_cast<std::byte*>(from.data()), from.size()}, std::move(done));
}

void SystemBlockFile::Cut(bool is_write, uint64_t offset, absl::Span<std::byte> memory, Done done) {
  const absl::Status checked = CheckBlocks(*this, offset, memory);
  if (!checked.ok() || memory.empty()) return done(checked);
  std::vector<Piece> pieces((memory.size() + kPieceBytes - 1) / kPieceBytes);
  const auto operation = std::make_shared<Operation>(pieces.size(), std::move(done));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t first = i * kPieceBytes;
    pieces[i] = {operation, is_write, offset + first, memory.subspan(first, kPieceBytes)};
  }
  Start(std::move(pieces));
}

std::optional<absl::Status> SystemBlockFile::OnResult(Piece& piece, int64_t result) const {
  if (result == -EINTR || result == -EAGAIN) return std::nullopt;
  if (result < 0) {
    return SystemError(
        absl::StrCat(piece.is_write ? "writing" : "reading", " at offset ", piece.offset, " of"),
        path(), static_cast<int>(-result));
  }
  if (result == 0) {
    return DeviceError(absl::StrCat(path(), " ends at byte ", piece.offset, ", it had ",
                                    size_bytes(), ": something else has cut it off"));
  }
  piece.offset += static_cast<uint64_t>(result);
  piece.memory.remove_prefix(static_cast<size_t>(result));
  if (!piece.memory.empty()) return std::nullopt;
  return absl::OkStatus();
}

void SystemBlockFile::End(const Piece& piece, absl::Status status) {
  piece.operation->OnPiece(std::move(status));
}

}  // namespace kaon::disk
