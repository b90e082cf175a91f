#include "server/coordinator/checkpoint/checkpoint_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::coordinator {

namespace {

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
  directory_.emplace(*files_);
  finisher_.emplace(*directory_);
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
    if (directory.ok()) return finisher_->Finish(finish, keep, done);
    if (!finish.parts.empty()) done(directory.status());
  });
}

void CheckpointKeeper::Work() {
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !stopping_) wake_.Wait(mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(&*directory_);
  }
}

}  // namespace kaon::coordinator
