// Statistics of one parameter: norms of weight, gradient, update and momentum, the orthogonality of
// the update, and the place of each tensor. Pure functions of committed state that read each buffer
// once or twice. Called by the thread that drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_

#include <optional>

#include "absl/types/span.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// Returns the norm of the newest gradient. Absent without a gradient, with a non-finite one, or if
// its squares were not summed.
std::optional<double> GradNormOf(const ParameterTrace& trace);

// `newest` are the newest weights, `states` the optimizer state. `previous` is the weight before
// the newest update; empty before the first. Tensors of a device are copied to the host, one or two
// at a time.
v1::ParameterStats StatsOf(const StoredParameter& parameter, kernels::Backend& backend,
                           kernels::ConstRegion newest, absl::Span<const kernels::Region> states,
                           kernels::ConstRegion previous);

// `backend` is the one that steps it.
v1::ParameterDiagnostics DiagnosticsOf(const StoredParameter& parameter,
                                       const kernels::Backend& backend);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_
