// The file `start` of a journal that was truncated: names its first frame, and the position whose
// snapshot stands for what was removed. It is durable before anything is removed, so that a missing
// segment is either one that this file says is gone, or a loss. Free functions; one thread.
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
  // HeaderCrc of the frame before it; 0 if there never was one.
  uint32_t chain = 0;
  // Every decision that was removed is of a lower one.
  uint64_t position = 0;
  // The file `history` holds the records of the newest of them. Directories that were truncated
  // before there was that file have none.
  bool history = false;
};

// The whole journal if there is no such file. DATA_LOSS naming the file when it is damaged or of
// another directory; FAILED_PRECONDITION naming both versions.
absl::StatusOr<JournalStart> ReadStart(disk::Directory& directory, uint64_t directory_hash);

// Durable, the name included, when it returns OK; a crash leaves this one or the one before. On
// RESOURCE_EXHAUSTED nothing has changed.
absl::Status WriteStart(disk::Directory& directory, uint64_t directory_hash,
                        const JournalStart& start);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_START_H_
