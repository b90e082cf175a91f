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

// Number of columns of a wide matrix that are processed together: their probes stay cached.
constexpr int64_t kTileColumns = 2048;

// The orthogonalized update of one block, row by row.
class Update {
 public:
  Update(const MatrixBlock& block, const DecayScalars& decay, float step_size,
         absl::Span<const float> before, absl::Span<const float> after)
      : block_(block), decay_(decay), step_size_(step_size), before_(before), after_(after) {}

  int64_t rows() const { return block_.rows; }
  int64_t cols() const { return block_.cols; }

  // Reads elements of each row, in order, and calls visit(row). Fills `buffer` with the elements
  // from `first` on.
  template <typename Visit>
  void ForEachRow(int64_t first, absl::Span<double> buffer, const Visit& visit) const {
    int64_t row = 0;
    for (const RowRun& run : block_.runs) {
      for (int64_t i = 0; i < run.num_rows; ++i) {
        Read(run.offset + i * block_.row_stride + first, buffer);
        visit(row++);
      }
    }
  }

 private:
  void Read(int64_t at, absl::Span<double> out) const {
    for (double& element : out) {
      const double decayed = std::fma(static_cast<double>(decay_.minus_decay),
                                      static_cast<double>(before_[at]), before_[at]);
      element = (decayed - after_[at]) / step_size_;
      ++at;
    }
  }

  const MatrixBlock& block_;
  const DecayScalars decay_;
  const double step_size_;
  const absl::Span<const float> before_;
  const absl::Span<const float> after_;
};

// Returns the exact squared norm of O O^T - I.
double SquaredError(const Update& update) {
  const bool wide = update.rows() <= update.cols();
  const int64_t r = wide ? update.rows() : update.cols();
  const int64_t c = wide ? update.cols() : update.rows();
  std::vector<double> x(r * c);
  std::vector<double> row(update.cols());
  update.ForEachRow(0, absl::MakeSpan(row), [&](int64_t i) {
    for (int64_t j = 0; j < update.cols(); ++j) x[wide ? i * c + j : j * c + i] = row[j];
  });
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

// Returns signs without a pattern: splitmix64 of the position, one bit for each probe.
Probes SignsAt(int64_t position) {
  uint64_t z = (static_cast<uint64_t>(position) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  Probes signs;
  for (int p = 0; p < kOrthogonalityProbes; ++p) signs[p] = ((z >> p) & 1) != 0 ? 1 : -1;
  return signs;
}

std::vector<Probes> SignsOf(int64_t count) {
  std::vector<Probes> signs(count);
  for (int64_t i = 0; i < count; ++i) signs[i] = SignsAt(i);
  return signs;
}

void AddProduct(double factor, const Probes& values, Probes& to) {
  for (int p = 0; p < kOrthogonalityProbes; ++p) to[p] += factor * values[p];
}

// Computes O O^T z of a wide matrix: O^T z for some columns at a time, and their share of the
// product.
std::vector<Probes> GramTimesWide(const Update& update, const std::vector<Probes>& signs) {
  std::vector<Probes> product(update.rows(), Probes{});
  std::vector<Probes> column_values(std::min(kTileColumns, update.cols()));
  std::vector<double> buffer(column_values.size());
  for (int64_t first = 0; first < update.cols(); first += kTileColumns) {
    const int64_t columns = std::min(kTileColumns, update.cols() - first);
    const absl::Span<double> row = absl::MakeSpan(buffer).first(columns);
    std::fill(column_values.begin(), column_values.end(), Probes{});
    update.ForEachRow(first, row, [&](int64_t i) {
      for (int64_t j = 0; j < columns; ++j) AddProduct(row[j], signs[i], column_values[j]);
    });
    update.ForEachRow(first, row, [&](int64_t i) {
      for (int64_t j = 0; j < columns; ++j) AddProduct(row[j], column_values[j], product[i]);
    });
  }
  return product;
}

// Computes O^T O z of a tall matrix, row by row.
std::vector<Probes> GramTimesTall(const Update& update, const std::vector<Probes>& signs) {
  std::vector<Probes> product(update.cols(), Probes{});
  std::vector<double> row(update.cols());
  update.ForEachRow(0, absl::MakeSpan(row), [&](int64_t) {
    Probes value{};
    for (int64_t j = 0; j < update.cols(); ++j) AddProduct(row[j], signs[j], value);
    for (int64_t j = 0; j < update.cols(); ++j) AddProduct(row[j], value, product[j]);
  });
  return product;
}

// Estimates the squared norm of O O^T - I: it is the mean of ||(O O^T - I) z||^2 for z of random
// signs. This needs a few passes over the matrix instead of its Gram matrix, no copy, and memory
// for its shorter side alone.
double EstimatedSquaredError(const Update& update) {
  const bool wide = update.rows() <= update.cols();
  const std::vector<Probes> signs = SignsOf(std::min(update.rows(), update.cols()));
  const std::vector<Probes> product =
      wide ? GramTimesWide(update, signs) : GramTimesTall(update, signs);
  double sum = 0;
  for (size_t i = 0; i < signs.size(); ++i) {
    for (int p = 0; p < kOrthogonalityProbes; ++p) {
      sum += (product[i][p] - signs[i][p]) * (product[i][p] - signs[i][p]);
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
  int64_t budget = kMostOrthogonalityElements;
  std::optional<double> largest;
  for (const MatrixBlock& block : *blocks) {
    budget -= block.rows * block.cols;
    if (budget < 0) break;
    // Same step size as in ApplyMuon.
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
