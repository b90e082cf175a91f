#include "job/field_checks.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/names.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns whether `name` has 1 .. max characters, each a lower-case letter, a digit, '-' or one of
// `more`.
bool IsName(absl::string_view name, size_t max, absl::string_view more) {
  if (name.empty() || name.size() > max) return false;
  for (char c : name) {
    const bool allowed = absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' ||
                         more.find(c) != absl::string_view::npos;
    if (!allowed) return false;
  }
  return true;
}

absl::Status CheckEnum(const std::string& field, const google::protobuf::EnumDescriptor& type,
                       int value, bool may_be_unset) {
  if (value == 0 ? may_be_unset : type.FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", NameOf(type, value), ", must be one of ", absl::StrJoin(NamesOf(type), ", ")));
}

// The others are newer than files that must stay readable.
bool MayBeUnset(absl::string_view field) {
  return field == "custom_repeat" || field == "exp_avg_sq_dtype" || field == "tier";
}

}  // namespace

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (IsName(name, 64, "_")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", proto::Excerpt(name), "\", must match [a-z0-9_-]{1,64}"));
}

absl::Status CheckJobName(absl::string_view field, absl::string_view name) {
  if (IsName(name, 63, "")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", proto::Excerpt(name), "\", must match [a-z0-9-]{1,63}"));
}

absl::Status CheckRange(absl::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be ", least, " .. ", most));
}

absl::Status CheckCount(absl::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be ", least, " .. ", most));
}

absl::Status CheckFactor(absl::string_view field, double value) {
  return CheckRange(field, value, 0, kMaxFloat);
}

absl::Status CheckEnums(absl::string_view at, const Message& message) {
  const google::protobuf::Reflection& fields = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    const std::string path = absl::StrCat(at, field.name());
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      KAON_RETURN_IF_ERROR(CheckEnum(path, *field.enum_type(), fields.GetEnumValue(message, &field),
                                     MayBeUnset(field.name())));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               fields.HasField(message, &field)) {
      KAON_RETURN_IF_ERROR(CheckEnums(absl::StrCat(path, "."), fields.GetMessage(message, &field)));
    }
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
