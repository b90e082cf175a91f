#include "server/config/durability.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace kaon::config {

absl::StatusOr<Durability> ParseDurability(absl::string_view text) {
  Durability durability;
  if (text.empty() || text == "journal") return durability;
  if (text == "none") {
    durability.mode = v1::DURABILITY_MODE_NONE;
    return durability;
  }
  absl::string_view steps = text;
  uint64_t number = 0;
  const bool interval =
      absl::ConsumePrefix(&steps, "interval(") && absl::ConsumeSuffix(&steps, ")");
  if (interval && proto::ParseDecimal(steps, &number, kMaxIntervalSteps) && number >= 1) {
    durability.interval_steps = static_cast<uint32_t>(number);
    durability.mode = v1::DURABILITY_MODE_INTERVAL;
    return durability;
  }
  return absl::InvalidArgumentError(absl::StrCat("durability is \"", proto::Excerpt(text),
                                                 "\", must be journal, interval(K) with K of 1 .. ",
                                                 kMaxIntervalSteps, ", or none"));
}

std::string DurabilityText(v1::DurabilityMode mode, uint32_t interval_steps) {
  if (mode == v1::DURABILITY_MODE_INTERVAL) return absl::StrCat("interval(", interval_steps, ")");
  const std::string name = v1::DurabilityMode_Name(mode);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "DURABILITY_MODE_"));
}

}  // namespace kaon::config
