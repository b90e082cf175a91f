// The file `start` of a truncated journal: names its first frame, and the position whose snapshot
// replaces what was removed. It is durable before any segment is removed. So a missing segment that
// the file does not cover is lost data. Free functions; not thread-safe for one directory.
#ifndef KAON_SERVER_JOURNAL_JOURNAL_START_H_
#define KAON_SERVER_JOURNAL_JOURNAL_START_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"

namespace kaon::journal {

inline constexpr char kStartFile[] = "start";

struct JournalStart {
  // First frame of the first segment that is kept.
  uint64_t sequence = 1;
  // HeaderCrc of the frame before it; 0 if there is none.
  uint32_t chain = 0;
  // Every removed decision has a lower position.
  uint64_t position = 0;
  // The file `history` holds the records of the newest removed decisions. False in directories that
  // were truncated before that file existed.
  bool history = false;
};

// Reads the file; the default value if there is none. DATA_LOSS names a file that is damaged or of
// another directory; FAILED_PRECONDITION names both versions.
absl::StatusOr<JournalStart> ReadStart(disk::Directory& directory, uint64_t directory_hash);

// Writes the file. On OK contents and name are durable. A crash leaves this file or the previous
// one. On RESOURCE_EXHAUSTED nothing has changed.
absl::Status WriteStart(disk::Directory& directory, uint64_t directory_hash,
                        const JournalStart& start);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_START_H_
