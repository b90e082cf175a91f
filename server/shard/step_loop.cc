#include "server/shard/step_loop.h"

#include <glog/logging.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/ballot.h"
#include "proto/failpoint.h"
#include "proto/text.h"
#include "server/config/log_facts.h"
#include "server/disk/device_error.h"
#include "server/monitor/wall_clock.h"

namespace kaon::shard {

namespace {

constexpr uint32_t kMaxHistoryReply = 1000;
// Samples of parameters take one part in so many of the step thread's time at most.
constexpr int kSampleRest = 100;

absl::Status Stopping() { return absl::UnavailableError("the shard is shutting down"); }

void PassReceived(const v1::CoordinatorToShard& message) {
  if (message.has_promise()) PassFailpoint(Failpoint::shard_promise_received);
  if (message.has_plan()) PassFailpoint(Failpoint::shard_plan_received);
  if (message.plan().has_restore()) PassFailpoint(Failpoint::restore_plan_received);
  if (message.has_checkpoint()) PassFailpoint(Failpoint::checkpoint_ordered);
  if (message.has_decision()) PassFailpoint(Failpoint::shard_decision_received);
}

void PassSent(const v1::ShardToCoordinator& message) {
  if (message.has_state()) PassFailpoint(Failpoint::shard_state_sent);
  if (message.has_prepared()) PassFailpoint(Failpoint::shard_prepared_sent);
  if (message.has_applied()) PassFailpoint(Failpoint::shard_applied_sent);
  if (message.has_checkpoint()) PassFailpoint(Failpoint::checkpoint_report_sent);
}

void PassAppended(const journal::Record& record) {
  if (std::holds_alternative<journal::PromiseRecord>(record)) {
    PassFailpoint(Failpoint::shard_promise_appended);
  } else if (std::holds_alternative<journal::PrepareRecord>(record)) {
    PassFailpoint(Failpoint::shard_prepare_appended);
  } else {
    PassFailpoint(Failpoint::shard_decision_appended);
  }
}

void PassRestoreAppended(const journal::Record& record, const v1::StepPlan* accepted) {
  if (!std::holds_alternative<journal::PrepareRecord>(record)) return;
  if (accepted == nullptr || !accepted->has_restore()) return;
  PassFailpoint(Failpoint::restore_prepare_appended);
}

std::string NameOf(const v1::StepPlan& plan) {
  const std::string entry =
      plan.has_registration() ? absl::StrCat("registration of job ", plan.job())
      : plan.has_restore()    ? absl::StrCat("restore of checkpoint ", plan.restore().checkpoint())
      : plan.has_rollback()   ? absl::StrCat("rollback to step ", plan.rollback().target().step())
      : plan.has_job_deletion() ? absl::StrCat("deletion of job ", plan.job())
      : plan.has_group_change() ? std::string("change of groups or workers")
      : plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS
          ? std::string("initial weights")
          : absl::StrCat("step ", plan.step().step());
  return absl::StrCat(entry, " (position ", plan.position(), ", ballot ",
                      proto::ToString(plan.ballot()), ", round ", plan.round(), ")");
}

PlanStanding StandingOf(const ShardMachine& machine) {
  PlanStanding standing;
  standing.applied_position = machine.applied_position();
  if (machine.accepted_plan() == nullptr) return standing;
  standing.position = machine.accepted_plan()->position();
  standing.ballot = machine.accepted_plan()->ballot();
  standing.round = machine.accepted_plan()->round();
  standing.generation = machine.accepted_generation();
  standing.prepared = machine.held() != nullptr;
  return standing;
}

}  // namespace

StepLoop::StepLoop(ShardCore::Options options, ShardFiles files, monitor::EventCounts& counts,
                   monitor::ServiceHealth& health)
    : files_(std::move(files)),
      counts_(counts),
      health_(health),
      phases_(SteadyNow, monitor::WallNow),
      core_(std::move(options), *this, &phases_, &counts) {}

void StepLoop::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  Post([this, generation, parameter_id] {
    const PhaseTimer timer(&phases_, Phase::kPrepare, &innermost_);
    core_.OnParameterFolded(generation, parameter_id);
  });
}

void StepLoop::OnFolded(uint64_t generation) {
  Post([this, generation] {
    const PhaseTimer timer(&phases_, Phase::kPrepare, &innermost_);
    core_.OnFolded(generation);
  });
}

void StepLoop::AppendGradient(const journal::GradientSlice& slice) {
  const PhaseTimer timer(&phases_, Phase::kJournal, &innermost_);
  journal_->AppendGradient(slice);
}

void StepLoop::OnApplied() {
  if (snapshots_ != nullptr) snapshots_->OnApplied(core_, journal_->appended_bytes());
}

void StepLoop::CheckRestore(const RestoreCheck& check, uint64_t generation) {
  checkpoints_.Post([this, check, generation] {
    const auto files = OpenCheckpoints();
    const absl::Status status = files.ok() ? CheckCheckpoint(**files, check) : files.status();
    Post([this, generation, status] { core_.OnRestoreChecked(generation, status); });
  });
}

void StepLoop::CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) {
  checkpoints_.Post([this, target, generation] {
    const absl::Status status = WithSnapshots(
        [&target](SnapshotDirectory& directory) { return CheckSnapshot(directory, target); });
    // A shard ends when its own device fails (P18). A checkpoint's device may fail: no state
    // depends on it.
    if (disk::IsDeviceError(status)) LOG(FATAL) << "snapshot: " << status;
    Post([this, generation, status] { core_.OnRestoreChecked(generation, status); });
  });
}

void StepLoop::WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) {
  // std::function needs a copyable closure; the last copy ends the freeze.
  checkpoints_.Post([this, part, shared = std::shared_ptr<StateFreeze>(std::move(freeze))] {
    const auto files = OpenCheckpoints();
    const absl::StatusOr<v1::CheckpointPart> written =
        files.ok() ? WriteCheckpointPart(*shared, **files, part) : files.status();
    LOG_IF(WARNING, !written.ok()) << "checkpoint " << part.id << ": " << written.status();
    Post([this, id = part.id, attempt = part.attempt, written] {
      core_.OnPartWritten(id, attempt, written);
    });
  });
}

void StepLoop::Start(journal::Journal& journal, SnapshotThread* snapshots,
                     std::function<void()> end_process) {
  core_.FinishReplay();
  end_process_ = std::move(end_process);
  journal_ = &journal;
  snapshots_ = snapshots;
  if (snapshots_ != nullptr) snapshots_->OnStarted(core_, journal_->appended_bytes());
  thread_ = std::thread([this] { Run(); });
}

StepLoop::~StepLoop() { Stop(); }

bool StepLoop::Post(Event event) {
  MutexLock lock(mu_);
  if (stopping_) return false;
  events_.push_back(std::move(event));
  wake_.NotifyOne();
  return true;
}

void StepLoop::Run() {
  while (true) {
    const bool can_speculate = core_.CanSpeculate();
    if (!can_speculate) MaybeSample();
    Event event;
    {
      MutexLock lock(mu_);
      while (events_.empty() && !stopping_ && !can_speculate) wake_.Wait(mu_);
      if (events_.empty() && stopping_) return;
      if (!events_.empty()) {
        event = std::move(events_.front());
        events_.pop_front();
      }
    }
    if (event == nullptr) {
      const PhaseTimer timer(&phases_, Phase::kSpeculate, &innermost_);
      core_.Speculate();
      continue;
    }
    event();
    Deliver();
  }
}

void StepLoop::MaybeSample() {
  const absl::Time begin = SteadyNow();
  // A decision that comes meanwhile would wait.
  if (begin < next_sample_ || core_.machine().held() != nullptr) return;
  {
    MutexLock lock(mu_);
    if (!events_.empty() || stopping_) return;
  }
  core_.Sample();
  const absl::Time end = SteadyNow();
  next_sample_ = end + kSampleRest * (end - begin);
}

void StepLoop::PublishPromise() {
  const ShardMachine& machine = core_.machine();
  std::optional<v1::ShardToCoordinator> promised;
  if (machine.promise_durable()) {
    promised.emplace();
    promised->set_shard(machine.shard());
    *promised->mutable_promised() = machine.promised();
  }
  MutexLock lock(mu_);
  promised_ = std::move(promised);
}

void StepLoop::AnswerWhileBusy(StreamId stream, const v1::Ballot& ballot) {
  v1::ShardToCoordinator reply;
  ControlSink sink;
  {
    MutexLock lock(mu_);
    const auto found = sinks_.find(stream);
    if (found == sinks_.end() || !promised_.has_value() ||
        proto::Compare(promised_->promised(), ballot) != 0) {
      return;
    }
    reply = *promised_;
    sink = found->second;
  }
  reply.mutable_heartbeat();
  sink.send(std::move(reply));
}

void StepLoop::Deliver() {
  // The promise comes first: a coordinator that reads an answer may already ask for a heartbeat.
  PublishPromise();
  for (ShardOutput& output : core_.TakeOutputs()) {
    if (auto* append = std::get_if<AppendJournal>(&output)) {
      Append(std::move(*append));
      continue;
    }
    auto* send = std::get_if<SendToCoordinator>(&output);
    auto* end = std::get_if<EndStream>(&output);
    ControlSink sink;
    {
      MutexLock lock(mu_);
      const auto found = sinks_.find(send != nullptr ? send->stream : end->stream);
      if (found == sinks_.end()) continue;
      sink = found->second;
    }
    if (send != nullptr) {
      if (send->message.has_refused()) NoteRefused(sink.peer, send->message.refused());
      PassSent(send->message);
      sink.send(std::move(send->message));
    } else {
      LOG(WARNING) << "shard " << core_.machine().shard() << ": control stream of " << sink.peer
                   << " ended: " << end->status;
      sink.end(end->status);
    }
  }
}

void StepLoop::Append(AppendJournal append) {
  Note(append.record);
  PassAppended(append.record);
  PassRestoreAppended(append.record, core_.machine().accepted_plan());
  uint64_t decided = 0;
  if (const auto* decision = std::get_if<journal::DecisionRecord>(&append.record)) {
    decided = decision->record.plan().position();
  }
  std::optional<StepPhases::Work> vote;
  if (std::holds_alternative<journal::PrepareRecord>(append.record)) {
    vote = phases_.StartWait(Phase::kJournal);
  }
  journal_->Append(std::move(append.record), [this, token = append.token, decided, vote] {
    if (vote) phases_.Stop(*vote);
    // Told at once: a snapshot waits for the decision, on a thread that this loop may wait for.
    if (snapshots_ != nullptr && decided > 0) snapshots_->OnDurable(decided);
    Post([this, token] { core_.OnDurable(token); });
  });
}

void StepLoop::OnGradientWrite(bool writing) {
  gradient_write_.reset();
  if (writing) gradient_write_.emplace(&phases_, Phase::kJournal);
}

void StepLoop::NoteRefused(const std::string& peer, const v1::Refused& refused) {
  counts_.Add(monitor::Event::kControlRefused, refused.reason());
  const std::string why = absl::StrCat(
      " of ", peer, " refused: ", v1::RefusalReason_Name(refused.reason()), ": ", refused.detail());
  // Logged apart from other refusals: rare, as the coordinator was replaced while it decided.
  if (refused.decision()) {
    LOG_EVERY_T(WARNING, 1) << "shard " << core_.machine().shard() << ": decision of position "
                            << refused.position() << why;
    return;
  }
  // A coordinator that was replaced asks until it knows.
  LOG_EVERY_T(WARNING, 1) << "shard " << core_.machine().shard() << ": message" << why;
}

void StepLoop::NotePlan(const PlanStanding& before) {
  const PlanStanding now = StandingOf(core_.machine());
  if (before.position == 0 || now.position == 0) return;
  const bool stamped_anew =
      now.round != before.round || proto::Compare(now.ballot, before.ballot) != 0;
  if (now.position == before.position && stamped_anew) {
    counts_.Add(monitor::Event::kRoundReopened);
  }
  // Rule 4: only an accepted plan withdraws it.
  const bool withdrawn = before.prepared && now.generation != before.generation &&
                         now.applied_position == before.applied_position;
  if (!withdrawn) return;
  counts_.Add(monitor::Event::kPrepareWithdrawn);
  LOG(WARNING) << "shard " << core_.machine().shard() << ": PREPARE of position " << before.position
               << " withdrawn by " << NameOf(*core_.machine().accepted_plan());
}

void StepLoop::Note(const journal::Record& record) {
  const uint32_t shard = core_.machine().shard();
  config::SetLogShard(shard);
  if (const auto* promise = std::get_if<journal::PromiseRecord>(&record)) {
    counts_.Add(monitor::Event::kPromise);
    LOG(INFO) << "shard " << shard << ": promises ballot " << proto::ToString(promise->ballot)
              << " to " << core_.machine().holder_address();
  } else if (const auto* decision = std::get_if<journal::DecisionRecord>(&record)) {
    const v1::StepPlan& plan = decision->record.plan();
    monitor::NoteEntry(plan);
    if (plan.has_restore()) counts_.Add(monitor::Event::kRestore);
    if (plan.has_rollback()) counts_.Add(monitor::Event::kRollback);
    if (plan.has_group_change()) counts_.Add(monitor::Event::kGroupChange);
    if (plan.has_job_deletion()) counts_.Add(monitor::Event::kJobDeletion);
    const std::string line = step_log_.Line(decision->record, NameOf(plan), SteadyNow());
    LOG_IF(INFO, !line.empty()) << "shard " << shard << ": " << line;
    VLOG(1) << "shard " << shard << ": decided " << NameOf(plan);
  }
}

void StepLoop::OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline) {
  Post([this, snapshot, timeline] { core_.OnSnapshot(snapshot, timeline); });
}

StreamId StepLoop::OpenStream(ControlSink sink) {
  MutexLock lock(mu_);
  const StreamId stream = next_stream_++;
  sinks_[stream] = std::move(sink);
  return stream;
}

bool StepLoop::OnControl(StreamId stream, v1::CoordinatorToShard message, absl::Time received,
                         std::function<void()> done) {
  return Post([this, stream, message = std::move(message), received, done = std::move(done)] {
    PassReceived(message);
    const PlanStanding before = StandingOf(core_.machine());
    core_.OnControl(stream, message, received);
    NotePlan(before);
    monitor::NoteTrace(core_.machine().accepted_plan(), message);
    Deliver();
    if (message.has_drain()) OnDrain(stream, message);
    core_.OnReady(stream, SteadyNow());
    done();
  });
}

void StepLoop::OnDrain(StreamId stream, const v1::CoordinatorToShard& message) {
  const ShardMachine& machine = core_.machine();
  // The machine has refused any other ballot.
  if (!machine.promise_durable() || proto::Compare(message.ballot(), machine.promised()) != 0) {
    return;
  }
  if (message.drain().end()) {
    LOG(INFO) << "shard " << machine.shard() << ": drained at position "
              << machine.applied_position() << " by order of " << message.holder_address();
    if (end_process_) end_process_();
    return;
  }
  const absl::StatusOr<bool> ready =
      snapshots_ != nullptr
          ? snapshots_->TakeForDrain(core_, message.drain().attempt())
          : absl::FailedPreconditionError("this shard takes no snapshots and cannot be drained");
  v1::ShardToCoordinator reply;
  reply.set_shard(machine.shard());
  *reply.mutable_promised() = machine.promised();
  reply.mutable_drain()->set_attempt(message.drain().attempt());
  reply.mutable_drain()->set_ready(ready.ok() && *ready);
  reply.mutable_drain()->set_error_code(static_cast<uint32_t>(ready.status().code()));
  reply.mutable_drain()->set_error(std::string(ready.status().message()));
  ControlSink sink;
  {
    MutexLock lock(mu_);
    const auto found = sinks_.find(stream);
    if (found == sinks_.end()) return;
    sink = found->second;
  }
  sink.send(std::move(reply));
}

void StepLoop::CloseStream(StreamId stream) {
  {
    MutexLock lock(mu_);
    sinks_.erase(stream);
  }
  Post([this, stream] { core_.OnStreamClosed(stream); });
}

void StepLoop::Describe(const std::string& job,
                        std::function<void(absl::StatusOr<v1::DescribeShardResponse>)> answer) {
  const bool posted = Post([this, job, answer] {
    absl::StatusOr<v1::DescribeShardResponse> response = core_.Describe(job);
    if (response.ok()) {
      for (v1::EventCount& count : counts_.Happened()) {
        *response->add_events() = std::move(count);
      }
      for (v1::TierStatus& tier : core_.Tiers()) *response->add_tiers() = std::move(tier);
      *response->mutable_journal() = journal_->Status();
      if (snapshots_ != nullptr) {
        *response->mutable_snapshot() = snapshots_->Status();
        v1::JournalStatus& journal = *response->mutable_journal();
        journal.set_bytes(journal.bytes() + snapshots_->disk_bytes());
        if (journal.read_only_reason().empty()) {
          journal.set_read_only_reason(snapshots_->read_only_reason());
        }
      }
    }
    answer(std::move(response));
  });
  if (!posted) answer(Stopping());
}

void StepLoop::Stats(const v1::ShardParameterRequest& request,
                     std::function<void(absl::StatusOr<v1::ParameterStats>)> answer) {
  if (!Post([this, request, answer] { answer(core_.Stats(request)); })) answer(Stopping());
}

void StepLoop::Diagnostics(const v1::ShardParameterRequest& request,
                           std::function<void(absl::StatusOr<v1::ParameterDiagnostics>)> answer) {
  if (!Post([this, request, answer] { answer(core_.Diagnostics(request)); })) answer(Stopping());
}

void StepLoop::ParameterHistory(const v1::ShardParameterRequest& request,
                                std::function<void(absl::StatusOr<v1::ParameterHistory>)> answer) {
  if (!Post([this, request, answer] { answer(core_.History(request)); })) answer(Stopping());
}

void StepLoop::Slice(const v1::ShardSliceRequest& request,
                     std::function<void(absl::StatusOr<v1::TensorSlice>)> answer) {
  if (!Post([this, request, answer] { answer(core_.Slice(request)); })) answer(Stopping());
}

void StepLoop::OrthogonalityError(std::function<void(std::optional<double>)> answer) {
  if (!Post([this, answer] { answer(core_.OrthogonalityError()); })) answer(std::nullopt);
}

void StepLoop::ReadHistory(const v1::ReadHistoryRequest& request,
                           std::function<void(absl::StatusOr<v1::ReadHistoryResponse>)> answer) {
  if (request.limit() > kMaxHistoryReply) {
    return answer(absl::InvalidArgumentError(absl::StrCat(
        "limit is ", request.limit(), ", expecting 1 .. ", kMaxHistoryReply, " or 0")));
  }
  const bool posted = Post([this, request, answer] {
    const auto& registration = core_.machine().registration();
    if (!request.job().empty() &&
        (!registration.has_value() || registration->definition().name() != request.job())) {
      return answer(absl::NotFoundError(
          absl::StrCat("this shard does not hold job '", proto::Excerpt(request.job()), "'")));
    }
    const uint32_t limit = request.limit() == 0 ? kMaxHistoryReply : request.limit();
    absl::StatusOr<std::vector<v1::StepRecord>> records =
        journal_->History(request.from_position(), limit);
    if (!records.ok()) return answer(records.status());
    v1::ReadHistoryResponse response;
    for (v1::StepRecord& record : *records) *response.add_records() = std::move(record);
    std::vector<v1::StepPhases> phases;
    if (request.with_phases()) phases = phases_.Read(request.from_position());
    for (v1::StepPhases& step : phases) *response.add_phases() = std::move(step);
    answer(std::move(response));
  });
  if (!posted) answer(Stopping());
}

void StepLoop::Stop() {
  std::map<StreamId, ControlSink> sinks;
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    sinks.swap(sinks_);
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  core_.EndDataStreams(Stopping());
  checkpoints_.Stop();
  for (auto& [id, sink] : sinks) sink.end(Stopping());
}

}  // namespace kaon::shard
