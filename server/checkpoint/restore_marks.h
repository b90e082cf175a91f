// Marks in a directory of checkpoints that keep a removal and a restore of one checkpoint apart,
// whoever makes them and however long he sleeps in between (docs/adr/0031-restore-marks.md). Each
// side makes its mark durable before it looks for the other's, so that of two at least one sees the
// other, and gives up. Pure functions over a directory, by the one thread that has it.
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

// How far a job's log was decided, once.
struct LogPoint {
  uint64_t timeline = 0;
  uint64_t position = 0;
};

// The restore of one checkpoint as one entry of the log: all shards, and everybody who asks for the
// same again, share it.
struct RestoreMark {
  std::string id;
  // The timeline that begins with it.
  uint64_t timeline = 0;
  // The entry's position, in the timeline that it leaves; 0 where no job runs.
  LogPoint at;
};

// "<id>.restore-<timeline>.at-<left timeline>-<position>".
std::string MarkName(const RestoreMark& mark);
// "<id>.removing".
std::string RemovalMarkName(absl::string_view id);
// Of either kind.
bool IsMark(absl::string_view name);

// By whoever is about to take the state of `mark.id`, before it reads it: once this returns OK, the
// checkpoint, if it is there, stays until a RestoreMarks says that it need not. INVALID_ARGUMENT
// for a bad id; FAILED_PRECONDITION naming checkpoint and mark when it is being removed, and the
// codes of disk.h naming the checkpoint when the directory cannot be written. The mark is left in
// any case: another shard's vote may rest on it.
absl::Status MarkRestore(disk::Directory& directory, const RestoreMark& mark);

// FAILED_PRECONDITION naming checkpoint and mark when it is being removed: no restore takes it.
absl::Status CheckNotRemoved(disk::Directory& directory, absl::string_view id);

// By whoever is about to remove it, before it looks for RestoreMarks. Never taken back while the
// checkpoint is there: somebody else may go on with the removal. Names the `files` that go with the
// manifest.
absl::Status MarkRemoval(disk::Directory& directory, absl::string_view id,
                         absl::Span<const std::string> files);
// Those, once the manifest is gone. NOT_FOUND without a mark.
absl::StatusOr<std::vector<std::string>> FilesToRemove(disk::Directory& directory,
                                                       absl::string_view id);

// What is known of the job whose checkpoints are looked at; all of it may be old.
struct RetentionView {
  // By the log of the running job.
  LogPoint reached;
  // Timelines of the good checkpoints that are newer than the one looked at.
  std::vector<uint64_t> newer;
};

// Names of the marks of restores of one checkpoint.
struct RestoreMarks {
  // It must stay for these.
  std::vector<std::string> keeping;
  // The log has left the restore behind for another entry at its position, or at least `enough`
  // good checkpoints were taken since: these may go.
  std::vector<std::string> over;
};

absl::StatusOr<RestoreMarks> FindRestoreMarks(disk::Directory& directory, absl::string_view id,
                                              const RetentionView& view, size_t enough);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_RESTORE_MARKS_H_
