// Which group steps a parameter: the routing rules (numerics.md section 2), first match wins, on
// logical names and shapes. Pure functions over plain structs; any thread. Used by the coordinator
// at registration and by kaon-train --local.
#ifndef KAON_KERNELS_ROUTING_H_
#define KAON_KERNELS_ROUTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::kernels {

// What routing looks at.
struct RoutingInput {
  std::string name;
  std::vector<uint64_t> shape;
  // Explicit override: name of a group, or empty.
  std::string group;
  bool is_embedding_or_output = false;
  bool frozen = false;
  // Group that a rule of the user's gives it, and the rule's name; or both empty.
  std::string rule_group = "";
  std::string rule_name = "";
  // Says how it is cut into matrices ([L1]-[L6]).
  bool has_layout = false;
  // Name of a copy of it that is an embedding or an output, which makes it one; or empty.
  std::string embedding_copy = "";
};

// The two groups routing chooses from; a name may be empty when the job has no such group.
struct RoutingTargets {
  std::string matrix_group;
  std::string scalar_group;
  // Some group of the job, these two or another, is stepped matrix by matrix (Muon).
  bool has_matrix_rule = true;
};

struct Route {
  // Empty for a frozen parameter.
  std::string group;
  // The rule that matched, for people: "frozen", "explicit", "rule experts", "ndim < 2", "embedding
  // or output: wte", "embedding or output: copy lm_head.weight", "adapter: lora", "matrix",
  // "matrices by layout", "ndim > 2: no group needs a layout", "matrix routed to scalar: no matrix
  // group".
  std::string reason;
};

// Returns whether its name makes a parameter of so many dimensions an embedding or an output
// ([routing 5]).
bool IsEmbeddingOrOutputName(absl::string_view name, size_t num_dimensions);

// INVALID_ARGUMENT naming the parameter for >= 3 dimensions that neither a group nor a layout is
// declared for in a job with a matrix rule, wherever they would go ([routing 7]), and when the
// group a rule chooses is empty and there is no other (both groups are named). A job without a
// matrix group sends matrices to the scalar group (all-Adam jobs, M15).
absl::StatusOr<Route> RouteParameter(const RoutingInput& parameter, const RoutingTargets& targets);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ROUTING_H_
