// The matrices of one Newton-Schulz iteration on the CPU, on any storage of matrix_storage.h. Pure
// functions; any thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "kernels/cpu/parallel_ranges.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/orthogonalize/iteration_steps.h"
#include "kernels/orthogonalize/lent_memory.h"

namespace kaon::kernels {

// X has its own memory. The other matrices use `lent` as long as they fit, in the order of creation
// (UpdateWorkspaceBytes counts on that order).
template <typename Storage>
class Iterated {
 public:
  using Matrix = typename Storage::Matrix;

  // The caller may read `lent` until Run; after that its contents are lost.
  Iterated(const Iteration& it, Gemm& gemm, absl::Span<float> lent)
      : it_(it),
        gemm_(gemm),
        lent_(lent),
        x_(MakeOwn()),
        next_x_(Storage::Make(gemm, it.r, it.c, lent_)),
        polynomial_(MakeSquare()) {}

  // Stores or loads a tile of X, rounded as stored. All of X must be stored before Run; after Run
  // it is the result.
  void StoreTile(const TilePlace& place, const FloatTile& from) {
    Storage::StoreTile(gemm_, place, from, x_);
  }
  void LoadTile(const TilePlace& place, FloatTile& to) const {
    Storage::LoadTile(gemm_, place, x_, to);
  }

  void Run(ThreadPool& pool) {
    IterationSteps<Iterated>(it_, *this, x_, next_x_, polynomial_).Run();
    if (!x_.is_lent()) return;
    ForEachRange(pool, x_.num_elements(), kMovedAtOnce, [this](int64_t begin, int64_t end) {
      std::copy(x_.data() + begin, x_.data() + end, next_x_.data() + begin);
    });
    std::swap(x_, next_x_);
  }

  // Operations of the steps.

  Matrix MakeSquare() { return Storage::Make(gemm_, it_.r, it_.r, lent_); }
  void Scale(int64_t n, const Matrix& from, float factor, Matrix& to) {
    Storage::Scale(gemm_, n, from, factor, to);
  }
  void AddToDiagonal(int64_t n, float value, Matrix& x) {
    Storage::AddToDiagonal(gemm_, n, value, x);
  }
  void Multiply(const MatrixProduct& product, const Matrix& a, const Matrix& b,
                const Matrix* addend, Matrix& to) {
    Storage::Multiply(gemm_, product, a, b, addend, to, scratch_);
  }

 private:
  static constexpr int64_t kMovedAtOnce = int64_t{1} << 16;

  Matrix MakeOwn() {
    LentMemory none({});
    return Storage::Make(gemm_, it_.r, it_.c, none);
  }

  const Iteration& it_;
  Gemm& gemm_;
  LentMemory lent_;
  Matrix x_;
  Matrix next_x_;
  Matrix polynomial_;
  ProductScratch scratch_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
