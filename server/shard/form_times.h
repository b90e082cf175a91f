// Which form of Newton-Schulz ([N1], [N7]) is the faster on this machine: whole updates in both,
// timed when a shard starts and shown by `kaonctl backend`. Advice for whoever registers a group:
// the group decides (ADR 0024), and no result depends on a time. One thread, beside no steps.
#ifndef KAON_SERVER_SHARD_FORM_TIMES_H_
#define KAON_SERVER_SHARD_FORM_TIMES_H_

#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"

namespace kaon::shard {

// Of a start, on any machine with vector units; a shard that restarts keeps its job waiting.
inline constexpr absl::Duration kFormTimesTake = absl::Milliseconds(500);

// Matrices of 256 rows that are 2, 4 and 8 times as wide, each dtype of fp32 and bf16: those of
// which updates are done before about `at_most` has passed, the narrow ones first. Claims some MiB
// that are free again afterwards.
std::vector<v1::NewtonSchulzFormTime> MeasureForms(kernels::Backend& backend,
                                                   absl::Duration at_most);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_FORM_TIMES_H_
