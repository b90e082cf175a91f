// Files as the journal and checkpoints see them: the seam between them and the operating system. A
// simulated disk behind it can lose and tear what was not synced. PosixDirectory and the simulator
// implement it. One thread at a time may use a Directory, and one thread at a time each File.
//
// Codes of every call; each message names the path and the system's reason:
//   RESOURCE_EXHAUSTED   the disk or the quota is full; some bytes of the call may be written, and
//                        the caller may retry
//   DATA_LOSS            the device reports an error
//   FAILED_PRECONDITION  the name or the mode cannot be used
// After a failed Sync the content of the file is unknown. The process must end. For a file of a
// checkpoint, on which nothing depends yet, it is enough to abandon the checkpoint.
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

// An open file. The destructor closes it without a sync.
class File {
 public:
  virtual ~File() = default;

  // Writes all bytes of `slices`, one after the other, from `offset` on; the file grows as needed.
  // Durable only after Sync.
  virtual absl::Status Write(uint64_t offset, absl::Span<const absl::string_view> slices) = 0;
  // Reads up to `size` bytes from `offset` on into `to`. Returns the number of bytes read, which is
  // smaller only at the end of the file.
  virtual absl::StatusOr<size_t> Read(uint64_t offset, size_t size, char* to) = 0;
  virtual absl::StatusOr<uint64_t> Size() = 0;
  // Cuts the file off at `size` bytes. Durable only after Sync.
  virtual absl::Status Truncate(uint64_t size) = 0;
  // Makes everything written durable, including the file's size. The file's name is durable only
  // after Directory::Sync.
  virtual absl::Status Sync() = 0;

  // Returns the path, for messages.
  virtual const std::string& path() const = 0;
};

// One private directory. Names are single components: no '/', not empty, not "." or "..".
class Directory {
 public:
  virtual ~Directory() = default;

  // Opens an existing file. NOT_FOUND.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& name) = 0;
  // Creates a new, empty file. ALREADY_EXISTS.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& name) = 0;
  // Returns the names of files, ascending, without directories.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // Renames a file; replaces `to` if it exists. NOT_FOUND for `from`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file. NOT_FOUND.
  virtual absl::Status Remove(const std::string& name) = 0;
  // Makes every Create, Rename and Remove durable.
  virtual absl::Status Sync() = 0;

  // Returns the path, for messages.
  virtual const std::string& path() const = 0;
};

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_DISK_H_
