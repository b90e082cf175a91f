// Multiplies dense matrices for the trainer's model, with Eigen on the calling thread. Operands are
// row-major. Pure functions; any thread. The order of every sum depends only on the sizes if
// operands are aligned to 16 bytes. std::vector's memory is; with less alignment Eigen would peel
// loops by address.
#ifndef KAON_CLIENT_TRAIN_MATRIX_PRODUCT_H_
#define KAON_CLIENT_TRAIN_MATRIX_PRODUCT_H_

#ifndef EIGEN_DONT_PARALLELIZE
#define EIGEN_DONT_PARALLELIZE
#endif
#include <eigen3/Eigen/Core>

namespace kaon::train {

// Computes C (rows, cols) = op(A) (rows, inner) times op(B) (inner, cols); adds to C if
// `accumulate`.
struct ProductShape {
  int rows = 0;
  int cols = 0;
  int inner = 0;
  // A is stored as (inner, rows).
  bool transpose_a = false;
  // B is stored as (cols, inner). At most one operand may be transposed.
  bool transpose_b = false;
  bool accumulate = false;
};

template <typename Scalar>
void MultiplyMatrices(const ProductShape& shape, const Scalar* a, const Scalar* b, Scalar* c) {
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> left(a, shape.transpose_a ? shape.inner : shape.rows,
                                      shape.transpose_a ? shape.rows : shape.inner);
  const Eigen::Map<const Matrix> right(b, shape.transpose_b ? shape.cols : shape.inner,
                                       shape.transpose_b ? shape.inner : shape.cols);
  Eigen::Map<Matrix> product(c, shape.rows, shape.cols);
  if (!shape.accumulate) product.setZero();
  if (shape.transpose_a) {
    product.noalias() += left.transpose() * right;
  } else if (shape.transpose_b) {
    product.noalias() += left * right.transpose();
  } else {
    product.noalias() += left * right;
  }
}

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_MATRIX_PRODUCT_H_
