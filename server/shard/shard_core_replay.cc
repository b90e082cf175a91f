// A shard that stands again where its disk says it stood: at its snapshot if there is one, then
// every later entry of the journal in its order, through the code that made it, and quietly.
#include <glog/logging.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/ballot.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"
#include "server/disk/device_error.h"
#include "server/shard/shard_core.h"

namespace kaon::shard {

namespace {

// Whatever was wrong with the entry: a journal that is read back whole and does not fit is lost.
// But memory that is too small today, a directory that is not mounted, or a device that fails, is
// no fault of the journal.
absl::Status About(uint64_t position, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message = absl::StrCat("position ", position, ": ", status.message());
  if (disk::IsDeviceError(status)) return disk::DeviceError(message);
  const bool passes = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
  return absl::Status(passes ? status.code() : absl::StatusCode::kDataLoss, message);
}

}  // namespace

absl::Status ShardCore::Replay(const journal::Entry& entry) {
  KAON_ASSIGN_OR_RETURN(const bool in_snapshot, IsInSnapshot(entry));
  if (in_snapshot) return absl::OkStatus();
  if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
    PassFailpoint(Failpoint::replay_promise);
    return About(machine_.applied_position() + 1, machine_.RestorePromise(*promise));
  }
  if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
    PassFailpoint(Failpoint::replay_gradient);
    return About(slice->position, ReplaySlice(*slice));
  }
  if (const auto* prepare = std::get_if<journal::PrepareRecord>(&entry)) {
    PassFailpoint(Failpoint::replay_prepare);
    v1::StepPlan plan;
    if (!plan.ParseFromString(prepare->prepared.plan())) {
      return About(machine_.applied_position() + 1,
                   absl::DataLossError(absl::StrCat("PREPARE of generation ", prepare->generation,
                                                    " has ", prepare->prepared.plan().size(),
                                                    " bytes that are no plan")));
    }
    if (machine_.IsVolatile(plan)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the journal holds the vote of position ", plan.position(),
                       ", as mode journal writes it; durability must be journal"));
    }
    return About(plan.position(), ReplayPrepare(plan, *prepare));
  }
  PassFailpoint(Failpoint::replay_decision);
  const v1::StepRecord& record = std::get<journal::DecisionRecord>(entry).record;
  // It says where a snapshot was to be taken; what it decided is forgotten.
  if (machine_.IsVolatile(record.plan())) return absl::OkStatus();
  KAON_RETURN_IF_ERROR(About(record.plan().position(), machine_.RestoreDecision(record)));
  KAON_RETURN_IF_ERROR(About(record.plan().position(), Apply(record)));
  CHECK(machine_.TakeActions().empty()) << "position " << record.plan().position();
  return absl::OkStatus();
}

absl::Status ShardCore::Restore(const AgreementSnapshot& facts, const v1::CheckpointPart& part,
                                const ReadTensor& read) {
  const v1::RegisterBody& registration = facts.state.registration();
  KAON_RETURN_IF_ERROR(TryReserve(registration, facts.shard, facts.num_shards));
  publisher_.Serve(registration.definition().name(), facts.state.timeline(),
                   parameters_->sources());
  KAON_RETURN_IF_ERROR(LoadTensors(part, facts.state.applied_step(), read));
  machine_.RestoreFacts(facts, parameters_->Digests().state);
  restored_position_ = part.position();
  restored_promise_ = facts.promised;
  before_restored_ = true;
  ExpectNextStep();
  return absl::OkStatus();
}

absl::Status ShardCore::LoadTensors(const v1::CheckpointPart& part, uint64_t step,
                                    const ReadTensor& read) {
  const auto find = [this](uint32_t id) -> StoredParameter* {
    std::vector<StoredParameter>& all = parameters_->parameters();
    const auto found = std::lower_bound(
        all.begin(), all.end(), id,
        [](const StoredParameter& parameter, uint32_t wanted) { return parameter.id < wanted; });
    return found != all.end() && found->id == id ? &*found : nullptr;
  };
  for (const v1::CheckpointTensor& tensor : part.tensors()) {
    StoredParameter* parameter = find(tensor.parameter_id());
    absl::Span<std::byte> to;
    const bool weights = tensor.role() == checkpoint::kWeightRole;
    if (parameter != nullptr && weights) {
      const absl::Span<float> memory = publisher_.BeginWrite(parameter->id);
      to = {reinterpret_cast<std::byte*>(memory.data()), memory.size() * sizeof(float)};
    }
    for (size_t i = 0; parameter != nullptr && i < parameter->state_slots.size(); ++i) {
      const kernels::StateSlot& slot = parameter->state_slots[i];
      if (slot.name != tensor.role()) continue;
      to = parameter->state[i].bytes().first(static_cast<size_t>(slot.num_bytes));
    }
    const uint64_t size = checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
    if (to.size() != size) {
      return absl::DataLossError(absl::StrCat("the snapshot has ", size, " bytes of parameter_id ",
                                              tensor.parameter_id(), " ", tensor.role(),
                                              ", expecting ", to.size()));
    }
    KAON_RETURN_IF_ERROR(
        read(tensor, absl::MakeSpan(reinterpret_cast<char*>(to.data()), to.size())));
    if (weights) publisher_.Publish(parameter->id, step);
  }
  for (const v1::CheckpointParameter& counters : part.parameters()) {
    StoredParameter* parameter = find(counters.parameter_id());
    if (parameter == nullptr) continue;
    parameter->updates_applied = counters.updates_applied();
    parameter->newton_schulz_updates = counters.newton_schulz_updates();
  }
  for (StoredParameter& parameter : parameters_->parameters()) {
    NoteWeights(publisher_.current(parameter.id), parameter);
    NoteSlots(parameter);
  }
  // P7: what was read is what was frozen.
  const StateDigests digests = parameters_->Digests();
  const uint64_t state = digests.state + parameters_->PositionDigest(part.position());
  if (digests.weights == part.weights_digest() && state == part.state_digest()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat(
      "the snapshot of position %d was made with weights digest %016x and state digest %016x, "
      "what was read has %016x and %016x",
      part.position(), part.weights_digest(), part.state_digest(), digests.weights, state));
}

absl::StatusOr<bool> ShardCore::IsInSnapshot(const journal::Entry& entry) {
  if (restored_position_ == 0) return false;
  if (const auto* promise = std::get_if<journal::PromiseRecord>(&entry)) {
    return proto::Compare(promise->ballot, restored_promise_) <= 0;
  }
  if (const auto* decision = std::get_if<journal::DecisionRecord>(&entry)) {
    return IsDecidedInSnapshot(decision->record);
  }
  // Whatever its position: a rollback takes the place of what all shards have forgotten, and of
  // votes that nobody was told of.
  if (before_restored_) return true;
  if (const auto* slice = std::get_if<journal::GradientSlice>(&entry)) {
    return slice->position <= restored_position_;
  }
  const auto& prepare = std::get<journal::PrepareRecord>(entry);
  v1::StepPlan plan;
  // One that does not parse is refused by Replay.
  return plan.ParseFromString(prepare.prepared.plan()) && plan.position() <= restored_position_;
}

absl::StatusOr<bool> ShardCore::IsDecidedInSnapshot(const v1::StepRecord& record) {
  const uint64_t position = record.plan().position();
  if (position != restored_position_ || record.plan().timeline() != machine_.timeline()) {
    return before_restored_ || position <= restored_position_;
  }
  before_restored_ = false;
  // Both are ours, serialized by the same code.
  if (record.SerializeAsString() == machine_.applied_record()->SerializeAsString()) return true;
  return absl::DataLossError(absl::StrCat("position ", position,
                                          ": the journal's decision and "
                                          "that of the snapshot differ"));
}

absl::Status ShardCore::ReplaySlice(const journal::GradientSlice& slice) {
  if (slice.position != machine_.applied_position() + 1) {
    return absl::DataLossError(absl::StrCat("slice of parameter_id ", slice.parameter_id,
                                            ", expecting position ",
                                            machine_.applied_position() + 1));
  }
  machine_.RestoreGeneration(slice.generation);
  return gradient_replay_.Add(slice, machine_.accepted_plan() != nullptr);
}

absl::Status ShardCore::ReplayPrepare(const v1::StepPlan& plan,
                                      const journal::PrepareRecord& prepare) {
  const bool restamped = machine_.accepted_generation() == prepare.generation;
  KAON_RETURN_IF_ERROR(machine_.RestorePrepared(plan, prepare));
  appended_generation_ = prepare.generation;
  if (restamped) {
    if (plan.has_step()) accumulator_.Restamp(plan);
    return absl::OkStatus();
  }
  if (plan.has_registration()) {
    return TryReserve(plan.registration(), machine_.shard(), machine_.num_shards());
  }
  if (plan.has_restore() && !machine_.registration().has_value()) {
    return TryReserve(plan.restore().registration(), machine_.shard(), machine_.num_shards());
  }
  if (!plan.has_step()) return absl::OkStatus();
  sums_.assign(prepare.prepared.sums().begin(), prepare.prepared.sums().end());
  publisher_.ExpectStep(plan.step().step());
  return gradient_replay_.Complete(plan, prepare.generation, prepare.prepared);
}

void ShardCore::FinishReplay() {
  // Counted since the process started.
  applied_steps_ = 0;
  skipped_steps_ = 0;
  gradient_replay_.Clear();
  if (parameters_ == nullptr) return;
  for (StoredParameter& parameter : parameters_->parameters()) {
    parameter.trace.non_finite_steps = 0;
    parameter.trace.non_finite_elements = 0;
    // As what it was pushed is in no journal.
    parameter.trace.first_gradient_step = 0;
  }
}

}  // namespace kaon::shard
