#include "job/workers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "job/field_checks.h"
#include "proto/status_macros.h"

namespace kaon::job {

namespace {

constexpr uint32_t kMaxWorldSize = 4096;
constexpr double kMinLossSeconds = 1;
constexpr double kMaxLossSeconds = 86400;
constexpr double kDefaultLossSeconds = 60;

absl::Status CheckSeconds(const char* field, double seconds) {
  return CheckRange(field, seconds, kMinLossSeconds, kMaxLossSeconds);
}

absl::Status CheckUnset(const char* field, bool set, double seconds) {
  if (!set) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", seconds, ", must be unset: under worker_loss wait no worker is lost"));
}

}  // namespace

v1::JobDefinition WorkersOf(const v1::JobDefinition& job) {
  v1::JobDefinition workers;
  SetWorkers(job, workers);
  return workers;
}

void SetWorkers(const v1::JobDefinition& workers, v1::JobDefinition& job) {
  job.set_world_size(workers.world_size());
  job.set_worker_loss(workers.worker_loss());
  job.clear_worker_loss_seconds();
  if (workers.has_worker_loss_seconds()) {
    job.set_worker_loss_seconds(workers.worker_loss_seconds());
  }
  job.clear_step_seconds();
  if (workers.has_step_seconds()) job.set_step_seconds(workers.step_seconds());
  job.set_paused(workers.paused());
}

void CompleteWorkers(v1::JobDefinition& job) {
  if (job.worker_loss() == v1::WORKER_LOSS_POLICY_UNSPECIFIED) {
    job.set_worker_loss(v1::WORKER_LOSS_POLICY_WAIT);
  }
  if (job.worker_loss() == v1::WORKER_LOSS_POLICY_WAIT) return;
  if (!job.has_worker_loss_seconds()) job.set_worker_loss_seconds(kDefaultLossSeconds);
}

absl::Status ValidateWorkers(const v1::JobDefinition& job) {
  KAON_RETURN_IF_ERROR(CheckCount("world_size", job.world_size(), 1, kMaxWorldSize));
  if (job.worker_loss() != v1::WORKER_LOSS_POLICY_WAIT) {
    KAON_RETURN_IF_ERROR(CheckSeconds("worker_loss_seconds", job.worker_loss_seconds()));
    return job.has_step_seconds() ? CheckSeconds("step_seconds", job.step_seconds())
                                  : absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(
      CheckUnset("worker_loss_seconds", job.has_worker_loss_seconds(), job.worker_loss_seconds()));
  return CheckUnset("step_seconds", job.has_step_seconds(), job.step_seconds());
}

void KeepWorkers(const v1::RegisterBody& running, v1::RegisterBody& restored) {
  SetWorkers(running.definition(), *restored.mutable_definition());
  SetWorkers(running.requested(), *restored.mutable_requested());
  restored.set_first_timeline(running.first_timeline());
  google::protobuf::RepeatedPtrField<v1::GroupSetting> changed;
  // Settings are ordered by group, and the job's own come first.
  for (const v1::GroupSetting& setting : running.changed()) {
    if (setting.group().empty()) *changed.Add() = setting;
  }
  for (const v1::GroupSetting& setting : restored.changed()) {
    if (!setting.group().empty()) *changed.Add() = setting;
  }
  *restored.mutable_changed() = std::move(changed);
}

}  // namespace kaon::job
