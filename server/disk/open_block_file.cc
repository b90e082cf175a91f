#include "server/disk/open_block_file.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/disk/threaded_block_file.h"
#include "server/disk/uring_block_file.h"

namespace kaon::disk {

absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                         uint64_t size_bytes, FileIo io) {
  std::string why = "as set";
  if (io != FileIo::kThreads) {
    auto file = UringBlockFile::Open({path, size_bytes});
    if (file.ok()) LOG(INFO) << path << " is read and written by io_uring";
    if (file.ok() || !absl::IsUnimplemented(file.status())) return file;
    why = std::string(file.status().message());
    if (io == FileIo::kUring) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": ", why, "; set nvme_io to auto or threads"));
    }
  }
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file,
                        ThreadedBlockFile::Open({path, size_bytes}));
  LOG(INFO) << path << " is read and written by threads: " << why;
  return file;
}

}  // namespace kaon::disk
