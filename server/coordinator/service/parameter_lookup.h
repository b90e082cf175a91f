// Finds the parameter that a person named, and says what they may have meant when there is none.
// Pure function; any thread.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_
#define KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::coordinator {

// Its placement, in `job`. INVALID_ARGUMENT without a name; NOT_FOUND naming the parameter, and a
// parameter of the same name but for upper and lower case, or the first that begins so or that it
// begins with.
absl::StatusOr<v1::ParameterPlacement> FindParameter(const v1::JobDescription& job,
                                                     absl::string_view name);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_PARAMETER_LOOKUP_H_
