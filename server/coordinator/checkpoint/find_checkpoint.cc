#include "server/coordinator/checkpoint/find_checkpoint.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/listing.h"

namespace kaon::coordinator {

namespace {

// Returns the job of the good checkpoints if they all have the same one.
absl::StatusOr<std::string> OnlyJob(checkpoint::CheckpointDirectory& directory) {
  KAON_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse listed,
                        checkpoint::ListCheckpoints(directory, ""));
  std::set<std::string> jobs;
  for (const v1::CheckpointRow& row : listed.checkpoints()) {
    if (row.problem().empty()) jobs.insert(row.checkpoint().job());
  }
  if (jobs.size() == 1) return *jobs.begin();
  return absl::NotFoundError(jobs.empty() ? std::string("there is no good checkpoint")
                                          : absl::StrCat("there are checkpoints of jobs ",
                                                         absl::StrJoin(jobs, ", "),
                                                         ", an id must say which"));
}

absl::StatusOr<v1::CheckpointManifest> FindNewest(checkpoint::CheckpointDirectory& directory,
                                                  std::string job, FoundRestore& found) {
  if (job.empty()) {
    KAON_ASSIGN_OR_RETURN(job, OnlyJob(directory));
  }
  KAON_ASSIGN_OR_RETURN(checkpoint::FoundCheckpoint newest, directory.FindNewest(job));
  found.skipped = std::move(newest.skipped);
  if (newest.newest.has_value()) return *std::move(newest.newest);
  std::string why;
  for (const checkpoint::SkippedCheckpoint& skipped : found.skipped) {
    absl::StrAppend(&why, "; ", skipped.id, ": ", skipped.reason);
  }
  return absl::NotFoundError(
      absl::StrCat("no good checkpoint of job \"", proto::Excerpt(job), "\"", why));
}

}  // namespace

absl::StatusOr<FoundRestore> FindCheckpoint(checkpoint::CheckpointDirectory& directory,
                                            const v1::RestoreCheckpointRequest& request) {
  FoundRestore found;
  found.order.request = request;
  if (!request.id().empty()) KAON_RETURN_IF_ERROR(directory.CheckNotRemoved(request.id()));
  absl::StatusOr<v1::CheckpointManifest> manifest =
      request.id().empty() ? FindNewest(directory, request.job(), found)
                           : directory.Verify(request.id());
  if (!manifest.ok()) return manifest.status();
  KAON_RETURN_IF_ERROR(checkpoint::CheckDigests(directory, *manifest));
  // The writer may have died before the name was durable.
  KAON_RETURN_IF_ERROR(directory.SyncNames());
  found.order.manifest = std::make_shared<const v1::CheckpointManifest>(*std::move(manifest));
  KAON_ASSIGN_OR_RETURN(found.order.manifest_sha256,
                        directory.ManifestDigest(found.order.manifest->id()));
  return found;
}

}  // namespace kaon::coordinator
