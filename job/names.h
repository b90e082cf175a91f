// Converts enumerators of the schema to and from the words that people write; holds the paths of
// options that code names. RULE_MUON is "muon"; NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS_5_S102 is
// "polar_express_5_s102". Command lines, reports and messages use it. Pure functions; any thread.
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

// Paths of a group's options. The default restarts follow from the form and the number of steps.
inline constexpr char kNsStepsPath[] = "muon.ns_steps";
inline constexpr char kGramRestartsPath[] = "muon.newton_schulz.gram_restarts";

// Returns the word of `value`: "unset" for enumerator 0, the number for an unknown enumerator.
std::string NameOf(const google::protobuf::EnumDescriptor& type, int value);

// Returns every word in the order of the schema, except that of enumerator 0.
std::vector<std::string> NamesOf(const google::protobuf::EnumDescriptor& type);

// Returns the enumerator of `word`. Otherwise INVALID_ARGUMENT names `field`, `word` and every
// allowed word. Some words mean different things in different systems (numerics.md section 0): the
// error for such a word names the words it may stand for.
absl::StatusOr<int> ParseName(const google::protobuf::EnumDescriptor& type, absl::string_view field,
                              absl::string_view word);

// Returns the shortest text that reads back as exactly this number.
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
