// A shard that takes the state of a checkpoint: checked before it votes, loaded once it is decided,
// the same way whether a coordinator or the journal says so.
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/checkpoint_restore.h"

namespace kaon::shard {

void ShardCore::ReserveRestore(const ReserveJob& reserve) {
  // It would be checked behind what is written; the coordinator has given that up.
  checkpoint_.reset();
  // A job that runs has its memory, which the restored one fits: CheckPlanBody saw to it.
  absl::Status status;
  if (!machine_.registration().has_value())
    status =
        TryReserve(reserve.plan.restore().registration(), machine_.shard(), machine_.num_shards());
  if (!status.ok()) {
    parameters_.reset();
    return machine_.OnReserved(reserve.generation, status);
  }
  const v1::StepPlan& plan = reserve.plan;
  const RestoreCheck check = {
      plan.restore(),
      {plan.restore().checkpoint(), plan.timeline(), {machine_.timeline(), plan.position()}},
      machine_.shard()};
  host_.CheckRestore(check, reserve.generation);
}

void ShardCore::OnRestoreChecked(uint64_t generation, const absl::Status& status) {
  machine_.OnReserved(generation, status);
  Carry();
}

absl::Status ShardCore::ApplyRestore(const v1::StepPlan& plan) {
  PassFailpoint(Failpoint::restore_load_begin);
  const v1::RestoreBody& restore = plan.restore();
  // Not there now, which is no damage: a directory may still have to be mounted.
  const absl::StatusOr<std::unique_ptr<disk::Directory>> files = host_.OpenCheckpoints();
  if (!files.ok()) return absl::UnavailableError(files.status().message());
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointRestore> state,
                        CheckpointRestore::Open(**files, restore));
  if (machine_.registration().has_value()) {
    publisher_.Rewind(plan.timeline());
  } else {
    publisher_.Serve(plan.job(), plan.timeline(), parameters_->sources());
  }
  KAON_RETURN_IF_ERROR(state->Load(
      *parameters_, publisher_,
      [this](uint32_t id, absl::Span<const float> weights) { freezes_.BeforeWrite(id, weights); }));
  parameters_->SetGroups(restore.registration());
  accumulator_.Adopt(restore.registration());
  sums_.clear();
  restored_digest_ = state->restored_digest();
  PassFailpoint(Failpoint::restore_loaded);
  return absl::OkStatus();
}

}  // namespace kaon::shard
