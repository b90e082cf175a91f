// Handles the fields of a job about its workers: world_size, worker_loss, worker_loss_seconds,
// step_seconds and paused. They belong to the running job, not to its state: a checkpoint does not
// restore them (ADR 0039). Pure functions; any thread.
#ifndef KAON_JOB_WORKERS_H_
#define KAON_JOB_WORKERS_H_

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns a job with only these fields.
v1::JobDefinition WorkersOf(const v1::JobDefinition& job);

// Replaces these fields of `job` by those of `workers`; keeps all other fields.
void SetWorkers(const v1::JobDefinition& workers, v1::JobDefinition& job);

// Writes out the defaults of these fields.
void CompleteWorkers(v1::JobDefinition& job);

// Defaults must be written out. INVALID_ARGUMENT names field, value and range.
absl::Status ValidateWorkers(const v1::JobDefinition& job);

// Gives `restored` the workers of the running job: present values, requested values, and changes.
// Also the timeline in which that job began, by which its workers are known.
void KeepWorkers(const v1::RegisterBody& running, v1::RegisterBody& restored);

}  // namespace kaon::job

#endif  // KAON_JOB_WORKERS_H_
