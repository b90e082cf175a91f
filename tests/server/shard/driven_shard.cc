#include "tests/server/shard/driven_shard.h"

#include <glog/logging.h>

#include <functional>
#include <utility>
#include <variant>

#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "server/checkpoint/written_by.h"

namespace kaon::shard {

namespace {

// A view of a directory that lives on.
class SharedDirectory : public disk::Directory {
 public:
  explicit SharedDirectory(disk::Directory& files) : files_(files) {}
  absl::StatusOr<std::unique_ptr<disk::File>> Open(const std::string& name) override {
    return files_.Open(name);
  }
  absl::StatusOr<std::unique_ptr<disk::File>> Create(const std::string& name) override {
    return files_.Create(name);
  }
  absl::StatusOr<std::vector<std::string>> List() override { return files_.List(); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override { return files_.Remove(name); }
  absl::Status Sync() override { return files_.Sync(); }
  const std::string& path() const override { return files_.path(); }

 private:
  disk::Directory& files_;
};

}  // namespace

DrivenShard::DrivenShard(uint64_t capacity_bytes, std::string data_loss, uint32_t interval_steps,
                         bool on_device)
    : memory_(capacity_bytes, ShardMemory::Reference(), on_device) {
  ShardCore::Options options;
  options.store = &memory_.store();
  options.backend = &memory_.backend();
  options.nvme = memory_.nvme();
  options.staging = &memory_.host();
  options.pull_cache = &memory_.host();
  options.written_by =
      checkpoint::WrittenBy(options.backend->name(), options.backend->device_class());
  options.staging_bytes = 4 << 20;
  options.data_loss = std::move(data_loss);
  if (interval_steps > 0) {
    options.durability = v1::DURABILITY_MODE_INTERVAL;
    options.interval_steps = interval_steps;
  }
  ShardHost& host = *this;
  core_ = std::make_unique<ShardCore>(std::move(options), host);
}

void DrivenShard::CheckRestore(const RestoreCheck& check, uint64_t generation) {
  work_.push_back([this, check, generation] {
    const auto files = OpenCheckpoints();
    core_->OnRestoreChecked(generation,
                            files.ok() ? CheckCheckpoint(**files, check) : files.status());
  });
}

void DrivenShard::CheckRollback(const v1::SnapshotPoint& target, uint64_t generation) {
  work_.push_back([this, target, generation] {
    core_->OnRestoreChecked(generation, CheckSnapshot(*snapshots_, target));
  });
}

void DrivenShard::WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) {
  work_.push_back([this, part, shared = std::shared_ptr<StateFreeze>(std::move(freeze))] {
    const auto files = OpenCheckpoints();
    const absl::StatusOr<v1::CheckpointPart> written =
        files.ok() ? WriteCheckpointPart(*shared, **files, part) : files.status();
    core_->OnPartWritten(part.id, part.attempt, written);
  });
}

absl::StatusOr<std::unique_ptr<disk::Directory>> DrivenShard::OpenCheckpoints() {
  if (checkpoints_ == nullptr) return absl::FailedPreconditionError("no checkpoints");
  return std::make_unique<SharedDirectory>(*checkpoints_);
}

absl::Status DrivenShard::WithSnapshots(UseSnapshots use) {
  if (snapshots_ == nullptr) return absl::InvalidArgumentError("no snapshots");
  return use(*snapshots_);
}

void DrivenShard::PlaceAs(uint32_t shard, uint32_t num_shards) {
  shard_ = shard;
  num_shards_ = num_shards;
}

v1::CoordinatorToShard DrivenShard::Envelope(uint64_t counter) {
  v1::CoordinatorToShard message;
  *message.mutable_ballot() = MakeBallot(counter);
  message.set_holder_address("coordinator");
  message.set_shard(shard_);
  message.set_num_shards(num_shards_);
  return message;
}

std::vector<v1::ShardToCoordinator> DrivenShard::Pump() {
  std::vector<v1::ShardToCoordinator> sent;
  while (true) {
    std::vector<ShardOutput> outputs = core_->TakeOutputs();
    const std::vector<uint64_t> folded = std::exchange(folded_, {});
    const auto folded_parameters = std::exchange(folded_parameters_, {});
    const auto work = std::exchange(work_, {});
    if (outputs.empty() && folded.empty() && folded_parameters.empty() && work.empty()) return sent;
    for (ShardOutput& output : outputs) {
      if (auto* send = std::get_if<SendToCoordinator>(&output))
        sent.push_back(std::move(send->message));
      if (auto* append = std::get_if<AppendJournal>(&output)) {
        journal_.Append(append->record);
        core_->OnDurable(append->token);
      }
    }
    for (const auto& [generation, id] : folded_parameters) core_->OnParameterFolded(generation, id);
    for (uint64_t generation : folded) core_->OnFolded(generation);
    for (const auto& run : work) run();
  }
}

std::vector<v1::ShardToCoordinator> DrivenShard::Promise(uint64_t counter) {
  v1::CoordinatorToShard message = Envelope(counter);
  message.mutable_promise();
  core_->OnControl(1, message, absl::UnixEpoch());
  return Pump();
}

std::vector<v1::ShardToCoordinator> DrivenShard::Plan(const v1::StepPlan& plan) {
  v1::CoordinatorToShard message = Envelope(plan.ballot().counter());
  *message.mutable_plan() = plan;
  core_->OnControl(1, message, absl::UnixEpoch());
  return Pump();
}

std::vector<v1::ShardToCoordinator> DrivenShard::Decide(const v1::StepRecord& record) {
  v1::CoordinatorToShard message = Envelope(record.plan().ballot().counter());
  *message.mutable_decision() = record;
  core_->OnControl(1, message, absl::UnixEpoch());
  return Pump();
}

std::vector<v1::ShardToCoordinator> DrivenShard::Take(const std::string& id, uint64_t position,
                                                      uint64_t attempt) {
  v1::CoordinatorToShard message = Envelope(1);
  message.mutable_checkpoint()->set_id(id);
  message.mutable_checkpoint()->set_position(position);
  message.mutable_checkpoint()->set_attempt(attempt);
  core_->OnControl(1, message, absl::UnixEpoch());
  return Pump();
}

absl::Status DrivenShard::Push(uint32_t rank, uint64_t step,
                               const std::vector<std::vector<float>>& values) {
  std::map<uint32_t, std::vector<float>> by_id;
  for (uint32_t id = 0; id < values.size(); ++id) by_id[id] = values[id];
  return PushParameters(rank, step, by_id);
}

absl::Status DrivenShard::PushParameters(uint32_t rank, uint64_t step,
                                         const std::map<uint32_t, std::vector<float>>& values) {
  v1::PushOpen open;
  open.set_job("gpt2");
  open.set_timeline(timeline_);
  open.set_step(step);
  open.set_rank(rank);
  *open.mutable_attempt()->mutable_ballot() = MakeBallot(1);
  const auto attempt = attempts_.find(rank);
  open.mutable_attempt()->set_number(attempt == attempts_.end() ? rank + 1 : attempt->second);
  KAON_ASSIGN_OR_RETURN(
      const OpenPush push,
      core_->accumulator().Open(open, {[](uint64_t) {}, [](const absl::Status&) {}}));
  v1::PushFinish finish;
  for (const auto& [id, tensor] : values) {
    if (tensor.empty()) {
      finish.add_missing_parameters(id);
      continue;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(tensor.data());
    const auto payload = absl::MakeConstSpan(bytes, tensor.size() * sizeof(float));
    v1::TensorChunk chunk;
    chunk.set_parameter_id(id);
    chunk.set_num_elements(tensor.size());
    chunk.set_dtype(v1::DTYPE_FLOAT32);
    chunk.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
    KAON_RETURN_IF_ERROR(
        core_->accumulator().AddChunks(push.stream, {{&chunk, absl::MakeConstSpan(&payload, 1)}}));
  }
  return core_->accumulator().Finish(push.stream, finish);
}

void DrivenShard::Load(const v1::StepPlan& registration, float first) {
  Promise(1);
  Plan(registration);
  Decide(Applying(registration));
  Plan(LoadPlan(1, 1));
  const absl::Status status =
      Push(0, 0, {{first, 2, 3, 4, 5, 6}, std::vector<float>(4, 1), std::vector<float>(5, 9)});
  CHECK(status.ok()) << status;
  Pump();
  Decide(Applying(LoadPlan(1, 1)));
}

void DrivenShard::Train(uint64_t step, const std::vector<std::vector<float>>& values) {
  Decide(Decided(step, values));
}

v1::StepRecord DrivenShard::Decided(uint64_t step, const std::vector<std::vector<float>>& values) {
  // A restore or a rollback shifts all three.
  const v1::ShardState now = state();
  SetTimeline(now.timeline());
  v1::StepPlan plan = TrainPlan(step, 1, 1);
  plan.set_timeline(now.timeline());
  plan.set_position(now.applied_position() + 1);
  plan.set_config_revision(now.config_revision());
  Plan(plan);
  for (uint32_t rank : {0, 1}) {
    const absl::Status status = Push(rank, step, values);
    CHECK(status.ok()) << status;
  }
  Pump();
  v1::StepRecord record = Applying(plan);
  // Of all shards there are.
  record.mutable_decision()->set_state_digest(core_->machine().state_digest());
  return record;
}

std::vector<float> DrivenShard::Read(uint32_t parameter_id, uint64_t step) {
  std::vector<float> values(core_->publisher().num_elements(parameter_id));
  const absl::Status status = core_->publisher().Read(
      parameter_id, step, 0, kernels::DType::kFloat32, absl::MakeSpan(values));
  CHECK(status.ok()) << status;
  return values;
}

}  // namespace kaon::shard
