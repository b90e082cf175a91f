// Which state a damaged file is of, for whoever has to know what is lost with it. A pure function;
// any thread.
#ifndef KAON_SERVER_CHECKPOINT_STATE_PLACE_H_
#define KAON_SERVER_CHECKPOINT_STATE_PLACE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kaon::checkpoint {

// `status`, which is of a file with the state after this entry, and says so; OK stays OK. A step is
// absent where only the damaged file knows it.
inline absl::Status OfState(const absl::Status& status, std::optional<uint64_t> step,
                            uint64_t position) {
  if (status.ok()) return status;
  const std::string of_step = step.has_value() ? absl::StrCat("step ", *step, ", ") : "";
  absl::Status placed(
      status.code(), absl::StrCat(status.message(), "; it is of ", of_step, "position ", position));
  status.ForEachPayload([&placed](absl::string_view type, const absl::Cord& payload) {
    placed.SetPayload(type, payload);
  });
  return placed;
}

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_STATE_PLACE_H_
