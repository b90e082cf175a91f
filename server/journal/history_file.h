// The file `history` of a truncated journal: the records of the newest decided entries up to a
// position. Truncation removes the segments with their frames.
// The file is durable before the file `start` refers to it, and so before any segment is removed.
// Free functions; not thread-safe for one directory.
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

// Adds the records to `history`, unless it is null. Returns the position of the newest record, 0 if
// there is none. On an error it adds none.
//   DATA_LOSS            the file is damaged, of another directory or older than `start`, or it is
//                        missing although `start` refers to it; names file and offset
//   FAILED_PRECONDITION  another version; names both
// Returns 0 for an old file to which `start` does not refer: later, a program that did not know
// this file truncated the journal.
absl::StatusOr<uint64_t> ReadHistory(disk::Directory& directory, uint64_t directory_hash,
                                     const JournalStart& start, History* history);

// Writes the records of `history` up to `position`. On OK contents and name are durable. A crash
// leaves this file or the previous one. On RESOURCE_EXHAUSTED nothing has changed.
absl::Status WriteHistory(disk::Directory& directory, uint64_t directory_hash, uint64_t position,
                          const History& history);

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_HISTORY_FILE_H_
