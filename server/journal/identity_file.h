// The file `identity` of a shard's data_dir. It says that the directory holds a journal, and of
// which version. It gives the directory a random number, which its records carry, so that files of
// another directory are detected. Not thread-safe.
#ifndef KAON_SERVER_JOURNAL_IDENTITY_FILE_H_
#define KAON_SERVER_JOURNAL_IDENTITY_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::journal {

// 128 random bits.
struct DirectoryId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const DirectoryId& other) const { return high == other.high && low == other.low; }

  // Returns the form in the file: 32 hexadecimal digits.
  std::string ToHex() const;
  // Returns the number that record headers carry.
  uint64_t Hash() const;
};

inline constexpr char kIdentityFile[] = "identity";

// Reads the file; nullopt if there is none. FAILED_PRECONDITION names both first lines for another
// version. DATA_LOSS for any other content that WriteIdentity does not write.
absl::StatusOr<std::optional<DirectoryId>> ReadIdentity(disk::Directory& directory);

// Writes the file. On OK contents and name are durable; a crash leaves the whole file or none.
absl::Status WriteIdentity(disk::Directory& directory, const DirectoryId& id);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_IDENTITY_FILE_H_
