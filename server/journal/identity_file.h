// The file `identity` of a shard's data_dir: says that a journal lies there, of which version, and
// gives the directory the random number that its records carry, so that files of another directory
// are found. One thread at a time.
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

  // As it stands in the file: 32 hexadecimal digits.
  std::string ToHex() const;
  // What record headers carry.
  uint64_t Hash() const;
};

inline constexpr char kIdentityFile[] = "identity";

// Absent if there is no such file. FAILED_PRECONDITION naming both first lines for another version;
// DATA_LOSS for anything else that WriteIdentity does not write.
absl::StatusOr<std::optional<DirectoryId>> ReadIdentity(disk::Directory& directory);

// Durable, the name included, when it returns; a crash leaves the whole file or none.
absl::Status WriteIdentity(disk::Directory& directory, const DirectoryId& id);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_IDENTITY_FILE_H_
