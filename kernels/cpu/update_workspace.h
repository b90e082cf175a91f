// Memory that one update allocates in addition to its buffers. A shard reserves it before it
// accepts a job. Pure function; any thread.
#ifndef KAON_KERNELS_CPU_UPDATE_WORKSPACE_H_
#define KAON_KERNELS_CPU_UPDATE_WORKSPACE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

// Returns an upper bound in bytes on the host memory that Backend::ApplyUpdate allocates, for any
// Newton-Schulz form. It holds for rules and shapes that ValidateRule accepts, if new and old
// weights are two buffers. OrthogonalityError allocates no more. The memory is for the matrices of
// Newton-Schulz: element-wise rules need none.
// Not counted are some KiB per thread, and a few MiB into which a matrix library packs operands. 0
// for a backend that is not "cpu": it uses the memory of its device.
uint64_t UpdateWorkspaceBytes(absl::string_view backend, uint32_t threads, const RuleConfig& rule,
                              absl::Span<const uint64_t> shape);
// Returns an upper bound in bytes on the host memory that OrthogonalityError allocates; 0 for an
// element-wise rule.
uint64_t OrthogonalityWorkspaceBytes(const RuleConfig& rule, absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_UPDATE_WORKSPACE_H_
