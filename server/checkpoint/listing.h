// What a directory of checkpoints holds, as it is shown to people. Pure functions over a directory;
// one thread at a time.
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

// A row for one that is not loaded.
v1::CheckpointRow RowOf(const SkippedCheckpoint& skipped);

// Those of `job` (empty = of every job), newest first, then those with a problem by id, then what
// imports have left: manifests are read, and the sizes of files looked at. Fails only if the
// directory cannot be listed.
absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(CheckpointDirectory& directory,
                                                            absl::string_view job);

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_LISTING_H_
