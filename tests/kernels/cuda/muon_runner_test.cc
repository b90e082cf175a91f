// Muon on a device, on the host, against the CPU's step.
#include "kernels/cuda/muon_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm/reference_gemm.h"
#include "kernels/muon_step.h"
#include "kernels/reduce/digest.h"
#include "kernels/state_codec.h"
#include "kernels/steady_clock.h"
#include "kernels/thread_pool.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

// One parameter, its state, and what one update needs, on the host.
struct Parameter {
  Parameter(MuonConfig config, std::vector<uint64_t> shape, uint32_t seed)
      : rule(std::move(config)), shape(std::move(shape)) {
    size_t n = 1;
    for (const uint64_t side : this->shape) n *= side;
    weight = reference::GaussianVector(n, seed);
    grad = reference::GaussianVector(n, seed + 1);
    state.resize(StateBytes(std::get<MuonConfig>(rule).momentum_dtype, n));
    scalars = {.lr = 0.02, .clip_factor = 0.5, .t = 1, .parameter_id = seed};
  }

  RuleConfig rule;
  std::vector<uint64_t> shape;
  std::vector<float> weight;
  std::vector<float> grad;
  std::vector<std::byte> state;
  UpdateScalars scalars;
  UpdatePart part = UpdatePart::kAll;
  bool in_place = false;
  // Written by an update.
  std::vector<float> new_weight = {};
  UpdateResult result = {};
};

void StepOnCpu(Parameter& p) {
  ReferenceGemm gemm;
  ThreadPool pool(1);
  p.new_weight.assign(p.weight.size(), 0.0f);
  const Region slot(Space::kHost, p.state.data(), p.state.size());
  p.result =
      ApplyMuon(std::get<MuonConfig>(p.rule), p.scalars, p.shape,
                {p.grad, p.weight, p.new_weight, absl::MakeSpan(&slot, 1), p.part}, gemm, pool);
}

// A runner and its device.
class DeviceMuon {
 public:
  explicit DeviceMuon(uint64_t seed = 1) : device_(seed) {
    auto runner = MuonRunner::Create(device_.device());
    CHECK(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  MuonRunner& runner() { return *runner_; }
  TestDevice& device() { return device_; }

  void Step(const std::vector<Parameter*>& parameters) {
    std::vector<OwnedMemory> memory;
    std::vector<Region> states;
    std::vector<Update> updates;
    states.reserve(parameters.size());
    for (Parameter* const p : parameters) {
      const Region grad = Uploaded(p->grad, memory);
      const Region weight = Uploaded(p->weight, memory);
      const std::vector<float> undefined(p->weight.size(), std::nanf(""));
      const Region next = p->in_place ? weight : Uploaded(undefined, memory);
      states.push_back(Uploaded(p->state, memory));
      updates.push_back({&p->rule,
                         p->scalars,
                         p->shape,
                         {grad, weight, next, absl::MakeSpan(&states.back(), 1), p->part},
                         {}});
    }
    std::vector<Update*> pointers;
    for (Update& update : updates) pointers.push_back(&update);
    runner_->RunUpdates(pointers);
    for (size_t i = 0; i < parameters.size(); ++i) {
      Parameter& p = *parameters[i];
      const Region next = updates[i].buffers.new_param;
      p.new_weight = device_.Download<float>(next.data(), next.num_floats());
      p.state = device_.Download<std::byte>(states[i].data(), states[i].size());
      p.result = updates[i].result;
    }
  }
  void Step(std::vector<Parameter>& parameters) {
    std::vector<Parameter*> pointers;
    for (Parameter& p : parameters) pointers.push_back(&p);
    Step(pointers);
  }

 private:
  template <typename T>
  Region Uploaded(const std::vector<T>& values, std::vector<OwnedMemory>& memory) {
    memory.push_back(device_.Memory(values.size() * sizeof(T)));
    device_.Upload(values, memory.back().data());
    return Region(Space::kDevice, memory.back().data(), values.size() * sizeof(T));
  }

  TestDevice device_;
  std::unique_ptr<MuonRunner> runner_;
};

MuonConfig ConfigOf(NsDType dtype, NsForm form = NsForm::kStandard) {
  MuonConfig config;
  config.weight_decay = 0.1;
  config.newton_schulz.dtype = dtype;
  config.newton_schulz.form = form;
  if (form == NsForm::kGram) config.newton_schulz.gram_restarts = {2};
  return config;
}

MuonConfig WithLayout(MatrixLayoutKind kind, std::vector<uint64_t> sizes = {}) {
  MuonConfig config = ConfigOf(NsDType::kBFloat16);
  config.layout.kind = kind;
  config.layout.sizes = std::move(sizes);
  return config;
}

// Every layout, storage type and form, wide, tall and square.
std::vector<Parameter> ManyParameters() {
  std::vector<Parameter> many;
  const auto add = [&many](const MuonConfig& config, std::vector<uint64_t> shape) {
    many.emplace_back(config, std::move(shape), static_cast<uint32_t>(10 * many.size() + 1));
  };
  add(ConfigOf(NsDType::kBFloat16), {32, 32});
  add(ConfigOf(NsDType::kBFloat16), {20, 70});
  add(ConfigOf(NsDType::kBFloat16), {70, 20});
  add(ConfigOf(NsDType::kBFloat16), {20, 70});
  add(ConfigOf(NsDType::kBFloat16, NsForm::kGram), {20, 70});
  add(ConfigOf(NsDType::kFloat16), {20, 70});
  add(ConfigOf(NsDType::kFloat16, NsForm::kGram), {64, 200});
  add(ConfigOf(NsDType::kFloat32), {24, 31});
  add(WithLayout(MatrixLayoutKind::kBatched), {3, 20, 70});
  add(WithLayout(MatrixLayoutKind::kBatched), {3, 64, 64});
  add(WithLayout(MatrixLayoutKind::kConvFlatten), {16, 3, 3, 3});
  add(WithLayout(MatrixLayoutKind::kSplitRows, {20, 20, 5}), {45, 70});
  add(WithLayout(MatrixLayoutKind::kSplitCols, {20, 30}), {20, 50});
  add(WithLayout(MatrixLayoutKind::kQkvInterleaved, {8, 4, 4}), {32, 70});
  MuonConfig encoded = ConfigOf(NsDType::kBFloat16);
  encoded.momentum_dtype = StateDType::kBFloat16;
  add(encoded, {20, 70});
  encoded.momentum_dtype = StateDType::kInt8;
  encoded.nesterov = false;
  add(encoded, {20, 70});
  return many;
}

double Distance(const std::vector<float>& x, const std::vector<float>& y) {
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
  }
  return std::sqrt(squares);
}

void ExpectEqual(const UpdateResult& x, const UpdateResult& y) {
  EXPECT_EQ(x.newton_schulz_calls, y.newton_schulz_calls);
  EXPECT_EQ(x.weights_digest, y.weights_digest);
  EXPECT_EQ(x.slots_digest, y.slots_digest);
  EXPECT_EQ(x.largest_weight_bits, y.largest_weight_bits);
  EXPECT_EQ(x.fault, y.fault);
}

void ExpectEqual(const Parameter& x, const Parameter& y) {
  ASSERT_EQ(x.new_weight.size(), y.new_weight.size());
  EXPECT_EQ(memcmp(x.new_weight.data(), y.new_weight.data(), x.new_weight.size() * sizeof(float)),
            0);
  EXPECT_EQ(x.state, y.state);
  ExpectEqual(x.result, y.result);
}

TEST(MuonRunnerTest, AgreesWithTheCpu) {
  DeviceMuon device;
  std::vector<Parameter> parameters = ManyParameters();
  for (int step = 1; step <= 3; ++step) {
    std::vector<Parameter> expected = parameters;
    device.Step(parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      SCOPED_TRACE(i);
      Parameter& p = parameters[i];
      StepOnCpu(expected[i]);
      // The element-wise parts are the same bits.
      EXPECT_EQ(p.state, expected[i].state);
      EXPECT_EQ(p.result.slots_digest, expected[i].result.slots_digest);
      EXPECT_EQ(p.result.newton_schulz_calls, 1);
      EXPECT_EQ(p.result.fault, UpdateFault::kNone);
      EXPECT_EQ(p.result.weights_digest,
                TensorDigest(p.scalars.parameter_id, kWeightSlot, p.new_weight));
      EXPECT_EQ(p.result.largest_weight_bits, LargestMagnitudeBits(p.new_weight));
      EXPECT_LE(Distance(p.new_weight, expected[i].new_weight),
                2e-2 * Distance(p.weight, expected[i].new_weight));
      p.weight = p.new_weight;
      p.grad = reference::GaussianVector(p.weight.size(), 1000 * step + i);
      // What changes from step to step must not be that of the first one.
      p.scalars.lr *= 0.5;
      p.scalars.clip_factor *= 0.9;
      ++p.scalars.t;
    }
  }
}

TEST(MuonRunnerTest, ManyUpdatesHaveTheBitsOfEachAlone) {
  DeviceMuon device;
  std::vector<Parameter> together = ManyParameters();
  std::vector<Parameter> alone = together;
  device.Step(together);
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE(i);
    DeviceMuon(2 + i).Step({&alone[i]});
    ExpectEqual(together[i], alone[i]);
  }
}

// What an earlier step left in memory, plans and graphs does not matter.
TEST(MuonRunnerTest, StepsHaveTheBitsOfAFreshRunner) {
  DeviceMuon device;
  std::vector<Parameter> all = ManyParameters();
  const std::vector<std::vector<size_t>> lists = {{1}, {2, 0}, {3, 4, 1}, {9}, {1, 5}, {4, 6}, {1}};
  for (const std::vector<size_t>& list : lists) {
    std::vector<Parameter> used;
    for (const size_t i : list) used.push_back(all[i]);
    std::vector<Parameter> fresh = used;
    device.Step(used);
    DeviceMuon().Step(fresh);
    for (size_t i = 0; i < list.size(); ++i) {
      ExpectEqual(used[i], fresh[i]);
      all[list[i]].weight = used[i].new_weight;
      all[list[i]].state = used[i].state;
      all[list[i]].scalars.lr *= 0.7;
    }
  }
}

TEST(MuonRunnerTest, WeightsThenStateAreTheBitsOfBoth) {
  DeviceMuon device;
  std::vector<Parameter> whole = ManyParameters();
  std::vector<Parameter> parts = whole;
  device.Step(whole);
  const std::vector<std::byte> untouched = parts[1].state;
  for (Parameter& p : parts) p.part = UpdatePart::kWeights;
  device.Step(parts);
  EXPECT_EQ(parts[1].state, untouched);
  EXPECT_EQ(parts[1].result.slots_digest, 0u);
  std::vector<Parameter> states = parts;
  for (Parameter& p : states) p.part = UpdatePart::kState;
  device.Step(states);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(states[i].result.newton_schulz_calls, 0);
    EXPECT_EQ(states[i].result.weights_digest, 0u);
    EXPECT_TRUE(std::isnan(states[i].new_weight[0])) << "weights are not part of the output";
    parts[i].state = states[i].state;
    parts[i].result.slots_digest = states[i].result.slots_digest;
    ExpectEqual(parts[i], whole[i]);
  }
}

TEST(MuonRunnerTest, NewWeightsMayReplaceTheOldOnes) {
  DeviceMuon device;
  std::vector<Parameter> apart = ManyParameters();
  std::vector<Parameter> in_place = apart;
  for (Parameter& p : in_place) p.in_place = true;
  device.Step(apart);
  device.Step(in_place);
  for (size_t i = 0; i < apart.size(); ++i) ExpectEqual(in_place[i], apart[i]);
}

// As on the CPU: the old weights and their facts, and the new state.
TEST(MuonRunnerTest, AFaultKeepsTheWeights) {
  for (const bool in_place : {false, true}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
      DeviceMuon device;
      std::vector<Parameter> parameters = ManyParameters();
      for (Parameter& p : parameters) p.in_place = in_place;
      if (std::isnan(bad)) {
        parameters[1].grad[100] = bad;
        parameters[11].grad[45 * 70 - 1] = bad;
      } else {
        // Finite weights that overflow.
        for (const size_t i : {1, 11}) parameters[i].scalars.lr = 1e38;
        for (const size_t i : {1, 11}) {
          for (float& weight : parameters[i].weight) weight *= bad;
        }
      }
      std::vector<Parameter> expected = parameters;
      device.Step(parameters);
      for (const size_t i : {size_t{1}, size_t{11}}) {
        StepOnCpu(expected[i]);
        EXPECT_NE(parameters[i].result.fault, UpdateFault::kNone);
        EXPECT_EQ(parameters[i].new_weight, expected[i].weight);
        parameters[i].result.slots_digest = expected[i].result.slots_digest;
        ExpectEqual(parameters[i].result, expected[i].result);
      }
      EXPECT_EQ(parameters[2].result.fault, UpdateFault::kNone);
    }
  }
}

TEST(MuonRunnerTest, AZeroGradientOnlyDecays) {
  DeviceMuon device;
  Parameter p(ConfigOf(NsDType::kBFloat16), {20, 70}, 5);
  p.grad.assign(p.grad.size(), 0.0f);
  Parameter expected = p;
  StepOnCpu(expected);
  device.Step({&p});
  ExpectEqual(p, expected);
}

TEST(MuonRunnerTest, WorkspaceIsABoundOfWhatIsAllocated) {
  for (const size_t count : {1, 5, 16}) {
    DeviceMuon device;
    std::vector<Parameter> parameters = ManyParameters();
    parameters.erase(parameters.begin() + count, parameters.end());
    std::vector<SizedUpdate> sized;
    for (const Parameter& p : parameters) sized.push_back({&p.rule, p.shape});
    const uint64_t bound = device.runner().WorkspaceBytes(sized);
    const uint64_t before = device.device().device().free_bytes();
    device.Step(parameters);
    EXPECT_LE(before - device.device().device().free_bytes(), bound);
  }
}

TEST(MuonRunnerTest, TunedFormsStayWithinRounding) {
  DeviceMuon plain;
  DeviceMuon tuned;
  Parameter p(ConfigOf(NsDType::kBFloat16), {260, 264}, 5);
  std::get<MuonConfig>(p.rule).newton_schulz.steps = 2;
  Parameter same = p;
  // A clock that shows every other interval as shorter: blocks win.
  const SizedUpdate sized = {&p.rule, p.shape};
  int reads = 0;
  absl::Time time = absl::UnixEpoch();
  ASSERT_TRUE(tuned.runner()
                  .TuneProducts({&sized, 1},
                                [&] {
                                  ++reads;
                                  time += absl::Seconds(reads < 12 ? 10 : 1);
                                  return time;
                                })
                  .ok());
  EXPECT_NE(tuned.runner().product_choice().Text().find("blocks"), std::string::npos)
      << tuned.runner().product_choice().Text();
  plain.Step({&p});
  tuned.Step({&same});
  EXPECT_LE(Distance(p.new_weight, same.new_weight), 1e-2 * Distance(p.weight, p.new_weight));
}

TEST(MuonRunnerTest, TheLibraryIsNamed) {
  EXPECT_EQ(DeviceMuon().runner().Library().substr(0, 11), "host loops/");
}

}  // namespace
}  // namespace kaon::kernels::cuda
