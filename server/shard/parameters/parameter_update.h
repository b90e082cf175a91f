// One update of one parameter, before or after the decision, and the concurrent run of several.
// Created and run by the thread that drives ShardCore.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/tier/unit_pin.h"

namespace kaon::shard {

class ParameterUpdate {
 public:
  // `parameter` must have a rule. Uses its group's learning rate times its own multiplier, and its
  // own count of updates ([A1], [M6]). `parameter` and `gradient` outlive this object.
  ParameterUpdate(const StoredParameter& parameter, const v1::StepBody& step,
                  const v1::ParameterPlacement& placement, double clip_factor,
                  kernels::ConstRegion gradient);

  const kernels::UpdateScalars& scalars() const { return scalars_; }

  // Returns the update as a backend runs it on `pinned`, which BeginWrite of the publisher
  // returned. Both outlive the result, in place.
  kernels::Update ForBackend(kernels::UpdatePart part, const tier::UnitUpdatePin& pinned) const;

 private:
  const StoredParameter& parameter_;
  const kernels::ConstRegion gradient_;
  kernels::UpdateScalars scalars_;
};

// An update after its decision, between preparation and publication.
struct DecidedUpdate {
  StoredParameter* parameter;
  ParameterUpdate update;
  // BeginWrite returned it.
  tier::UnitUpdatePin pinned;
  // Result of weights computed before the decision; only the state remains to be updated.
  std::optional<kernels::UpdateResult> ahead;
  // Set by RunUpdates.
  kernels::UpdateResult result;
};

// Runs the missing part of each update; several run concurrently (Backend::NumConcurrentUpdates).
// The resulting bits do not depend on concurrency.
void RunUpdates(kernels::Backend& backend, absl::Span<DecidedUpdate> updates);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_UPDATE_H_
