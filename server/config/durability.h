// The durability mode of a shard as text: "journal", "interval(50)", "none" (protocol.md section
// 3). Pure functions; any thread.
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
  // Upper bound on the steps that a restart loses; 0 unless the mode is INTERVAL.
  uint32_t interval_steps = 0;
};

// Parses a mode; empty means journal. INVALID_ARGUMENT names the text and the allowed forms.
absl::StatusOr<Durability> ParseDurability(absl::string_view text);

// Returns the text of a mode. Returns the lower-case name of the enum value if it is no mode.
std::string DurabilityText(v1::DurabilityMode mode, uint32_t interval_steps);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_DURABILITY_H_
