#include "job/job_settings.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/names.h"
#include "job/setting_value.h"
#include "job/workers.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {

namespace {

constexpr char kWorldSize[] = "world_size";
constexpr char kWorkerLoss[] = "worker_loss";
constexpr char kWorkerLossSeconds[] = "worker_loss_seconds";
constexpr const char* kFields[] = {kWorldSize, kWorkerLoss, kWorkerLossSeconds};

absl::Status Set(const v1::GroupSetting& setting, v1::JobDefinition& job) {
  if (std::find(std::begin(kFields), std::end(kFields), setting.field()) == std::end(kFields)) {
    return absl::InvalidArgumentError(absl::StrCat("field \"", proto::Excerpt(setting.field()),
                                                   "\" cannot be set while the job runs, must be ",
                                                   "one of ", absl::StrJoin(kFields, ", ")));
  }
  KAON_RETURN_IF_ERROR(
      SetValue(setting, *v1::JobDefinition::descriptor()->FindFieldByName(setting.field()), job));
  // No worker is lost under worker_loss wait.
  if (setting.field() == kWorkerLoss && job.worker_loss() == v1::WORKER_LOSS_POLICY_WAIT) {
    job.clear_worker_loss_seconds();
  }
  return absl::OkStatus();
}

// Applies the settings in the order of the entry: worker_loss before worker_loss_seconds, whatever
// the caller's order.
absl::StatusOr<v1::JobDefinition> WorkersAfter(
    const v1::JobDefinition& job, const std::map<std::string, v1::GroupSetting>& settings) {
  v1::JobDefinition workers = WorkersOf(job);
  for (const auto& [field, setting] : settings) KAON_RETURN_IF_ERROR(Set(setting, workers));
  return workers;
}

}  // namespace

absl::StatusOr<v1::GroupChangeBody> MakeJobChange(const v1::JobDefinition& job,
                                                  absl::Span<const v1::GroupSetting> settings,
                                                  uint64_t position) {
  std::map<std::string, v1::GroupSetting> ordered;
  for (const v1::GroupSetting& setting : settings) {
    if (!ordered.emplace(setting.field(), setting).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(proto::Excerpt(setting.field()), " is given twice, must be given once"));
    }
  }
  KAON_ASSIGN_OR_RETURN(v1::JobDefinition workers, WorkersAfter(job, ordered));
  const bool had_seconds = workers.has_worker_loss_seconds();
  CompleteWorkers(workers);
  KAON_RETURN_IF_ERROR(ValidateWorkers(workers));
  if (!had_seconds && workers.has_worker_loss_seconds()) {
    ordered[kWorkerLossSeconds].set_value(NumberText(workers.worker_loss_seconds()));
  }
  v1::GroupChangeBody change;
  for (const auto& [field, given] : ordered) {
    v1::GroupSetting& setting = *change.add_settings();
    setting.set_field(field);
    setting.set_value(given.value());
    setting.set_position(position);
  }
  return change;
}

std::vector<v1::GroupSetting> WorkerSettings(const v1::JobDefinition& requested) {
  v1::JobDefinition workers = WorkersOf(requested);
  CompleteWorkers(workers);
  std::vector<v1::GroupSetting> settings;
  const auto add = [&settings](const char* field, std::string value) {
    settings.emplace_back().set_field(field);
    settings.back().set_value(std::move(value));
  };
  add(kWorldSize, absl::StrCat(workers.world_size()));
  add(kWorkerLoss, NameOf(workers.worker_loss()));
  if (workers.has_worker_loss_seconds()) {
    add(kWorkerLossSeconds, NumberText(workers.worker_loss_seconds()));
  }
  return settings;
}

absl::Status CheckJobSettings(const v1::JobDefinition& job, const GroupSettings& settings) {
  v1::JobDefinition workers = WorkersOf(job);
  for (const v1::GroupSetting& setting : settings) {
    if (!setting.group().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("setting ", proto::Excerpt(setting.field()), " is of group ",
                       proto::Excerpt(setting.group()), ", must be of the job"));
    }
    KAON_RETURN_IF_ERROR(Set(setting, workers));
  }
  return ValidateWorkers(workers);
}

void ApplyJobSettings(const GroupSettings& settings, v1::JobDefinition& job) {
  for (const v1::GroupSetting& setting : settings) {
    Set(setting, job).IgnoreError();  // CheckJobSettings has accepted it.
  }
}

}  // namespace kaon::job
