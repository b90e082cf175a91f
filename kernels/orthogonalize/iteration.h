// The steps of Newton-Schulz on a normalised wide matrix, in standard ([N1]) and in Gram form
// ([N7]), over any storage of matrix_storage.h. Pure functions; any thread, as far as the Gemm
// allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
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
  Gemm& gemm;

  MatrixProduct Gram() const {
    return {.rows = r, .cols = r, .inner = c, .transpose_b = true, .symmetric = true};
  }
  // Of a symmetric matrix (r, r) with itself, added to a symmetric one.
  MatrixProduct Square(float alpha, float beta) const {
    return {.rows = r, .cols = r, .inner = r, .alpha = alpha, .beta = beta, .symmetric = true};
  }
  // Of a matrix (r, r) with one of `cols` columns.
  MatrixProduct Times(int64_t cols, float alpha, float beta) const {
    return {.rows = r, .cols = cols, .inner = r, .alpha = alpha, .beta = beta};
  }
};

// to <- b gram + c2 gram gram, the polynomial without its constant; `wide` is scratch.
template <typename Storage>
void StorePolynomial(const Iteration& it, const NewtonSchulzTriple& t,
                     const typename Storage::Matrix& gram, std::vector<float>& wide,
                     typename Storage::Matrix& to) {
  Storage::Load(gram, wide);
  if (t.c2 == 0) {
    // A cubic: one product less, the same bits.
    for (float& x : wide) x *= t.b;
  } else {
    Storage::Multiply(it.gemm, it.Square(t.c2, t.b), gram, gram, wide);
  }
  Storage::Store(wide, to);
}

// [N1]
template <typename Storage>
void IterateStandard(const Iteration& it, std::vector<float>& x, typename Storage::Matrix& stored) {
  typename Storage::Matrix gram(it.r * it.r);
  typename Storage::Matrix polynomial(it.r * it.r);
  std::vector<float> wide(it.r * it.r);
  for (int step = 0; step < it.config.steps; ++step) {
    const NewtonSchulzTriple t = TripleOfStep(it.set, step);
    Storage::Multiply(it.gemm, it.Gram(), stored, stored, wide);
    Storage::Store(wide, gram);
    StorePolynomial<Storage>(it, t, gram, wide, polynomial);
    Storage::Load(stored, x);
    Storage::Multiply(it.gemm, it.Times(it.c, 1, t.a), polynomial, stored, x);
    Storage::Store(x, stored);
  }
}

// [N7]: the steps on R = X X^T (r, r), whose factors Q gathers; X takes Q at every restart, before
// rounding has made too much of R's small eigenvalues, and at the end.
template <typename Storage>
void IterateGram(const Iteration& it, std::vector<float>& x, typename Storage::Matrix& stored) {
  const std::vector<int>& restarts = it.config.gram_restarts;
  typename Storage::Matrix gram(it.r * it.r);
  typename Storage::Matrix polynomial(it.r * it.r);
  typename Storage::Matrix factor(it.r * it.r);
  typename Storage::Matrix product(it.r * it.r);
  std::vector<float> wide(it.r * it.r);
  bool begins = true;
  for (int step = 0; step < it.config.steps; ++step) {
    const NewtonSchulzTriple t = TripleOfStep(it.set, step);
    if (begins) {
      Storage::Multiply(it.gemm, it.Gram(), stored, stored, wide);
      Storage::Store(wide, gram);
    }
    StorePolynomial<Storage>(it, t, gram, wide, polynomial);
    Storage::Load(begins ? polynomial : factor, wide);
    if (begins) {
      for (int64_t i = 0; i < it.r; ++i) wide[i * it.r + i] += t.a;
    } else {
      Storage::Multiply(it.gemm, it.Times(it.r, 1, t.a), polynomial, factor, wide);
    }
    Storage::Store(wide, factor);

    const int done = step + 1;
    const bool restarts_count = !Mutated(Mutation::kGramWithoutRestart);
    begins =
        done == it.config.steps ||
        (restarts_count && std::find(restarts.begin(), restarts.end(), done) != restarts.end());
    if (begins) {
      Storage::Multiply(it.gemm, it.Times(it.c, 1, 0), factor, stored, x);
      Storage::Store(x, stored);
      continue;
    }
    Storage::Load(gram, wide);
    Storage::Multiply(it.gemm, it.Times(it.r, 1, t.a), polynomial, gram, wide);
    Storage::Store(wide, product);
    Storage::Load(product, wide);
    Storage::Multiply(it.gemm, it.Times(it.r, 1, t.a), polynomial, product, wide);
    Storage::Store(wide, gram);
  }
}

// x <- the iterated x, in place; it is rounded before the first step too.
template <typename Storage>
void Iterate(const Iteration& it, std::vector<float>& x) {
  typename Storage::Matrix stored(x.size());
  Storage::Store(x, stored);
  if (it.config.form == NsForm::kGram && it.r < it.c) {
    IterateGram<Storage>(it, x, stored);
  } else {
    IterateStandard<Storage>(it, x, stored);
  }
  Storage::Load(stored, x);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_ITERATION_H_
