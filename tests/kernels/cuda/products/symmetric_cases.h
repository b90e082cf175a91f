// Symmetric products of random matrices on the host, and the bits that they must give: a loop that
// adds in the same order. Tests call it on one thread.
#ifndef KAON_TESTS_KERNELS_CUDA_PRODUCTS_SYMMETRIC_CASES_H_
#define KAON_TESTS_KERNELS_CUDA_PRODUCTS_SYMMETRIC_CASES_H_

#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

struct SymmetricCase {
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  DType dtype = DType::kBFloat16;
  float alpha = 1;
  float beta = 0;
  int multiprocessors = 4;
  // The matrices of D are more than 2^31 elements apart.
  bool far = false;
};

// Returns how many of `seeds` orders of threads give other bits than the loop, in the matrix or in
// its padding.
int WrongSymmetricProducts(const SymmetricCase& c, int seeds);

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_PRODUCTS_SYMMETRIC_CASES_H_
