#include "server/tier/file_space.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/mutation/mutation.h"

namespace kaon::tier {

FileSpace::FileSpace(absl::Span<disk::BlockFile* const> files) {
  CHECK(!files.empty());
  MutexLock lock(mu_);
  for (disk::BlockFile* file : files) files_.push_back({file, 0});
}

absl::StatusOr<FileSpace::Place> FileSpace::Allocate(uint64_t bytes, absl::string_view what) {
  bytes = disk::RoundUpToBlocks(bytes);
  MutexLock lock(mu_);
  File& file = *std::max_element(files_.begin(), files_.end(), [](const File& a, const File& b) {
    return a.file->size_bytes() - a.used_bytes < b.file->size_bytes() - b.used_bytes;
  });
  const uint64_t size = file.file->size_bytes();
  const uint64_t left = size - file.used_bytes;
  if (bytes > left) {
    return absl::ResourceExhaustedError(absl::StrCat(what, " ", bytes, " bytes of ",
                                                     file.file->path(), ", which has ", left,
                                                     " of ", size, " left; raise --nvme-bytes"));
  }
  const Place place = {file.file, file.used_bytes};
  file.used_bytes += Mutated(Mutation::kUnitsOverlap) ? disk::RoundUpToBlocks(bytes / 2) : bytes;
  used_bytes_ += bytes;
  return place;
}

void FileSpace::Free(uint64_t bytes) {
  MutexLock lock(mu_);
  CHECK_GE(used_bytes_, bytes);
  used_bytes_ -= bytes;
  if (used_bytes_ > 0) return;
  for (File& file : files_) file.used_bytes = 0;
}

uint64_t FileSpace::used_bytes() const {
  MutexLock lock(mu_);
  return used_bytes_;
}

uint64_t FileSpace::capacity_bytes() const {
  MutexLock lock(mu_);
  uint64_t bytes = 0;
  for (const File& file : files_) bytes += file.file->size_bytes();
  return bytes;
}

std::string FileSpace::paths() const {
  MutexLock lock(mu_);
  return absl::StrJoin(files_, ",", [](std::string* out, const File& file) {
    absl::StrAppend(out, file.file->path());
  });
}

}  // namespace kaon::tier
