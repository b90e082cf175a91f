#include "tests/simulation/shard_node.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "server/journal/identity_file.h"
#include "server/shard/snapshot_restore.h"

namespace kaon::simulation {

namespace {

// A segment of the journal is closed every few steps.
constexpr uint64_t kSegmentBytes = 6 << 10;
// Growth of the journal that leads to a snapshot.
constexpr uint64_t kSnapshotBytes = 5 << 10;
// What a power cut leaves is noticed when nothing was heard for a while.
constexpr absl::Duration kKeepAlive = absl::Seconds(1);
// In which an append is written, perhaps in parts, and synced.
constexpr absl::Duration kWrite = absl::Milliseconds(25);
// What a supervisor waits for before it starts the process again.
constexpr absl::Duration kRespawn = absl::Milliseconds(200);

}  // namespace

ShardNode::ShardNode(World& world, int index)
    : world_(world),
      index_(index),
      disk_(std::make_unique<SimulatedDirectory>(absl::StrCat("/s", index), world.Random())) {
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
  options.backend = backend_.get();
  // One chunk of the largest size per worker, the least a shard may have.
  options.staging_bytes = uint64_t{1} << 22;
  options.on_folded = [this, life = life_](uint64_t generation) {
    world_.queue().After(absl::Microseconds(50), [this, life, generation] {
      if (life != life_ || !alive()) return;
      core_->OnFolded(generation);
      Drain();
    });
  };
  options.on_parameter_folded = [this, life = life_](uint64_t generation, uint32_t parameter_id) {
    // Perhaps long after: the parameter is finished with all others then.
    const absl::Duration delay = absl::Microseconds(world_.Chance(0.1) ? 2000 : 20);
    world_.queue().After(delay, [this, life, generation, parameter_id] {
      if (life == life_ && alive()) core_->OnParameterFolded(generation, parameter_id);
    });
  };
  options.withdraw_gradients = [this] { journal_->WithdrawGradients(); };
  options.append_gradient = [this](const journal::GradientSlice& slice) {
    journal_->AppendGradient(slice);
  };
  options.on_applied = [this] { MaybeFreeze(); };
  return options;
}

absl::StatusOr<uint64_t> ShardNode::RestoreSnapshot(std::unique_ptr<shard::ShardCore>& core) {
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*disk_));
  if (!id.has_value()) return 0;
  snapshots_ = std::make_unique<shard::SnapshotDirectory>(*disk_, *id);
  const auto renew = [&] {
    core.reset();
    core = std::make_unique<shard::ShardCore>(CoreOptions());
  };
  KAON_ASSIGN_OR_RETURN(
      const shard::RestoredSnapshot restored,
      shard::RestoreNewest(*snapshots_, [&](const shard::Snapshot& snapshot,
                                            const shard::ShardCore::ReadTensor& read) {
        renew();
        return core->Restore(snapshot.facts, snapshot.part, read);
      }));
  if (restored.position == 0) renew();
  return restored.position;
}

absl::StatusOr<std::unique_ptr<journal::JournalLog>> ShardNode::OpenLog(
    std::unique_ptr<shard::ShardCore>& core) {
  if (!world_.options().durable) return nullptr;
  journal::JournalLog::Options options;
  KAON_ASSIGN_OR_RETURN(options.snapshot_position, RestoreSnapshot(core));
  options.segment_bytes = kSegmentBytes;
  options.id_if_created = {world_.Random(), world_.Random()};
  auto log = journal::JournalLog::Open(
      *disk_, options, [this, &core = *core](const journal::Entry& entry) -> absl::Status {
        if (const auto* decided = std::get_if<journal::DecisionRecord>(&entry)) {
          history_[decided->record.plan().position()] = decided->record;
        }
        if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
          return ReplaySlice(*slice, core);
        }
        return core.Replay(entry);
      });
  if (!log.ok()) return log;
  core->FinishReplay();
  if (*options.snapshot_position > 0) ++world_.result().restored_snapshots;
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*disk_));
  if (snapshots_ == nullptr) {
    snapshots_ = std::make_unique<shard::SnapshotDirectory>(*disk_, id.value());
  }
  grown_from_ = (*log)->appended_bytes();
  durable_position_ = (*log)->decided_position();
  return log;
}

void ShardNode::MaybeFreeze() {
  if (snapshots_ == nullptr || freeze_ != nullptr || snapshot_ != nullptr) return;
  const uint64_t appended = journal_->appended_bytes();
  if (!machine()->weights_loaded() || appended - grown_from_ < kSnapshotBytes) return;
  grown_from_ = appended;
  auto freeze = core_->Freeze();
  CHECK(freeze.ok()) << freeze.status();
  freeze_ = std::move(*freeze);
  WriteSnapshotSoon();
}

void ShardNode::WriteSnapshotSoon() {
  world_.queue().After(world_.Between(absl::ZeroDuration(), absl::Milliseconds(5)),
                       [this, life = life_] {
                         if (life != life_) return;
                         absl::Status status = WriteSnapshot();
                         if (absl::IsResourceExhausted(status)) {
                           world_.Trace(absl::StrCat("s", index_, ": ", status.ToString()));
                           freeze_.reset();
                           snapshot_.reset();
                           status = snapshots_->RemoveUnfinished();
                         }
                         if (!status.ok()) return EndOf(status);
                         if (snapshot_ != nullptr) WriteSnapshotSoon();
                       });
}

absl::Status ShardNode::WriteSnapshot() {
  if (freeze_ != nullptr) {
    snapshot_written_ = false;
    KAON_ASSIGN_OR_RETURN(snapshot_, shard::SnapshotWriter::Create(*snapshots_, std::move(freeze_),
                                                                   v1::CheckpointFile()));
    return absl::OkStatus();
  }
  if (!snapshot_written_) {
    KAON_ASSIGN_OR_RETURN(const bool more, snapshot_->WriteSome());
    snapshot_written_ = !more;
    return absl::OkStatus();
  }
  if (durable_position_ < snapshot_->position()) return absl::OkStatus();
  KAON_RETURN_IF_ERROR(snapshot_->Commit());
  world_.Trace(absl::StrCat("s", index_, ": snapshot of position ", snapshot_->position()));
  ++world_.result().snapshots;
  snapshot_.reset();
  if (snapshots_->oldest_kept() > 0) journal_->Truncate(snapshots_->oldest_kept());
  return snapshots_->Retain();
}

absl::Status ShardNode::ReplaySlice(const journal::GradientSlice& slice, shard::ShardCore& core) {
  const bool flips = world_.options().flips && world_.faulty() && !slice.values.empty();
  if (!flips || !world_.Chance(0.02)) return core.Replay(slice);
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
  history_.clear();
  tier_ = std::make_unique<tier::HostTier>(1 << 20);
  store_ = std::make_unique<tier::TieredStore>(*tier_);
  auto core = std::make_unique<shard::ShardCore>(CoreOptions());
  // A process may die again while it reads.
  const uint64_t failed = disk_->counters().failed;
  disk_->SetHealthy();
  if (world_.faulty() && world_.Chance(0.2)) disk_->FailAfter(world_.Below(30));
  flipped_ = false;
  auto log = OpenLog(core);
  disk_->SetHealthy();
  if (!log.ok()) {
    world_.Trace(absl::StrCat("s", index_, " cannot start: ", log.status().ToString()));
    core.reset();
    snapshots_.reset();
    const bool full = absl::IsResourceExhausted(log.status());
    if (flipped_ && absl::IsDataLoss(log.status())) {
      ++world_.result().flips_found;
    } else if (!full && disk_->counters().failed == failed) {
      return world_.invariants().Violated(
          absl::StrCat("shard ", index_, " cannot start: ", log.status().ToString()));
    }
    if (disk_->counters().failed > failed) ++world_.result().deaths_in_recovery;
    if (world_.Chance(0.5)) {
      disk_->CutPower();
    } else {
      disk_->Crash();
    }
    return RestartAfter(kRespawn);
  }
  if (*log != nullptr && !(*log)->found().torn_tail.empty()) ++world_.result().torn_tails;
  journal_ = std::make_unique<SimulatedJournal>(
      world_, std::move(*log), [this](const absl::Status& status) {
        // Later: the journal that says so dies with its process.
        world_.queue().After(absl::ZeroDuration(), [this, status, life = life_] {
          if (life == life_) EndOf(status);
        });
      });
  core_ = std::move(core);
  world_.Trace(absl::StrCat("s", index_, " starts at position ", machine()->applied_position(),
                            ", promised ", proto::ToString(machine()->promised())));
  world_.invariants().AfterShardStart(index_);
}

void ShardNode::RestartAfter(absl::Duration downtime) {
  world_.queue().After(downtime, [this] { Start(); });
}

void ShardNode::Die(absl::Duration until_noticed) {
  ++life_;
  journal_.reset();
  snapshot_.reset();
  freeze_.reset();
  snapshots_.reset();
  core_.reset();
  store_.reset();
  tier_.reset();
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
  core_->OnControl(stream, message, world_.now());
  Drain();
}

std::vector<float> ShardNode::Weights(uint32_t parameter_id) {
  const absl::Span<const float> weights = core_->publisher().current(parameter_id);
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
  if (publisher
          .Read(parameter_id, step, 0, kernels::DType::kFloat32, weights.size(),
                reinterpret_cast<std::byte*>(weights.data()))
          .ok()) {
    on_read(std::move(weights));
  }
}

absl::StatusOr<v1::StepRecord> ShardNode::ReadHistory(uint64_t position) const {
  if (!alive()) return absl::UnavailableError("connection refused");
  const auto found = history_.find(position);
  if (found == history_.end()) return absl::OutOfRangeError(absl::StrCat("position ", position));
  return found->second;
}

void ShardNode::Drain() {
  for (shard::ShardOutput& output : core_->TakeOutputs()) {
    if (auto* send = std::get_if<shard::SendToCoordinator>(&output)) {
      world_.invariants().OnShardSends(index_, send->message);
      const Message message = std::make_shared<v1::ShardToCoordinator>(std::move(send->message));
      const int copies = world_.Lost() ? 0 : (world_.Doubled() ? 2 : 1);
      for (int i = 0; i < copies; ++i) {
        world_.queue().After(world_.Latency(), [this, stream = send->stream, message] {
          const auto found = streams_.find(stream);
          if (found != streams_.end()) found->second.on_message(stream, message);
        });
      }
    } else if (auto* append = std::get_if<shard::AppendJournal>(&output)) {
      if (const auto* decided = std::get_if<journal::DecisionRecord>(&append->record)) {
        history_[decided->record.plan().position()] = decided->record;
      }
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
      journal_->Append(std::move(append->record), [this, token = append->token, decision] {
        durable_position_ = std::max(durable_position_, decision);
        core_->OnDurable(token);
        Drain();
      });
    } else {
      streams_.erase(std::get<shard::EndStream>(output).stream);
    }
  }
  world_.invariants().AfterShardEvent(index_);
}

}  // namespace kaon::simulation
