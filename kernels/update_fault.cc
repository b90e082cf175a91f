#include "kernels/update_fault.h"

#include <algorithm>
#include <cmath>

#include "kernels/orthogonalize/newton_schulz_validation.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"

namespace kaon::kernels {

void KeepWeights(UpdateFault fault, uint32_t parameter_id, const UpdateBuffers& buffers,
                 UpdateResult& result) {
  result.fault = fault;
  const absl::Span<const float> param = buffers.param.host_floats();
  const absl::Span<float> new_param = buffers.new_param.host_floats();
  if (new_param.data() == param.data()) return;
  std::copy(param.begin(), param.end(), new_param.begin());
  result.weights_digest = TensorDigest(parameter_id, kWeightSlot, new_param);
  result.largest_weight_bits = LargestMagnitudeBits(param);
}

double MostOrthogonalNorm(const NewtonSchulzConfig& config, int64_t rank) {
  return std::max(1.5, 1.1 * MostSingularValue(config)) * std::sqrt(static_cast<double>(rank));
}

}  // namespace kaon::kernels
