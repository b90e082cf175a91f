// Converts absl::Status to the public kaon::Status with the same code and message. Pure function;
// any thread.
#ifndef KAON_CLIENT_WIRE_PUBLIC_STATUS_H_
#define KAON_CLIENT_WIRE_PUBLIC_STATUS_H_

#include "absl/status/status.h"
#include "client/kaon/status.h"

namespace kaon::client {

kaon::Status ToPublic(const absl::Status& status);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_PUBLIC_STATUS_H_
