#include "kernels/routing.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kaon::kernels {
namespace {

constexpr absl::string_view kEmbeddingWords[] = {"embed",   "embedding", "embeddings",
                                                 "lm_head", "wte",       "wpe"};

bool IsBoundary(absl::string_view name, size_t at) {
  return at >= name.size() || name[at] == '.' || name[at] == '_';
}

// `word` stands in `name` between boundaries: '.', '_' or an end.
bool ContainsWord(absl::string_view name, absl::string_view word) {
  for (size_t at = name.find(word); at != absl::string_view::npos; at = name.find(word, at + 1)) {
    const bool starts = at == 0 || IsBoundary(name, at - 1);
    if (starts && IsBoundary(name, at + word.size())) return true;
  }
  return false;
}

// The word that makes `name` an embedding or an output layer, or "".
absl::string_view EmbeddingWord(absl::string_view name) {
  for (const absl::string_view word : kEmbeddingWords) {
    if (ContainsWord(name, word)) return word;
  }
  return "";
}

absl::StatusOr<Route> ToScalar(const RoutingInput& parameter, const RoutingTargets& targets,
                               std::string reason) {
  if (targets.scalar_group.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, ": needs a scalar group (", reason,
        "), but the job has matrix group \"", targets.matrix_group, "\" and scalar group \"\""));
  }
  return Route{targets.scalar_group, std::move(reason)};
}

}  // namespace

absl::StatusOr<Route> RouteParameter(const RoutingInput& parameter, const RoutingTargets& targets) {
  // [T8] holds even against an explicit group: a frozen parameter joins none.
  if (parameter.frozen) return Route{"", "frozen"};
  if (!parameter.group.empty()) return Route{parameter.group, "explicit"};
  if (!parameter.rule_group.empty()) {
    return Route{parameter.rule_group, absl::StrCat("rule ", parameter.rule_name)};
  }
  if (parameter.shape.size() < 2) return ToScalar(parameter, targets, "ndim < 2");
  if (parameter.is_embedding_or_output) {
    return ToScalar(parameter, targets, "embedding or output: declared");
  }
  const std::string name = absl::AsciiStrToLower(parameter.name);
  const absl::string_view word = EmbeddingWord(name);
  if (!word.empty()) {
    return ToScalar(parameter, targets, absl::StrCat("embedding or output: ", word));
  }
  if (absl::StrContains(name, "lora")) return ToScalar(parameter, targets, "adapter: lora");
  const bool is_matrix = parameter.shape.size() == 2;
  // What steps by elements takes any shape; what steps matrices must be told which they are, and a
  // job that has such a rule may have meant it.
  if (!is_matrix && !parameter.has_layout && targets.has_matrix_rule) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, ": has ", parameter.shape.size(),
                     " dimensions and neither group nor layout; only 2 are routed by themselves "
                     "in a job with a muon group ([routing 7])"));
  }
  if (targets.matrix_group.empty()) {
    return ToScalar(parameter, targets, "matrix routed to scalar: no matrix group");
  }
  if (is_matrix) return Route{targets.matrix_group, "matrix"};
  return Route{targets.matrix_group,
               parameter.has_layout ? "matrices by layout" : "ndim > 2: no group needs a layout"};
}

}  // namespace kaon::kernels
