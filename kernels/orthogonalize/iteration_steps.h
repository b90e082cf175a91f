// The steps of Newton-Schulz on a normalised wide matrix, in standard form (formula [N1]) and in
// Gram form (formula [N7]). They work on the matrices of any device. Pure functions; any thread, as
// far as the operations allow.
#ifndef KAON_KERNELS_ORTHOGONALIZE_ITERATION_STEPS_H_
#define KAON_KERNELS_ORTHOGONALIZE_ITERATION_STEPS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/mutation.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/orthogonalize/coefficients.h"

namespace kaon::kernels {

// X is (r, c), r <= c.
struct Iteration {
  const NewtonSchulzConfig& config;
  const NewtonSchulzCoefficientSet& set;
  int64_t r;
  int64_t c;

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

// Operations has the following members. Matrix: a swappable type. MakeSquare: allocates a matrix
// (r, r) with undefined contents. Scale: to <- factor from, rounded; AddToDiagonal: adds to the
// diagonal; both for n x n matrices. Multiply: to <- alpha A op(B) + beta addend, rounded; `to` is
// none of the operands. A matrix may use the memory of a larger one.
template <typename Operations>
class IterationSteps {
 public:
  using Matrix = typename Operations::Matrix;

  // `x` is the normalised matrix; `next_x` (r, c) and `polynomial` (r, r) are undefined. All
  // arguments outlive this.
  IterationSteps(const Iteration& it, Operations& operations, Matrix& x, Matrix& next_x,
                 Matrix& polynomial)
      : it_(it), operations_(operations), x_(x), next_x_(next_x), polynomial_(polynomial) {}

  // Leaves the result in `x`, which may have been swapped with `next_x`.
  void Run() {
    if (it_.config.form == NsForm::kGram && it_.r < it_.c) {
      RunGram();
    } else {
      RunStandard();
    }
  }

 private:
  // X <- factor X + share X. Overwrites the Gram matrix.
  void ReplaceX(const Matrix& factor, float share) {
    operations_.Multiply(it_.TimesX(share), factor, x_, &x_, next_x_);
    std::swap(x_, next_x_);
  }

  // polynomial <- b gram + c2 gram gram: the polynomial without its constant.
  void StorePolynomial(const NewtonSchulzTriple& t) {
    if (t.c2 == 0) {
      // A cubic needs one product less and gives the same bits.
      operations_.Scale(it_.r, gram_, t.b, polynomial_);
    } else {
      operations_.Multiply(it_.Square(t.c2, t.b), gram_, gram_, &gram_, polynomial_);
    }
  }

  // Runs the standard form (formula [N1]).
  void RunStandard() {
    for (int step = 0; step < it_.config.steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(it_.set, step);
      operations_.Multiply(it_.Gram(), x_, x_, nullptr, gram_);
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
    Matrix factor = operations_.MakeSquare();
    Matrix product = operations_.MakeSquare();
    bool begins = true;
    bool mirrored = false;
    for (int step = 0; step < it_.config.steps; ++step) {
      const NewtonSchulzTriple t = TripleOfStep(it_.set, step);
      if (begins) {
        mirrored = MirrorsStretchFrom(step);
        operations_.Multiply(it_.Gram(), x_, x_, nullptr, gram_);
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
        operations_.Scale(it_.r, polynomial_, 1, factor);
        operations_.AddToDiagonal(it_.r, t.a, factor);
      } else {
        operations_.Multiply(it_.Commuting(t.a, mirrored), polynomial_, factor, &factor, product);
        std::swap(factor, product);
      }
      begins = ends;
      if (begins) {
        ReplaceX(factor, 0);
        continue;
      }
      operations_.Multiply(it_.Commuting(t.a, mirrored), polynomial_, gram_, &gram_, product);
      operations_.Multiply(it_.Commuting(t.a, mirrored), polynomial_, product, &product, gram_);
    }
  }

  const Iteration& it_;
  Operations& operations_;
  Matrix& x_;
  // Target of products of X, swapped with X afterwards. Until then it holds the Gram matrix, which
  // is not larger, and which is no longer needed when X is replaced.
  Matrix& next_x_;
  Matrix& gram_ = next_x_;
  Matrix& polynomial_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_ITERATION_STEPS_H_
