#include "server/coordinator/service/parameter_lookup.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace kaon::coordinator {

absl::StatusOr<v1::ParameterPlacement> FindParameter(const v1::JobDescription& job,
                                                     absl::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError("parameter is empty, must be the name of a parameter");
  }
  const v1::JobDefinition& definition = job.definition();
  const std::string* same = nullptr;
  const std::string* prefix = nullptr;
  for (int i = 0; i < definition.parameters_size(); ++i) {
    const std::string& known = definition.parameters(i).name();
    if (known == name) return job.placement().parameters(i);
    if (same == nullptr && absl::EqualsIgnoreCase(known, name)) same = &known;
    if (prefix == nullptr &&
        (absl::StartsWithIgnoreCase(known, name) || absl::StartsWithIgnoreCase(name, known))) {
      prefix = &known;
    }
  }
  const std::string* close = same != nullptr ? same : prefix;
  return absl::NotFoundError(absl::StrCat(
      "parameter \"", proto::Excerpt(name), "\" is none of job \"", definition.name(), "\"",
      close != nullptr ? absl::StrCat("; did you mean \"", proto::Excerpt(*close), "\"?")
                       : std::string()));
}

}  // namespace kaon::coordinator
