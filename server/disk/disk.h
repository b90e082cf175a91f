// Files as the journal and checkpoints see them: the seam between them and the operating system, so
// that a simulated disk can lose and tear what was not synced. Implemented by PosixDirectory and by
// the simulator. A Directory and each File may be used by one thread at a time.
//
// Codes of every call: RESOURCE_EXHAUSTED when the disk or the quota is full (nothing is promised
// about what was written; the call may be repeated), DATA_LOSS when the device reports an error,
// FAILED_PRECONDITION for a name or mode that cannot be used; each names the path and the system's
// reason. After a failed Sync what the file holds is unknown: the process must end, or, of a file
// of a checkpoint, which nothing rests on yet, the checkpoint be given up.
#ifndef KAON_SERVER_DISK_DISK_H_
#define KAON_SERVER_DISK_DISK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kaon::disk {

// An open file. Closed by the destructor, which syncs nothing.
class File {
 public:
  virtual ~File() = default;

  // All bytes of `slices`, one after the other, from `offset` on; the file grows as needed. Durable
  // only after Sync.
  virtual absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) = 0;
  // Up to `size` bytes from `offset` on into `to`; the number read is smaller only at the file's
  // end.
  virtual absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) = 0;
  virtual absl::StatusOr<uint64_t> Size() = 0;
  // Cuts the file off. Durable only after Sync.
  virtual absl::Status Truncate(uint64_t size) = 0;
  // Everything written is durable when it returns, the file's size included; its name only after
  // Directory::Sync.
  virtual absl::Status Sync() = 0;

  // For messages.
  virtual const std::string& path() const = 0;
};

// One private directory. Names are single components: no '/', not empty, not "." or "..".
class Directory {
 public:
  virtual ~Directory() = default;

  // A file that is there. NOT_FOUND.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) = 0;
  // A new, empty file. ALREADY_EXISTS.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) = 0;
  // Names of files, ascending; directories are left out.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // `to` is replaced if it exists. NOT_FOUND for `from`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // NOT_FOUND.
  virtual absl::Status Remove(const std::string& name) = 0;
  // What was created, renamed and removed is durable when it returns.
  virtual absl::Status Sync() = 0;

  // For messages.
  virtual const std::string& path() const = 0;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_DISK_H_
