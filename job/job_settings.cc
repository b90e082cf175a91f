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
constexpr char kStepSeconds[] = "step_seconds";
constexpr char kPaused[] = "paused";
// In the order in which an entry sets them: worker_loss wait removes the seconds.
constexpr const char* kFields[] = {kWorldSize, kWorkerLoss, kWorkerLossSeconds, kStepSeconds,
                                   kPaused};

// Settings by the place of their field in kFields; those of other fields come last.
struct ByPlace {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto place = [](const std::string& field) {
      return std::find(std::begin(kFields), std::end(kFields), field);
    };
    return std::make_pair(place(a), a) < std::make_pair(place(b), b);
  }
};
using Ordered = std::map<std::string, v1::GroupSetting, ByPlace>;

absl::Status Set(const v1::GroupSetting& setting, v1::JobDefinition& job) {
  if (std::find(std::begin(kFields), std::end(kFields), setting.field()) == std::end(kFields)) {
    return absl::InvalidArgumentError(absl::StrCat("field \"", proto::Excerpt(setting.field()),
                                                   "\" cannot be set while the job runs, must be ",
                                                   "one of ", absl::StrJoin(kFields, ", ")));
  }
  if (setting.field() == kStepSeconds && setting.value() == kNoStepSeconds) {
    job.clear_step_seconds();
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(
      SetValue(setting, *v1::JobDefinition::descriptor()->FindFieldByName(setting.field()), job));
  // No worker is lost under worker_loss wait.
  if (setting.field() == kWorkerLoss && job.worker_loss() == v1::WORKER_LOSS_POLICY_WAIT) {
    job.clear_worker_loss_seconds();
    job.clear_step_seconds();
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::JobDefinition> WorkersAfter(const v1::JobDefinition& job,
                                               const Ordered& settings) {
  v1::JobDefinition workers = WorkersOf(job);
  for (const auto& [field, setting] : settings) KAON_RETURN_IF_ERROR(Set(setting, workers));
  return workers;
}

}  // namespace

absl::StatusOr<v1::GroupChangeBody> MakeJobChange(const v1::JobDefinition& job,
                                                  absl::Span<const v1::GroupSetting> settings,
                                                  uint64_t position) {
  Ordered ordered;
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
  if (job.has_step_seconds() && !workers.has_step_seconds()) {
    ordered[kStepSeconds].set_value(kNoStepSeconds);
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

std::vector<v1::GroupSetting> WorkerSettings(const v1::JobDefinition& requested,
                                             const v1::JobDefinition& job) {
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
  if (workers.has_step_seconds()) {
    add(kStepSeconds, NumberText(workers.step_seconds()));
  } else if (job.has_step_seconds()) {
    add(kStepSeconds, kNoStepSeconds);
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
