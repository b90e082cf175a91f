// Step thread of a shard: drives the core, one event after the other, and carries out its outputs.
// Pushes and pulls bypass it (accumulator(), publisher()). Owned by ShardServer; any thread may
// call it. The queue is bounded by its sources. Each control stream has one message in it at a
// time, each append and each generation one completion, each call one question.
#ifndef KAON_SERVER_SHARD_STEP_LOOP_H_
#define KAON_SERVER_SHARD_STEP_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"
#include "server/journal/journal.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"
#include "server/monitor/step_log.h"
#include "server/shard/checkpoint_thread.h"
#include "server/shard/shard_core.h"
#include "server/shard/shard_files.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot_thread.h"
#include "server/shard/step_phases.h"

namespace kaon::shard {

// A coordinator's end of a control stream. The step thread calls both functions, perhaps still
// after CloseStream: they keep alive what they touch, and must not block.
struct ControlSink {
  // Address of the coordinator, for logs.
  std::string peer;
  std::function<void(v1::ShardToCoordinator message)> send;
  std::function<void(const absl::Status& status)> end;
};

// Facts of an accepted plan that the next plan may replace.
struct PlanStanding {
  // 0: no plan is accepted.
  uint64_t position = 0;
  v1::Ballot ballot;
  uint64_t round = 0;
  uint64_t generation = 0;
  bool prepared = false;
  uint64_t applied_position = 0;
};

class StepLoop final : private ShardHost {
 public:
  // `counts`, `health` and all that `options` point to outlive the loop. `health` hears of damage
  // to the state.
  StepLoop(ShardCore::Options options, ShardFiles files, monitor::EventCounts& counts,
           monitor::ServiceHealth& health);
  // Calls Stop.
  ~StepLoop() override;

  // Calls ShardCore::Restore; before Replay.
  absl::Status Restore(const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
    return core_.Restore(snapshot.facts, snapshot.part, read);
  }
  // Calls ShardCore::RestoreSnapshots; before Replay.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots) {
    core_.RestoreSnapshots(std::move(snapshots));
  }
  // Calls ShardCore::Replay; before Start.
  absl::Status Replay(const journal::Entry& entry) { return core_.Replay(entry); }
  // Returns the agreement machine, as replay left it; before Start.
  const ShardMachine& machine() const { return core_.machine(); }
  // Ends the replay and starts the step thread. Both arguments live until Stop. The journal is
  // destroyed before the loop, whose gradients it reads. `snapshots` is null if none are taken.
  // `end_process` begins the orderly end of a drained shard; it must not block. Called once, before
  // all that follows.
  void Start(journal::Journal& journal, SnapshotThread* snapshots = nullptr,
             std::function<void()> end_process = nullptr);

  // The journal's thread calls this around each write of a gradient (DiskJournal::Options).
  void OnGradientWrite(bool writing);
  // Posts ShardCore::OnSnapshot.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline);

  StreamId OpenStream(ControlSink sink);
  // Hands a message to the step thread, which calls `done` after it. `received` is the SteadyNow()
  // of its arrival: time that the message waits is no silence of its sender. Returns false, and
  // never calls `done`, once stopped.
  bool OnControl(StreamId stream, v1::CoordinatorToShard message, absl::Time received,
                 std::function<void()> done);
  // Sends a heartbeat on `stream` for the holder of `ballot`, without the step thread. Sends
  // nothing unless the promise of that ballot is durable. Any thread.
  void AnswerWhileBusy(StreamId stream, const v1::Ballot& ballot);
  void CloseStream(StreamId stream);

  // Calls `answer` on the step thread; once stopped, at once with UNAVAILABLE. NOT_FOUND for
  // another job.
  void Describe(const std::string& job,
                std::function<void(absl::StatusOr<v1::DescribeShardResponse>)> answer);
  // These answer as Describe does, and with NOT_FOUND for a parameter of another shard.
  void Stats(const v1::ShardParameterRequest& request,
             std::function<void(absl::StatusOr<v1::ParameterStats>)> answer);
  void Diagnostics(const v1::ShardParameterRequest& request,
                   std::function<void(absl::StatusOr<v1::ParameterDiagnostics>)> answer);
  void ParameterHistory(const v1::ShardParameterRequest& request,
                        std::function<void(absl::StatusOr<v1::ParameterHistory>)> answer);
  void Slice(const v1::ShardSliceRequest& request,
             std::function<void(absl::StatusOr<v1::TensorSlice>)> answer);
  // Answers with ShardCore::OrthogonalityError; absent once stopped.
  void OrthogonalityError(std::function<void(std::optional<double>)> answer);
  // Answers as Journal::History, or NOT_FOUND for another job; on request with the phases of steps.
  void ReadHistory(const v1::ReadHistoryRequest& request,
                   std::function<void(absl::StatusOr<v1::ReadHistoryResponse>)> answer);

  monitor::EventCounts& counts() { return counts_; }
  GradientAccumulator& accumulator() { return core_.accumulator(); }
  ParameterPublisher& publisher() { return core_.publisher(); }

  // Ends every stream with UNAVAILABLE, runs the queued events, joins the thread. Idempotent.
  void Stop();
  // Calls SnapshotThread::TakeLast; after Stop.
  void TakeLastSnapshot(absl::Time deadline) {
    if (snapshots_ != nullptr) snapshots_->TakeLast(core_, deadline);
  }

 private:
  using Event = std::function<void()>;

  // ShardHost.
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id) override;
  void OnFolded(uint64_t generation) override;
  void AppendGradient(const journal::GradientSlice& slice) override;
  void WithdrawGradients() override { journal_->WithdrawGradients(); }
  void OnApplied() override;
  void OnDataLoss(const std::string& why) override { health_.SetReason("state", why); }
  void CheckRestore(const RestoreCheck& check, uint64_t generation) override;
  void CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) override;
  void WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) override;
  absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() override {
    return files_.OpenCheckpoints();
  }
  absl::Status WithSnapshots(UseSnapshots use) override { return files_.WithSnapshots(use); }

  // Queues an event; returns false, and drops it, once stopped.
  bool Post(Event event);
  void Run();
  // Sets what AnswerWhileBusy sends from now on.
  void PublishPromise();
  // Samples a parameter if nobody waits and the last sample is long enough ago.
  void MaybeSample();
  // Carries out the outputs of the core.
  void Deliver();
  void Append(AppendJournal append);
  // Answers the holder's order to drain.
  void OnDrain(StreamId stream, const v1::CoordinatorToShard& message);
  // Logs and counts the facts of a record, of a refusal, or of the plan that is accepted now.
  void Note(const journal::Record& record);
  void NoteRefused(const std::string& peer, const v1::Refused& refused);
  void NotePlan(const PlanStanding& before);

  const ShardFiles files_;
  monitor::EventCounts& counts_;
  monitor::ServiceHealth& health_;
  // Constant once started.
  journal::Journal* journal_ = nullptr;
  SnapshotThread* snapshots_ = nullptr;
  std::function<void()> end_process_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  StreamId next_stream_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<StreamId, ControlSink> sinks_ ABSL_GUARDED_BY(mu_);
  // Answer without a body; absent unless a promise is durable.
  std::optional<v1::ShardToCoordinator> promised_ ABSL_GUARDED_BY(mu_);

  // The core tells it, and is destroyed first.
  StepPhases phases_;
  // Innermost timer of the step thread.
  PhaseTimer* innermost_ = nullptr;
  monitor::StepLog step_log_;
  // Used by the journal's thread.
  std::optional<PhaseTimer> gradient_write_;
  // Used by the step thread, except accumulator() and publisher().
  ShardCore core_;
  absl::Time next_sample_ = absl::InfinitePast();
  std::thread thread_;
  CheckpointThread checkpoints_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_STEP_LOOP_H_
