// The part that BlockFiles of the operating system share: it owns the open file and cuts operations
// into pieces. A subclass moves the bytes of pieces. Thread-safe. The tier owns it.
#ifndef KAON_SERVER_DISK_SYSTEM_BLOCK_FILE_H_
#define KAON_SERVER_DISK_SYSTEM_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/disk/block_file.h"
#include "server/disk/reserved_file.h"

namespace kaon::disk {

class SystemBlockFile : public BlockFile {
 public:
  // Upper bound on the bytes of a piece.
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

  void Read(uint64_t offset, absl::Span<std::byte> to, Done done) final;
  void Write(uint64_t offset, absl::Span<const std::byte> from, Done done) final;
  absl::Status Sync() final { return file_->Sync(); }
  uint64_t size_bytes() const final { return file_->size_bytes(); }
  const std::string& path() const final { return file_->path(); }

  // Returns whether reads and writes go past the page cache.
  bool is_direct() const { return file_->is_direct(); }

 protected:
  class Operation;
  // The part of an operation that is still to be transferred by one system call.
  struct Piece {
    // Shared by the pieces of one Read or Write.
    std::shared_ptr<Operation> operation;
    bool is_write = false;
    uint64_t offset = 0;
    // Written for a read only.
    absl::Span<std::byte> memory;
  };

  explicit SystemBlockFile(std::unique_ptr<const ReservedFile> file);

  // Begins to transfer the pieces of one operation. Must not block.
  virtual void Start(std::vector<Piece> pieces) = 0;

  // Takes the result of a system call for `piece`: bytes, or a negative errno. Returns the status
  // that the piece ends with. Returns nothing if `piece`, now without these bytes, needs another
  // call.
  std::optional<absl::Status> OnResult(Piece& piece, int64_t result) const;
  // Ends a piece. The last one of an operation calls `done` with the first error.
  static void End(const Piece& piece, absl::Status status);

  int fd() const { return file_->fd(); }

 private:
  void Cut(bool is_write, uint64_t offset, absl::Span<std::byte> memory, Done done);

  const std::unique_ptr<const ReservedFile> file_;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_SYSTEM_BLOCK_FILE_H_
