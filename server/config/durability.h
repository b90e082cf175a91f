// The durability mode of a shard as it is typed and shown: "journal", "interval(50)", "none"
// (protocol.md section 3). Pure functions; any thread.
#ifndef KAON_SERVER_CONFIG_DURABILITY_H_
#define KAON_SERVER_CONFIG_DURABILITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::config {

inline constexpr uint32_t kMaxIntervalSteps = 1000000;

struct Durability {
  v1::DurabilityMode mode = v1::DURABILITY_MODE_JOURNAL;
  // What a restart loses at most; 0 in other modes than INTERVAL.
  uint32_t interval_steps = 0;
};

// Empty = journal. INVALID_ARGUMENT naming the text and what may stand there.
absl::StatusOr<Durability> ParseDurability(absl::string_view text);

// The same for each way to write a mode; lower-case words for what is no mode.
std::string DurabilityText(v1::DurabilityMode mode, uint32_t interval_steps);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_DURABILITY_H_
