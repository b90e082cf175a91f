// A product whose result is symmetric: D <- alpha A B^T + beta C. It takes half the work of a dense
// product, on devices with WGMMA and TMA (sm_90a). Elements have 16 bits; sums are fp32. Each pair
// of mirror images is computed once (symmetric_schedule.h), so D is exactly symmetric. The bits
// depend on shape and device alone. Make one plan for each shape, outside of a capture. Several
// streams may use one plan.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_PRODUCT_H_
#define KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_PRODUCT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/products/symmetric_kernels.h"
#include "kernels/cuda/products/symmetric_schedule.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

bool SymmetricProductSupported(const DeviceProperties& properties);

// `batch` products of an n x k and a k x n matrix.
struct SymmetricShape {
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  // kBFloat16 or kFloat16.
  DType dtype = DType::kBFloat16;
  // Means the same as in MakeSymmetricSchedule.
  bool cuts_last_wave = true;
};

// Device memory. Matrices start on 16-byte boundaries, and pitch and stride are multiples of 8
// elements: the caller pads rows. Only the padding of c may be read.
struct SymmetricOperands {
  // n x k each; may be the same.
  SymmetricMatrices a;
  SymmetricMatrices b;
  // n x n each. c is symmetric, and not read if beta is 0. d is none of the others.
  SymmetricMatrices c;
  SymmetricMatrices d;
  float alpha = 1;
  float beta = 0;
  // workspace_bytes() on a 16-byte boundary; one for each stream.
  void* workspace = nullptr;
};

class SymmetricProduct {
 public:
  // Blocks until the table of work is on the device, which must outlive the plan. The device must
  // be supported (CHECK). RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SymmetricProduct>> Create(Device& device,
                                                                  const SymmetricShape& shape);
  // No stream may still have work of it.
  ~SymmetricProduct();
  SymmetricProduct(const SymmetricProduct&) = delete;
  SymmetricProduct& operator=(const SymmetricProduct&) = delete;

  const SymmetricShape& shape() const { return shape_; }
  const SymmetricSchedule& schedule() const { return schedule_; }
  uint64_t workspace_bytes() const { return schedule_.workspace_bytes(); }

  // Queues the product. CHECKs alignments.
  void Run(Stream& stream, const SymmetricOperands& operands) const;

 private:
  SymmetricProduct(Device& device, const SymmetricShape& shape);

  Device& device_;
  const SymmetricShape shape_;
  const SymmetricSchedule schedule_;
  // schedule_.work, then schedule_.cut, on the device.
  SymmetricWork* table_ = nullptr;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_PRODUCT_H_
