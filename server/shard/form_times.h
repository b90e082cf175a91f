// Which form of Newton-Schulz ([N1], [N7]) is the faster on this machine: whole updates in both,
// timed when a shard starts that holds no job. Shown by `kaonctl backend`, and what the coordinator
// chooses by for groups that are registered with form FASTEST (ADR 0024). Called by one thread,
// beside no steps; updates are spread over the threads of the backend.
#ifndef KAON_SERVER_SHARD_FORM_TIMES_H_
#define KAON_SERVER_SHARD_FORM_TIMES_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kaon/v1/config.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/steady_clock.h"

namespace kaon::shard {

// Of a start.
inline constexpr absl::Duration kFormTimesTake = absl::Milliseconds(500);

// Whether a shard with that configuration measures: it may be told not to, and nobody chooses plain
// reference products for their speed.
bool ShouldMeasureForms(const v1::ShardConfig& config);

// Matrices of 256 rows that are 2 and 4 times as wide, each in fp32, bf16 and fp16, the narrow ones
// first: the least time of each form in as many updates as begin before `at_most` has passed on the
// clock `now`. Those that were not updated in both forms by then are left out. Takes some MiB
// meanwhile, which are the system's again afterwards, so that they do not count as the shard's.
std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most = kFormTimesTake,
                                                   absl::FunctionRef<absl::Time()> now = SteadyNow);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_FORM_TIMES_H_
