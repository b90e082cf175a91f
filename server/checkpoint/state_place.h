// Adds to an error about a damaged file which state the file holds, so that its reader knows what
// is lost. A pure function; thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_STATE_PLACE_H_
#define KAON_SERVER_CHECKPOINT_STATE_PLACE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/disk/device_error.h"

namespace kaon::checkpoint {

// Returns `status` with the step and position of the entry whose state the file holds; OK stays OK.
// `step` is nullopt if only the damaged file knows it.
inline absl::Status OfState(const absl::Status& status, std::optional<uint64_t> step,
                            uint64_t position) {
  if (status.ok()) return status;
  const std::string of_step = step.has_value() ? absl::StrCat("step ", *step, ", ") : "";
  return disk::WithMessage(
      status, absl::StrCat(status.message(), "; it is of ", of_step, "position ", position));
}

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_STATE_PLACE_H_
