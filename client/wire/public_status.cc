#include "client/wire/public_status.h"

#include <string>

namespace kaon::client {

kaon::Status ToPublic(const absl::Status& status) {
  if (status.ok()) return kaon::Status();
  return kaon::Status(static_cast<kaon::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace kaon::client
