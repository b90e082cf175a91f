#include "server/tier/file_space.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/mutation/mutation.h"

namespace kaon::tier {

FileSpace::FileSpace(absl::Span<disk::BlockFile* const> files) {
  CHECK(!files.empty());
  MutexLock lock(mu_);
  for (disk::BlockFile* file : files) files_.push_back({file, {{0, file->size_bytes()}}});
}

std::map<uint64_t, uint64_t>::iterator FileSpace::File::Largest() {
  return std::max_element(free.begin(), free.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
}

absl::StatusOr<FileSpace::Place> FileSpace::Allocate(uint64_t bytes, absl::string_view what) {
  bytes = disk::RoundUpToBlocks(bytes);
  MutexLock lock(mu_);
  const auto most = [](File& file) {
    const auto largest = file.Largest();
    return largest == file.free.end() ? 0 : largest->second;
  };
  File& file = *std::max_element(files_.begin(), files_.end(),
                                 [&](File& a, File& b) { return most(a) < most(b); });
  if (bytes > most(file)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " ", bytes, " bytes of ", file.file->path(), ", which has ", most(file),
                     " of ", file.file->size_bytes(), " left in one piece; raise --nvme-bytes"));
  }
  const auto [offset, size] = *file.Largest();
  file.free.erase(offset);
  const uint64_t taken =
      Mutated(Mutation::kUnitsOverlap) ? disk::RoundUpToBlocks(bytes / 2) : bytes;
  if (size > taken) file.free.emplace(offset + taken, size - taken);
  used_bytes_ += bytes;
  return Place{file.file, offset};
}

void FileSpace::Free(const Place& place, uint64_t bytes) {
  bytes = disk::RoundUpToBlocks(bytes);
  MutexLock lock(mu_);
  CHECK_GE(used_bytes_, bytes);
  used_bytes_ -= bytes;
  std::map<uint64_t, uint64_t>& free =
      std::find_if(files_.begin(), files_.end(), [&](const File& file) {
        return file.file == place.file;
      })->free;
  auto extent = free.emplace(place.offset, bytes).first;
  const auto next = std::next(extent);
  if (next != free.end() && extent->first + extent->second == next->first) {
    extent->second += next->second;
    free.erase(next);
  }
  if (extent == free.begin()) return;
  const auto before = std::prev(extent);
  if (before->first + before->second != extent->first) return;
  before->second += extent->second;
  free.erase(extent);
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
