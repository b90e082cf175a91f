// Checks whether a running job can load the state of a checkpoint in place: the stored tensors and
// their placement must be the same. The coordinator checks before it proposes, and the shards check
// the proposal. Pure functions; any thread.
#ifndef KAON_JOB_RESTORE_FIT_H_
#define KAON_JOB_RESTORE_FIT_H_

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::job {

// Accepts other hyper-parameters of groups, which come with the state, and other workers
// (workers.h). Otherwise FAILED_PRECONDITION names the first field that differs and both values.
absl::Status CheckRestoreFits(const v1::RegisterBody& running, const v1::RegisterBody& restored);

}  // namespace kaon::job

#endif  // KAON_JOB_RESTORE_FIT_H_
