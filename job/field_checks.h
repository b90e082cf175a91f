// Checks of single fields of a definition. Every error is INVALID_ARGUMENT naming field, value and
// range. Pure functions; any thread.
#ifndef KAON_JOB_FIELD_CHECKS_H_
#define KAON_JOB_FIELD_CHECKS_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::job {

// What shards compute with: a value must be one that a float can hold.
inline constexpr double kMaxFloat = std::numeric_limits<float>::max();
inline constexpr double kMinFloat = std::numeric_limits<float>::min();

// [a-z0-9_-]{1,64}: groups, norm groups, rules, attributes.
absl::Status CheckName(absl::string_view field, absl::string_view name);

// [a-z0-9-]{1,63}: jobs.
absl::Status CheckJobName(absl::string_view field, absl::string_view name);

// least <= value <= most; not a number is out of every range.
absl::Status CheckRange(absl::string_view field, double value, double least, double most);
absl::Status CheckCount(absl::string_view field, uint64_t value, uint64_t least, uint64_t most);

// A factor of a learning rate or a decay: 0 .. kMaxFloat.
absl::Status CheckFactor(absl::string_view field, double value);

// Every enumerator in the message and those it contains is set and known; the words it may be are
// named otherwise. `at` comes before the path of the field. Those of fields named custom_repeat may
// be unset.
absl::Status CheckEnums(absl::string_view at, const google::protobuf::Message& message);

}  // namespace kaon::job

#endif  // KAON_JOB_FIELD_CHECKS_H_
