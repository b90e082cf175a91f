// Registers or looks up a job, also across a change of coordinator. Retries with jittered backoff,
// tries the coordinators in turn and follows redirects to the holder, within one deadline. The
// calls run on the client's event loop; call these functions on any other thread.
#ifndef KAON_CLIENT_JOB_CALL_H_
#define KAON_CLIENT_JOB_CALL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/runtime.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::client {

// Both block until the answer or until ClientOptions::call_deadline. After the deadline they return
// DEADLINE_EXCEEDED with the last error.
absl::StatusOr<v1::JobDescription> RegisterJob(const std::shared_ptr<Runtime>& runtime,
                                               const v1::JobDefinition& definition);
absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name);

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_CALL_H_
