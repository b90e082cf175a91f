#include "kernels/routing.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace kaon::kernels {
namespace {

// Names of embeddings and outputs in the most used model families
// (tests/kernels/routing_names_test). These words count anywhere in a name.
constexpr absl::string_view kWords[] = {"embed",
                                        "embedding",
                                        "embeddings",
                                        "embeds",
                                        "embd",
                                        "emb",
                                        "wte",
                                        "wpe",
                                        "unembed",
                                        "unembedding",
                                        "lm_head",
                                        "lm_heads",
                                        "logits",
                                        "shared_head",
                                        "vocab_projector",
                                        "final_linear",
                                        "cls_token",
                                        "class_token",
                                        "dist_token",
                                        "mask_token",
                                        "reg_token",
                                        "token_types",
                                        "relative_attention_bias",
                                        "relative_position_bias_table"};

// These modules count only outside a numbered layer: inside, they are hidden matrices.
constexpr absl::string_view kTopModules[] = {"output",     "output_layer", "head",   "head_dist",
                                             "classifier", "score",        "fc",     "shared",
                                             "proj_out",   "decoder",      "ff_out", "predictions"};

bool IsBoundary(absl::string_view name, size_t at) {
  return at >= name.size() || !absl::ascii_isalnum(name[at]);
}

// Returns true if `word` is in `name` between boundaries. A boundary is a character that is no
// letter or digit, or an end of the name.
bool ContainsWord(absl::string_view name, absl::string_view word) {
  for (size_t at = name.find(word); at != absl::string_view::npos; at = name.find(word, at + 1)) {
    const bool starts = at == 0 || IsBoundary(name, at - 1);
    if (starts && IsBoundary(name, at + word.size())) return true;
  }
  return false;
}

// Returns the module of kTopModules that holds the tensor, or is it; or "".
absl::string_view TopModule(absl::string_view name) {
  const std::vector<absl::string_view> path = absl::StrSplit(name, absl::ByAnyChar("./-"));
  const size_t module = path.size() < 2 ? 0 : path.size() - 2;
  for (size_t i = 0; i < module; ++i) {
    if (!path[i].empty() && absl::ascii_isdigit(path[i].back())) return "";
  }
  const auto* found = std::find(std::begin(kTopModules), std::end(kTopModules), path[module]);
  return found == std::end(kTopModules) ? "" : *found;
}

// Returns the word that makes a parameter of that name and number of dimensions an embedding or an
// output, or "". `name` is in lower case.
absl::string_view EmbeddingWord(absl::string_view name, size_t num_dimensions) {
  for (const absl::string_view word : kWords) {
    if (ContainsWord(name, word)) return word;
  }
  // Layers that are stacked in one tensor have no number in their names, but one more dimension.
  return num_dimensions == 2 ? TopModule(name) : "";
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

bool IsEmbeddingOrOutputName(absl::string_view name, size_t num_dimensions) {
  return !EmbeddingWord(absl::AsciiStrToLower(name), num_dimensions).empty();
}

absl::StatusOr<Route> RouteParameter(const RoutingInput& parameter, const RoutingTargets& targets) {
  // A frozen parameter joins no group, not even an explicit one (rule [T8]).
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
  const absl::string_view word = EmbeddingWord(name, parameter.shape.size());
  if (!word.empty()) {
    return ToScalar(parameter, targets, absl::StrCat("embedding or output: ", word));
  }
  if (!parameter.embedding_copy.empty()) {
    return ToScalar(parameter, targets,
                    absl::StrCat("embedding or output: copy ", parameter.embedding_copy));
  }
  if (absl::StrContains(name, "lora")) return ToScalar(parameter, targets, "adapter: lora");
  const bool is_matrix = parameter.shape.size() == 2;
  // An element-wise rule steps any shape. A rule that steps matrices needs their layout, and in a
  // job that has one the user may have meant it.
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
