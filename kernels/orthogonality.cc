#include "kernels/orthogonality.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/matrix_layout.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/weight_decay.h"

namespace kaon::kernels {
namespace {

// One value for each probe.
using Probes = std::array<double, kOrthogonalityProbes>;

// The orthogonalized update of one block, row by row.
class Update {
 public:
  Update(const MatrixBlock& block, const DecayScalars& decay, float step_size,
         absl::Span<const float> before, absl::Span<const float> after)
      : block_(block), decay_(decay), step_size_(step_size), before_(before), after_(after) {
    for (const RowRun& run : block.runs) {
      for (int64_t i = 0; i < run.num_rows; ++i) {
        offsets_.push_back(run.offset + i * block.row_stride);
      }
    }
  }

  int64_t rows() const { return block_.rows; }
  int64_t cols() const { return block_.cols; }

  void ReadRow(int64_t row, std::vector<double>& out) const {
    for (int64_t j = 0; j < block_.cols; ++j) {
      const int64_t at = offsets_[row] + j;
      const double decayed = std::fma(static_cast<double>(decay_.minus_decay),
                                      static_cast<double>(before_[at]), before_[at]);
      out[j] = (decayed - after_[at]) / step_size_;
    }
  }

 private:
  const MatrixBlock& block_;
  const DecayScalars decay_;
  const double step_size_;
  const absl::Span<const float> before_;
  const absl::Span<const float> after_;
  std::vector<int64_t> offsets_;
};

// The squared norm of O O^T - I, in full.
double SquaredError(const Update& update) {
  const bool wide = update.rows() <= update.cols();
  const int64_t r = wide ? update.rows() : update.cols();
  const int64_t c = wide ? update.cols() : update.rows();
  std::vector<double> x(r * c);
  std::vector<double> row(update.cols());
  for (int64_t i = 0; i < update.rows(); ++i) {
    update.ReadRow(i, row);
    for (int64_t j = 0; j < update.cols(); ++j) x[wide ? i * c + j : j * c + i] = row[j];
  }
  double sum = 0;
  for (int64_t i = 0; i < r; ++i) {
    for (int64_t k = 0; k <= i; ++k) {
      double product = 0;
      for (int64_t j = 0; j < c; ++j) product += x[i * c + j] * x[k * c + j];
      const double error = i == k ? product - 1 : product;
      sum += (i == k ? 1 : 2) * error * error;
    }
  }
  return sum;
}

// Signs without a pattern: splitmix64 of the position, one bit for each probe.
Probes SignsAt(int64_t position) {
  uint64_t z = (static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  Probes signs;
  for (int p = 0; p < kOrthogonalityProbes; ++p) signs[p] = ((z >> p) & 1) != 0 ? 1 : -1;
  return signs;
}

void AddProduct(double factor, const Probes& values, Probes& to) {
  for (int p = 0; p < kOrthogonalityProbes; ++p) to[p] += factor * values[p];
}

// For z of random signs the mean of ||(O O^T - I) z||^2 is the squared norm of O O^T - I: two
// passes over the matrix instead of its Gram matrix, and no copy of it.
double EstimatedSquaredError(const Update& update) {
  const int64_t rows = update.rows();
  const int64_t cols = update.cols();
  const bool wide = rows <= cols;
  std::vector<double> row(cols);
  // O^T z when wide, else O^T O z.
  std::vector<Probes> column_values(cols, Probes{});
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    update.ReadRow(i, row);
    Probes factors = wide ? SignsAt(i) : Probes{};
    if (!wide) {
      for (int64_t j = 0; j < cols; ++j) AddProduct(row[j], SignsAt(j), factors);
    }
    for (int64_t j = 0; j < cols; ++j) AddProduct(row[j], factors, column_values[j]);
  }
  for (int64_t i = 0; i < (wide ? rows : cols); ++i) {
    Probes value{};
    if (wide) {
      update.ReadRow(i, row);
      for (int64_t j = 0; j < cols; ++j) AddProduct(row[j], column_values[j], value);
    } else {
      value = column_values[i];
    }
    const Probes signs = SignsAt(i);
    for (int p = 0; p < kOrthogonalityProbes; ++p) {
      sum += (value[p] - signs[p]) * (value[p] - signs[p]);
    }
  }
  return sum / kOrthogonalityProbes;
}

bool IsSmall(const std::vector<MatrixBlock>& blocks) {
  double products = 0;
  for (const MatrixBlock& block : blocks) {
    const int64_t r = std::min(block.rows, block.cols);
    const int64_t n = block.rows * block.cols;
    if (n > kMostGramElements) return false;
    products += 0.5 * static_cast<double>(r) * static_cast<double>(n);
  }
  return products <= static_cast<double>(kMostGramProducts);
}

}  // namespace

std::optional<double> OrthogonalityError(const MuonConfig& config, double lr,
                                         absl::Span<const uint64_t> shape,
                                         absl::Span<const float> before,
                                         absl::Span<const float> after) {
  const auto blocks = MatrixBlocks(config.layout, shape);
  CHECK(blocks.ok()) << blocks.status();
  CHECK_EQ(before.size(), after.size());
  const bool small = IsSmall(*blocks);
  std::optional<double> largest;
  for (const MatrixBlock& block : *blocks) {
    // As ApplyMuon takes it.
    const auto step_size =
        static_cast<float>(lr * Muon::UpdateScaleOf(config, block.rows, block.cols));
    if (block.rows == 0 || block.cols == 0 || !(step_size > 0)) continue;
    const Update update(block, PrepareDecay(config, lr), step_size, before, after);
    const double squared = small ? SquaredError(update) : EstimatedSquaredError(update);
    const auto r = static_cast<double>(std::min(block.rows, block.cols));
    largest = std::max(largest.value_or(0), std::sqrt(squared / r));
  }
  return largest;
}

}  // namespace kaon::kernels
