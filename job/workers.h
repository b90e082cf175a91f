// The fields of a job about its workers: world_size, worker_loss and worker_loss_seconds. They
// belong to the job as it runs, not to its state: a checkpoint does not bring them (ADR 0039). Pure
// functions; any thread.
#ifndef KAON_JOB_WORKERS_H_
#define KAON_JOB_WORKERS_H_

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// These fields alone.
v1::JobDefinition WorkersOf(const v1::JobDefinition& job);

// Replaces these fields of `job` by those of `workers`; all other fields stay.
void SetWorkers(const v1::JobDefinition& workers, v1::JobDefinition& job);

// Writes out the defaults of these fields.
void CompleteWorkers(v1::JobDefinition& job);

// INVALID_ARGUMENT naming field, value and range. Defaults must be written out.
absl::Status ValidateWorkers(const v1::JobDefinition& job);

// Gives `restored` the workers of the job that runs: present, asked for, and changed since.
void KeepWorkers(const v1::RegisterBody& running, v1::RegisterBody& restored);

}  // namespace kaon::job

#endif  // KAON_JOB_WORKERS_H_
