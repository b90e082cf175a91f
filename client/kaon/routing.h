// Which group steps a parameter and what of it is a matrix: what a trainer may say of one
// parameter, and rules for many (docs/routing.md). Plain values; any thread. C++17, standard
// library only. Fields mean what the same fields of proto kaon.v1 mean.
#ifndef KAON_CLIENT_KAON_ROUTING_H_
#define KAON_CLIENT_KAON_ROUTING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/kaon/tensor.h"

namespace kaon {

enum class MatrixLayoutKind {
  kMatrix = 1,
  kBatched = 2,
  kConvFlatten = 3,
  kSplitRows = 4,
  kQkvInterleaved = 5,
  kHeads = 6,
  kSplitCols = 7
};

struct MatrixLayout {
  MatrixLayoutKind kind = MatrixLayoutKind::kMatrix;
  // Rows (kSplitCols: columns) of each block.
  std::vector<uint64_t> sizes;
  // With kHeads.
  uint32_t num_heads = 0;
};

struct ParameterSpec {
  std::string name;
  std::vector<uint64_t> shape;
  DType dtype = DType::kFloat32;
  // Explicit route; empty = by the routing rules.
  std::string group;
  // Stored as (fan_in, fan_out).
  bool transposed = false;
  bool is_embedding_or_output = false;
  bool frozen = false;
  // Unset = by the routing rules, or by the shape.
  std::optional<MatrixLayout> layout;
  // Empty = by the routing rules, or the group's.
  std::string norm_group;
  // Name of the parameter this is a copy of, or empty. No norm counts the copy. It takes group,
  // norm group, layout and multipliers of its original. Push the same gradient for both, and they
  // stay equal to the bit.
  std::string tied_to;
  // On the group's; unset = by the routing rules, or 1.
  std::optional<double> lr_multiplier;
  std::optional<double> weight_decay_multiplier;
  // For routing rules to ask for, each [a-z0-9_-]{1,64}.
  std::vector<std::string> attributes;
};

// Matches a parameter when everything it asks for holds. Higher priority wins, field by field;
// those of equal priority must agree where they decide.
struct RoutingRule {
  std::string name;
  int32_t priority = 0;
  // Shell pattern for the whole name, * matches dots too; RE2 that matches anywhere. Empty = any.
  std::string name_glob;
  std::string name_regex;
  std::string attribute;
  std::optional<uint32_t> min_ndim;
  std::optional<uint32_t> max_ndim;
  std::optional<uint64_t> min_elements;
  std::optional<uint64_t> max_elements;
  // What it sets.
  std::string group;
  std::string norm_group;
  std::optional<MatrixLayout> layout;
  std::optional<double> lr_multiplier;
  std::optional<double> weight_decay_multiplier;
  // Without, a rule that matches no parameter is an error: most likely it is mistyped.
  bool may_match_none = false;
};

// Equal matrices of one parameter and the factor on their updates.
struct MatrixBlocks {
  // As stored.
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t count = 0;
  // scale_extra included.
  double scale = 0;
};

// Where a parameter went, and why; of a frozen one group and norm_group are empty.
struct ParameterRoute {
  std::string group;
  std::string reason;
  uint32_t shard = 0;
  std::string norm_group;
  // Only where matrices are stepped.
  std::optional<MatrixLayout> layout;
  double lr_multiplier = 1;
  double weight_decay_multiplier = 1;
  // In norms: not a copy of another, and not frozen.
  bool counted = false;
  // The norm clip leaves its group alone.
  bool clip_exempt = false;
  // Stored as (fan_in, fan_out).
  bool transposed = false;
  // What Muon steps of it, with the scale of the group as it is now; empty for other rules.
  std::vector<MatrixBlocks> blocks;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_ROUTING_H_
