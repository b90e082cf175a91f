// Element-wise optimizer rules on a device: one pass reads gradient, weights and state, writes and
// digests them, with the CPU's bits. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_UPDATE_H_
#define KAON_KERNELS_CUDA_ELEMENTS_UPDATE_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/elements/update_facts.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_rule.h"
#include "kernels/rules/element_wise_rules.h"

namespace kaon::kernels::cuda {

// Arrays in device memory, aligned for their elements; 16 bytes are fastest.
struct ElementWiseUpdate {
  const void* grad;
  DType grad_dtype;
  const float* param;
  // May be `param`.
  float* new_param;
  // The rule's slots as stored by state_codec.h: the first as momentum_dtype, the others as
  // second_moment_dtype, kFloat32 or kSqrtUInt8.
  void* state[3];
  StateDType momentum_dtype;
  StateDType second_moment_dtype;
  // RootSeedOf the update.
  uint32_t root_seed;
  int64_t num_elements;
  uint32_t parameter_id;
  // The caller zeroes it before.
  UpdateFacts* facts;
};

// Rule is one of ElementWiseRules; `num_slots` is its NumSlots.
template <typename Rule>
void StepElementWise(Stream& stream, const typename Rule::Scalars& scalars, int num_slots,
                     const ElementWiseUpdate& update);

extern template void StepElementWise<AdamW>(Stream&, const AdamW::Scalars&, int,
                                            const ElementWiseUpdate&);
extern template void StepElementWise<Sgd>(Stream&, const Sgd::Scalars&, int,
                                          const ElementWiseUpdate&);
extern template void StepElementWise<Lion>(Stream&, const Lion::Scalars&, int,
                                           const ElementWiseUpdate&);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_UPDATE_H_
