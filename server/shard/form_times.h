// Which form of Newton-Schulz ([N1], [N7]) is the faster on this machine: whole updates in both,
// timed at a shard's first start and shown by `kaonctl backend`. Advice for whoever registers a
// group: the group decides (ADR 0024), and no result depends on a time. Called by one thread,
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

// Those of a shard with that configuration: none if it is not to measure, and of plain reference
// products, which nobody chooses for their speed. Memory is the system's again afterwards, so that
// it does not count as the shard's.
std::vector<v1::NewtonSchulzFormTime> FormTimesFor(const v1::ShardConfig& config,
                                                   kernels::Backend& backend);

// Matrices of 256 rows that are 2, 4 and 8 times as wide, each in fp32 and bf16, the narrow ones
// first: those that were measured before `at_most` had passed on the clock `now`, and one update
// more at most. Takes some MiB meanwhile.
std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most,
                                                   absl::FunctionRef<absl::Time()> now = SteadyNow);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_FORM_TIMES_H_
