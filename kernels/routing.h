// Routing rules: choose the group that steps a parameter (numerics.md section 2). The first match
// wins, on logical names and shapes. Pure functions over plain structs; any thread. Used by the
// coordinator at registration and by kaon-train --local.
#ifndef KAON_KERNELS_ROUTING_H_
#define KAON_KERNELS_ROUTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::kernels {

// Facts about a parameter that routing reads.
struct RoutingInput {
  std::string name;
  std::vector<uint64_t> shape;
  // Explicit override: name of a group, or empty.
  std::string group;
  bool is_embedding_or_output = false;
  bool frozen = false;
  // Group that a user's rule chose, and the rule's name; both may be empty.
  std::string rule_group = "";
  std::string rule_name = "";
  // True if the parameter declares its division into matrices (numerics.md, rules [L1]-[L6]).
  bool has_layout = false;
  // Name of a copy that is an embedding or an output, which makes this parameter one too; or empty.
  std::string embedding_copy = "";
};

// The two groups from which routing chooses. A name is empty if the job has no such group.
struct RoutingTargets {
  std::string matrix_group;
  std::string scalar_group;
  // True if some group of the job, these two or another, is stepped matrix by matrix (Muon).
  bool has_matrix_rule = true;
};

struct Route {
  // Empty for a frozen parameter.
  std::string group;
  // The rule that matched, for people. One of: "frozen", "explicit", "rule experts", "ndim < 2",
  // "embedding or output: wte", "adapter: lora", "embedding or output: copy lm_head.weight".
  // Or one of: "matrix", "matrices by layout", "ndim > 2: no group needs a layout", "matrix routed
  // to scalar: no matrix group".
  std::string reason;
};

// Returns true if the name makes a parameter with this number of dimensions an embedding or an
// output (docs/routing.md).
bool IsEmbeddingOrOutputName(absl::string_view name, size_t num_dimensions);

// Chooses the group of a parameter. A job without a matrix group sends matrices to the scalar
// group.
// INVALID_ARGUMENT in two cases. First: the parameter has >= 3 dimensions and no declared group or
// layout, in a job with a matrix rule; names the parameter. Second: the group that a rule chooses
// is empty and there is no other; names both groups.
absl::StatusOr<Route> RouteParameter(const RoutingInput& parameter, const RoutingTargets& targets);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ROUTING_H_
