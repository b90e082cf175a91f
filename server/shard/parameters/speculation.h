// New weights of parameters whose update does not depend on the decision (protocol.md section 3),
// computed while other gradients still arrive and while the vote waits: those of rules that
// orthogonalize, where no norm scales the gradient. They are written beside the newest version,
// where the decision would have them written; optimizer state is not touched, so that nothing need
// be undone when they are not used. Owned by ShardCore; used by the thread that drives it.
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
  // All outlive this.
  Speculation(kernels::Backend& backend, const GradientAccumulator& accumulator,
              ParameterPublisher& publisher)
      : backend_(backend), accumulator_(accumulator), publisher_(publisher) {}

  // Gradients of this plan come from now on; what was computed is of another one.
  void Begin(const v1::StepPlan& plan, uint64_t generation);
  // The parameter's gradient may be finished. Often, late or never.
  void OnGradient(uint64_t generation, const ParameterStore& parameters, uint32_t parameter_id);
  // Nothing is computed any more until Begin, and nothing computed is of use.
  void End();

  // ComputeOne has something to do.
  bool IsPending() const { return !waiting_.empty(); }
  // The weights of one parameter.
  void ComputeOne(const ParameterStore& parameters, const v1::Placement& placement);

  // What ComputeOne wrote for the parameter, if it was by these scalars; absent if it did not.
  std::optional<kernels::UpdateResult> Take(const kernels::UpdateScalars& scalars);

 private:
  struct Computed {
    kernels::UpdateScalars scalars;
    kernels::UpdateResult result;
  };

  kernels::Backend& backend_;
  const GradientAccumulator& accumulator_;
  ParameterPublisher& publisher_;

  // 0: there is none.
  uint64_t generation_ = 0;
  v1::StepBody step_;
  // A parameter is in one of the two at most, by its id.
  std::set<uint32_t> waiting_;
  std::map<uint32_t, Computed> computed_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_SPECULATION_H_
