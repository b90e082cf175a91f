// Removes the checkpoint that an operator names; Retain removes old ones.
#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/manifest_file.h"

namespace kaon::checkpoint {

absl::StatusOr<v1::CheckpointManifest> CheckpointDirectory::Delete(absl::string_view id) {
  // First: a removal that a crash cut short has no manifest any more.
  KAON_RETURN_IF_ERROR(CheckId(id));
  KAON_RETURN_IF_ERROR(FinishRemovals());
  KAON_ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, Load(id));
  std::vector<SkippedCheckpoint> skipped;
  KAON_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                        NewestFirst(manifest.job(), &skipped));
  RetentionView view;
  for (const Candidate& candidate : candidates) {
    if (candidate.id == id) break;
    // Those that answer for the deleted one: the job can go on from them, and its log reached them.
    // More decide nothing.
    if (view.newer.size() == kMinKept) break;
    if (!CheckNotRemoved(candidate.id).ok() || !Verify(candidate.id).ok()) continue;
    if (view.newer.empty()) view.reached = {candidate.timeline, candidate.position};
    view.newer.push_back(candidate.timeline);
  }
  if (view.newer.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", id, " has no newer one of job \"", manifest.job(),
                     "\" that is good: create one before you delete it"));
  }
  KAON_ASSIGN_OR_RETURN(const bool removed, RemoveUnlessRestored(manifest, view));
  if (removed) return manifest;
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint ", id, " was restored, and a shard may read it again: delete it after ", kMinKept,
      " newer checkpoints of the restored job"));
}

}  // namespace kaon::checkpoint
