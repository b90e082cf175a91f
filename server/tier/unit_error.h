// Errors of a disk that has state of a parameter. Pure functions; thread-safe.
#ifndef KAON_SERVER_TIER_UNIT_ERROR_H_
#define KAON_SERVER_TIER_UNIT_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"

namespace kaon::tier {

// Returns the error with the unit's name. Nobody knows what the file holds after any error,
// whatever the system calls it.
inline absl::Status AboutUnit(const std::string& unit, const absl::Status& status) {
  const std::string message = absl::StrCat("unit ", unit, ": ", status.message());
  return absl::IsResourceExhausted(status) ? absl::ResourceExhaustedError(message)
                                           : disk::DeviceError(message);
}

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_UNIT_ERROR_H_
