// The setting nvme_io: the way in which a shard reads and writes its files of parameters. Pure
// function; any thread.
#ifndef KAON_SERVER_DISK_FILE_IO_H_
#define KAON_SERVER_DISK_FILE_IO_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/text.h"

namespace kaon::disk {

enum class FileIo {
  kThreads,
  // An io_uring, which some containers and kernels forbid.
  kUring,
  // An io_uring where it can be used, threads elsewhere.
  kAuto,
};

inline absl::StatusOr<FileIo> ParseFileIo(absl::string_view text) {
  if (text == "threads") return FileIo::kThreads;
  if (text == "io_uring") return FileIo::kUring;
  if (text == "auto") return FileIo::kAuto;
  return absl::InvalidArgumentError(
      absl::StrCat("nvme_io is \"", proto::Excerpt(text), "\", must be threads, io_uring or auto"));
}

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_FILE_IO_H_
