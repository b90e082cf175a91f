// The file `history` of a journal that was truncated: records of the newest decided entries up to a
// position, whose frames go with the segments that are removed. It is durable before the file
// `start` says that it is there, and so before anything is removed. Free functions; one thread.
#ifndef KAON_SERVER_JOURNAL_HISTORY_FILE_H_
#define KAON_SERVER_JOURNAL_HISTORY_FILE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"
#include "server/journal/history.h"
#include "server/journal/journal_start.h"

namespace kaon::journal {

inline constexpr char kHistoryFile[] = "history";

// Adds the records to `history`, unless it is null, and returns the position of the newest, 0 if
// there is none. Adds none on an error. DATA_LOSS naming file and offset when the file is damaged,
// of another directory or older than `start`, or when `start` says that it is there and it is not;
// FAILED_PRECONDITION naming both versions. What is left of one that a program of before this file
// went on without is not used.
absl::StatusOr<uint64_t> ReadHistory(disk::Directory& directory, uint64_t directory_hash,
                                     const JournalStart& start, History* history);

// What `history` has up to `position`. Durable, the name included, when it returns OK; a crash
// leaves this file or the one before. On RESOURCE_EXHAUSTED nothing has changed.
absl::Status WriteHistory(disk::Directory& directory, uint64_t directory_hash, uint64_t position,
                          const History& history);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_HISTORY_FILE_H_
