#include "job/names.h"

#include <charconv>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kaon/v1/parameters.pb.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

using google::protobuf::EnumDescriptor;

constexpr absl::string_view kUnset = "unset";

// A word that is rejected although people use it for this field, and what to write instead.
struct RefusedWord {
  const EnumDescriptor* type;
  absl::string_view word;
  absl::string_view why;
};

std::vector<RefusedWord> RefusedWords() {
  const EnumDescriptor* sets = v1::NewtonSchulzCoefficients_descriptor();
  const EnumDescriptor* scales = v1::UpdateScale_descriptor();
  constexpr absl::string_view kSpectral =
      "which means max_dim to some and unit_rms_norm to others: write one of these";
  return {
      {sets, "quintic", "which means you to some and jordan to others: write one of these"},
      {sets, "aol",
       "whose updates can go uphill with Frobenius normalisation: not offered ([N2], edge 50)"},
      {scales, "spectral", kSpectral},
      {scales, "spectral_norm", kSpectral},
  };
}

// Returns the common prefix of the type's enumerators: "RULE_", because RULE_UNSPECIFIED is the
// first.
absl::string_view PrefixOf(const EnumDescriptor& type) {
  return absl::StripSuffix(type.FindValueByNumber(0)->name(), "UNSPECIFIED");
}

}  // namespace

std::string NameOf(const EnumDescriptor& type, int value) {
  if (value == 0) return std::string(kUnset);
  const google::protobuf::EnumValueDescriptor* known = type.FindValueByNumber(value);
  if (known == nullptr) return absl::StrCat(value);
  return absl::AsciiStrToLower(absl::StripPrefix(known->name(), PrefixOf(type)));
}

std::vector<std::string> NamesOf(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(NameOf(type, type.value(i)->number()));
  }
  return names;
}

absl::StatusOr<int> ParseName(const EnumDescriptor& type, absl::string_view field,
                              absl::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    const int value = type.value(i)->number();
    if (value != 0 && NameOf(type, value) == word) return value;
  }
  for (const RefusedWord& refused : RefusedWords()) {
    if (refused.type == &type && refused.word == word) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, " is \"", proto::Excerpt(word), "\", ", refused.why));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(field, " is \"", proto::Excerpt(word),
                                                 "\", must be one of ",
                                                 absl::StrJoin(NamesOf(type), ", ")));
}

std::string NumberText(double value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

}  // namespace kaon::job
