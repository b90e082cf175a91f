// The steps of Newton-Schulz on a normalised wide matrix, in standard ([N1]) and in Gram form
// ([N7]), over any storage of matrix_storage.h. Pure functions; any thread, as far as the Gemm
// allows.
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
#include "kernels/pieces.h"
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
  // Of a symmetric matrix (r, r) with itself, added to a symmetric one.
  MatrixProduct Square(float alpha, float beta) const {
    return {.rows = r, .cols = r, .inner = r, .alpha = alpha, .beta = beta, .symmetric = true};
  }
  // Of matrices (r, r) that are polynomials of one symmetric matrix, and so symmetric and commuting
  // but for rounding; `mirrored`: half of the product is taken for the other half.
  MatrixProduct Commuting(float beta, bool mirrored) const {
    return {.rows = r, .cols = r, .inner = r, .beta = beta, .symmetric = mirrored};
  }
  // Of a matrix (r, r) with X.
  MatrixProduct TimesX(float beta) const {
    return {.rows = r, .cols = c, .inner = r, .beta = beta};
  }
};

// The matrices of one iteration: X in memory of its own, the others in what is lent as far as they
// find room there, in the order of their making (UpdateWorkspaceBytes counts them so).
template <typename Storage>
class Iterated {
 public:
  using Matrix = typename Storage::Matrix;

  // What is lent may be read until Run, and is done with after it.
  Iterated(const Iteration& it, absl::Span<float> lent)
      : it_(it),
        lent_(lent),
        x_(MakeOwn()),
        next_x_(Storage::Make(it.gemm, it.r, it.c, lent_)),
        polynomial_(MakeSquare()) {}

  // X, rounded as it is stored: complete before Run, and its result after.
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
    ForEachPiece(pool, x_.num_elements(), kMovedAtOnce, [this](int64_t begin, int64_t end) {
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

  // X <- factor X + share X. The Gram matrix is lost.
  void ReplaceX(const Matrix& factor, float share) {
    Multiply(it_.TimesX(share), factor, x_, &x_, next_x_);
    std::swap(x_, next_x_);
  }

  // polynomial <- b gram + c2 gram gram, the polynomial without its constant.
  void StorePolynomial(const NewtonSchulzTriple& t) {
    if (t.c2 == 0) {
      // A cubic: one product less, the same bits.
      Storage::Scale(it_.gemm, it_.r, gram_, t.b, polynomial_);
    } else {
      Multiply(it_.Square(t.c2, t.b), gram_, gram_, &gram_, polynomial_);
    }
  }

  // [N1]
  void RunStandard() {
    for (int step = 0; step < it_.config.steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(it_.set, step);
      Multiply(it_.Gram(), x_, x_, nullptr, gram_);
      StorePolynomial(t);
      ReplaceX(polynomial_, t.a);
    }
  }

  // Measured ([N9], bf16 over four decades): what mirroring leaves out is enlarged by every step
  // that follows on the same Gram matrix, and three are too many.
  static constexpr int kLongestMirroredStretch = 2;

  // Whether the stretch that begins at `step` ends within so many steps.
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

  // [N7]: the steps on R = X X^T (r, r), whose factors Q gathers; X takes Q at every restart,
  // before rounding has made too much of R's small eigenvalues, and at the end.
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
        // Alone it is a step of the standard form: the constant is not rounded with its factor.
        ReplaceX(polynomial_, t.a);
        continue;
      }
      if (begins) {
        // The factor is the polynomial with its constant; the polynomial without is needed below.
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
  // Where products of X go before they are X; until then the Gram matrix, which is not larger, and
  // of which nothing is needed any more when X is replaced.
  Matrix next_x_;
  Matrix& gram_ = next_x_;
  Matrix polynomial_;
  ProductScratch scratch_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
