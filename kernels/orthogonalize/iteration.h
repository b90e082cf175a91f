// The steps of Newton-Schulz on a normalised wide matrix, in standard form (formula [N1]) and in
// Gram form (formula [N7]). They work on any storage of matrix_storage.h. Pure functions; any
// thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/gemm/gemm.h"
#include "kernels/mutation.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/orthogonalize/coefficients.h"
#include "kernels/orthogonalize/lent_memory.h"
#include "kernels/parallel_ranges.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

// X is (r, c), r <= c.
struct Iteration {
  const NewtonSchulzConfig& config;
  const NewtonSchulzCoefficientSet& set;
  int64_t r;
  int64_t c;
  Gemm& gemm;

  MatrixProduct Gram() const {
    return {.rows = r, .cols = r, .inner = c, .transpose_b = true, .symmetric = true};
  }
  // Product of a symmetric matrix (r, r) with itself, added to a symmetric one.
  MatrixProduct Square(float alpha, float beta) const {
    return {.rows = r, .cols = r, .inner = r, .alpha = alpha, .beta = beta, .symmetric = true};
  }
  // Product of matrices (r, r) that are polynomials of one symmetric matrix: symmetric and
  // commuting except for rounding. `mirrored`: computes half of the product and mirrors it.
  MatrixProduct Commuting(float beta, bool mirrored) const {
    return {.rows = r, .cols = r, .inner = r, .beta = beta, .symmetric = mirrored};
  }
  // Product of a matrix (r, r) with X.
  MatrixProduct TimesX(float beta) const {
    return {.rows = r, .cols = c, .inner = r, .beta = beta};
  }
};

// The matrices of one iteration. X has its own memory. The others use `lent` as long as they fit,
// in the order of creation (UpdateWorkspaceBytes counts on that order).
template <typename Storage>
class Iterated {
 public:
  using Matrix = typename Storage::Matrix;

  // The caller may read `lent` until Run; after that its contents are lost.
  Iterated(const Iteration& it, absl::Span<float> lent)
      : it_(it),
        lent_(lent),
        x_(MakeOwn()),
        next_x_(Storage::Make(it.gemm, it.r, it.c, lent_)),
        polynomial_(MakeSquare()) {}

  // Stores or loads a tile of X, rounded as stored. All of X must be stored before Run; after Run
  // it is the result.
  void StoreTile(const TilePlace& place, const FloatTile& from) {
    Storage::StoreTile(it_.gemm, place, from, x_);
  }
  void LoadTile(const TilePlace& place, FloatTile& to) const {
    Storage::LoadTile(it_.gemm, place, x_, to);
  }

  void Run(ThreadPool& pool) {
    if (it_.config.form == NsForm::kGram && it_.r < it_.c) {
      RunGram();
    } else {
      RunStandard();
    }
    if (!x_.is_lent()) return;
    ForEachRange(pool, x_.num_elements(), kMovedAtOnce, [this](int64_t begin, int64_t end) {
      std::copy(x_.data() + begin, x_.data() + end, next_x_.data() + begin);
    });
    std::swap(x_, next_x_);
  }

 private:
  static constexpr int64_t kMovedAtOnce = int64_t{1} << 16;

  Matrix MakeOwn() {
    LentMemory none({});
    return Storage::Make(it_.gemm, it_.r, it_.c, none);
  }
  Matrix MakeSquare() { return Storage::Make(it_.gemm, it_.r, it_.r, lent_); }

  void Multiply(const MatrixProduct& product, const Matrix& a, const Matrix& b,
                const Matrix* addend, Matrix& to) {
    Storage::Multiply(it_.gemm, product, a, b, addend, to, scratch_);
  }

  // X <- factor X + share X. Overwrites the Gram matrix.
  void ReplaceX(const Matrix& factor, float share) {
    Multiply(it_.TimesX(share), factor, x_, &x_, next_x_);
    std::swap(x_, next_x_);
  }

  // polynomial <- b gram + c2 gram gram: the polynomial without its constant.
  void StorePolynomial(const NewtonSchulzTriple& t) {
    if (t.c2 == 0) {
      // A cubic needs one product less and gives the same bits.
      Storage::Scale(it_.gemm, it_.r, gram_, t.b, polynomial_);
    } else {
      Multiply(it_.Square(t.c2, t.b), gram_, gram_, &gram_, polynomial_);
    }
  }

  // Runs the standard form (formula [N1]).
  void RunStandard() {
    for (int step = 0; step < it_.config.steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(it_.set, step);
      Multiply(it_.Gram(), x_, x_, nullptr, gram_);
      StorePolynomial(t);
      ReplaceX(polynomial_, t.a);
    }
  }

  // Limit measured for the error [N9] (bf16, four decades). Each further step on a Gram matrix
  // enlarges the mirroring error; three steps are too many.
  static constexpr int kLongestMirroredStretch = 2;

  // Returns true if the stretch that begins at `step` ends within that many steps.
  bool MirrorsStretchFrom(int step) const {
    for (int done = step + 1; done <= step + kLongestMirroredStretch; ++done) {
      if (BeginsAnewAfter(done)) return true;
    }
    return false;
  }

  bool BeginsAnewAfter(int done) const {
    const std::vector<int>& restarts = it_.config.gram_restarts;
    if (done == it_.config.steps) return true;
    return !Mutated(Mutation::kGramWithoutRestart) &&
           std::find(restarts.begin(), restarts.end(), done) != restarts.end();
  }

  // Runs the Gram form (formula [N7]): steps on R = X X^T (r, r), whose factors are gathered in Q.
  // At every restart and at the end X <- Q X. A restart comes before rounding distorts R's small
  // eigenvalues too much.
  void RunGram() {
    Matrix factor = MakeSquare();
    Matrix product = MakeSquare();
    bool begins = true;
    bool mirrored = false;
    for (int step = 0; step < it_.config.steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(it_.set, step);
      if (begins) {
        mirrored = MirrorsStretchFrom(step);
        Multiply(it_.Gram(), x_, x_, nullptr, gram_);
      }
      StorePolynomial(t);
      const bool ends = BeginsAnewAfter(step + 1);
      if (begins && ends) {
        // A single step is a step of the standard form: the constant is not rounded with its
        // factor.
        ReplaceX(polynomial_, t.a);
        continue;
      }
      if (begins) {
        // The factor is the polynomial with its constant; the one without is needed below.
        Storage::Scale(it_.gemm, it_.r, polynomial_, 1, factor);
        Storage::AddToDiagonal(it_.gemm, it_.r, t.a, factor);
      } else {
        Multiply(it_.Commuting(t.a, mirrored), polynomial_, factor, &factor, product);
        std::swap(factor, product);
      }
      begins = ends;
      if (begins) {
        ReplaceX(factor, 0);
        continue;
      }
      Multiply(it_.Commuting(t.a, mirrored), polynomial_, gram_, &gram_, product);
      Multiply(it_.Commuting(t.a, mirrored), polynomial_, product, &product, gram_);
    }
  }

  const Iteration& it_;
  LentMemory lent_;
  Matrix x_;
  // Target of products of X, swapped with X afterwards. Until then it holds the Gram matrix, which
  // is not larger, and which is no longer needed when X is replaced.
  Matrix next_x_;
  Matrix& gram_ = next_x_;
  Matrix polynomial_;
  ProductScratch scratch_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
