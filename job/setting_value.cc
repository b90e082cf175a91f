#include "job/setting_value.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "job/names.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::string_view kDigits = "0123456789";

// The log and the registration keep the text.
constexpr size_t kMaxValueBytes = 64;

// SimpleAtod also accepts white space and hexadecimal numbers, and reads 1e-999 as 0.
absl::Status ParseDouble(const v1::GroupSetting& setting, double* number) {
  const std::string& text = setting.value();
  const bool decimal = text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  if (!decimal || !absl::SimpleAtod(text, number) || !std::isfinite(*number)) {
    return MalformedSetting(setting, "a finite decimal number");
  }
  const std::string mantissa = text.substr(0, text.find_first_of("eE"));
  if (*number == 0 && mantissa.find_first_of("123456789") != std::string::npos) {
    return MalformedSetting(setting, "0 or at least 4.9e-324");
  }
  return absl::OkStatus();
}

// SimpleAtoi also accepts white space and a sign.
template <typename Integer>
absl::Status ParseCount(const v1::GroupSetting& setting, Integer* number) {
  if (setting.value().find_first_not_of(kDigits.data()) == std::string::npos &&
      absl::SimpleAtoi(setting.value(), number)) {
    return absl::OkStatus();
  }
  return MalformedSetting(setting, "a whole number >= 0 in decimal digits");
}

}  // namespace

absl::Status MalformedSetting(const v1::GroupSetting& setting, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      setting.field(), " is \"", proto::Excerpt(setting.value()), "\", must be ", expected));
}

absl::Status SetValue(const v1::GroupSetting& setting, const FieldDescriptor& field,
                      Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const std::string& value = setting.value();
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat(setting.field(), " has a value of ",
                                                   value.size(), " bytes, must be 0 .. ",
                                                   kMaxValueBytes));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double number = 0;
      KAON_RETURN_IF_ERROR(ParseDouble(setting, &number));
      reflection.SetDouble(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      uint32_t number = 0;
      KAON_RETURN_IF_ERROR(ParseCount(setting, &number));
      reflection.SetUInt32(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t number = 0;
      KAON_RETURN_IF_ERROR(ParseCount(setting, &number));
      reflection.SetUInt64(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value != "true" && value != "false") return MalformedSetting(setting, "true or false");
      reflection.SetBool(&message, &field, value == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      KAON_ASSIGN_OR_RETURN(const int number,
                            ParseName(*field.enum_type(), setting.field(), value));
      reflection.SetEnumValue(&message, &field, number);
      return absl::OkStatus();
    }
    default:
      return absl::InternalError(absl::StrCat(setting.field(), " has a type nobody can set"));
  }
}

}  // namespace kaon::job
