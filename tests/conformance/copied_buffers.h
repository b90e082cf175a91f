// Copies of an update's host buffers in a backend's space, so that tests and the numerics table
// need not know where a backend computes. One thread.
#ifndef KAON_TESTS_CONFORMANCE_COPIED_BUFFERS_H_
#define KAON_TESTS_CONFORMANCE_COPIED_BUFFERS_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace kaon::kernels {

class CopiedBuffers {
 public:
  // `host` has regions of host memory, which outlive this object.
  CopiedBuffers(Backend& backend, const UpdateBuffers& host);

  // Returns the copies. They are in place if `host` is. Valid as long as this object.
  UpdateBuffers buffers() const;

  // Copies new weights and state back. Old weights that are not the new ones must be as they were
  // (CHECK).
  void Read() const;

 private:
  const GradView host_grad_;
  const ConstRegion host_param_;
  const Region host_new_param_;
  const std::vector<Region> host_state_;
  const UpdatePart part_;
  Tensor grad_;
  Tensor param_;
  // Holds no memory in place.
  Tensor new_param_;
  std::vector<Tensor> state_;
  std::vector<Region> state_regions_;
};

// Runs one update of host buffers through a backend.
UpdateResult UpdateCopied(Backend& backend, const RuleConfig& rule, const UpdateScalars& scalars,
                          absl::Span<const uint64_t> shape, const UpdateBuffers& host);

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_COPIED_BUFFERS_H_
