// The words people write and read for the enumerators of the schema: RULE_MUON is "muon",
// NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS_5_S102 is "polar_express_5_s102"; and the paths of
// options that code names. For command lines, reports and messages. Pure functions; any thread.
#ifndef KAON_JOB_NAMES_H_
#define KAON_JOB_NAMES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/generated_enum_reflection.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/status_macros.h"

namespace kaon::job {

// Paths of a group's options: restarts follow from the form and the steps.
inline constexpr char kNsStepsPath[] = "muon.ns_steps";
inline constexpr char kGramRestartsPath[] = "muon.newton_schulz.gram_restarts";

// The word of `value`: "unset" for the enumerator 0, the number for one that is not known.
std::string NameOf(const google::protobuf::EnumDescriptor& type, int value);

// Every word but that of the enumerator 0, in the order of the schema.
std::vector<std::string> NamesOf(const google::protobuf::EnumDescriptor& type);

// INVALID_ARGUMENT naming `field`, the word and every word there is. A word that means different
// things in different systems (numerics.md section 0) is refused with the names it may stand for.
absl::StatusOr<int> ParseName(const google::protobuf::EnumDescriptor& type, absl::string_view field,
                              absl::string_view word);

// The shortest text that reads back as exactly this number.
std::string NumberText(double value);

template <typename Enum>
std::string NameOf(Enum value) {
  return NameOf(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

template <typename Enum>
absl::StatusOr<Enum> ParseName(absl::string_view field, absl::string_view word) {
  KAON_ASSIGN_OR_RETURN(const int value,
                        ParseName(*google::protobuf::GetEnumDescriptor<Enum>(), field, word));
  return static_cast<Enum>(value);
}

}  // namespace kaon::job

#endif  // KAON_JOB_NAMES_H_
