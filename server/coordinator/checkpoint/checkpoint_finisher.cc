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
  // The checkpoint is complete, even if the removal of older ones fails.
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
    // Look before `done`: after it, new attempts may begin, and `leftovers_` must be older than
    // those.
    const Attempts seen = std::exchange(leftovers_, UnfinishedIn(directory_));
    done(summary);
    GiveUp(seen, job);
  } else {
    // Only this coordinator could commit this attempt.
    const absl::Status removed = directory_.RemoveAttempt({finish.facts.id, finish.attempt});
    LOG_IF(WARNING, !removed.ok()) << "checkpoint " << finish.facts.id << ": " << removed;
    if (before_first_ballot_) GiveUp(std::exchange(leftovers_, {}), job);
  }
  before_first_ballot_ = false;
}

// Why the attempts in `seen` are over, although other coordinators began them:
//
// - After a finished attempt: `seen` existed before that attempt began. Every shard has since
//   reported its part under this coordinator's ballot, which is above the other ballots. A shard
//   answers no lower ballot (protocol.md 2.1 rule 1), so it writes and reports nothing more for
//   them.
// - After an abandoned first attempt: `seen` existed before this process took its first ballot, so
//   the other ballots are lower too. Another coordinator may still have all parts and be about to
//   commit. CheckpointDirectory::GiveUp prevents that commit, or finds it done.
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
