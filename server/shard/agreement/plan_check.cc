#include "server/shard/agreement/plan_check.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/job_settings.h"
#include "job/norm_use.h"
#include "job/restore_fit.h"
#include "job/route_validation.h"
#include "job/settings.h"
#include "job/validation.h"
#include "job/workers.h"
#include "proto/ballot.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/checkpoint/manifest_file.h"

namespace kaon::shard {

namespace {

bool IsInRange(double value, double low_excluded, double high) {
  return std::isfinite(value) && value > low_excluded && value <= high;
}

// The scale must fit a float, because gradients are divided by it as one.
absl::Status CheckLossScale(absl::string_view field, double scale) {
  if (IsInRange(static_cast<float>(scale), 0, std::numeric_limits<float>::max())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", scale, ", expecting a finite float > 0"));
}

struct NamedFactor {
  std::string name;
  double clip_factor = 0;
};

absl::Status CheckFactors(absl::string_view of, const std::vector<std::string>& expected,
                          const std::vector<NamedFactor>& factors) {
  if (factors.size() != expected.size()) {
    return absl::InvalidArgumentError(absl::StrCat("decision has norms of ", factors.size(), " ",
                                                   of, "s, expecting ", expected.size()));
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].name != expected[i]) {
      return absl::InvalidArgumentError(absl::StrCat("norm ", i, " of the decision is of ", of,
                                                     " '", proto::Excerpt(factors[i].name),
                                                     "', expecting '", expected[i], "'"));
    }
    if (!IsInRange(factors[i].clip_factor, 0, 1)) {
      return absl::InvalidArgumentError(absl::StrCat("clip factor of ", of, " '",
                                                     proto::Excerpt(factors[i].name), "' is ",
                                                     factors[i].clip_factor, ", expecting (0, 1]"));
    }
  }
  return absl::OkStatus();
}

// Checks that each rank appears once, ascending. All ranks must be there, unless the job continues
// without lost workers.
absl::Status CheckRanks(const v1::JobDefinition& job, const v1::StepBody& step) {
  const bool loading = step.kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  const bool shrinks = !loading && job.worker_loss() == v1::WORKER_LOSS_POLICY_SHRINK;
  const int most = loading ? 1 : static_cast<int>(job.world_size());
  const int least = shrinks ? 1 : most;
  if (step.members_size() < least || step.members_size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan has ", step.members_size(), " members, expecting ",
                     least < most ? absl::StrCat(least, " .. ") : "", most));
  }
  for (int i = 0; i < step.members_size(); ++i) {
    const uint32_t rank = step.members(i).rank();
    const uint32_t first = i == 0 ? 0 : step.members(i - 1).rank() + 1;
    // Leave enough ranks for the members after it.
    const uint32_t last = static_cast<uint32_t>(most - (shrinks ? 1 : step.members_size() - i));
    if (rank >= first && rank <= last) continue;
    return absl::InvalidArgumentError(absl::StrCat("member ", i, " of the plan has rank ", rank,
                                                   ", expecting ", first,
                                                   first < last ? absl::StrCat(" .. ", last) : ""));
  }
  return absl::OkStatus();
}

absl::Status CheckMembers(const v1::JobDefinition& job, const v1::StepBody& step) {
  KAON_RETURN_IF_ERROR(CheckRanks(job, step));
  const bool loading = step.kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  for (const v1::Member& member : step.members()) {
    KAON_RETURN_IF_ERROR(job::ValidateTokenWeight(
        absl::StrCat("token weight of rank ", member.rank()), member.token_weight()));
    const uint32_t max_micro_batches = loading ? 1 : job::kMaxMicroBatches;
    if (member.micro_batches() < 1 || member.micro_batches() > max_micro_batches) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batches of rank ", member.rank(),
                                                     " are ", member.micro_batches(),
                                                     ", expecting 1 .. ", max_micro_batches));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRates(const v1::RegisterBody& registration, const v1::StepBody& step) {
  const v1::JobDefinition& job = registration.definition();
  // Loading weights runs no rule and has no rates.
  const int expected = step.kind() == v1::STEP_KIND_LOAD_WEIGHTS ? 0 : job.groups_size();
  if (step.rates_size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan has rates of ", step.rates_size(), " groups, expecting ", expected));
  }
  std::vector<double> rates;
  for (int g = 0; g < step.rates_size(); ++g) {
    const v1::GroupRate& rate = step.rates(g);
    if (rate.group() != job.groups(g).name()) {
      return absl::InvalidArgumentError(absl::StrCat("rate ", g, " of the plan is of group '",
                                                     proto::Excerpt(rate.group()), "', expecting '",
                                                     job.groups(g).name(), "'"));
    }
    KAON_RETURN_IF_ERROR(job::ValidateLearningRate(
        absl::StrCat("learning rate of group '", proto::Excerpt(rate.group()), "'"),
        rate.learning_rate()));
    rates.push_back(rate.learning_rate());
  }
  // Parameters have multipliers of their own.
  return job::ValidateRates(job.groups(), job, registration.placement(), rates);
}

// Requires a registered job.
absl::Status CheckStep(const JobProgress& progress, const v1::StepBody& step) {
  const v1::JobDefinition& job = progress.registration->definition();
  if (step.kind() != v1::STEP_KIND_TRAIN && step.kind() != v1::STEP_KIND_LOAD_WEIGHTS) {
    return absl::InvalidArgumentError(
        absl::StrCat("step kind is ", step.kind(), ", expecting 1 or 2"));
  }
  const bool loading = step.kind() == v1::STEP_KIND_LOAD_WEIGHTS;
  if (loading == progress.weights_loaded) {
    return absl::FailedPreconditionError(loading ? "the initial weights are loaded already"
                                                 : "the initial weights are not loaded yet");
  }
  const uint64_t next_step = loading ? 0 : progress.applied_step + 1;
  if (step.step() != next_step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step.step(), " planned, expecting ", next_step));
  }
  KAON_RETURN_IF_ERROR(CheckLossScale("loss scale", step.loss_scale()));
  KAON_RETURN_IF_ERROR(CheckMembers(job, step));
  // Loading weights has no rates to check.
  return loading ? absl::OkStatus() : CheckRates(*progress.registration, step);
}

// Checks an entry about a registered job.
absl::Status CheckJob(const JobProgress& progress, const v1::StepPlan& plan,
                      absl::string_view entry) {
  if (progress.registration == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        entry, " of job '", proto::Excerpt(plan.job()), "' planned before its registration"));
  }
  if (plan.job() != progress.registration->definition().name()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan is of job '", proto::Excerpt(plan.job()), "', expecting '",
                     progress.registration->definition().name(), "'"));
  }
  return absl::OkStatus();
}

// Requires a registered job.
absl::Status CheckGroupChange(const JobProgress& progress, const v1::StepPlan& plan) {
  for (const v1::GroupSetting& setting : plan.group_change().settings()) {
    if (setting.position() != plan.position()) {
      return absl::InvalidArgumentError(absl::StrCat("setting ", proto::Excerpt(setting.field()),
                                                     " of group '", proto::Excerpt(setting.group()),
                                                     "' is of position ", setting.position(),
                                                     ", expecting ", plan.position()));
    }
  }
  return job::CheckGroupChange(*progress.registration, plan.group_change());
}

// Does not check that the checkpoint exists and is intact; its reader does.
absl::Status CheckRestore(const JobProgress& progress, const v1::StepPlan& plan) {
  const v1::RestoreBody& restore = plan.restore();
  KAON_RETURN_IF_ERROR(checkpoint::CheckId(restore.checkpoint()));
  if (plan.job() != restore.registration().definition().name()) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan is of job '", proto::Excerpt(plan.job()), "', its checkpoint of '",
                     proto::Excerpt(restore.registration().definition().name()), "'"));
  }
  KAON_RETURN_IF_ERROR(CheckLossScale("next loss scale of the checkpoint",
                                      restore.last_decision().next_loss_scale()));
  if (progress.registration == nullptr) return absl::OkStatus();
  KAON_RETURN_IF_ERROR(CheckJob(progress, plan, "restore"));
  const v1::JobDefinition running = job::WorkersOf(progress.registration->definition());
  const v1::JobDefinition planned = job::WorkersOf(restore.registration().definition());
  if (planned.SerializeAsString() != running.SerializeAsString()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the restore is of workers {", planned.ShortDebugString(),
                     "}, the job that runs has {", running.ShortDebugString(), "}"));
  }
  const absl::Status fits = job::CheckRestoreFits(*progress.registration, restore.registration());
  // INVALID_ARGUMENT refuses the plan for good: waiting cannot make it fit.
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

// Does not check that the snapshot exists and is intact; its reader does.
absl::Status CheckRollback(const JobProgress& progress, const v1::StepPlan& plan) {
  const v1::SnapshotPoint& target = plan.rollback().target();
  KAON_RETURN_IF_ERROR(CheckJob(progress, plan, "rollback"));
  if (target.position() < 1 || target.position() >= plan.position()) {
    return absl::InvalidArgumentError(absl::StrCat("rollback to position ", target.position(),
                                                   " planned, expecting 1 .. ",
                                                   plan.position() - 1));
  }
  KAON_RETURN_IF_ERROR(
      CheckLossScale("next loss scale of the snapshot", target.last_decision().next_loss_scale()));
  KAON_RETURN_IF_ERROR(job::CheckKeptSettings(plan.rollback()));
  const absl::Status fits = job::CheckRestoreFits(*progress.registration, target.registration());
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

}  // namespace

std::string DescribeStamp(const v1::StepPlan& plan) {
  return absl::StrCat("(ballot ", proto::ToString(plan.ballot()), ", round ", plan.round(), ")");
}

absl::Status CheckPlanBody(const JobProgress& progress, const v1::StepPlan& plan) {
  switch (plan.body_case()) {
    case v1::StepPlan::kRegistration:
      if (progress.registration != nullptr) {
        return absl::FailedPreconditionError(
            absl::StrCat("job '", proto::Excerpt(plan.job()), "' planned, '",
                         progress.registration->definition().name(), "' is registered"));
      }
      if (plan.job() != plan.registration().definition().name()) {
        return absl::InvalidArgumentError(
            absl::StrCat("plan is of job '", proto::Excerpt(plan.job()), "', it registers '",
                         proto::Excerpt(plan.registration().definition().name()), "'"));
      }
      return absl::OkStatus();
    case v1::StepPlan::kGroupChange:
      KAON_RETURN_IF_ERROR(CheckJob(progress, plan, "change of groups"));
      return CheckGroupChange(progress, plan);
    case v1::StepPlan::kStep:
      KAON_RETURN_IF_ERROR(CheckJob(progress, plan, "step"));
      return CheckStep(progress, plan.step());
    case v1::StepPlan::kRestore:
      return CheckRestore(progress, plan);
    case v1::StepPlan::kRollback:
      return CheckRollback(progress, plan);
    case v1::StepPlan::kJobDeletion:
      return CheckJob(progress, plan, "deletion");
    case v1::StepPlan::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("plan has neither a step nor a control change");
}

bool NeedsMemory(const v1::StepPlan& plan, const v1::RegisterBody* registration) {
  if (!plan.has_group_change()) {
    return plan.has_registration() || plan.has_restore() || plan.has_rollback();
  }
  // Without groups it changes the workers.
  return plan.group_change().groups().empty() || registration == nullptr ||
         job::ChangesTier(registration->definition(), plan.group_change());
}

absl::Status CheckDecision(const v1::RegisterBody* registration, const v1::StepRecord& record) {
  const v1::StepDecision& decision = record.decision();
  if (decision.outcome() != v1::OUTCOME_APPLY && decision.outcome() != v1::OUTCOME_SKIP) {
    return absl::InvalidArgumentError(
        absl::StrCat("outcome is ", decision.outcome(), ", expecting 1 or 2"));
  }
  KAON_RETURN_IF_ERROR(CheckLossScale("next loss scale", decision.next_loss_scale()));
  const char* const always_applied = record.plan().has_restore()        ? "restore"
                                     : record.plan().has_rollback()     ? "rollback"
                                     : record.plan().has_job_deletion() ? "deletion"
                                                                        : nullptr;
  if (always_applied != nullptr && decision.outcome() != v1::OUTCOME_APPLY) {
    return absl::InvalidArgumentError(absl::StrCat("outcome of a ", always_applied, " is ",
                                                   decision.outcome(), ", expecting ",
                                                   v1::OUTCOME_APPLY));
  }
  const bool steps =
      record.plan().step().kind() == v1::STEP_KIND_TRAIN && decision.outcome() == v1::OUTCOME_APPLY;
  if (!steps || registration == nullptr) return absl::OkStatus();
  std::vector<std::string> groups;
  for (const v1::ParameterGroup& group : registration->definition().groups()) {
    groups.push_back(group.name());
  }
  std::vector<NamedFactor> factors;
  for (const v1::GroupNorm& norm : decision.norms()) {
    factors.push_back({norm.group(), norm.clip_factor()});
  }
  KAON_RETURN_IF_ERROR(CheckFactors("group", groups, factors));
  factors.clear();
  for (const v1::NormGroupNorm& norm : decision.norm_groups()) {
    factors.push_back({norm.norm_group(), norm.clip_factor()});
  }
  return CheckFactors("norm group", job::NormGroupNames(registration->definition()), factors);
}

}  // namespace kaon::shard
