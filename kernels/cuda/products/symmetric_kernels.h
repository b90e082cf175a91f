// The kernels of a symmetric product, behind a plain function. symmetric_product.h has the contract
// and the plan. They need WGMMA and TMA, which sm_90a has. One thread uses a stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_KERNELS_H_
#define KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/products/symmetric_schedule.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

// Dynamic shared memory of one block.
inline constexpr uint32_t kSymmetricSharedBytes = 231488;

// A batch of matrices in device memory, 16 bits an element, row-major.
struct SymmetricMatrices {
  void* data = nullptr;
  // Elements from row to row, and from matrix to matrix.
  int64_t pitch = 0;
  int64_t stride = 0;
};

struct SymmetricLaunch {
  int64_t n;
  int64_t k;
  int64_t batch;
  DType dtype;
  SymmetricMatrices a;
  SymmetricMatrices b;
  SymmetricMatrices c;
  SymmetricMatrices d;
  float alpha;
  float beta;
  // Device memory: the schedule, and the sums of its parts.
  const SymmetricWork* work;
  int num_work;
  const SymmetricWork* cut;
  int num_cut;
  int parts;
  float* workspace;
  int multiprocessors;
};

// Queues the product.
void LaunchSymmetricProduct(Stream& stream, const SymmetricLaunch& launch);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_KERNELS_H_
