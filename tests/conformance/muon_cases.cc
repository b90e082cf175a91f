#include "tests/conformance/muon_cases.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/conformance/pairwise.h"
#include "tests/conformance/trial.h"

namespace kaon::conformance {
namespace {

using kernels::DecayMode;
using kernels::MatrixLayout;
using kernels::MatrixLayoutKind;
using kernels::MomentumForm;
using kernels::MuonConfig;
using kernels::NormMode;
using kernels::NsCoefficients;
using kernels::NsDType;
using kernels::NsForm;
using kernels::NsRepeat;
using kernels::StateDType;
using kernels::UpdateScale;

// A dimension's value with its name in the table.
template <typename T>
struct Named {
  const char* name;
  T value;
};

enum class Layout { kMatrix, kBatched, kBatchedRows, kConv, kRows, kQkv, kHeads, kCols };

constexpr Named<Layout> kLayouts[] = {
    {"matrix", Layout::kMatrix},
    {"batched", Layout::kBatched},
    {"batched_rows", Layout::kBatchedRows},
    {"conv_flatten", Layout::kConv},
    {"split_rows", Layout::kRows},
    {"qkv_interleaved", Layout::kQkv},
    {"heads", Layout::kHeads},
    {"split_cols", Layout::kCols},
};

struct Shape {
  uint64_t rows;
  uint64_t cols;
};

constexpr Shape kShapes[] = {{24, 40}, {40, 24}, {32, 32}, {18, 33}};

constexpr Named<NsCoefficients> kCoefficients[] = {
    {"jordan", NsCoefficients::kJordan},
    {"polar_express", NsCoefficients::kPolarExpress},
    {"you", NsCoefficients::kYou},
    {"polar_express_exact", NsCoefficients::kPolarExpressExact},
    {"polar_express_5_s102", NsCoefficients::kPolarExpress5S102},
    {"polar_express_5_s105", NsCoefficients::kPolarExpress5S105},
    {"cans", NsCoefficients::kCans},
    {"deepseek_v4", NsCoefficients::kDeepSeekV4},
    {"cubic5", NsCoefficients::kCubic5},
    {"custom", NsCoefficients::kCustom},
};

constexpr Named<NsForm> kForms[] = {{"standard", NsForm::kStandard}, {"gram", NsForm::kGram}};

constexpr Named<NsDType> kDTypes[] = {
    {"fp32", NsDType::kFloat32}, {"bf16", NsDType::kBFloat16}, {"fp16", NsDType::kFloat16}};

constexpr Named<NormMode> kNormModes[] = {{"scale_invariant", NormMode::kScaleInvariant},
                                          {"add_eps", NormMode::kAddEps},
                                          {"clamp_eps", NormMode::kClampEps}};

constexpr Named<MomentumForm> kMomentumForms[] = {{"ema", MomentumForm::kEma},
                                                  {"sum", MomentumForm::kSum}};

constexpr Named<bool> kNesterov[] = {{"nesterov", true}, {"plain", false}};

constexpr Named<StateDType> kMomentumDTypes[] = {{"m_fp32", StateDType::kFloat32},
                                                 {"m_bf16", StateDType::kBFloat16},
                                                 {"m_int8", StateDType::kInt8}};

constexpr Named<UpdateScale> kScales[] = {{"none", UpdateScale::kNone},
                                          {"original", UpdateScale::kOriginal},
                                          {"match_rms_adamw", UpdateScale::kMatchRmsAdamW},
                                          {"max_dim", UpdateScale::kMaxDim},
                                          {"unit_rms_norm", UpdateScale::kUnitRmsNorm}};

constexpr Named<DecayMode> kDecayModes[] = {{"decoupled", DecayMode::kDecoupled},
                                            {"independent", DecayMode::kIndependent},
                                            {"l2", DecayMode::kL2},
                                            {"palm", DecayMode::kPalm}};

constexpr Named<Input> kInputs[] = {
    {"gaussian", Input::kGaussian}, {"flat", Input::kFlat}, {"four_decades", Input::kFourDecades},
    {"tiny", Input::kTiny},         {"huge", Input::kHuge}, {"zero_first", Input::kZeroFirst}};

constexpr Named<bool> kTransposed[] = {{"", false}, {" transposed", true}};

enum Dimension {
  kLayout,
  kTransposedOrNot,
  kShape,
  kSet,
  kForm,
  kDType,
  kNorm,
  kMomentum,
  kNesterovOrNot,
  kMomentumDType,
  kScale,
  kDecay,
  kInput
};

const std::vector<int> kSizes = {8, 2, 4, 10, 2, 3, 3, 2, 2, 3, 5, 4, 6};

// Returns false for rows without a meaningful number. An eps of the historical forms moves the
// iterates of a tiny gradient below the range of fp16. The singular values of `cans` come near 2
// and diverge above it; half precision rounds them up.
bool Allowed(const Row& row) {
  if (row[kDType] > 0 && row[kSet] >= 0 &&
      kCoefficients[row[kSet]].value == NsCoefficients::kCans) {
    return false;
  }
  // The first polynomial of `cubic5` is 0.02 at 1; rounding in bf16 can make it negative.
  if (row[kDType] >= 0 && kDTypes[row[kDType]].value == NsDType::kBFloat16 && row[kSet] >= 0 &&
      kCoefficients[row[kSet]].value == NsCoefficients::kCubic5) {
    return false;
  }
  if (row[kNorm] > 0 && kInputs[std::max(0, row[kInput])].value == Input::kTiny) {
    return row[kDType] <= 0;
  }
  return true;
}

MatrixLayout LayoutOf(Layout layout, const Shape& shape) {
  const uint64_t half = shape.rows / 2;
  switch (layout) {
    case Layout::kMatrix:
      break;
    case Layout::kBatched:
      return {.kind = MatrixLayoutKind::kBatched, .sizes = {}};
    case Layout::kBatchedRows:
      return {.kind = MatrixLayoutKind::kBatched, .sizes = {half + 2, shape.rows - half - 2}};
    case Layout::kConv:
      return {.kind = MatrixLayoutKind::kConvFlatten, .sizes = {}};
    case Layout::kRows:
      return {.kind = MatrixLayoutKind::kSplitRows, .sizes = {half, half / 2, half - half / 2}};
    case Layout::kQkv:
      // Two query groups.
      return {.kind = MatrixLayoutKind::kQkvInterleaved,
              .sizes = {half / 2, half / 4, half - half / 2 - half / 4}};
    case Layout::kHeads:
      return {.kind = MatrixLayoutKind::kHeads, .sizes = {}, .num_heads = 2};
    case Layout::kCols:
      return {.kind = MatrixLayoutKind::kSplitCols,
              .sizes = {shape.cols / 2, shape.cols - shape.cols / 2}};
  }
  return {};
}

std::vector<uint64_t> DimensionsOf(Layout layout, const Shape& shape) {
  if (layout == Layout::kBatched || layout == Layout::kBatchedRows) {
    return {3, shape.rows, shape.cols};
  }
  if (layout != Layout::kConv) return {shape.rows, shape.cols};
  return shape.cols % 2 == 0 ? std::vector<uint64_t>{shape.rows, shape.cols / 4, 2, 2}
                             : std::vector<uint64_t>{shape.rows, shape.cols / 3, 3, 1};
}

kernels::NewtonSchulzConfig NewtonSchulzOf(const Row& row) {
  kernels::NewtonSchulzConfig config;
  config.coefficients = kCoefficients[row[kSet]].value;
  if (config.coefficients == NsCoefficients::kCustom) {
    config.custom = {{3.4445f, -4.7750f, 2.0315f}, {2.5f, -2.0f, 0.55f}, {1.5f, -0.5f, 0.0f}};
    config.custom_repeat = row[kForm] == 0 ? NsRepeat::kCycle : NsRepeat::kLast;
  }
  config.steps = NaturalSteps(config.coefficients);
  config.form = kForms[row[kForm]].value;
  if (config.form == NsForm::kGram) {
    // One restart suffices for at most 5 steps ([N7]).
    const int last = config.steps > 5 ? config.steps : 3;
    for (int i = 2; i < last; i += 2) config.gram_restarts.push_back(i);
  }
  config.dtype = kDTypes[row[kDType]].value;
  config.norm_mode = kNormModes[row[kNorm]].value;
  // Large enough to be seen: the norms of the blocks are about 5 to 50.
  if (config.norm_mode == NormMode::kAddEps) config.norm_eps = 0.5;
  if (config.norm_mode == NormMode::kClampEps) config.norm_eps = 10;
  return config;
}

MuonConfig ConfigOf(const Row& row) {
  MuonConfig config;
  config.momentum = 0.9;
  config.nesterov = kNesterov[row[kNesterovOrNot]].value;
  config.momentum_form = kMomentumForms[row[kMomentum]].value;
  config.newton_schulz = NewtonSchulzOf(row);
  config.scale = kScales[row[kScale]].value;
  config.scale_extra = row[kDecay] % 2 == 0 ? 1 : 0.75;
  config.weight_decay = 0.125;
  config.decay_mode = kDecayModes[row[kDecay]].value;
  config.momentum_dtype = kMomentumDTypes[row[kMomentumDType]].value;
  config.layout = LayoutOf(kLayouts[row[kLayout]].value, kShapes[row[kShape]]);
  config.layout.transposed = kTransposed[row[kTransposedOrNot]].value;
  return config;
}

std::string NameOf(const Row& row) {
  const Shape& shape = kShapes[row[kShape]];
  return absl::StrCat(kLayouts[row[kLayout]].name, kTransposed[row[kTransposedOrNot]].name, " ",
                      shape.rows, "x", shape.cols, " ", kCoefficients[row[kSet]].name, " ",
                      kForms[row[kForm]].name, " ", kDTypes[row[kDType]].name, " ",
                      kNormModes[row[kNorm]].name, " ", kMomentumForms[row[kMomentum]].name, " ",
                      kNesterov[row[kNesterovOrNot]].name, " ",
                      kMomentumDTypes[row[kMomentumDType]].name, " ", kScales[row[kScale]].name,
                      " ", kDecayModes[row[kDecay]].name, " ", kInputs[row[kInput]].name);
}

// Returns true if every block is a matrix with the spectrum of `input`.
bool IsFlat(const MuonConfig& config, Input input) {
  const MatrixLayout& layout = config.layout;
  return input == Input::kFlat && layout.sizes.empty() && layout.num_heads == 0;
}

// Tolerance against exact float64. [N9] sets none for more than 8 steps in half precision.
double WeightTolerance(const MuonConfig& muon, Input input) {
  const kernels::NewtonSchulzConfig& config = muon.newton_schulz;
  const bool flat = IsFlat(muon, input);
  const bool long_run = config.steps > 5;
  switch (config.dtype) {
    case NsDType::kBFloat16:
      return flat ? 4e-2 : long_run ? 5e-1 : 2e-1;
    case NsDType::kFloat16:
      return flat ? 3e-3 : config.steps > 8 ? 1.6e-1 : long_run ? 8e-2 : 3e-2;
    case NsDType::kFloat32:
      break;
  }
  if (config.form == NsForm::kGram) return 1e-3;
  if (input == Input::kFourDecades) return long_run ? 2e-4 : 5e-5;
  return 1e-5;
}

// Tolerance against float64 that rounds where the implementation rounds ([N9]).
double EmulatedTolerance(const MuonConfig& config, Input input) {
  if (input == Input::kFourDecades) return 5e-2;
  return IsFlat(config, input) ? 1e-2 : 2e-2;
}

// l2 decay carries the weights and their errors into the momentum.
double MomentumTolerance(const MuonConfig& config) {
  if (config.decay_mode != DecayMode::kL2) return 1e-6;
  return config.newton_schulz.dtype == NsDType::kFloat32 ? 1e-5 : 1e-2;
}

// Rows of one trial, its weights in fp32 held to `tolerance`.
void AddTrial(const std::string& name, const std::string& rule_ids, const Trial& trial,
              double tolerance, std::vector<NumericsCase>& cases) {
  const auto& config = std::get<MuonConfig>(trial.rule);
  // A rule that the service would reject has no row.
  const absl::Status valid = kernels::ValidateRule(trial.rule, trial.shape);
  CHECK(valid.ok()) << name << ": " << valid;
  const auto add = [&](const char* compared, double tolerance, auto measure) {
    cases.push_back({"muon", name, rule_ids, compared, tolerance, std::move(measure)});
  };
  add("weights", tolerance,
      [trial](kernels::Backend& b) { return WeightError(trial, Stored::kExact, b); });
  add("momentum", MomentumTolerance(config),
      [trial](kernels::Backend& b) { return StateError(trial, b); });
  if (config.newton_schulz.dtype == NsDType::kFloat32) return;
  add("weights, emulated rounding", EmulatedTolerance(config, trial.input),
      [trial](kernels::Backend& b) { return WeightError(trial, Stored::kAsConfigured, b); });
}

void AddPairs(std::vector<NumericsCase>& cases) {
  uint32_t seed = 1;
  for (const Row& row : CoverPairs(kSizes, Allowed)) {
    const Trial trial{ConfigOf(row),
                      DimensionsOf(kLayouts[row[kLayout]].value, kShapes[row[kShape]]),
                      kInputs[row[kInput]].value, seed++};
    AddTrial(NameOf(row), "[N1] [N2] [N5] [N6] [N7] [L] [M] [S1] [W1] [Q1]", trial,
             WeightTolerance(ConfigOf(row), trial.input), cases);
  }
}

// Returns true if all steps together magnify the error of a singular value near the largest. Their
// slope there is below 10 for the sets that [N9] was measured on.
bool IsSteep(NsCoefficients set) {
  return set == NsCoefficients::kCans || set == NsCoefficients::kCubic5 ||
         set == NsCoefficients::kPolarExpress5S102 || set == NsCoefficients::kPolarExpress5S105;
}

// Few singular values carry the norm of a matrix of low rank.
double ShapeTolerance(NsCoefficients set, const Shape& shape) {
  const uint64_t rank = std::min(shape.rows, shape.cols);
  if (set == NsCoefficients::kCans && rank < 10) return 5e-4;
  return rank == 1 ? 5e-5 : 1e-5;
}

// Edge case 34: a matrix of one row or column, an odd one, and a square one.
void AddShapes(std::vector<NumericsCase>& cases) {
  const Shape shapes[] = {{1, 40}, {40, 1}, {1, 1}, {7, 129}, {64, 64}};
  for (const auto& set : kCoefficients) {
    if (set.value == NsCoefficients::kCustom) continue;
    for (const Shape& shape : shapes) {
      MuonConfig config;
      config.newton_schulz.coefficients = set.value;
      config.newton_schulz.steps = NaturalSteps(set.value);
      AddTrial(absl::StrCat("matrix ", shape.rows, "x", shape.cols, " ", set.name),
               "[N2] [N4] [N8]", {config, {shape.rows, shape.cols}, Input::kGaussian, 17},
               ShapeTolerance(set.value, shape), cases);
    }
  }
}

// [N9] for sums of many products of one sign.
void AddLongSums(std::vector<NumericsCase>& cases) {
  const auto add = [&](const Named<NsCoefficients>& set, const Named<NsDType>& dtype,
                       const Shape& shape, double tolerance) {
    MuonConfig config;
    config.newton_schulz.coefficients = set.value;
    config.newton_schulz.steps = NaturalSteps(set.value);
    config.newton_schulz.dtype = dtype.value;
    AddTrial(absl::StrCat("matrix ", shape.rows, "x", shape.cols, " ", set.name, " ", dtype.name,
                          " one_sign"),
             "[N1] [N2] [N9]", {config, {shape.rows, shape.cols}, Input::kOneSign, 19}, tolerance,
             cases);
  };
  for (const auto& set : kCoefficients) {
    if (set.value == NsCoefficients::kCustom) continue;
    add(set, kDTypes[0], {1, 30000}, IsSteep(set.value) ? 5e-4 : 1e-5);
  }
  // oneDNN's own sums of many rows are off by 5e-6.
  add(kCoefficients[0], kDTypes[0], {64, 9000}, 5e-5);
  for (const auto& shape : {Shape{8, 60000}, Shape{1, 250000}}) {
    add(kCoefficients[0], kDTypes[0], shape, 1e-5);
    add(kCoefficients[0], kDTypes[1], shape, 4e-2);
    add(kCoefficients[6], kDTypes[0], shape, 5e-4);
  }
}

// [N3]: fewer and more steps than triples.
void AddSteps(std::vector<NumericsCase>& cases) {
  const Named<NsCoefficients> sets[] = {kCoefficients[0], kCoefficients[1], kCoefficients[2],
                                        kCoefficients[3], kCoefficients[6]};
  for (const auto& set : sets) {
    for (const int steps : {1, 2, 7, 10, 12}) {
      MuonConfig config;
      config.newton_schulz.coefficients = set.value;
      config.newton_schulz.steps = steps;
      // Sets that do not converge multiply rounding errors from step to step.
      AddTrial(absl::StrCat("matrix 24x40 ", set.name, " ", steps, " steps"), "[N2] [N3]",
               {config, {24, 40}, Input::kGaussian, 18}, steps > 8 ? 5e-5 : 1e-5, cases);
    }
  }
}

}  // namespace

std::vector<NumericsCase> MuonCases() {
  std::vector<NumericsCase> cases;
  AddPairs(cases);
  AddShapes(cases);
  AddSteps(cases);
  AddLongSums(cases);
  return cases;
}

}  // namespace kaon::conformance
