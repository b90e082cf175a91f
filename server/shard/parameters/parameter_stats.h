// What a shard tells people about one of its parameters: norms of weight, gradient, update and
// momentum, how orthogonal the update was, and what is stored where. Pure functions of committed
// state that read each buffer once or twice; the thread that drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_

#include "absl/types/span.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// `current` is the newest version of the weight, `previous` the one before the newest update, empty
// before the first.
v1::ParameterStats StatsOf(const StoredParameter& parameter, absl::Span<const float> current,
                           absl::Span<const float> previous);

// `backend` is the one that steps it.
v1::ParameterDiagnostics DiagnosticsOf(const StoredParameter& parameter,
                                       const kernels::Backend& backend);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STATS_H_
