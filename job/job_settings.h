// Changes of a running job's workers: the fields of workers.h by their name, values as a person
// writes them. Used by settings.h. Pure functions; any thread.
#ifndef KAON_JOB_JOB_SETTINGS_H_
#define KAON_JOB_JOB_SETTINGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

using GroupSettings = google::protobuf::RepeatedPtrField<v1::GroupSetting>;

// The entry at `position` that sets these fields, and those that follow from them: a worker_loss
// other than wait has worker_loss_seconds. INVALID_ARGUMENT naming the field, the value and what is
// allowed: unknown fields, those given twice, values out of range.
absl::StatusOr<v1::GroupChangeBody> MakeJobChange(const v1::JobDefinition& job,
                                                  absl::Span<const v1::GroupSetting> settings,
                                                  uint64_t position);

// Settings that give a job the workers of `requested`, defaults written out.
std::vector<v1::GroupSetting> WorkerSettings(const v1::JobDefinition& requested);

// Whether an entry may set these on this job: as MakeJobChange, with nothing left to follow.
absl::Status CheckJobSettings(const v1::JobDefinition& job, const GroupSettings& settings);

// Sets what CheckJobSettings has checked. worker_loss wait takes worker_loss_seconds away.
void ApplyJobSettings(const GroupSettings& settings, v1::JobDefinition& job);

}  // namespace kaon::job

#endif  // KAON_JOB_JOB_SETTINGS_H_
