// Reads one value of a running job's settings from the text that a person wrote. Pure functions;
// any thread.
#ifndef KAON_JOB_SETTING_VALUE_H_
#define KAON_JOB_SETTING_VALUE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::job {

// Returns INVALID_ARGUMENT that names the field, its value and what it must be.
absl::Status MalformedSetting(const v1::GroupSetting& setting, absl::string_view expected);

// Reads the whole value and sets `field` of `message`: a decimal number, a boolean or an
// enumerator. Otherwise returns MalformedSetting, also for a number that a double cannot hold.
absl::Status SetValue(const v1::GroupSetting& setting,
                      const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message& message);

}  // namespace kaon::job

#endif  // KAON_JOB_SETTING_VALUE_H_
