// Space in the files of a tier. Each allocation lies in one file, the one with most space in one
// piece. Thread-safe. NvmeTier owns it.
#ifndef KAON_SERVER_TIER_FILE_SPACE_H_
#define KAON_SERVER_TIER_FILE_SPACE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/mutex.h"
#include "server/disk/block_file.h"

namespace kaon::tier {

class FileSpace {
 public:
  struct Place {
    disk::BlockFile* file = nullptr;
    uint64_t offset = 0;
  };

  // One or more files, which outlive this object.
  explicit FileSpace(absl::Span<disk::BlockFile* const> files);

  // Allocates whole blocks. RESOURCE_EXHAUSTED states the arithmetic; it begins with `what`, such
  // as "its sum takes".
  absl::StatusOr<Place> Allocate(uint64_t bytes, absl::string_view what);
  // Returns what Allocate gave for as many bytes.
  void Free(const Place& place, uint64_t bytes);

  uint64_t used_bytes() const;
  uint64_t capacity_bytes() const;
  // Returns the paths, with commas between them.
  std::string paths() const;

 private:
  struct File {
    // Returns the largest free extent; the end if there is none.
    std::map<uint64_t, uint64_t>::iterator Largest();

    disk::BlockFile* file = nullptr;
    // Bytes of each free extent, by offset. No two of them touch.
    std::map<uint64_t, uint64_t> free;
  };

  mutable Mutex mu_;
  std::vector<File> files_ ABSL_GUARDED_BY(mu_);
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_FILE_SPACE_H_
