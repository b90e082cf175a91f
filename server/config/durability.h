// Text form of a shard's durability mode: "journal", "interval(50)", "none" (protocol.md section
// 3). Pure functions; thread-safe.
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
  // Maximum number of steps that a restart loses; 0 in modes other than INTERVAL.
  uint32_t interval_steps = 0;
};

// Parses a mode; empty means journal. INVALID_ARGUMENT names the text and what is allowed.
absl::StatusOr<Durability> ParseDurability(absl::string_view text);

// Returns the text of a mode, which ParseDurability accepts. For an unknown mode, returns its enum
// name in lower case.
std::string DurabilityText(v1::DurabilityMode mode, uint32_t interval_steps);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_DURABILITY_H_
