#include "tests/simulation/nodes/shard_node.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/checkpoint/written_by.h"
#include "server/disk/device_error.h"
#include "server/journal/identity_file.h"
#include "server/journal/interval_journal.h"
#include "server/journal/interval_schedule.h"
#include "server/shard/snapshot/snapshot_points.h"

namespace kaon::simulation {

namespace {

// A segment of the journal is closed every few steps.
constexpr uint64_t kSegmentBytes = 6 << 10;
// What a power cut leaves is noticed when nothing was heard for a while.
constexpr absl::Duration kKeepAlive = absl::Seconds(1);
// In which an append is written, perhaps in parts, and synced.
constexpr absl::Duration kWrite = absl::Milliseconds(25);
// What a supervisor waits for before it starts the process again.
constexpr absl::Duration kRespawn = absl::Milliseconds(200);
// In which a state is read that the job is to be taken back to, and a part of a checkpoint begun.
constexpr absl::Duration kCheck = absl::Milliseconds(10);
constexpr absl::Duration kPart = absl::Milliseconds(60);
constexpr absl::Duration kSpeculation = absl::Milliseconds(2);

}  // namespace

ShardNode::ShardNode(World& world, int index)
    : world_(world),
      index_(index),
      disk_(std::make_unique<SimulatedDirectory>(absl::StrCat("/s", index), world.Random())),
      nvme_(absl::StrCat("/nvme", index), world.options().seed) {
  kernels::BackendOptions options;
  options.gemm = "reference";
  auto backend = kernels::CreateBackend(options);
  CHECK(backend.ok()) << backend.status();
  backend_ = std::move(*backend);
}

ShardNode::~ShardNode() = default;

absl::StatusOr<DurableState> ShardNode::ReadDurable() const { return ReadDurableState(*disk_); }

shard::ShardCore::Options ShardNode::CoreOptions() {
  shard::ShardCore::Options options;
  options.store = store_.get();
  options.nvme = nvme_.tier();
  options.backend = backend_.get();
  options.written_by = checkpoint::WrittenBy(backend_->name(), backend_->device_class());
  // One chunk of the largest size per worker, the least a shard may have.
  options.staging_bytes = uint64_t{1} << 22;
  if (world_.options().durable) options.durability = v1::DURABILITY_MODE_JOURNAL;
  if (world_.options().interval_steps > 0) {
    options.durability = v1::DURABILITY_MODE_INTERVAL;
    options.interval_steps = world_.options().interval_steps;
  }
  return options;
}

std::unique_ptr<shard::ShardCore> ShardNode::NewCore() {
  shard::ShardHost& host = *this;
  return std::make_unique<shard::ShardCore>(CoreOptions(), host);
}

void ShardNode::After(absl::Duration delay, std::function<void()> event) {
  world_.queue().After(delay, [this, life = life_, event = std::move(event)] {
    if (life == life_ && alive()) event();
  });
}

void ShardNode::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  // Perhaps long after: the parameter is finished with all others then.
  After(absl::Microseconds(world_.Chance(0.1) ? 2000 : 20), [this, generation, parameter_id] {
    core_->OnParameterFolded(generation, parameter_id);
    SpeculateSoon();
  });
}

void ShardNode::OnFolded(uint64_t generation) {
  After(absl::Microseconds(50), [this, generation] {
    core_->OnFolded(generation);
    Drain();
    SpeculateSoon();
  });
}

void ShardNode::OnApplied() {
  if (snapshots_ != nullptr) snapshots_->OnApplied(*core_, journal_->appended_bytes());
}

// Before the next event, after some, or not before the decision.
void ShardNode::SpeculateSoon() {
  After(world_.Between(absl::ZeroDuration(), kSpeculation), [this] {
    if (core_->CanSpeculate()) core_->Speculate();
  });
}

absl::StatusOr<std::unique_ptr<disk::Directory>> ShardNode::OpenCheckpoints() {
  if (world_.options().checkpoints) return world_.checkpoints().View();
  return absl::FailedPreconditionError("this shard has no checkpoint directory");
}

void ShardNode::CheckRestore(const shard::RestoreCheck& check, uint64_t generation) {
  After(world_.Between(absl::ZeroDuration(), kCheck), [this, check, generation] {
    const auto files = OpenCheckpoints();
    core_->OnRestoreChecked(generation,
                            files.ok() ? shard::CheckCheckpoint(**files, check) : files.status());
    Drain();
  });
}

void ShardNode::WritePart(std::unique_ptr<shard::StateFreeze> freeze, shard::PartOptions part) {
  After(world_.Between(absl::ZeroDuration(), kPart),
        [this, part, shared = std::shared_ptr<shard::StateFreeze>(std::move(freeze))] {
          WriteFrozen(*shared, part);
        });
}

void ShardNode::WriteFrozen(shard::StateFreeze& freeze, const shard::PartOptions& part) {
  SimulatedDirectory& disk = world_.checkpoints();
  const uint64_t failed = disk.counters().failed;
  const bool dies = world_.faulty() && world_.options().durable && world_.Chance(0.1);
  if (dies || (world_.faulty() && world_.Chance(0.05))) disk.FailAfter(world_.Below(20));
  const absl::StatusOr<v1::CheckpointPart> written =
      shard::WriteCheckpointPart(freeze, *disk.View(), part);
  disk.SetHealthy();
  if (dies && disk.counters().failed > failed) {
    ++world_.result().torn_checkpoints;
    return world_.Chance(0.5) ? Kill(kRespawn) : CutPower(kRespawn);
  }
  core_->OnPartWritten(part.id, part.attempt, written);
  Drain();
}

void ShardNode::CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) {
  After(world_.Between(absl::ZeroDuration(), kCheck), [this, target, generation] {
    const absl::Status status = UseDisk([&target](shard::SnapshotDirectory& directory) {
      return shard::CheckSnapshot(directory, target);
    });
    // As StepLoop does. A snapshot that cannot be read is not damaged: a restart lists it again.
    if (disk::IsDeviceError(status)) return EndOf(status);
    core_->OnRestoreChecked(generation, status);
    Drain();
  });
}

absl::Status ShardNode::WithSnapshots(UseSnapshots use) {
  if (world_.options().interval_steps == 0) {
    return absl::InvalidArgumentError("this shard keeps no snapshots to roll back to");
  }
  // A live core ends its process when it cannot read what it has checked: of that the process
  // dies at its next operation.
  const uint64_t operations_left = disk_->operations_left();
  if (alive()) disk_->SetHealthy();
  const absl::Status status = UseDisk(use);
  if (alive()) disk_->FailAfter(operations_left);
  return status;
}

absl::Status ShardNode::UseDisk(UseSnapshots use) {
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*disk_));
  shard::SnapshotDirectory directory(*disk_, id.value_or(journal::DirectoryId()));
  return use(directory);
}

absl::Status ShardNode::RestoreSnapshot(Recovered& recovered) {
  const auto renew = [&] {
    recovered.core.reset();
    recovered.core = NewCore();
  };
  renew();
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*disk_));
  if (!id.has_value()) return absl::OkStatus();
  shard::SnapshotDirectory directory(*disk_, *id);
  KAON_ASSIGN_OR_RETURN(
      recovered.snapshot,
      shard::RestoreNewest(directory, [&](const shard::Snapshot& snapshot,
                                          const shard::ShardCore::ReadTensor& read) {
        renew();
        return recovered.core->Restore(snapshot.facts, snapshot.part, read);
      }));
  if (recovered.snapshot.position == 0) renew();
  if (world_.options().interval_steps == 0) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(std::vector<v1::SnapshotPoint> points,
                        shard::ListPoints(directory, recovered.snapshot.position));
  recovered.core->RestoreSnapshots(std::move(points));
  return absl::OkStatus();
}

absl::Status ShardNode::Recover(Recovered& recovered) {
  if (!world_.options().durable) {
    recovered.core = NewCore();
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(RestoreSnapshot(recovered));
  journal::JournalLog::Options options;
  options.snapshot_position = recovered.snapshot.position;
  options.segment_bytes = kSegmentBytes;
  options.id_if_created = {world_.Random(), world_.Random()};
  options.history = recovered.history.get();
  KAON_ASSIGN_OR_RETURN(
      recovered.log,
      journal::JournalLog::Open(
          *disk_, options, [this, &recovered](const journal::Entry& entry) -> absl::Status {
            if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
              return ReplaySlice(*slice, *recovered.core);
            }
            return recovered.core->Replay(entry);
          }));
  recovered.core->FinishReplay();
  return absl::OkStatus();
}

absl::Status ShardNode::ReplaySlice(const journal::GradientSlice& slice, shard::ShardCore& core) {
  const bool flips = world_.options().flips && world_.faulty() && !slice.values.empty();
  if (!flips || !world_.Chance(0.1)) return core.Replay(slice);
  std::vector<float> values(slice.values.begin(), slice.values.end());
  float& value = values[world_.Below(values.size())];
  value = absl::bit_cast<float>(absl::bit_cast<uint32_t>(value) ^ 1);
  journal::GradientSlice changed = slice;
  changed.values = values;
  flipped_ = true;
  return core.Replay(changed);
}

void ShardNode::Start() {
  if (alive()) return;
  ++life_;
  tier_ = std::make_unique<tier::HostTier>(1 << 20);
  store_ = std::make_unique<tier::TieredStore>(*tier_);
  if (world_.options().nvme) nvme_.Open(*backend_);
  // A process may die again while it reads.
  const uint64_t failed = disk_->counters().failed;
  disk_->SetHealthy();
  if (world_.faulty() && world_.Chance(0.2)) disk_->FailAfter(world_.Below(30));
  flipped_ = false;
  Recovered recovered;
  const absl::Status status = Recover(recovered);
  disk_->SetHealthy();
  if (!status.ok()) {
    recovered = Recovered();
    return CannotStart(status, disk_->counters().failed > failed);
  }
  Serve(std::move(recovered));
}

void ShardNode::CannotStart(const absl::Status& status, bool disk_failed) {
  world_.Trace(absl::StrCat("s", index_, " cannot start: ", status.ToString()));
  if (flipped_ && absl::IsDataLoss(status)) {
    ++world_.result().flips_found;
  } else if (!absl::IsResourceExhausted(status) && !disk_failed) {
    return world_.invariants().Violated(
        absl::StrCat("shard ", index_, " cannot start: ", status.ToString()));
  }
  if (disk_failed) ++world_.result().deaths_in_recovery;
  if (world_.Chance(0.5)) {
    disk_->CutPower();
  } else {
    disk_->Crash();
  }
  RestartAfter(kRespawn);
}

void ShardNode::Serve(Recovered recovered) {
  const bool on_disk = recovered.log != nullptr;
  if (on_disk && !recovered.log->found().torn_tail.empty()) ++world_.result().torn_tails;
  if (recovered.snapshot.position > 0) ++world_.result().restored_snapshots;
  // Later: what says so dies with its process.
  const auto on_failed = [this, life = life_](const absl::Status& status) {
    world_.queue().After(absl::ZeroDuration(), [this, status, life] {
      if (life == life_) EndOf(status);
    });
  };
  SimulatedSnapshots::Options snapshots;
  snapshots.name = absl::StrCat("s", index_);
  snapshots.appended_bytes = on_disk ? recovered.log->appended_bytes() : 0;
  snapshots.on_failed = on_failed;
  journal_ = std::make_unique<SimulatedJournal>(world_, std::move(recovered.history),
                                                std::move(recovered.log), on_failed);
  snapshots.truncate = [raw = journal_.get()](uint64_t position) { raw->Truncate(position); };
  core_ = std::move(recovered.core);
  if (const uint32_t steps = world_.options().interval_steps; steps > 0) {
    const journal::IntervalSchedule schedule(steps);
    auto journal = std::make_unique<journal::IntervalJournal>(
        std::move(journal_), schedule,
        journal::IntervalJournal::Start{machine()->timeline(), machine()->applied_step(),
                                        machine()->weights_loaded()});
    snapshots.schedule = schedule;
    snapshots.on_snapshot = [this, raw = journal.get()](const v1::SnapshotPoint& point,
                                                        uint64_t timeline) {
      core_->OnSnapshot(point, timeline);
      raw->OnSnapshot(timeline, point.step());
    };
    journal_ = std::move(journal);
  }
  if (on_disk) {
    const auto id = journal::ReadIdentity(*disk_);
    CHECK(id.ok() && id->has_value()) << id.status();
    snapshots_ = std::make_unique<SimulatedSnapshots>(world_, *disk_, **id, recovered.snapshot,
                                                      std::move(snapshots));
    // All that was replayed is durable; and votes may wait for a snapshot of the newest entry.
    snapshots_->OnDurable(machine()->applied_position());
    if (world_.options().interval_steps > 0 || !machine()->deleted_job().empty()) {
      snapshots_->OnApplied(*core_, journal_->appended_bytes());
    }
  }
  world_.Trace(absl::StrCat("s", index_, " starts at position ", machine()->applied_position(),
                            ", promised ", proto::ToString(machine()->promised())));
  world_.invariants().AfterShardStart(index_);
}

void ShardNode::RestartAfter(absl::Duration downtime) {
  world_.queue().After(downtime, [this] { Start(); });
}

void ShardNode::Die(absl::Duration until_noticed) {
  ++life_;
  snapshots_.reset();
  journal_.reset();
  core_.reset();
  store_.reset();
  tier_.reset();
  nvme_.Close();
  world_.queue().After(until_noticed, [streams = std::exchange(streams_, {}),
                                       events = std::exchange(on_death_, {})] {
    for (const auto& [id, stream] : streams) stream.on_closed(id);
    for (const auto& event : events) event();
  });
}

void ShardNode::EndOf(const absl::Status& status) {
  world_.Trace(absl::StrCat("s", index_, " ends: ", status.ToString()));
  ++world_.result().disk_failures;
  disk_->Crash();
  Die(world_.Latency());
  RestartAfter(kRespawn);
}

void ShardNode::Kill(absl::Duration downtime) {
  if (!alive()) return;
  world_.Trace(absl::StrCat("s", index_, " dies"));
  ++world_.result().shard_kills;
  disk_->Crash();
  Die(world_.Latency());
  RestartAfter(downtime);
}

void ShardNode::CutPower(absl::Duration downtime) {
  if (!alive()) return;
  world_.Trace(absl::StrCat("s", index_, " loses power"));
  ++world_.result().power_cuts;
  const uint64_t lost = disk_->counters().sectors_lost;
  disk_->CutPower();
  world_.checkpoints().CutPowerOf(absl::StrFormat(".shard-%05d-", index_));
  world_.result().sectors_lost += disk_->counters().sectors_lost - lost;
  Die(world_.Between(absl::ZeroDuration(), kKeepAlive));
  RestartAfter(downtime);
}

void ShardNode::FillDisk(absl::Duration duration) {
  world_.Trace(absl::StrCat("s", index_, ": disk full"));
  disk_->SetFreeBytes(world_.Below(3000));
  world_.queue().After(duration, [this] {
    world_.result().full_refusals +=
        disk_->counters().full - std::exchange(full_seen_, disk_->counters().full);
    disk_->SetUnbounded();
  });
}

void ShardNode::BreakDisk() {
  if (alive()) disk_->FailAfter(world_.Below(20));
}

void ShardNode::Forget() {
  world_.Trace(absl::StrCat("s", index_, " forgets"));
  if (alive()) Die(world_.Latency());
  disk_ = std::make_unique<SimulatedDirectory>(absl::StrCat("/s", index_), world_.Random());
  Start();
}

shard::StreamId ShardNode::OpenStream(OnMessage on_message, OnClosed on_closed) {
  if (!alive()) return 0;
  const shard::StreamId stream = next_stream_++;
  streams_[stream] = {std::move(on_message), std::move(on_closed)};
  return stream;
}

void ShardNode::CloseStream(shard::StreamId stream) {
  if (streams_.erase(stream) == 0) return;
  core_->OnStreamClosed(stream);
  Drain();
}

void ShardNode::Deliver(shard::StreamId stream, const v1::CoordinatorToShard& message) {
  if (streams_.count(stream) == 0) return;
  core_->OnControl(stream, message, clock_.now());
  Drain();
}

std::vector<float> ShardNode::Weights(uint32_t parameter_id) {
  const absl::StatusOr<tier::UnitReadPin> pinned = core_->publisher().PinNewest(parameter_id);
  CHECK(pinned.ok()) << pinned.status();
  const absl::Span<const float> weights = pinned->tensor(0).host_floats();
  return {weights.begin(), weights.end()};
}

void ShardNode::Pull(uint64_t timeline, uint32_t parameter_id, uint64_t step,
                     std::function<void(std::vector<float>)> on_read) {
  if (!alive()) return;
  shard::ParameterPublisher& publisher = core_->publisher();
  if (!publisher.CheckTimeline(timeline).ok()) return;
  const auto again = [this, timeline, parameter_id, step, on_read, life = life_] {
    world_.queue().After(absl::ZeroDuration(), [this, timeline, parameter_id, step, on_read, life] {
      if (life == life_) Pull(timeline, parameter_id, step, on_read);
    });
  };
  const auto waiter = publisher.Await(parameter_id, step, again);
  if (!waiter.ok() || *waiter != 0) return;
  std::vector<float> weights(publisher.num_elements(parameter_id));
  if (publisher.Read(parameter_id, step, 0, kernels::DType::kFloat32, absl::MakeSpan(weights))
          .ok()) {
    on_read(std::move(weights));
  }
}

absl::StatusOr<v1::StepRecord> ShardNode::ReadHistory(uint64_t position) {
  if (!alive()) return absl::UnavailableError("connection refused");
  KAON_ASSIGN_OR_RETURN(const std::vector<v1::StepRecord> records, journal_->History(position, 1));
  if (records.empty()) return absl::UnavailableError("no record");
  return records.front();
}

std::vector<v1::StepRecord> ShardNode::History() {
  return journal_->History(0, journal::kMaxHistory).value();
}

void ShardNode::Drain() {
  for (shard::ShardOutput& output : core_->TakeOutputs()) {
    if (auto* send = std::get_if<shard::SendToCoordinator>(&output)) {
      world_.invariants().OnShardSends(index_, send->message);
      if (send->message.has_refused()) {
        world_.Trace(absl::StrCat("s", index_, " refuses: ", send->message.refused().detail()));
      }
      const Message message = std::make_shared<v1::ShardToCoordinator>(std::move(send->message));
      const int copies = world_.Lost() ? 0 : (world_.Doubled() ? 2 : 1);
      for (int i = 0; i < copies; ++i) {
        world_.queue().After(world_.Latency(), [this, stream = send->stream, message] {
          const auto found = streams_.find(stream);
          if (found != streams_.end()) found->second.on_message(stream, message);
        });
      }
    } else if (auto* append = std::get_if<shard::AppendJournal>(&output)) {
      if (at_next_append_ != nullptr) {
        world_.queue().After(world_.Between(absl::ZeroDuration(), kWrite),
                             [this, fault = std::exchange(at_next_append_, nullptr)] {
                               if (world_.faulty()) fault();
                             });
      }
      uint64_t decision = 0;
      if (const auto* decided = std::get_if<journal::DecisionRecord>(&append->record)) {
        decision = decided->record.plan().position();
      }
      // As an event of its own: it may be done before Append returns.
      journal_->Append(std::move(append->record),
                       [this, token = append->token, decision, life = life_] {
                         if (snapshots_ != nullptr && decision > 0) snapshots_->OnDurable(decision);
                         world_.queue().After(absl::ZeroDuration(), [this, token, life] {
                           if (life != life_ || !alive()) return;
                           core_->OnDurable(token);
                           Drain();
                         });
                       });
    } else {
      streams_.erase(std::get<shard::EndStream>(output).stream);
    }
  }
  world_.invariants().AfterShardEvent(index_);
}

}  // namespace kaon::simulation
