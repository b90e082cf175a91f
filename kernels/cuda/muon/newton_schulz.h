// The Newton-Schulz iteration (numerics.md, formulas [N1] and [N7]) on a batch of equal wide
// matrices in device memory. It finds algorithms and forms of the products once. Then it captures
// the iteration as a graph, whose launches read nothing but the matrices. The caller owns it. One
// thread at a time.
#ifndef KAON_KERNELS_CUDA_MUON_NEWTON_SCHULZ_H_
#define KAON_KERNELS_CUDA_MUON_NEWTON_SCHULZ_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/products/product_choice.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/products/symmetric_forms.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/orthogonalize/coefficients.h"

namespace kaon::kernels::cuda {

// The iterations of one stream share these.
struct ProductEngine {
  Device& device;
  Products& products;
  SymmetricProducts& symmetric;
  ProductChoice& choice;
  ProductStream on;
};

// `batch` matrices (r, c), r <= c.
struct WideBatch {
  int64_t r = 0;
  int64_t c = 0;
  int64_t batch = 1;
};

class NewtonSchulzPlan {
 public:
  // Returns the bytes of device memory that a plan needs.
  static uint64_t MemoryBytes(const NewtonSchulzConfig& config, const WideBatch& shape);
  // The members of `engine` and `memory` (256-byte aligned) outlive the plan. Several plans of one
  // stream may use the same memory, one after the other. The cross-checks of its products block on
  // the stream. Fails as Products::Find does. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<NewtonSchulzPlan>> Create(const ProductEngine& engine,
                                                                  const NewtonSchulzConfig& config,
                                                                  const WideBatch& shape,
                                                                  std::byte* memory);

  // Returns the layout of x() and result().
  BatchLayout layout() const { return LayoutOf(config_.dtype, shape_.r, shape_.c); }
  // Returns where the caller stores the normalised matrices. Their contents are lost by Run.
  std::byte* x() const { return memory_; }
  // Returns where the result is after Run.
  const std::byte* result() const { return result_; }

  // Queues the iteration.
  void Run();
  // Queues the same work without the graph. The bits are the same.
  void RunDirectly();

 private:
  // Operations of IterationSteps.
  class Search;
  class Queue;

  NewtonSchulzPlan(const ProductEngine& engine, const NewtonSchulzConfig& config,
                   const NewtonSchulzCoefficientSet& set, const WideBatch& shape,
                   std::byte* memory);

  // Runs the steps on `operations`. Returns the matrix with the result.
  template <typename Operations>
  std::byte* RunSteps(Operations& operations) const;

  const ProductEngine engine_;
  const NewtonSchulzConfig config_;
  // Its triples may lie in config_.
  NewtonSchulzCoefficientSet set_;
  const WideBatch shape_;
  std::byte* const memory_;
  // The form of each symmetric product.
  std::map<SymmetricBatch, SymmetricForm> forms_;
  const std::byte* result_ = nullptr;
  std::unique_ptr<Graph> graph_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_NEWTON_SCHULZ_H_
