// Runs one StepMachine on one thread: a bounded queue of events, the machine's timer, and the way
// of its actions to shards and waiting calls. Owned by CoordinatorServer; Post, Submit and Cancel
// may be called by any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_LOOP_H_
#define KAON_SERVER_COORDINATOR_MACHINE_LOOP_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/step_machine.h"

namespace kaon::coordinator {

class MachineLoop {
 public:
  using Event = std::function<void(StepMachine&, absl::Time now)>;
  // Hands one request to the machine under its call id.
  using Request = std::function<void(StepMachine&, CallId)>;
  // Receives the actions of one call, on the loop's thread: AwaitEvents, then exactly one Reply...,
  // last AwaitEvent or AwaitFailed. Calls that the loop itself ends get AwaitFailed, whatever their
  // kind. Must not block.
  using Sink = std::function<void(CoordinatorAction)>;
  // To one shard; on the loop's thread; must not block.
  using ShardSender = std::function<void(SendToShard send)>;

  // Asks `shard` for the record of `position`, to be answered with StepMachine::OnRecordRead; on
  // the loop's thread; must not block.
  using RecordReader = std::function<void(int shard, uint64_t position)>;

  // Carries it out, to be answered as it says; on the loop's thread; must not block.
  using CheckpointFinisher = std::function<void(FinishCheckpoint finish)>;

  // Looks at the machine after each event, once its actions are carried out; on the loop's thread;
  // must not block.
  using Observer = std::function<void(const StepMachine& machine)>;

  // Without a `reader` no record is ever read, without a `finisher` no checkpoint finished.
  explicit MachineLoop(ShardSender sender, RecordReader reader = nullptr,
                       CheckpointFinisher finisher = nullptr, Observer observer = nullptr);
  ~MachineLoop();
  MachineLoop(const MachineLoop&) = delete;
  MachineLoop& operator=(const MachineLoop&) = delete;

  // Events posted before wait for it.
  void Start(StepMachineOptions options);
  // Ends every open call with UNAVAILABLE. Idempotent.
  void Stop();

  // Runs `event`, which holds so many bytes, on the loop's thread. Or nothing happens:
  // RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE when the loop stopped.
  absl::Status Post(Event event, size_t bytes = 0);
  // As Post, whatever the queue's length: for events of which there can only be a few.
  void PostAlways(Event event);

  CallId NewCall() { return ++last_call_; }
  // Exactly one final action reaches `sink`; if Post fails it is that status, on the caller's
  // thread.
  void Submit(CallId call, Request request, Sink sink);
  // The caller is gone: ends the call with CANCELLED if it is still open.
  void Cancel(CallId call);

 private:
  struct Waiting {
    Event event;
    size_t bytes = 0;
  };

  void Run();
  void Dispatch();
  void ToSink(CallId call, bool last, CoordinatorAction action);
  absl::Status Enqueue(Waiting waiting, size_t limit);

  const ShardSender sender_;
  const RecordReader reader_;
  const CheckpointFinisher finisher_;
  const Observer observer_;
  std::atomic<CallId> last_call_{0};

  Mutex mu_;
  CondVar wake_;
  std::deque<Waiting> events_ ABSL_GUARDED_BY(mu_);
  // Of events that have not run to their end.
  size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Owned by the loop's thread (and by Stop once that is joined).
  std::unique_ptr<StepMachine> machine_;
  std::map<CallId, Sink> sinks_;
  absl::Time wake_at_ = absl::InfinitePast();

  std::thread thread_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_LOOP_H_
