#include "kernels/nccl/abort_queue.h"

#include <glog/logging.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "kernels/nccl/channel_bug.h"
#include "kernels/steady_clock.h"

namespace kaon::kernels {

struct AbortQueue::Shared {
  explicit Shared(std::shared_ptr<DeviceLink> of) : link(std::move(of)) {}

  const std::shared_ptr<DeviceLink> link;
  Mutex mu;
  CondVar changed;
  std::vector<Waiting> waiting ABSL_GUARDED_BY(mu);
  bool stopping ABSL_GUARDED_BY(mu) = false;
  bool given_up ABSL_GUARDED_BY(mu) = false;
  // Callbacks run, whose owner must stay.
  bool calling ABSL_GUARDED_BY(mu) = false;
  bool ended ABSL_GUARDED_BY(mu) = false;
};

// Owns until the process ends what NCCL may still use.
void AbortQueue::Keep(std::vector<Waiting> group) {
  static Mutex* const mu = std::make_unique<Mutex>().release();
  static auto* const kept = std::make_unique<std::vector<Waiting>>().release();
  MutexLock lock(*mu);
  for (Waiting& one : group) kept->push_back(std::move(one));
}

AbortQueue::AbortQueue(std::shared_ptr<DeviceLink> link, absl::Duration patience)
    : patience_(patience),
      shared_(std::make_shared<Shared>(std::move(link))),
      thread_([shared = shared_] { Run(shared); }) {}

AbortQueue::~AbortQueue() {
  bool ended = false;
  {
    MutexLock lock(shared_->mu);
    shared_->stopping = true;
    shared_->changed.NotifyAll();
    const absl::Time limit = SteadyNow() + patience_;
    while (!shared_->ended && (shared_->calling || SteadyNow() < limit)) {
      // Callbacks are short.
      shared_->calling
          ? shared_->changed.Wait(shared_->mu)
          : static_cast<void>(shared_->changed.WaitFor(shared_->mu, limit - SteadyNow()));
    }
    ended = shared_->ended;
    shared_->given_up = !ended;
  }
  if (ended) {
    thread_.join();
    return;
  }
  LOG(ERROR) << "an abort of NCCL did not return within " << patience_
             << "; its communicators stay until the process ends";
  thread_.detach();
}

void AbortQueue::Add(CommId comm, std::function<void()> aborted) {
  MutexLock lock(shared_->mu);
  shared_->waiting.push_back({comm, std::move(aborted)});
  shared_->changed.NotifyAll();
}

void AbortQueue::Run(const std::shared_ptr<Shared>& shared) {
  while (true) {
    std::vector<Waiting> group;
    {
      MutexLock lock(shared->mu);
      while (shared->waiting.empty() && !shared->stopping) shared->changed.Wait(shared->mu);
      group.swap(shared->waiting);
      if (group.empty()) {
        shared->ended = true;
        shared->changed.NotifyAll();
        return;
      }
    }
    std::vector<CommId> comms;
    for (const Waiting& one : group) comms.push_back(one.comm);
    absl::Status status;
    if (Has(ChannelBug::kAbortedOneByOne)) {
      for (const CommId comm : comms) status.Update(shared->link->Abort({comm}));
    } else {
      status = shared->link->Abort(comms);
    }
    if (!status.ok()) {
      LOG(ERROR) << status << "; the memory of " << comms.size()
                 << " NCCL sessions stays in use until the process ends";
      Keep(std::move(group));
      continue;
    }
    {
      // The owner of the callbacks may be gone.
      MutexLock lock(shared->mu);
      if (shared->given_up) return;
      shared->calling = true;
    }
    for (const Waiting& one : group) one.aborted();
    MutexLock lock(shared->mu);
    shared->calling = false;
    shared->changed.NotifyAll();
  }
}

}  // namespace kaon::kernels
