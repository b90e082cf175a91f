#include "server/coordinator/checkpoint_keeper.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
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
  const auto retained = directory.Retain(manifest.job(), keep, finish.in_use);
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

absl::Status ShuttingDown() { return absl::UnavailableError("coordinator is shutting down"); }

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointKeeper>> CheckpointKeeper::Create(
    const std::string& path) {
  std::unique_ptr<disk::PosixDirectory> files;
  if (!path.empty()) {
    KAON_ASSIGN_OR_RETURN(files, disk::PosixDirectory::At(path));
  }
  return std::unique_ptr<CheckpointKeeper>(new CheckpointKeeper(std::move(files)));
}

CheckpointKeeper::CheckpointKeeper(std::unique_ptr<disk::PosixDirectory> files)
    : files_(std::move(files)) {
  if (files_ == nullptr) return;
  checkpoint::CheckpointDirectory directory(*files_);
  leftovers_ = UnfinishedIn(directory);
  thread_ = std::thread([this] { Work(); });
}

CheckpointKeeper::~CheckpointKeeper() { Stop(); }

void CheckpointKeeper::Stop() {
  std::deque<Task> ended;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    ended.swap(tasks_);
    wake_.NotifyAll();
  }
  for (const Task& task : ended) task(ShuttingDown());
  if (thread_.joinable()) thread_.join();
}

void CheckpointKeeper::Run(Task task) {
  if (files_ == nullptr) {
    return task(absl::FailedPreconditionError(
        "this coordinator has no checkpoint directory, see its --checkpoint-dir"));
  }
  absl::Status refused;
  {
    MutexLock lock(mu_);
    if (stopping_) {
      refused = ShuttingDown();
    } else if (tasks_.size() >= kMaxTasks) {
      refused = absl::ResourceExhaustedError(absl::StrCat(
          tasks_.size(), " requests wait for the checkpoint directory, at most ", kMaxTasks));
    } else {
      tasks_.push_back(std::move(task));
      wake_.NotifyOne();
      return;
    }
  }
  task(refused);
}

void CheckpointKeeper::Finish(
    FinishCheckpoint finish, uint64_t keep,
    std::function<void(const absl::StatusOr<v1::CheckpointSummary>&)> done) {
  Run([this, finish = std::move(finish), keep,
       done = std::move(done)](absl::StatusOr<checkpoint::CheckpointDirectory*> directory) {
    if (directory.ok()) return FinishOn(**directory, finish, keep, done);
    if (!finish.parts.empty()) done(directory.status());
  });
}

void CheckpointKeeper::FinishOn(
    checkpoint::CheckpointDirectory& directory, const FinishCheckpoint& finish, uint64_t keep,
    const std::function<void(const absl::StatusOr<v1::CheckpointSummary>&)>& done) {
  if (!finish.parts.empty()) {
    const auto summary = Commit(directory, finish, keep);
    // Before `done`, so that what is seen now is older than any attempt that is begun from now on.
    const Attempts seen = std::exchange(leftovers_, UnfinishedIn(directory));
    done(summary);
    GiveUpLeftovers(directory, seen);
  } else {
    // Only this coordinator could commit it.
    const absl::Status removed = directory.RemoveAttempt({finish.facts.id, finish.attempt});
    LOG_IF(WARNING, !removed.ok()) << "checkpoint " << finish.facts.id << ": " << removed;
    if (before_first_ballot_) GiveUpLeftovers(directory, std::exchange(leftovers_, {}));
  }
  before_first_ballot_ = false;
}

// Files of another coordinator's attempt that were there before this one began the attempt that is
// finished now: every shard has since reported its part of that under this coordinator's ballot,
// which is above the other's; so it tells the other nothing any more (rule 1), and writes nothing
// for it. Those that were there before this process took its first ballot, with which it has begun
// the attempt that is given up now, are of lower ballots too. Then the other may still have all the
// parts and be about to commit them, which GiveUp ends, or finds done.
void CheckpointKeeper::GiveUpLeftovers(checkpoint::CheckpointDirectory& directory,
                                       const Attempts& seen) {
  for (const checkpoint::CheckpointAttempt& attempt : seen) {
    const std::string stem = checkpoint::CheckpointDirectory::Stem(attempt.id, attempt.number);
    const absl::Status given_up = directory.GiveUp(attempt);
    LOG_IF(WARNING, !given_up.ok()) << "what is left of " << stem << ": " << given_up;
    LOG_IF(INFO, given_up.ok()) << stem << " was never finished; its files are removed";
  }
}

void CheckpointKeeper::Work() {
  checkpoint::CheckpointDirectory directory(*files_);
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !stopping_) wake_.Wait(mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(&directory);
  }
}

}  // namespace kaon::coordinator
