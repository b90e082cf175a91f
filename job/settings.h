// Changes the hyper-parameters of a group, or the workers of a job, while the job runs. A setting
// names a field by its path and gives the value as a person writes it. The coordinator checks
// before it proposes, and the shards check the proposal. Pure functions; any thread.
#ifndef KAON_JOB_SETTINGS_H_
#define KAON_JOB_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the paths of the fields of `group` that can be set, in the order of the schema: lr,
// muon.momentum.
std::vector<std::string> SettableFields(const v1::ParameterGroup& group);

// Returns `group` with these fields set; `group` must have every option written out. Does not check
// ranges that concern more than one field: CheckGroupChange does. INVALID_ARGUMENT names the field,
// the value and what is allowed. It rejects unknown fields, fields of another rule, fields given
// twice, and changes of what is stored.
// Clears options that belonged to an old value: norm_eps when norm_mode becomes scale_invariant,
// gram_restarts when form becomes standard. Default gram_restarts are also cleared when the number
// of steps changes.
absl::StatusOr<v1::ParameterGroup> ApplySettings(const v1::ParameterGroup& group,
                                                 absl::Span<const v1::GroupSetting> settings);

// Returns the entry at `position` that sets fields of one group, or of the job itself if `group` is
// empty (job_settings.h). Checks it as the shards will check it. NOT_FOUND names the group;
// INVALID_ARGUMENT as in ApplySettings and CheckGroupChange.
absl::StatusOr<v1::GroupChangeBody> MakeGroupChange(const v1::RegisterBody& registration,
                                                    const std::string& group,
                                                    absl::Span<const v1::GroupSetting> settings,
                                                    uint64_t position);

// Checks that the job can continue with the changed groups and its present state. The groups must
// be the same in the same order, with the same state. Changed groups must be valid with every
// option written out, also for the parameters routed to them. A change without groups has settings
// of the job, which must be valid. Otherwise INVALID_ARGUMENT.
absl::Status CheckGroupChange(const v1::RegisterBody& registration,
                              const v1::GroupChangeBody& change);

// Applies the change to the job. `changed` keeps only fields that still have the value that was
// set.
void ApplyGroupChange(const v1::GroupChangeBody& change, v1::RegisterBody& registration);

// Returns whether the change would leave the job as it is.
bool IsInPlace(const v1::RegisterBody& registration, const v1::GroupChangeBody& change);

// Returns whether the change gives a group another tier. `before` is the job without the change.
bool ChangesTier(const v1::JobDefinition& before, const v1::GroupChangeBody& change);

// Gives `restored` the tiers of the running job: where state is placed is no part of it.
void KeepTiers(const v1::RegisterBody& running, v1::RegisterBody& restored);

// Returns the number of workers after the change.
uint32_t WorldSizeAfter(const v1::JobDefinition& job, const v1::GroupChangeBody& change);

// Returns whether a rollback keeps the setting: workers and tiers are no part of the state.
bool StaysAtRollback(const v1::GroupSetting& setting);
// Checks the kept settings of a rollback against the job of its snapshot. INVALID_ARGUMENT names
// the setting.
absl::Status CheckKeptSettings(const v1::RollbackBody& rollback);
// Returns the job after the rollback: the job of the snapshot, with the settings that stay.
v1::RegisterBody RegistrationAfter(const v1::RollbackBody& rollback);

}  // namespace kaon::job

#endif  // KAON_JOB_SETTINGS_H_
