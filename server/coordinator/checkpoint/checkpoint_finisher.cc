#include "server/coordinator/checkpoint/checkpoint_finisher.h"

#include <glog/logging.h>

#include <string>
#include <utility>

#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/attempt_number.h"
#include "server/checkpoint/listing.h"
#include "server/checkpoint/manifest.h"

namespace kaon::coordinator {

namespace {

absl::StatusOr<v1::CheckpointSummary> Commit(checkpoint::CheckpointDirectory& directory,
                                             const FinishCheckpoint& finish, uint64_t keep) {
  KAON_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest,
                        checkpoint::BuildManifest(finish.facts, finish.parts));
  PassFailpoint(Failpoint::checkpoint_parts_complete);
  KAON_RETURN_IF_ERROR(directory.Commit(manifest));
  LOG(INFO) << "checkpoint " << manifest.id() << " of step " << manifest.step() << " is complete";
  if (!finish.retain) return checkpoint::SummaryOf(manifest);
  // The checkpoint is there, whatever becomes of older ones.
  const auto retained = directory.Retain(manifest.job(), keep, finish.in_use,
                                         {manifest.timeline(), manifest.position()});
  if (!retained.ok()) {
    LOG(WARNING) << "checkpoints of job " << manifest.job() << ": " << retained.status();
    return checkpoint::SummaryOf(manifest);
  }
  for (const std::string& id : retained->removed) LOG(INFO) << "checkpoint " << id << " removed";
  return checkpoint::SummaryOf(manifest);
}

std::vector<checkpoint::CheckpointAttempt> UnfinishedIn(
    checkpoint::CheckpointDirectory& directory) {
  auto unfinished = directory.Unfinished();
  if (unfinished.ok()) return *std::move(unfinished);
  LOG(WARNING) << "checkpoints: " << unfinished.status();
  return {};
}

}  // namespace

CheckpointFinisher::CheckpointFinisher(checkpoint::CheckpointDirectory& directory)
    : directory_(directory), leftovers_(UnfinishedIn(directory)) {}

void CheckpointFinisher::Finish(const FinishCheckpoint& finish, uint64_t keep, const Done& done) {
  const std::string& job = finish.facts.registration.definition().name();
  if (!finish.parts.empty()) {
    const auto summary = Commit(directory_, finish, keep);
    // Before `done`, so that what is seen now is older than any attempt that is begun from now on.
    const Attempts seen = std::exchange(leftovers_, UnfinishedIn(directory_));
    done(summary);
    GiveUp(seen, job);
  } else {
    // Only this coordinator could commit it.
    const absl::Status removed = directory_.RemoveAttempt({finish.facts.id, finish.attempt});
    LOG_IF(WARNING, !removed.ok()) << "checkpoint " << finish.facts.id << ": " << removed;
    if (before_first_ballot_) GiveUp(std::exchange(leftovers_, {}), job);
  }
  before_first_ballot_ = false;
}

// Files of another coordinator's attempt that were there before this one began the attempt that is
// finished now: every shard has since reported its part of that under this coordinator's ballot,
// which is above the other's; so it tells the other nothing any more (rule 1), and writes nothing
// for it. Those that were there before this process took its first ballot, with which it has begun
// the attempt that is given up now, are of lower ballots too. Then the other may still have all the
// parts and be about to commit them, which GiveUp ends, or finds done.
void CheckpointFinisher::GiveUp(const Attempts& seen, const std::string& job) {
  for (const checkpoint::CheckpointAttempt& attempt : seen) {
    if (!checkpoint::IsAttemptOf(job, attempt.number.value_or(0))) continue;
    const std::string stem = checkpoint::CheckpointDirectory::Stem(attempt.id, attempt.number);
    const absl::Status given_up = directory_.GiveUp(attempt);
    LOG_IF(WARNING, !given_up.ok()) << "what is left of " << stem << ": " << given_up;
    LOG_IF(INFO, given_up.ok()) << stem << " was never finished; its files are removed";
  }
}

}  // namespace kaon::coordinator
