// What a call's owner wants to know of its end. Called once, just before the caller is told, while
// the call's context still lives; any thread; must not block.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_
#define KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_

#include <functional>

#include "absl/status/status.h"

namespace kaon::coordinator {

using CallEnded = std::function<void(const absl::Status& status)>;

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_
