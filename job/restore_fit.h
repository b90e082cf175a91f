// Whether a job that runs can take the state of a checkpoint in place: what is stored, and where,
// must be the same. What the coordinator proposes and the shards check. Pure functions; any thread.
#ifndef KAON_JOB_RESTORE_FIT_H_
#define KAON_JOB_RESTORE_FIT_H_

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::job {

// Hyper-parameters of groups may differ: they come with the state. So may workers (workers.h).
// FAILED_PRECONDITION naming the first field that differs and both values.
absl::Status CheckRestoreFits(const v1::RegisterBody& running, const v1::RegisterBody& restored);

}  // namespace kaon::job

#endif  // KAON_JOB_RESTORE_FIT_H_
