// Changes of a group's hyper-parameters, or of a job's workers, while the job runs: fields by their
// path, values as a person writes them. What the coordinator proposes and the shards check. Pure
// functions; any thread.
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

// Paths of the fields of `group` that can be set, in the order of the schema: lr, muon.momentum.
std::vector<std::string> SettableFields(const v1::ParameterGroup& group);

// `group`, every option written out, with these fields set. Numbers and enumerators are read whole;
// ranges that concern more than the field are CheckGroupChange's. INVALID_ARGUMENT naming the
// field, the value and what is allowed: unknown fields, fields of another rule, those that would
// change what is stored, fields given twice. Options that only another one calls for go with it:
// norm_eps with scale_invariant; gram_restarts with the form, and defaulted ones with the steps.
absl::StatusOr<v1::ParameterGroup> ApplySettings(const v1::ParameterGroup& group,
                                                 absl::Span<const v1::GroupSetting> settings);

// The entry at `position` that sets fields of one group of the job, or of the job itself if `group`
// is empty (job_settings.h), checked as the shards will check it. NOT_FOUND naming the group;
// INVALID_ARGUMENT as ApplySettings and CheckGroupChange.
absl::StatusOr<v1::GroupChangeBody> MakeGroupChange(const v1::RegisterBody& registration,
                                                    const std::string& group,
                                                    absl::Span<const v1::GroupSetting> settings,
                                                    uint64_t position);

// Whether the job can go on with these groups and its state as it is: the same groups in the same
// order with the same state, those that change valid with every option written out, and so the
// parameters routed to them. Or, of a change without groups, with these settings of its own.
// INVALID_ARGUMENT otherwise.
absl::Status CheckGroupChange(const v1::RegisterBody& registration,
                              const v1::GroupChangeBody& change);

// The job after the change. What it says was changed are fields that still have the value set.
void ApplyGroupChange(const v1::GroupChangeBody& change, v1::RegisterBody& registration);

// Whether the change would leave the job as it is.
bool IsInPlace(const v1::RegisterBody& registration, const v1::GroupChangeBody& change);

// Workers of the job after the change.
uint32_t WorldSizeAfter(const v1::JobDefinition& job, const v1::GroupChangeBody& change);

// The job after the rollback: that of the snapshot, with the settings of the job itself that stay.
v1::RegisterBody RegistrationAfter(const v1::RollbackBody& rollback);

}  // namespace kaon::job

#endif  // KAON_JOB_SETTINGS_H_
