// Removes the checkpoint that an operator names; Retain removes old ones.
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace kaon::checkpoint {

absl::StatusOr<v1::CheckpointManifest> CheckpointDirectory::Delete(absl::string_view id) {
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, Load(id));
  KAON_RETURN_IF_ERROR(FinishRemovals());
  std::vector<SkippedCheckpoint> skipped;
  KAON_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                        NewestFirst(manifest.job(), &skipped));
  RetentionView view;
  bool newer_is_good = false;
  for (const Candidate& candidate : candidates) {
    if (candidate.id == id) break;
    // Until one is found to be good: the job must be able to go on from a newer one.
    newer_is_good = newer_is_good || Verify(candidate.id).ok();
    view.newer.push_back(candidate.timeline);
  }
  if (!newer_is_good) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", id, " is the newest good one of job \"", manifest.job(),
                     "\": create a newer one before you delete it"));
  }
  KAON_ASSIGN_OR_RETURN(const bool removed, RemoveUnlessRestored(manifest, view));
  if (removed) return manifest;
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint ", id, " was restored, and a shard may read it again: delete it after ", kMinKept,
      " newer checkpoints of the restored job"));
}

}  // namespace kaon::checkpoint
