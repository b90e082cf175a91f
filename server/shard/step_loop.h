// The step thread of a shard: everything that changes the core happens here, one event after the
// other, and what the core asks for is carried out. Pushes and pulls bypass it (accumulator(),
// publisher()). Owned by ShardServer; any thread may call it. The queue is bounded by its sources:
// each control stream hands over one message at a time, each append and each generation one
// completion, each call one question.
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
#include "server/shard/checkpoint_thread.h"
#include "server/shard/shard_core.h"
#include "server/shard/shard_files.h"
#include "server/shard/shard_host.h"
#include "server/shard/snapshot_thread.h"
#include "server/shard/step_log.h"
#include "server/shard/step_phases.h"

namespace kaon::shard {

// A coordinator's end of a control stream. Called on the step thread, perhaps still after
// CloseStream: they must keep alive what they touch, and must not block.
struct ControlSink {
  // Who is at the other end, for logs.
  std::string peer;
  std::function<void(v1::ShardToCoordinator message)> send;
  std::function<void(const absl::Status& status)> end;
};

// What of an accepted plan the next one may put an end to.
struct PlanStanding {
  // 0 = none is accepted.
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

  // As ShardCore::Restore, before Replay.
  absl::Status Restore(const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
    return core_.Restore(snapshot.facts, snapshot.part, read);
  }
  // As ShardCore::RestoreSnapshots, before Replay.
  void RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots) {
    core_.RestoreSnapshots(std::move(snapshots));
  }
  // As ShardCore::Replay; before Start.
  absl::Status Replay(const journal::Entry& entry) { return core_.Replay(entry); }
  // Where replay ended, or Start will begin.
  const ShardMachine& machine() const { return core_.machine(); }
  // Ends the replay and starts the step thread. `journal` lives until Stop, and reads nothing of
  // the loop's gradients once it is gone; `snapshots` lives until Stop, and is null where none are
  // taken. Once, before any other call.
  void Start(journal::Journal& journal, SnapshotThread* snapshots = nullptr);

  // Of the journal's thread, around each write of a gradient (DiskJournal::Options).
  void OnGradientWrite(bool writing);
  // As ShardCore::OnSnapshot.
  void OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline);

  StreamId OpenStream(ControlSink sink);
  // `received` is of SteadyNow(): a message that waited for the step thread does not count as
  // silence of its sender. `done` runs on the step thread once the message is worked off. False,
  // and it never runs, once stopped.
  bool OnControl(StreamId stream, v1::CoordinatorToShard message, absl::Time received,
                 std::function<void()> done);
  // Says on `stream` that the holder of `ballot` is heard, without the step thread; nothing unless
  // that ballot is promised, durably. Any thread.
  void AnswerWhileBusy(StreamId stream, const v1::Ballot& ballot);
  void CloseStream(StreamId stream);

  // `answer` runs on the step thread, or at once with UNAVAILABLE once stopped. NOT_FOUND for
  // another job.
  void Describe(const std::string& job,
                std::function<void(absl::StatusOr<v1::DescribeShardResponse>)> answer);
  // As Describe; NOT_FOUND for a parameter that is not this shard's too.
  void Stats(const v1::ShardParameterRequest& request,
             std::function<void(absl::StatusOr<v1::ParameterStats>)> answer);
  void Diagnostics(const v1::ShardParameterRequest& request,
                   std::function<void(absl::StatusOr<v1::ParameterDiagnostics>)> answer);
  // As Journal::History, but NOT_FOUND for another job; and, if asked for, where time went.
  void ReadHistory(const v1::ReadHistoryRequest& request,
                   std::function<void(absl::StatusOr<v1::ReadHistoryResponse>)> answer);

  monitor::EventCounts& counts() { return counts_; }
  GradientAccumulator& accumulator() { return core_.accumulator(); }
  ParameterPublisher& publisher() { return core_.publisher(); }

  // Ends every stream with UNAVAILABLE, works off what is queued, joins the thread. Idempotent.
  void Stop();
  // As SnapshotThread::TakeLast; after Stop.
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

  // False, and nothing happens, once stopped.
  bool Post(Event event);
  void Run();
  // What AnswerWhileBusy says from now on.
  void PublishPromise();
  // Carries out what the core asked for.
  void Deliver();
  void Append(AppendJournal append);
  // Logs and counts what is told by the record, the refusal, or the plan that is accepted now.
  void Note(const journal::Record& record);
  void NoteRefused(const std::string& peer, const v1::Refused& refused);
  void NotePlan(const PlanStanding& before);

  const ShardFiles files_;
  monitor::EventCounts& counts_;
  monitor::ServiceHealth& health_;
  // Constant once started.
  journal::Journal* journal_ = nullptr;
  SnapshotThread* snapshots_ = nullptr;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  StreamId next_stream_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<StreamId, ControlSink> sinks_ ABSL_GUARDED_BY(mu_);
  // Without a body; absent unless a promise is durable.
  std::optional<v1::ShardToCoordinator> promised_ ABSL_GUARDED_BY(mu_);

  // Before the core, which tells it.
  StepPhases phases_;
  // Of the step thread.
  PhaseTimer* innermost_ = nullptr;
  StepLog step_log_;
  // Of the journal's thread.
  std::optional<PhaseTimer> gradient_write_;
  // Owned by the step thread, but for accumulator() and publisher().
  ShardCore core_;
  std::thread thread_;
  CheckpointThread checkpoints_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_STEP_LOOP_H_
