// Mode interval(K): a restarted shard has forgotten its votes since its newest snapshot. It says
// so, and then votes only for a rollback to a state that every shard has (protocol.md 2.2 and 3).
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/settings.h"
#include "proto/status_macros.h"
#include "server/shard/agreement/plan_check.h"
#include "server/shard/agreement/shard_machine.h"

namespace kaon::shard {

namespace {

// Equal to SnapshotDirectory::kKept.
constexpr size_t kKept = 2;

}  // namespace

bool ShardMachine::IsVolatile(const v1::StepPlan& plan) const {
  const bool trains = plan.has_step() && plan.step().kind() == v1::STEP_KIND_TRAIN;
  // Before weights are loaded there is no snapshot, and the journal holds everything.
  return interval_steps_ > 0 && weights_loaded_ && (trains || plan.has_group_change());
}

bool ShardMachine::LeavesOut(const v1::StepPlan& plan) const {
  return plan.has_restore() && (plan.position() > applied_position_ + 1 || rollback_needed_);
}

bool ShardMachine::IsBeyondForgotten(const v1::StepPlan& plan) const {
  if (plan.position() <= applied_position_) return false;
  if (LeavesOut(plan)) return true;
  return interval_steps_ > 0 && (plan.has_rollback() || plan.has_job_deletion());
}

// Protocol.md 2.2 keeps PREPARE(rollback) alongside PREPARE(t) until the rollback is applied. Rule
// 4 lets a plan withdraw only a PREPARE of its own position. Here PREPARE(rollback) replaces
// PREPARE(t) instead (ADR 0020). Nothing is lost:
// - An undecided entry that is held here cannot be decided any more. A holder plans a rollback only
//   after it read that some shard needs one. Such a shard forgot its vote and never repeats it.
// - A decision taken earlier belongs to the lost steps. OnDecision refuses it here, because its
//   PREPARE is not held. The applied rollback skips it.
// Until the rollback is applied, every later holder finds either the need or this PREPARE. It then
// completes the rollback or plans one.
// A holder that reads of a shard without its state plans a restore in the same way. The empty shard
// repeats no vote either. A later holder that finds the PREPARE on some shards also finds the loss.
absl::Status ShardMachine::CheckRollback(const v1::StepPlan& plan) const {
  const absl::string_view what = plan.has_rollback() ? "rollback" : "restore";
  if (plan.has_rollback() && interval_steps_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rollback planned, durability of this shard is ", v1::DurabilityMode_Name(durability_),
        ", expecting ", v1::DurabilityMode_Name(v1::DURABILITY_MODE_INTERVAL)));
  }
  if (applying_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " at position ", plan.position(),
                                                      " planned, position ",
                                                      applying_->plan().position(), " is decided"));
  }
  // Count only a vote that a coordinator may know. A holder cannot plan above a vote made after it
  // read this shard. It never hears of such a vote, which was for an older ballot (rule 1).
  uint64_t voted = 0;
  if (held_.has_value() && held_->told) {
    // The holder plans a rollback or a restore anew, at the same position, if a shard refused it.
    const bool again = held_->plan.has_rollback() || held_->plan.has_restore();
    voted = held_->plan.position() - (again ? 1 : 0);
  }
  const uint64_t above = std::max(applied_position_, voted);
  if (plan.position() <= above) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " at position ", plan.position(), " planned, expecting above ", above));
  }
  if (plan.timeline() <= timeline_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "timeline ", plan.timeline(), " planned by a ", what, ", expecting above ", timeline_));
  }
  JobProgress progress;
  progress.registration = registration_.has_value() ? &*registration_ : nullptr;
  return CheckPlanBody(progress, plan);
}

absl::Status ShardMachine::CheckTarget(const v1::SnapshotPoint& target) const {
  const std::string wanted = target.SerializeAsString();
  for (const v1::SnapshotPoint& snapshot : snapshots_) {
    if (snapshot.SerializeAsString() == wanted) return absl::OkStatus();
  }
  const auto position = [](std::string* out, const v1::SnapshotPoint& snapshot) {
    absl::StrAppend(out, snapshot.position());
  };
  return absl::InvalidArgumentError(
      absl::StrCat("rollback to position ", target.position(), ", step ", target.step(),
                   ": this shard has whole snapshots of position ",
                   snapshots_.empty() ? "none" : absl::StrJoin(snapshots_, ", ", position)));
}

void ShardMachine::RestoreSnapshots(std::vector<v1::SnapshotPoint> snapshots) {
  snapshots_ = std::move(snapshots);
}

void ShardMachine::OnSnapshot(const v1::SnapshotPoint& snapshot, uint64_t timeline) {
  // Ignore a late snapshot of a timeline that is over.
  if (interval_steps_ == 0 || timeline != timeline_) return;
  // The snapshot of a deletion is no state of a job.
  if (!registration_.has_value()) return;
  snapshots_.push_back(snapshot);
  if (snapshots_.size() > kKept) {
    snapshots_.erase(snapshots_.begin(), snapshots_.end() - static_cast<std::ptrdiff_t>(kKept));
  }
}

// After damage, the next holder must choose another snapshot.
bool ShardMachine::DropIfDamaged(const v1::SnapshotPoint& snapshot, const absl::Status& status) {
  if (!absl::IsDataLoss(status) && !absl::IsNotFound(status) && !absl::IsInvalidArgument(status)) {
    return false;
  }
  const auto is_it = [&snapshot](const v1::SnapshotPoint& one) {
    return one.position() == snapshot.position();
  };
  snapshots_.erase(std::remove_if(snapshots_.begin(), snapshots_.end(), is_it), snapshots_.end());
  return true;
}

void ShardMachine::ReplaceState(const v1::StepPlan& plan) {
  uint64_t kept = 0;
  config_revision_ = plan.position();
  timeline_ = plan.timeline();
  weights_loaded_ = !plan.has_job_deletion();
  rollback_needed_ = false;
  if (plan.has_job_deletion()) {
    // Promise, position and timeline stay: they fence older coordinators, and the job's workers.
    registration_.reset();
    applied_step_ = 0;
  } else if (plan.has_restore()) {
    registration_ = plan.restore().registration();
    applied_step_ = plan.restore().step();
  } else {
    registration_ = job::RegistrationAfter(plan.rollback());
    applied_step_ = plan.rollback().target().step();
    kept = plan.rollback().target().position();
  }
  // Later snapshots no longer belong to the job's history.
  const auto is_gone = [kept](const v1::SnapshotPoint& one) { return one.position() > kept; };
  snapshots_.erase(std::remove_if(snapshots_.begin(), snapshots_.end(), is_gone), snapshots_.end());
}

std::string ShardMachine::deleted_job() const {
  if (!applied_record_.has_value() || !applied_record_->plan().has_job_deletion()) return "";
  return applied_record_->plan().job();
}

}  // namespace kaon::shard
