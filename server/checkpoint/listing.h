// Lists a directory of checkpoints for people. Pure functions over a directory; not thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_LISTING_H_
#define KAON_SERVER_CHECKPOINT_LISTING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace kaon::checkpoint {

v1::CheckpointSummary SummaryOf(const v1::CheckpointManifest& manifest);

// Returns a row for a checkpoint that is not loaded.
v1::CheckpointRow RowOf(const SkippedCheckpoint& skipped);

// Lists the checkpoints of `job` (empty = every job), newest first, then those with a problem by
// id, then remains of imports. Reads manifests and checks the sizes of files. Fails only if it
// cannot list the directory.
absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(CheckpointDirectory& directory,
                                                            absl::string_view job);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_LISTING_H_
