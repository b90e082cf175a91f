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
  const auto retained = directory.Retain(manifest.job(), keep);
  if (!retained.ok()) {
    LOG(WARNING) << "checkpoints of job " << manifest.job() << ": " << retained.status();
    return checkpoint::SummaryOf(manifest);
  }
  for (const std::string& id : retained->removed) LOG(INFO) << "checkpoint " << id << " removed";
  return checkpoint::SummaryOf(manifest);
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
  if (files_ != nullptr) thread_ = std::thread([this] { Work(); });
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
  Run([finish = std::move(finish), keep,
       done = std::move(done)](absl::StatusOr<checkpoint::CheckpointDirectory*> directory) {
    if (!finish.parts.empty()) {
      done(directory.ok() ? Commit(**directory, finish, keep) : directory.status());
    } else if (directory.ok()) {
      const absl::Status removed = (*directory)->RemoveUncommitted(finish.facts.id);
      LOG_IF(WARNING, !removed.ok()) << "checkpoint " << finish.facts.id << ": " << removed;
    }
  });
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
