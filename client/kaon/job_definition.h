// What a training job is: its parameters, groups and clipping, as the trainer declares them at
// registration. Plain values; any thread. C++17, standard library only. Fields mean what the same
// fields of proto kaon.v1 mean; ranges are checked by the coordinator, which names field, value and
// range.
#ifndef KAON_CLIENT_KAON_JOB_DEFINITION_H_
#define KAON_CLIENT_KAON_JOB_DEFINITION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/kaon/tensor.h"

namespace kaon {

enum class Rule { kMuon = 1, kAdamW = 2 };
enum class NewtonSchulzCoefficients { kJordan = 1, kPolarExpress = 2 };
enum class UpdateScale { kOriginal = 1, kMatchRmsAdamW = 2 };
enum class NewtonSchulzDType { kFloat32 = 1, kBFloat16 = 2 };
// kByRule: scale-invariant rules (Muon) are exempt, all others clip.
enum class ClipPolicy { kByRule = 0, kClip = 1, kExempt = 2 };

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  NewtonSchulzCoefficients ns_coefficients = NewtonSchulzCoefficients::kJordan;
  uint32_t ns_steps = 5;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  NewtonSchulzDType ns_dtype = NewtonSchulzDType::kFloat32;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

struct ParameterGroup {
  // [a-z0-9_-]{1,64}.
  std::string name;
  Rule rule = Rule::kAdamW;
  double lr = 0;
  // Decoupled.
  double weight_decay = 0;
  MuonOptions muon;
  AdamWOptions adamw;
  ClipPolicy clip_policy = ClipPolicy::kByRule;
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
};

struct JobDefinition {
  // [a-z0-9-]{1,63}.
  std::string name;
  // In canonical push order; a parameter's index is its id.
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterGroup> groups;
  // Groups the routing rules choose from; a name may be empty.
  std::string matrix_group;
  std::string scalar_group;
  // 0 = no clipping.
  double max_grad_norm = 0;
  uint32_t world_size = 1;
};

// Where a parameter went, and why.
struct ParameterRoute {
  std::string group;
  std::string reason;
  uint32_t shard = 0;
};

// A registered job.
struct JobDescription {
  JobDefinition definition;
  // By parameter id.
  std::vector<ParameterRoute> routes;
  uint64_t timeline = 0;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
  std::vector<std::string> shard_addresses;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_JOB_DEFINITION_H_
