#include "tests/kernels/cuda/elements/muon_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/float_bits.h"
#include "kernels/orthogonalize/normalization.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/digest_key.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/state_codec.h"
#include "tests/kernels/cuda/elements/device_array.h"
#include "tests/kernels/cuda/immediate_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr uint32_t kParameter = 17;
constexpr uint32_t kMomentumSlot = 1;

bool HasNan(const std::vector<float>& x) {
  return std::any_of(x.begin(), x.end(), [](float value) { return std::isnan(value); });
}

bool AreSame(double x, double y) {
  return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(x)) == 0;
}

// Returns the facts that the kernels write about a direction or a matrix.
std::vector<NormBlock> NormsOf(absl::Span<const float> x) {
  std::vector<NormBlock> norms;
  for (size_t begin = 0; begin < x.size(); begin += kNormBlockElements) {
    const GradNorm norm = ComputeGradNorm(x.subspan(begin, kNormBlockElements));
    norms.push_back({norm.sum_squares, BitsOf(static_cast<float>(norm.absolute_max)), 0});
  }
  return norms;
}

bool AreSame(const std::vector<NormBlock>& x, const std::vector<NormBlock>& y) {
  return std::equal(
      x.begin(), x.end(), y.begin(), y.end(), [](const NormBlock& a, const NormBlock& b) {
        return AreSame(a.sum_squares, b.sum_squares) && a.largest_bits == b.largest_bits;
      });
}

// One parameter of a momentum batch: its memory, and what the CPU makes of it.
struct MomentumParameter {
  MomentumParameter(const MomentumCase& momentum, int64_t n, uint64_t seed)
      : gradient(static_cast<size_t>(n) * SizeOf(momentum.grad_dtype)),
        weights(MakeValues(n, Values::kFinite, seed + 1)),
        state_bytes(static_cast<size_t>(StateBytes(momentum.state_dtype, n))) {
    FromFloat(momentum.grad_dtype, MakeValues(n, momentum.values, seed), gradient.data());
    EncodeState(momentum.state_dtype, MakeValues(n, Values::kFinite, seed + 2), 0,
                absl::MakeSpan(state_bytes));
    grad = std::make_unique<DeviceArray<std::byte>>(gradient);
    param = std::make_unique<DeviceArray<float>>(weights);
    state = std::make_unique<DeviceArray<std::byte>>(state_bytes);
    direction = std::make_unique<DeviceArray<float>>(std::vector<float>(weights.size(), -5.0f));
    norms.resize(static_cast<size_t>(NumNormBlocks(n)));
  }

  std::vector<std::byte> gradient;
  std::vector<float> weights;
  std::vector<std::byte> state_bytes;
  std::unique_ptr<DeviceArray<std::byte>> grad;
  std::unique_ptr<DeviceArray<float>> param;
  std::unique_ptr<DeviceArray<std::byte>> state;
  std::unique_ptr<DeviceArray<float>> direction;
  std::vector<NormBlock> norms;
  UpdateFacts facts;
};

std::string Compare(const MomentumCase& momentum, const MuonMomentumScalars& scalars,
                    const MomentumParameter& parameter) {
  const size_t n = parameter.weights.size();
  std::vector<float> grad(n);
  ToFloat(momentum.grad_dtype, parameter.gradient.data(), absl::MakeSpan(grad));
  std::vector<float> state(n);
  DecodeState(momentum.state_dtype, parameter.state_bytes, 0, absl::MakeSpan(state));
  std::vector<float> direction(n);
  for (size_t i = 0; i < n; ++i) {
    direction[i] = MuonDirection(scalars, grad[i], parameter.weights[i], state[i]);
  }
  std::vector<std::byte> stored = parameter.state_bytes;
  uint64_t digest = 0;
  if (momentum.writes_state) {
    EncodeState(momentum.state_dtype, state, 0, absl::MakeSpan(stored));
    digest = TensorDigester(kParameter, kMomentumSlot).OfBytes(stored, 0);
  }
  if (!parameter.state->guards_are_whole() || !parameter.direction->guards_are_whole()) {
    return "a write outside";
  }
  if (!HasNan(state) && parameter.state->values() != stored) return "state";
  if (!HasNan(state) && parameter.facts.slots_digest != digest) return "slots_digest";
  if (!momentum.writes_direction) return "";
  if (!AreEqual(parameter.direction->values(), direction)) return "direction";
  return AreSame(parameter.norms, NormsOf(direction)) ? "" : "norms";
}

// The matrices of one batch in one parameter, and what the CPU makes of them.
class MatrixBatch {
 public:
  MatrixBatch(const MatrixCase& matrices, uint64_t seed)
      : case_(matrices),
        stride_(matrices.layout == Rows::kStrided ? matrices.cols + 12 : matrices.cols),
        r_(std::min(matrices.rows, matrices.cols)),
        pitch_((std::max(matrices.rows, matrices.cols) + 7) / 8 * 8 + 8),
        element_bytes_(matrices.dtype == NsDType::kFloat32 ? 4 : 2),
        direction_values_(MakeValues(NumElements(), matrices.values, seed)),
        weights_(MakeValues(NumElements(), Values::kFinite, seed + 1)),
        direction_(direction_values_),
        param_(weights_),
        written_(std::vector<float>(weights_.size(), -3.0f)),
        normalized_(std::vector<std::byte>(XBytes(), std::byte{0x7b})),
        orthogonal_(OrthogonalValues(seed + 2)),
        norms_(static_cast<size_t>(matrices.count * BlocksOfEach())),
        facts_(static_cast<size_t>(matrices.count)) {
    scalars_.decay.minus_decay = -0.01f;
    scalars_.step_size = 0.03f;
    for (int64_t row = 0; row < matrices.count * matrices.rows; ++row) {
      const int64_t in_matrix = row % matrices.rows;
      const bool reverse = matrices.layout == Rows::kListed;
      const int64_t at = reverse ? row - in_matrix + matrices.rows - 1 - in_matrix : row;
      row_elements_.push_back(matrices.first_element + at * stride_);
    }
    for (int64_t i = 0; i < matrices.count; ++i) matrices_.push_back(MatrixOf(i));
  }

  std::string Run(uint64_t seed) {
    ImmediateStream stream(seed);
    const MuonMatrices batch = {matrices_.data(), facts_.data(), case_.count, case_.rows,
                                case_.cols,       pitch_,        case_.dtype};
    const NormalizationOptions options = {case_.norm_mode, 1e-7, 1.02};
    DescribeMatrices(stream, batch);
    NormalizeMatrices(stream, batch, options);
    for (int64_t i = 0; i < case_.count; ++i) {
      const std::string difference = CompareNormalized(i, options);
      if (!difference.empty()) return absl::StrCat("matrix ", i, ": ", difference);
    }
    for (MatrixFacts& facts : facts_) facts.weights_digest = facts.largest_weight_bits = 0;
    std::vector<double> tile_squares(static_cast<size_t>(NumTileSquares(batch)));
    StepMatrices(stream, batch, tile_squares.data());
    for (int64_t i = 0; i < case_.count; ++i) {
      const std::string difference = CompareWeights(i);
      if (!difference.empty()) return absl::StrCat("matrix ", i, ": ", difference);
    }
    return CompareOutside();
  }

 private:
  int64_t NumElements() const { return case_.count * case_.rows * stride_; }
  int64_t BlocksOfEach() const { return NumNormBlocks(case_.rows * case_.cols); }
  size_t XBytes() const { return static_cast<size_t>(case_.count * r_ * pitch_) * element_bytes_; }
  const DeviceArray<float>& written() const { return case_.in_place ? param_ : written_; }

  MuonMatrix MatrixOf(int64_t i) {
    const auto biased = [&](float* values) {
      return reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(values) -
                                      sizeof(float) * static_cast<uint64_t>(case_.first_element));
    };
    const size_t x = static_cast<size_t>(i * r_ * pitch_) * element_bytes_;
    MuonMatrix matrix = {};
    matrix.direction = biased(direction_.data());
    matrix.param = biased(param_.data());
    matrix.new_param = case_.in_place ? biased(param_.data()) : biased(written_.data());
    if (case_.layout == Rows::kListed) matrix.row_elements = &row_elements_[i * case_.rows];
    matrix.offset = row_elements_[i * case_.rows];
    matrix.row_stride = stride_;
    matrix.norms = &norms_[i * BlocksOfEach()];
    matrix.normalized = normalized_.data() + x;
    matrix.orthogonal = orthogonal_.data() + x;
    matrix.scalars = scalars_;
    matrix.weights_key = TensorDigestKey(kParameter, kWeightSlot);
    return matrix;
  }

  std::vector<std::byte> OrthogonalValues(uint64_t seed) const {
    std::vector<float> values = MakeValues(case_.count * r_ * pitch_, Values::kFinite, seed);
    for (float& x : values) x = std::clamp(x, -2.0f, 2.0f);
    std::vector<std::byte> bytes(XBytes());
    FromFloat(XType(), values, bytes.data());
    return bytes;
  }
  DType XType() const {
    if (case_.dtype == NsDType::kFloat32) return DType::kFloat32;
    return case_.dtype == NsDType::kBFloat16 ? DType::kBFloat16 : DType::kFloat16;
  }

  // Returns the position in a parameter's array, and that in an array of X.
  size_t InParameter(int64_t matrix, int64_t row, int64_t col) const {
    return static_cast<size_t>(row_elements_[matrix * case_.rows + row] - case_.first_element +
                               col);
  }
  size_t InX(int64_t matrix, int64_t row, int64_t col) const {
    const bool transposed = case_.rows > case_.cols;
    const int64_t x_row = transposed ? col : row;
    const int64_t x_col = transposed ? row : col;
    return static_cast<size_t>((matrix * r_ + x_row) * pitch_ + x_col);
  }
  std::vector<float> XValues(const std::vector<std::byte>& bytes) const {
    std::vector<float> values(bytes.size() / element_bytes_);
    ToFloat(XType(), bytes.data(), absl::MakeSpan(values));
    return values;
  }

  std::string CompareNormalized(int64_t i, const NormalizationOptions& options) const {
    std::vector<float> matrix;
    for (int64_t row = 0; row < case_.rows; ++row) {
      for (int64_t col = 0; col < case_.cols; ++col) {
        matrix.push_back(direction_values_[InParameter(i, row, col)]);
      }
    }
    double squares = 0;
    double absolute_max = 0;
    for (size_t begin = 0; begin < matrix.size(); begin += kNormPiece) {
      const GradNorm piece =
          ComputeGradNorm(absl::MakeConstSpan(matrix).subspan(begin, kNormPiece));
      squares += piece.sum_squares;
      absolute_max = std::max(absolute_max, piece.absolute_max);
    }
    if (facts_[i].absolute_max != absolute_max) return "absolute_max";
    const bool is_zero = absolute_max == 0;
    const Normalization normalization =
        is_zero ? Normalization() : NormalizationOf(options, squares, absolute_max);
    const std::vector<float> x = XValues(normalized_.values());
    for (int64_t e = 0; e < case_.rows * case_.cols; ++e) {
      const float value = is_zero ? 0.0f : Normalized(normalization, matrix[e]);
      const float got = x[InX(i, e / case_.cols, e % case_.cols)];
      if (!AreSame(got, RoundTo(XType(), value))) {
        return absl::StrCat("element ", e, " is normalized to ", got, ", expecting ", value);
      }
    }
    return "";
  }

  std::string CompareWeights(int64_t i) const {
    const bool is_zero = facts_[i].absolute_max == 0;
    const std::vector<float> x = XValues(orthogonal_.values());
    const std::vector<float> got = written().values();
    const TensorDigester digester(kParameter, kWeightSlot);
    uint64_t digest = 0;
    uint32_t largest = 0;
    double squares = 0;
    for (int64_t row = 0; row < case_.rows; ++row) {
      for (int64_t col = 0; col < case_.cols; ++col) {
        const size_t at = InParameter(i, row, col);
        const float orthogonal = is_zero ? 0.0f : x[InX(i, row, col)];
        const float weight = MuonWeight(scalars_, orthogonal, weights_[at]);
        if (!AreSame(got[at], weight)) {
          return absl::StrCat("weight ", at, ": ", got[at], ", expecting ", weight);
        }
        squares += static_cast<double>(orthogonal) * orthogonal;
        digest += digester.Of({&weight, 1}, case_.first_element + at);
        largest = std::max(largest, BitsOf(weight) & 0x7fffffffu);
      }
    }
    if (facts_[i].weights_digest != digest) return "weights_digest";
    if (facts_[i].largest_weight_bits != largest) return "largest_weight_bits";
    // The order of this sum is not the CPU's.
    return std::abs(facts_[i].sum_squares - squares) <= 1e-12 * squares ? "" : "sum_squares";
  }

  // Compares what no kernel may write: elements between the rows, and those past the end of X's.
  std::string CompareOutside() const {
    if (!written().guards_are_whole() || !normalized_.guards_are_whole()) return "a write outside";
    const std::vector<float> got = written().values();
    const std::vector<float> old = case_.in_place ? weights_ : std::vector<float>(got.size(), -3);
    for (size_t at = 0; at < got.size(); ++at) {
      const bool between = static_cast<int64_t>(at) % stride_ >= case_.cols;
      if (between && got[at] != old[at]) return absl::StrCat("a write between rows, at ", at);
    }
    const std::vector<std::byte> x = normalized_.values();
    const size_t row_bytes = static_cast<size_t>(pitch_) * element_bytes_;
    const size_t used = static_cast<size_t>(std::max(case_.rows, case_.cols)) * element_bytes_;
    for (size_t at = 0; at < x.size(); ++at) {
      if (at % row_bytes >= used && x[at] != std::byte{0x7b}) return "a write past a row of X";
    }
    return "";
  }

  const MatrixCase case_;
  const int64_t stride_;
  const int64_t r_;
  const int64_t pitch_;
  const size_t element_bytes_;
  const std::vector<float> direction_values_;
  const std::vector<float> weights_;
  DeviceArray<float> direction_;
  DeviceArray<float> param_;
  DeviceArray<float> written_;
  DeviceArray<std::byte> normalized_;
  DeviceArray<std::byte> orthogonal_;
  std::vector<NormBlock> norms_;
  std::vector<MatrixFacts> facts_;
  std::vector<int64_t> row_elements_;
  MuonWeightScalars scalars_;
  std::vector<MuonMatrix> matrices_;
};

}  // namespace

std::string CompareMomentum(const MomentumCase& momentum, uint64_t seed) {
  MuonMomentumScalars scalars;
  scalars.clip = PrepareClip(0.25);
  scalars.momentum = 0.95f;
  scalars.grad_share = 0.05f;
  scalars.nesterov = momentum.nesterov;
  scalars.decay.l2 = momentum.l2;
  std::vector<std::unique_ptr<MomentumParameter>> parameters;
  std::vector<MomentumStep> steps;
  MomentumBatch batch = {};
  for (const int64_t n : momentum.sizes) {
    parameters.push_back(
        std::make_unique<MomentumParameter>(momentum, n, seed + parameters.size()));
    MomentumParameter& parameter = *parameters.back();
    MomentumStep step = {};
    step.scalars = scalars;
    step.grad = parameter.grad->data();
    step.grad_dtype = momentum.grad_dtype;
    step.param = parameter.param->data();
    step.state = parameter.state->data();
    step.writes_state = momentum.writes_state;
    step.state_key = TensorDigestKey(kParameter, kMomentumSlot);
    step.direction = momentum.writes_direction ? parameter.direction->data() : nullptr;
    step.norms = parameter.norms.data();
    step.facts = &parameter.facts;
    step.num_elements = n;
    step.first_block = batch.num_blocks;
    steps.push_back(step);
    batch.num_blocks += NumNormBlocks(n);
  }
  batch.steps = steps.data();
  batch.count = static_cast<int64_t>(steps.size());
  batch.state_dtype = momentum.state_dtype;
  ImmediateStream stream(seed);
  StepMomentum(stream, batch);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string difference = Compare(momentum, scalars, *parameters[i]);
    if (!difference.empty()) return absl::StrCat("parameter ", i, ": ", difference);
  }
  return "";
}

std::string CompareMatrices(const MatrixCase& matrices, uint64_t seed) {
  return MatrixBatch(matrices, seed).Run(seed);
}

}  // namespace kaon::kernels::cuda
