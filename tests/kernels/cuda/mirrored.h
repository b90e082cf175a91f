// Mirrors matrices on a device on the host. Used by tests only; one thread.
#ifndef KAON_TESTS_KERNELS_CUDA_MIRRORED_H_
#define KAON_TESTS_KERNELS_CUDA_MIRRORED_H_

#include <vector>

#include "kernels/cuda/products/mirror.h"
#include "kernels/dtype.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {

// Returns true if random matrices (n, n) are mirrored, and their lower triangles kept.
inline bool MirrorsLowerTriangles(int64_t n, int64_t batch) {
  TestDevice device;
  std::vector<std::vector<float>> matrices;
  for (int64_t i = 0; i < batch; ++i) {
    matrices.push_back(reference::GaussianVector(n * n, static_cast<uint32_t>(i + 1)));
    for (float& x : matrices.back()) x = RoundTo(DType::kBFloat16, x);
  }
  const SquareBatch squares = {NsDType::kBFloat16, n, batch};
  const OwnedMemory memory = device.Memory(LayoutOf(squares.dtype, n, n).stride * batch * 2);
  device.UploadMatrices(squares.dtype, n, n, matrices, memory.data());
  Mirror(device.stream(), squares, memory.data());
  for (std::vector<float>& x : matrices) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) x[i * n + j] = x[j * n + i];
    }
  }
  return device.DownloadMatrices(squares.dtype, n, n, batch, memory.data()) == matrices;
}

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_MIRRORED_H_
