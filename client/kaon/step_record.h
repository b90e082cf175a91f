// The decision of a step, as the client library returns it. Plain values; any thread. C++17; no
// gRPC, protobuf or Abseil types.
#ifndef KAON_CLIENT_KAON_STEP_RECORD_H_
#define KAON_CLIENT_KAON_STEP_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kaon {

// Norm and clipping of one group in one step.
struct GroupNorm {
  std::string group;
  // Absent when the job does not report norms.
  std::optional<double> norm;
  bool exempt = false;
  // Factor on the gradients of its parameters that have no norm group of their own. The others get
  // the factor of their norm group.
  double clip_factor = 1;
};

// Norms and clipping of one norm group in one step.
struct NormGroupNorm {
  std::string norm_group;
  // Norms over all counted parameters (norm), and over those that can be clipped (live_norm).
  // Absent when the job does not report norms and no decision reads this one.
  std::optional<double> norm;
  std::optional<double> live_norm;
  // Factor on the gradients of all its parameters that can be clipped.
  double clip_factor = 1;
};

// The decision of a step.
struct StepRecord {
  uint64_t step = 0;
  bool applied = false;
  // Why the step was skipped; names the parameter or both values.
  std::string reason;
  // Ranks whose gradients the step used, ascending. A lost worker is not among them.
  std::vector<uint32_t> ranks;
  // Both are empty when a gradient was not finite.
  std::vector<GroupNorm> norms;
  std::vector<NormGroupNorm> norm_groups;
  // Norms of norm group main: over all counted parameters (grad_norm), and over those that can be
  // clipped (live_norm). Absent when a gradient was not finite, and when the norm was not computed.
  std::optional<double> grad_norm;
  std::optional<double> live_norm;
  // Token-weighted mean of the workers' losses.
  std::optional<double> loss;
  // Multiply the loss of the next step by this; Worker::loss_scale() returns it too.
  double next_loss_scale = 1;
  // Steps applied so far, including this one.
  uint64_t applied_updates = 0;
  // Digest of weights, optimizer state and update counters of the whole job before this step. It is
  // the same for any number of shards.
  uint64_t state_digest = 0;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_STEP_RECORD_H_
