// Routing: the group that steps a parameter, and the matrices that Muon sees in it
// (docs/routing.md). A trainer decides for one parameter (ParameterSpec) or for many (RoutingRule).
// Plain values; any thread. C++17, standard library only. A field means the same as its namesake in
// proto kaon.v1.
#ifndef KAON_CLIENT_KAON_ROUTING_H_
#define KAON_CLIENT_KAON_ROUTING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kaon/tensor.h"

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
  // Set with kHeads only.
  uint32_t num_heads = 0;
};

struct ParameterSpec {
  std::string name;
  std::vector<uint64_t> shape;
  DType dtype = DType::kFloat32;
  // Name of a group. Empty: the routing rules decide.
  std::string group;
  // The matrix is stored as (fan_in, fan_out).
  bool transposed = false;
  bool is_embedding_or_output = false;
  bool frozen = false;
  // Unset: the routing rules decide, or the shape.
  std::optional<MatrixLayout> layout;
  // Empty: the routing rules decide, or the group's.
  std::string norm_group;
  // Name of the original if this parameter is a copy; otherwise empty. No norm counts the copy. It
  // has the group, norm group, layout and multipliers of its original. Push the same gradient for
  // both, and they stay equal to the bit.
  std::string tied_to;
  // Factors on the group's values. Unset: the routing rules decide, or 1.
  std::optional<double> lr_multiplier;
  std::optional<double> weight_decay_multiplier;
  // Marks that a RoutingRule can match, each [a-z0-9_-]{1,64}.
  std::vector<std::string> attributes;
};

// Matches a parameter when all its conditions hold. For each field the matching rule of the highest
// priority wins; rules of equal priority must agree.
struct RoutingRule {
  std::string name;
  int32_t priority = 0;
  // name_glob is a shell pattern for the whole name, in which * also matches dots. name_regex is an
  // RE2 pattern that matches anywhere in the name. Empty: any name.
  std::string name_glob;
  std::string name_regex;
  std::string attribute;
  std::optional<uint32_t> min_ndim;
  std::optional<uint32_t> max_ndim;
  std::optional<uint64_t> min_elements;
  std::optional<uint64_t> max_elements;
  // Fields that the rule sets.
  std::string group;
  std::string norm_group;
  std::optional<MatrixLayout> layout;
  std::optional<double> lr_multiplier;
  std::optional<double> weight_decay_multiplier;
  // If false, a rule that matches no parameter is an error: it is probably mistyped.
  bool may_match_none = false;
};

// Equal matrices of one parameter, and the factor on their updates.
struct MatrixBlocks {
  // Size of one matrix as stored.
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t count = 0;
  // Includes scale_extra.
  double scale = 0;
};

// Route of a parameter, and the reason. A frozen parameter has empty group and norm_group.
struct ParameterRoute {
  std::string group;
  std::string reason;
  uint32_t shard = 0;
  std::string norm_group;
  // Set only if the group's rule works on matrices.
  std::optional<MatrixLayout> layout;
  double lr_multiplier = 1;
  double weight_decay_multiplier = 1;
  // True if norms count the parameter: it is neither a copy nor frozen.
  bool counted = false;
  // True if norm clipping leaves its group alone.
  bool clip_exempt = false;
  // The matrix is stored as (fan_in, fan_out).
  bool transposed = false;
  // Matrices that Muon steps, with the present scale of the group; empty for other rules.
  std::vector<MatrixBlocks> blocks;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_ROUTING_H_
