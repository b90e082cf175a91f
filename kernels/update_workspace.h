// How much memory one update takes beside the buffers that it is given: what a shard sets aside
// before it takes a job. Pure function; any thread.
#ifndef KAON_KERNELS_UPDATE_WORKSPACE_H_
#define KAON_KERNELS_UPDATE_WORKSPACE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

// Bytes of host memory, at most, that Backend::ApplyUpdate of the backend with this name and so
// many threads takes for a rule and shape that ValidateRule accepts, in whichever form, where new
// weights and old are two buffers; OrthogonalityError takes no more. The matrices of Newton-Schulz:
// element-wise rules have none. Not counted are some KiB for each thread and what a matrix library
// packs operands into, a few MiB. 0 for a backend that is no "cpu": what it takes is its device's.
uint64_t UpdateWorkspaceBytes(absl::string_view backend, uint32_t threads, const RuleConfig& rule,
                              absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_UPDATE_WORKSPACE_H_
