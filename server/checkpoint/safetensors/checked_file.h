// A file of which no wrong byte is ever read: every read checks the fragments it touches against
// the checksums that were taken when the file was written (P8). Read-only. Owned by whoever reads a
// checkpoint; one thread at a time.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_CHECKED_FILE_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_CHECKED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

class CheckedFile : public disk::File {
 public:
  // DATA_LOSS naming the file and both sizes when it is not as long as it was.
  static absl::StatusOr<std::unique_ptr<CheckedFile>> Create(std::unique_ptr<disk::File> file,
                                                             FileSums sums);

  // DATA_LOSS naming the file, the fragment, its bytes and both checksums.
  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override;
  absl::StatusOr<uint64_t> Size() override { return sums_.num_bytes; }
  const std::string& path() const override { return file_->path(); }

  // Reads everything and compares the SHA-256 too. DATA_LOSS as Read, or naming both digests.
  absl::Status Verify();

  // FAILED_PRECONDITION: nobody writes to what was checked.
  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override;
  absl::Status Truncate(uint64_t size) override;
  absl::Status Sync() override;

 private:
  CheckedFile(std::unique_ptr<disk::File> file, FileSums sums);

  uint64_t FragmentSize(uint64_t fragment) const;
  // The whole fragment, checked, into `to`.
  absl::Status ReadFragment(uint64_t fragment, char* to);
  absl::Status ReadOnly() const;

  const std::unique_ptr<disk::File> file_;
  const FileSums sums_;
  // The fragment that was read in part last; reads in order read each once.
  std::string held_bytes_;
  uint64_t held_fragment_ = UINT64_MAX;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_CHECKED_FILE_H_
