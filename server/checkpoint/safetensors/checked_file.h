// A read-only file that never returns a wrong byte. Every read checks the fragments it touches
// against the checksums from the time of writing (reliability.md P8). Not thread-safe. The reader
// of the checkpoint owns it.
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
  // Opens `file` with its `sums`. DATA_LOSS names the file and both sizes if its length is not that
  // of `sums`.
  static absl::StatusOr<std::unique_ptr<CheckedFile>> Create(std::unique_ptr<disk::File> file,
                                                             FileSums sums);

  // Reads like disk::File. DATA_LOSS names the file, the fragment, its bytes and both checksums.
  absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) override;
  absl::StatusOr<uint64_t> Size() override { return sums_.num_bytes; }
  const std::string& path() const override { return file_->path(); }

  // Reads everything, and compares the SHA-256 too. DATA_LOSS as Read, or with both digests.
  absl::Status Verify();

  // These return FAILED_PRECONDITION: the file is read-only.
  absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) override;
  absl::Status Truncate(uint64_t size) override;
  absl::Status Sync() override;

 private:
  CheckedFile(std::unique_ptr<disk::File> file, FileSums sums);

  uint64_t FragmentSize(uint64_t fragment) const;
  // Reads the whole fragment into `to` and checks it.
  absl::Status ReadFragment(uint64_t fragment, char* to);
  absl::Status ReadOnly() const;

  const std::unique_ptr<disk::File> file_;
  const FileSums sums_;
  // Fragment that the last read used in part, so that sequential reads load each fragment once.
  std::string held_bytes_;
  uint64_t held_fragment_ = UINT64_MAX;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_CHECKED_FILE_H_
