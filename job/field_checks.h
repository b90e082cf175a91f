// Checks single fields of a definition. Every error is INVALID_ARGUMENT and names field, value and
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

// Range of a value that shards compute with in fp32.
inline constexpr double kMaxFloat = std::numeric_limits<float>::max();
inline constexpr double kMinFloat = std::numeric_limits<float>::min();

// Accepts the name of a group, norm group, rule or attribute: [a-z0-9_-]{1,64}.
absl::Status CheckName(absl::string_view field, absl::string_view name);

// Accepts the name of a job: [a-z0-9-]{1,63}.
absl::Status CheckJobName(absl::string_view field, absl::string_view name);

// Accepts least <= value <= most. NaN is out of every range.
absl::Status CheckRange(absl::string_view field, double value, double least, double most);
absl::Status CheckCount(absl::string_view field, uint64_t value, uint64_t least, uint64_t most);

// Accepts a factor of a learning rate or of a decay: 0 .. kMaxFloat.
absl::Status CheckFactor(absl::string_view field, double value);

// Accepts a message if every enumerator in it, and in the messages that it contains, is set and
// known. A few fields, such as tier, may be unset. `at` is the prefix of the field's path in an
// error, which lists the allowed words.
absl::Status CheckEnums(absl::string_view at, const google::protobuf::Message& message);

}  // namespace kaon::job

#endif  // KAON_JOB_FIELD_CHECKS_H_
