// Computes new weights before the decision, while gradients arrive and the vote waits (protocol.md
// section 3). Only for parameters whose update cannot depend on the decision: rules that
// orthogonalize, without norm clipping. Writes the buffer of the next version, as an applied
// decision would. Optimizer state stays untouched, so discarded weights need no undo. Owned by
// AppliedState; used by the thread that drives it.
#ifndef KAON_SERVER_SHARD_PARAMETERS_SPECULATION_H_
#define KAON_SERVER_SHARD_PARAMETERS_SPECULATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "kaon/v1/agreement.pb.h"
#include "kernels/backend.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class Speculation {
 public:
  // All of them outlive this object.
  Speculation(kernels::Backend& backend, const GradientAccumulator& accumulator,
              ParameterPublisher& publisher)
      : backend_(backend), accumulator_(accumulator), publisher_(publisher) {}

  // Starts `plan`, and discards weights computed for an earlier plan.
  void Begin(const v1::StepPlan& plan, uint64_t generation);
  // Call it when a gradient may be finished. Repeated, late or missing calls do no harm.
  void OnGradient(uint64_t generation, const ParameterStore& parameters, uint32_t parameter_id);
  // Discards all results and computes nothing until Begin.
  void End();

  // Returns true if ComputeOne has work to do.
  bool IsPending() const { return !waiting_.empty(); }
  // Computes the weights of one parameter.
  void ComputeOne(const ParameterStore& parameters, const v1::Placement& placement);

  // Returns the result of ComputeOne for the parameter, if the scalars were the same; else nothing.
  std::optional<kernels::UpdateResult> Take(const kernels::UpdateScalars& scalars);

 private:
  struct Computed {
    kernels::UpdateScalars scalars;
    kernels::UpdateResult result;
  };

  kernels::Backend& backend_;
  const GradientAccumulator& accumulator_;
  ParameterPublisher& publisher_;

  // 0: no plan.
  uint64_t generation_ = 0;
  v1::StepBody step_;
  // Parameters by id. An id is in at most one of the two containers.
  std::set<uint32_t> waiting_;
  std::map<uint32_t, Computed> computed_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_SPECULATION_H_
