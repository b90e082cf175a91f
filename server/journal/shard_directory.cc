#include "server/journal/shard_directory.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "proto/status_macros.h"
#include "server/disk/private_directory.h"
#include "server/journal/durable_mark.h"
#include "server/journal/segment_reader.h"

namespace kaon::journal {

ShardDirectory::ShardDirectory(std::unique_ptr<disk::PosixDirectory> files)
    : files_(std::move(files)) {}

absl::StatusOr<std::unique_ptr<ShardDirectory>> ShardDirectory::Open(const std::string& data_dir) {
  KAON_RETURN_IF_ERROR(disk::CreatePrivateDirectory("data_dir", data_dir));
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<disk::PosixDirectory> files,
                        disk::PosixDirectory::At(data_dir));
  KAON_RETURN_IF_ERROR(files->Lock());
  return std::unique_ptr<ShardDirectory>(new ShardDirectory(std::move(files)));
}

absl::StatusOr<bool> ShardDirectory::HoldsJournal() {
  KAON_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List());
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == kIdentityFile || name == kDurableMarkFile || ParseSegmentName(name).has_value();
  });
}

DirectoryId RandomDirectoryId() {
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  return {word(), word()};
}

}  // namespace kaon::journal
