#include "tests/kernels/cuda/elements/element_cases.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/elements/digest.h"
#include "kernels/cuda/elements/fold.h"
#include "kernels/cuda/elements/mean.h"
#include "kernels/cuda/elements/round.h"
#include "kernels/cuda/elements/update.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/digest_key.h"
#include "kernels/reduce/fold.h"
#include "kernels/reduce/mean.h"
#include "kernels/rules/type_list.h"
#include "kernels/state_codec.h"
#include "tests/kernels/cuda/elements/device_array.h"
#include "tests/kernels/cuda/immediate_device.h"

namespace kaon::kernels::cuda {
namespace {

constexpr uint32_t kParameter = 41;

bool HasNan(const std::vector<float>& x) {
  return std::any_of(x.begin(), x.end(), [](float value) { return std::isnan(value); });
}

template <typename Float>
bool AreSame(Float x, Float y) {
  return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(x)) == 0;
}

std::string Difference(const char* what, const std::vector<float>& got,
                       const std::vector<float>& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!AreSame(got[i], expected[i])) {
      return absl::StrCat(what, " ", i, " of ", got.size(), ": ", got[i], ", expecting ",
                          expected[i]);
    }
  }
  return "";
}

template <typename T>
std::string Difference(const char* what, T got, T expected) {
  return got == expected ? "" : absl::StrCat(what, ": ", got, ", expecting ", expected);
}

std::string FirstOf(const std::vector<std::string>& differences) {
  for (const std::string& difference : differences) {
    if (!difference.empty()) return difference;
  }
  return "";
}

// Returns `values` as stored in `dtype`.
std::vector<std::byte> Stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  FromFloat(dtype, values, bytes.data());
  return bytes;
}

template <typename T>
std::vector<T> WithoutFirst(const std::vector<T>& x, size_t n) {
  return {x.begin() + static_cast<std::ptrdiff_t>(n), x.end()};
}

constexpr int64_t kUpdateNumber = 3;

uint32_t RootSeed() { return RootSeedOf(kParameter, kUpdateNumber); }

// Weights and state before or after an update, and its facts.
struct Stepped {
  std::vector<float> weights;
  std::vector<std::vector<std::byte>> state;
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  uint32_t largest_weight_bits = 0;
};

// Steps element by element.
template <typename Rule>
void StepEach(const typename Rule::Config& config, const typename Rule::Scalars& scalars,
              const std::vector<float>& grad, Stepped& stepped) {
  const auto n = static_cast<int64_t>(grad.size());
  const size_t num_slots = stepped.state.size();
  std::vector<std::vector<float>> slots(num_slots, std::vector<float>(grad.size()));
  for (size_t k = 0; k < num_slots; ++k) {
    DecodeState(SlotDType(config, static_cast<int>(k)), stepped.state[k], 0,
                absl::MakeSpan(slots[k]));
  }
  for (int64_t i = 0; i < n; ++i) {
    float state[Rule::kMaxSlots] = {};
    for (size_t k = 0; k < num_slots; ++k) state[k] = slots[k][i];
    stepped.weights[i] = Rule::Element(scalars, grad[i], stepped.weights[i], state);
    for (size_t k = 0; k < num_slots; ++k) slots[k][i] = state[k];
  }
  for (size_t k = 0; k < num_slots; ++k) {
    EncodeState(SlotDType(config, static_cast<int>(k)), slots[k], 0,
                absl::MakeSpan(stepped.state[k]), RootSeed());
    stepped.slots_digest +=
        TensorDigester(kParameter, static_cast<uint32_t>(k) + 1).OfBytes(stepped.state[k], 0);
  }
  stepped.weights_digest = TensorDigest(kParameter, kWeightSlot, stepped.weights);
  stepped.largest_weight_bits = LargestMagnitudeBits(stepped.weights);
}

// Runs the kernel.
template <typename Rule>
std::string StepOnDevice(const typename Rule::Config& config, const typename Rule::Scalars& scalars,
                         const UpdateCase& update, const std::vector<std::byte>& grad,
                         uint64_t seed, Stepped& stepped) {
  ImmediateStream stream(seed);
  DeviceArray<std::byte> grads(grad, update.shift * SizeOf(update.grad_dtype));
  DeviceArray<float> param(stepped.weights, update.shift * sizeof(float));
  DeviceArray<float> written(std::vector<float>(stepped.weights.size(), -7.0f));
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> state;
  ElementWiseUpdate arguments = {};
  for (size_t k = 0; k < stepped.state.size(); ++k) {
    state.push_back(std::make_unique<DeviceArray<std::byte>>(stepped.state[k]));
    arguments.state[k] = state.back()->data();
  }
  UpdateFacts facts;
  arguments.grad = grads.data();
  arguments.grad_dtype = update.grad_dtype;
  arguments.param = param.data();
  arguments.new_param = update.in_place ? param.data() : written.data();
  arguments.momentum_dtype = SlotDType(config, 0);
  arguments.second_moment_dtype = SlotDType(config, 1);
  arguments.root_seed = RootSeed();
  arguments.num_elements = update.num_elements;
  arguments.parameter_id = kParameter;
  arguments.facts = &facts;
  StepElementWise<Rule>(stream, scalars, static_cast<int>(state.size()), arguments);
  if (!update.in_place && param.values() != stepped.weights && !HasNan(stepped.weights)) {
    return "the old weights changed";
  }
  stepped.weights = update.in_place ? param.values() : written.values();
  bool whole = param.guards_are_whole() && written.guards_are_whole();
  for (size_t k = 0; k < state.size(); ++k) {
    stepped.state[k] = state[k]->values();
    whole = whole && state[k]->guards_are_whole();
  }
  stepped.weights_digest = facts.weights_digest;
  stepped.slots_digest = facts.slots_digest;
  stepped.largest_weight_bits = facts.largest_weight_bits;
  return whole ? "" : "a write outside";
}

std::string Difference(const Stepped& got, const Stepped& expected) {
  const std::string values = Difference("weight", got.weights, expected.weights);
  if (!values.empty()) return values;
  if (HasNan(expected.weights)) return "";
  for (size_t k = 0; k < got.state.size(); ++k) {
    if (got.state[k] != expected.state[k]) return absl::StrCat("slot ", k);
  }
  return FirstOf(
      {Difference("weights_digest", got.weights_digest, expected.weights_digest),
       Difference("slots_digest", got.slots_digest, expected.slots_digest),
       Difference("largest_weight_bits", got.largest_weight_bits, expected.largest_weight_bits)});
}

template <typename Rule>
std::string CompareRule(const typename Rule::Config& config, const UpdateCase& update,
                        uint64_t seed) {
  const int64_t n = update.num_elements;
  const typename Rule::Scalars scalars = Rule::Prepare(config, 1e-2, 0.5, kUpdateNumber);
  const std::vector<std::byte> grad =
      Stored(update.grad_dtype, MakeValues(n, update.values, seed + 1));
  std::vector<float> widened(static_cast<size_t>(n));
  ToFloat(update.grad_dtype, grad.data(), absl::MakeSpan(widened));
  Stepped expected;
  expected.weights = MakeValues(n, Values::kFinite, seed + 2);
  for (int k = 0; k < Rule::NumSlots(config); ++k) {
    const StateDType dtype = SlotDType(config, k);
    std::vector<float> values = MakeValues(n, Values::kFinite, seed + 3);
    for (float& x : values) x = k == 0 ? x : std::abs(x);
    expected.state.emplace_back(StateBytes(dtype, n));
    EncodeState(dtype, values, 0, absl::MakeSpan(expected.state.back()), RootSeed());
  }
  Stepped got = expected;
  StepEach<Rule>(config, scalars, widened, expected);
  const std::string failure = StepOnDevice<Rule>(config, scalars, update, grad, seed, got);
  return failure.empty() ? Difference(got, expected) : failure;
}

}  // namespace

std::vector<float> MakeValues(int64_t n, Values kind, uint64_t seed) {
  constexpr float kSpecial[] = {0.0f,    -0.0f,    0x1p-149f, -0x1.8p-130f, 0x1p-126f,
                                0x1p60f, -0x1p62f, 1e-30f,    -0x1.fp-20f,  127.0f};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) {
    const uint64_t draw = random();
    x = kind == Values::kZero ? 0.0f : normal(random) * (kind == Values::kTiny ? 0x1p-70f : 1);
    if (kind == Values::kZero || kind == Values::kTiny || kind == Values::kGaussian) continue;
    if (draw % 16 == 0) x = kSpecial[draw / 16 % std::size(kSpecial)];
    if (kind == Values::kInfinite && draw % 512 == 1) x = draw % 1024 == 1 ? kInfinity : -kInfinity;
    if (kind == Values::kNan && draw % 512 == 1) {
      x = draw % 1024 == 1 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return values;
}

bool AreEqual(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && Difference("", x, y).empty();
}

std::string CompareFold(const FoldCase& fold, uint64_t seed) {
  const auto n = static_cast<size_t>(fold.num_elements);
  const std::vector<std::byte> bytes =
      Stored(fold.dtype, MakeValues(fold.num_elements, fold.values, seed));
  const size_t half = n / 2;
  std::vector<float> expected(n, std::numeric_limits<float>::quiet_NaN());
  ImmediateStream stream(seed);
  DeviceArray<std::byte> chunk(bytes, fold.shift_bytes);
  DeviceArray<float> sum(expected, fold.sum_shift * sizeof(float));
  std::vector<double> squares(static_cast<size_t>(NumFoldBlocks(fold.num_elements)), -1.0);
  FoldSums facts = {};
  double sum_squares = 0;
  bool non_finite = false;
  // All of it begins the sum; then its second half is added.
  for (const size_t begin : {size_t{0}, half}) {
    const size_t offset = begin * SizeOf(fold.dtype);
    const float weight = begin == 0 ? 0.3f : 1.7f;
    const auto to = absl::MakeSpan(expected).subspan(begin);
    non_finite |=
        FoldElements(fold.dtype, bytes.data() + offset, weight, begin == 0, to, &sum_squares) >= 0;
    FoldChunk(stream, {.dtype = fold.dtype,
                       .from = chunk.data() + offset,
                       .weight = weight,
                       .first = begin == 0,
                       .sum = sum.data() + begin,
                       .num_elements = static_cast<int64_t>(n - begin),
                       .facts = &facts,
                       .block_squares = squares.data()});
    if (half == 0) break;
  }
  if (!sum.guards_are_whole()) return "a write outside";
  if (!AreSame(facts.sum_squares, sum_squares)) {
    return absl::StrCat("sum_squares ", facts.sum_squares, ", expecting ", sum_squares);
  }
  return FirstOf({Difference("sum", sum.values(), expected),
                  Difference("non_finite", facts.non_finite != 0, non_finite)});
}

std::string CompareMean(const MeanCase& mean, uint64_t seed) {
  std::vector<float> expected = MakeValues(mean.num_elements, mean.values, seed);
  ImmediateStream stream(seed);
  DeviceArray<float> sum(expected, mean.shift * sizeof(float));
  const auto num_bytes = static_cast<size_t>(MeanFactsBytes(mean.num_elements));
  DeviceArray<std::byte> facts(std::vector<std::byte>(num_bytes, std::byte{0xff}));
  FinishMean(stream, {.sum = sum.data(),
                      .num_elements = mean.num_elements,
                      .total_weight = PrepareDivision(mean.total_weight),
                      .loss_scale = PrepareDivision(mean.loss_scale),
                      .key = TensorDigestKey(kParameter, kGradientSlot),
                      .takes_sum = mean.takes_sum,
                      .facts = facts.data()});
  ThreadPool pool(1);
  const MeanFacts cpu =
      FinishMeanOn(pool, {mean.total_weight, mean.loss_scale, kParameter, mean.takes_sum},
                   absl::MakeSpan(expected));
  const GradNorm norm = NormOfFacts(facts.values().data(), mean.num_elements);
  const uint64_t digest = reinterpret_cast<const MeanSums*>(facts.data())->digest;
  if (!sum.guards_are_whole() || !facts.guards_are_whole()) return "a write outside";
  if (!AreSame(norm.sum_squares, cpu.norm.sum_squares)) {
    return absl::StrCat("sum_squares ", norm.sum_squares, ", expecting ", cpu.norm.sum_squares);
  }
  return FirstOf({Difference("mean", sum.values(), expected),
                  Difference("absolute_max", norm.absolute_max, cpu.norm.absolute_max),
                  Difference("num_elements", norm.num_elements, cpu.norm.num_elements),
                  Difference("num_zeros", norm.num_zeros, cpu.norm.num_zeros),
                  Difference("num_non_finite", norm.num_non_finite, cpu.norm.num_non_finite),
                  HasNan(expected) ? "" : Difference("digest", digest, cpu.digest)});
}

std::string CompareUpdate(const UpdateCase& update, uint64_t seed) {
  return std::visit(
      [&](const auto& config) -> std::string {
        using Rule = typename FindRule<std::decay_t<decltype(config)>, ElementWiseRules>::type;
        if constexpr (std::is_void_v<Rule>) {
          LOG(FATAL) << "not an element-wise rule";
        } else {
          return CompareRule<Rule>(config, update, seed);
        }
      },
      update.rule);
}

std::string CompareDigest(int64_t num_bytes, size_t shift, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(num_bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  ImmediateStream stream(seed);
  DeviceArray<std::byte> array(bytes, shift);
  uint64_t digest = 0;
  AddDigest(stream, kParameter, 2, array.data(), bytes.size(), &digest);
  return Difference("digest", digest, TensorDigester(kParameter, 2).OfBytes(bytes, 0));
}

std::string CompareMaxMagnitude(int64_t num_elements, Values values, uint64_t seed) {
  const std::vector<float> x = MakeValues(num_elements, values, seed);
  ImmediateStream stream(seed);
  DeviceArray<float> array(x);
  uint32_t bits = 0;
  MaxMagnitude(stream, array.data(), num_elements, &bits);
  return Difference("bits", bits, LargestMagnitudeBits(x));
}

std::string CompareRound(DType dtype, int64_t num_elements, size_t shift, uint64_t seed) {
  const std::vector<float> x = MakeValues(num_elements, Values::kInfinite, seed);
  ImmediateStream stream(seed);
  DeviceArray<float> array(x);
  DeviceArray<uint16_t> to(std::vector<uint16_t>(x.size(), 0x7a7a), 2 * shift);
  RoundElements(stream, dtype, array.data(), num_elements, to.data());
  const std::vector<std::byte> expected = Stored(dtype, x);
  const std::vector<uint16_t> got = to.values();
  if (!to.guards_are_whole()) return "a write outside";
  return std::memcmp(got.data(), expected.data(), expected.size()) == 0 ? "" : "rounded values";
}

std::vector<RuleConfig> ElementWiseConfigs() {
  std::vector<RuleConfig> configs = {SgdConfig()};
  for (const StateDType dtype : {StateDType::kFloat32, StateDType::kBFloat16, StateDType::kInt8}) {
    AdamWConfig adamw;
    adamw.weight_decay = 0.1;
    adamw.momentum_dtype = dtype;
    configs.push_back(adamw);
    adamw.exp_avg_sq_dtype = StateDType::kSqrtUInt8;
    configs.push_back(adamw);
    adamw.amsgrad = true;
    adamw.eps_mode = AdamEpsMode::kUncorrected;
    configs.push_back(adamw);
    SgdConfig sgd;
    sgd.momentum = 0.9;
    sgd.nesterov = true;
    sgd.weight_decay = 0.01;
    sgd.momentum_dtype = dtype;
    configs.push_back(sgd);
    LionConfig lion;
    lion.weight_decay = 0.3;
    lion.momentum_dtype = dtype;
    configs.push_back(lion);
  }
  return configs;
}

}  // namespace kaon::kernels::cuda
