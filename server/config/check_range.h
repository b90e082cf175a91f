// Checks a number of a server's configuration. Pure function; any thread.
#ifndef KAON_SERVER_CONFIG_CHECK_RANGE_H_
#define KAON_SERVER_CONFIG_CHECK_RANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kaon::config {

// INVALID_ARGUMENT names the field, its value and the range.
inline absl::Status CheckRange(absl::string_view field, uint64_t value, uint64_t min,
                               uint64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be ", min, " .. ", max));
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_CHECK_RANGE_H_
