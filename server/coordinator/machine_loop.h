// Runs one StepMachine on one thread. Holds a bounded queue of events and the machine's timer, and
// passes the machine's actions to shards and to waiting calls. Owned by CoordinatorServer; any
// thread may call Post, Submit and Cancel.
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
  // Passes one request to the machine under its call id.
  using Request = std::function<void(StepMachine&, CallId)>;
  // Receives the actions of one call on the loop's thread: AwaitEvents, then exactly one final
  // action. The final action is a Reply..., the last AwaitEvent, or AwaitFailed. A call of any kind
  // that the loop itself ends gets AwaitFailed. Must not block.
  using Sink = std::function<void(CoordinatorAction)>;
  // Sends a message to one shard. Runs on the loop's thread; must not block.
  using ShardSender = std::function<void(SendToShard send)>;

  // Asks `shard` for the record of `position`; StepMachine::OnRecordRead takes the answer. Runs on
  // the loop's thread; must not block.
  using RecordReader = std::function<void(int shard, uint64_t position)>;

  // Asks a shard whose gradients it lacks; StepMachine::OnAwaited takes the answer. Runs on the
  // loop's thread; must not block.
  using AwaitedReader = std::function<void(const ReadAwaited& read)>;

  // Carries out `finish`, then answers the machine as FinishCheckpoint says. Runs on the loop's
  // thread; must not block.
  using CheckpointFinisher = std::function<void(FinishCheckpoint finish)>;

  // Looks at the machine after each event, once the loop has carried out the actions. Runs on the
  // loop's thread; must not block.
  using Observer = std::function<void(const StepMachine& machine)>;

  // Without a reader the loop asks for nothing; without a `finisher` it finishes no checkpoints.
  explicit MachineLoop(ShardSender sender, RecordReader reader = nullptr,
                       CheckpointFinisher finisher = nullptr, Observer observer = nullptr,
                       AwaitedReader awaited_reader = nullptr);
  ~MachineLoop();
  MachineLoop(const MachineLoop&) = delete;
  MachineLoop& operator=(const MachineLoop&) = delete;

  // Starts the thread, which also runs the events posted earlier.
  void Start(StepMachineOptions options);
  // Ends every open call with UNAVAILABLE. Idempotent.
  void Stop();

  // Runs `event`, which holds `bytes` bytes, on the loop's thread. After an error `event` never
  // runs: RESOURCE_EXHAUSTED if the queue is full, UNAVAILABLE if the loop stopped.
  absl::Status Post(Event event, size_t bytes = 0);
  // Posts even if the queue is full. Use it for events of which only a few can exist.
  void PostAlways(Event event);

  CallId NewCall() { return ++last_call_; }
  // Posts `request`. `sink` receives exactly one final action. If Post fails, `sink` gets that
  // error on the caller's thread.
  void Submit(CallId call, Request request, Sink sink);
  // Ends the call with `why` if it is still open.
  void End(CallId call, const absl::Status& why);
  // Ends the call with CANCELLED if it is still open, because its caller is gone.
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
  const AwaitedReader awaited_reader_;
  std::atomic<CallId> last_call_{0};

  Mutex mu_;
  CondVar wake_;
  std::deque<Waiting> events_ ABSL_GUARDED_BY(mu_);
  // Bytes held by events that have not finished.
  size_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Owned by the loop's thread, and by Stop after it has joined that thread.
  std::unique_ptr<StepMachine> machine_;
  std::map<CallId, Sink> sinks_;
  absl::Time wake_at_ = absl::InfinitePast();

  std::thread thread_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_LOOP_H_
