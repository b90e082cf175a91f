// One update of one parameter, before or after its step is decided: what the backend is told of it;
// and several that run side by side. Made and run by the thread that drives ShardCore.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/backend.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class ParameterUpdate {
 public:
  // Of a parameter with a rule. Learning rate of its group times its own multiplier; its own count
  // of updates ([A1], [M6]). `parameter` and `gradient` outlive this.
  ParameterUpdate(const StoredParameter& parameter, const v1::StepBody& step,
                  const v1::ParameterPlacement& placement, double clip_factor,
                  absl::Span<const float> gradient);

  const kernels::UpdateScalars& scalars() const { return scalars_; }

  // From the newest weights into `new_weights`, BeginWrite's of the same publisher.
  kernels::UpdateResult Run(kernels::UpdatePart part, kernels::Backend& backend,
                            const ParameterPublisher& publisher,
                            absl::Span<float> new_weights) const;

 private:
  const StoredParameter& parameter_;
  const absl::Span<const float> gradient_;
  kernels::UpdateScalars scalars_;
};

// One that is decided, between its preparation and its publication.
struct DecidedUpdate {
  StoredParameter* parameter;
  ParameterUpdate update;
  // BeginWrite's.
  absl::Span<float> new_weights;
  // Of weights that were computed before the decision; the state is left to do.
  std::optional<kernels::UpdateResult> ahead;
  // Of RunUpdates.
  kernels::UpdateResult result;
};

// Runs what of each is not computed yet, from the newest weights of the publisher, side by side
// where there are several (Backend::NumConcurrentUpdates). Bits do not depend on what runs beside
// it.
void RunUpdates(kernels::Backend& backend, const ParameterPublisher& publisher,
                absl::Span<DecidedUpdate> updates);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_
