// The decision of a step, as the client library returns it. Values; any thread.
// C++17; no gRPC, protobuf or Abseil types.
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
  // Of its parameters without a norm group of their own; the others have that one's factor.
  double clip_factor = 1;
};

// Norms and clipping of one norm group in one step.
struct NormGroupNorm {
  std::string norm_group;
  // Over everything counted in it; and over what can be clipped. Absent when the job does not
  // report norms and no decision reads this one.
  std::optional<double> norm;
  std::optional<double> live_norm;
  // Of every parameter in it that can be clipped.
  double clip_factor = 1;
};

// The decision of a step.
struct StepRecord {
  uint64_t step = 0;
  bool applied = false;
  // Why it was skipped, naming the parameter or both values.
  std::string reason;
  // Whose gradients it is made of, ascending. A worker that was lost is not among them.
  std::vector<uint32_t> ranks;
  // Both empty when a gradient was not finite.
  std::vector<GroupNorm> norms;
  std::vector<NormGroupNorm> norm_groups;
  // Of norm group main: over everything counted in it; and over what can be clipped. Absent when a
  // gradient was not finite, and when the norm was not taken.
  std::optional<double> grad_norm;
  std::optional<double> live_norm;
  // Token-weighted mean of the workers' losses.
  std::optional<double> loss;
  // To multiply the loss of the next step by; Worker::loss_scale() has it too.
  double next_loss_scale = 1;
  // Steps applied so far, this one included.
  uint64_t applied_updates = 0;
  // Of weights, optimizer state and update counters of the whole job before this step, the same for
  // any number of shards.
  uint64_t state_digest = 0;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_STEP_RECORD_H_
