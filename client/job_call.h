// RegisterJob and GetJob with what makes them survive a takeover: rotation through the
// coordinators, following the holder, jittered backoff, all within one deadline. Runs on the
// client's event loop; LookUpJob and RegisterJob may be called from any thread but the loop's.
#ifndef KAON_CLIENT_JOB_CALL_H_
#define KAON_CLIENT_JOB_CALL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/runtime.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::client {

// Both block until the answer or ClientOptions::call_deadline, whichever is first:
// DEADLINE_EXCEEDED with the last error then.
absl::StatusOr<v1::JobDescription> RegisterJob(const std::shared_ptr<Runtime>& runtime,
                                               const v1::JobDefinition& definition);
absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name);

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_CALL_H_
