// Marks in a directory of checkpoints that keep a removal and a restore of one checkpoint apart
// (docs/adr/0031-restore-marks.md). They work even if a process stops between its steps for any
// time.
// Each side makes its mark durable before it looks for the other's. So at least one of the two sees
// the other, and gives up. Pure functions over a directory; not thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_RESTORE_MARKS_H_
#define KAON_SERVER_CHECKPOINT_RESTORE_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

// The newest decided entry of a job's log, as known at some time.
struct LogPoint {
  uint64_t timeline = 0;
  uint64_t position = 0;
};

// The restore of one checkpoint as one entry of the log. All shards, and all retries, share it.
struct RestoreMark {
  std::string id;
  // The timeline that begins with the restore.
  uint64_t timeline = 0;
  // Position of the entry, in the timeline that it leaves; 0 if no job runs.
  LogPoint at;
};

// Returns "<id>.restore-<timeline>.at-<left timeline>-<position>".
std::string MarkName(const RestoreMark& mark);
// Returns "<id>.removing".
std::string RemovalMarkName(absl::string_view id);
// Returns whether the name is that of a mark of either kind.
bool IsMark(absl::string_view name);

// Marks a restore; call it before reading the state of `mark.id`. On OK the checkpoint, if it
// exists, stays until a RestoreMarks says that the restore is over. The mark stays after an error
// too, because another shard's vote may depend on it.
//   INVALID_ARGUMENT     a bad id
//   FAILED_PRECONDITION  the checkpoint is being removed; names checkpoint and mark
//   codes of disk.h      the directory cannot be written; names the checkpoint
absl::Status MarkRestore(disk::Directory& directory, const RestoreMark& mark);

// Returns FAILED_PRECONDITION, naming checkpoint and mark, if the checkpoint is being removed and
// so cannot be restored.
absl::Status CheckNotRemoved(disk::Directory& directory, absl::string_view id);

// Marks a removal; call it before looking for RestoreMarks. `files` are removed with the manifest.
// The mark is never withdrawn while the checkpoint exists, because another process may continue the
// removal.
absl::Status MarkRemoval(disk::Directory& directory, absl::string_view id,
                         absl::Span<const std::string> files);
// Returns the `files` of the removal's mark, once the manifest is gone. NOT_FOUND without a mark.
absl::StatusOr<std::vector<std::string>> FilesToRemove(disk::Directory& directory,
                                                       absl::string_view id);

// State of the job whose checkpoints are examined; all of it may be old.
struct RetentionView {
  // Newest entry of the running job's log.
  LogPoint reached;
  // Timelines of the good checkpoints that are newer than the one examined.
  std::vector<uint64_t> newer;
};

// Names of the marks of restores of one checkpoint.
struct RestoreMarks {
  // The checkpoint must stay because of these.
  std::vector<std::string> keeping;
  // These may be removed: the log has another entry at the restore's position, or at least `enough`
  // good checkpoints are newer.
  std::vector<std::string> over;
};

absl::StatusOr<RestoreMarks> FindRestoreMarks(disk::Directory& directory, absl::string_view id,
                                              const RetentionView& view, size_t enough);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_RESTORE_MARKS_H_
