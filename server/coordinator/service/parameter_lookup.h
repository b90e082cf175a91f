// Finds a parameter by the name that a person typed, and suggests a name if there is none. Pure
// function; any thread.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_
#define KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::coordinator {

// Returns the placement of parameter `name` in `job`. INVALID_ARGUMENT if `name` is empty.
// NOT_FOUND names the parameter and suggests a similar one: equal except for case, else the first
// where one name is a prefix of the other.
absl::StatusOr<v1::ParameterPlacement> FindParameter(const v1::JobDescription& job,
                                                     absl::string_view name);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_
