// Tells the owner of a call how the call ended. Runs once, just before the caller gets the status,
// while the call's context still lives. Any thread; must not block.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_
#define KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_

#include <functional>

#include "absl/status/status.h"

namespace kaon::coordinator {

using CallEnded = std::function<void(const absl::Status& status)>;

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_CALL_ENDED_H_
