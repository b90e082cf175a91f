// Registers or looks up a job, or proves that a coordinator answers (coordinator_call.h). The calls
// run on the client's event loop; call these functions on any other thread.
#ifndef KAON_CLIENT_JOB_CALL_H_
#define KAON_CLIENT_JOB_CALL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/runtime.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::client {

// These block until the answer or until ClientOptions::call_deadline, unless they are given another
// deadline. After it they return DEADLINE_EXCEEDED with the newest error of each address.
absl::StatusOr<v1::JobDescription> RegisterJob(const std::shared_ptr<Runtime>& runtime,
                                               const v1::JobDefinition& definition);
absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name);
absl::StatusOr<v1::JobDescription> LookUpJob(const std::shared_ptr<Runtime>& runtime,
                                             const std::string& name, absl::Duration deadline);

// Returns OK once one of the addresses answers as a coordinator, whether or not it leads.
// FAILED_PRECONDITION: every address is another server's.
absl::Status FindCoordinator(const std::shared_ptr<Runtime>& runtime);

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_CALL_H_
