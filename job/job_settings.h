// Changes the workers of a running job: the fields of workers.h by name, with values as a person
// writes them. settings.h uses it. Pure functions; any thread.
#ifndef KAON_JOB_JOB_SETTINGS_H_
#define KAON_JOB_JOB_SETTINGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// The value of step_seconds that removes it.
inline constexpr char kNoStepSeconds[] = "none";

using GroupSettings = google::protobuf::RepeatedPtrField<v1::GroupSetting>;

// Returns the entry at `position` that sets these fields. If worker_loss becomes something other
// than wait, the entry also sets worker_loss_seconds. step_seconds "none" removes that bound, and
// so does worker_loss wait. INVALID_ARGUMENT names the field, the value and what is allowed: the
// field is unknown or given twice, or its value is out of range.
absl::StatusOr<v1::GroupChangeBody> MakeJobChange(const v1::JobDefinition& job,
                                                  absl::Span<const v1::GroupSetting> settings,
                                                  uint64_t position);

// Returns the settings that give `job` the workers of `requested`, with defaults written out. They
// neither pause the job nor resume it.
std::vector<v1::GroupSetting> WorkerSettings(const v1::JobDefinition& requested,
                                             const v1::JobDefinition& job);

// Checks that an entry may set these fields on this job. Fails like MakeJobChange, but adds no
// field.
absl::Status CheckJobSettings(const v1::JobDefinition& job, const GroupSettings& settings);

// Sets fields that CheckJobSettings accepted. worker_loss wait clears worker_loss_seconds and
// step_seconds.
void ApplyJobSettings(const GroupSettings& settings, v1::JobDefinition& job);

}  // namespace kaon::job

#endif  // KAON_JOB_JOB_SETTINGS_H_
