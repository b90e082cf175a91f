// Muon on a device, on the host, against the CPU's step.
#include "kernels/cuda/muon/muon_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"
#include "tests/kernels/cuda/muon/device_muon.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels::cuda {
namespace {

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
      // By storage type: both differ from the exact update by [N9].
      const double tolerance[] = {1e-4, 4e-2, 1e-2};
      const NsDType dtype = std::get<MuonConfig>(p.rule).newton_schulz.dtype;
      EXPECT_LE(Distance(p.new_weight, expected[i].new_weight),
                tolerance[static_cast<int>(dtype)] * Distance(p.weight, expected[i].new_weight));
      p.weight = p.new_weight;
      p.grad = reference::GaussianVector(p.weight.size(), 1000 * step + i);
      // Scalars that change from step to step must not be those of the first one.
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
    EXPECT_TRUE(AreEqual(together[i], alone[i]));
  }
}

// Leftovers of an earlier step in memory, plans and graphs do not matter.
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
      EXPECT_TRUE(AreEqual(used[i], fresh[i]));
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
    EXPECT_TRUE(AreEqual(parts[i], whole[i]));
  }
}

TEST(MuonRunnerTest, NewWeightsMayReplaceTheOldOnes) {
  DeviceMuon device;
  std::vector<Parameter> apart = ManyParameters();
  std::vector<Parameter> in_place = apart;
  for (Parameter& p : in_place) p.in_place = true;
  device.Step(apart);
  device.Step(in_place);
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_TRUE(AreEqual(in_place[i], apart[i]));
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
        EXPECT_TRUE(AreEqual(parameters[i].result, expected[i].result));
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
  EXPECT_TRUE(AreEqual(p, expected));
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

TEST(MuonRunnerTest, UpdatesTakeNoMoreThanTheirReservation) {
  DeviceMuon device;
  std::vector<Parameter> parameters = ManyParameters();
  std::vector<SizedUpdate> sized;
  for (const Parameter& p : parameters) sized.push_back({&p.rule, p.shape});
  ASSERT_TRUE(device.runner().Reserve(sized).ok());
  const uint64_t before = device.device().device().free_bytes();
  device.Step(parameters);
  // Tables of the schedules of products may come.
  EXPECT_LE(before - device.device().device().free_bytes(), uint64_t{64} << 10);
}

TEST(MuonRunnerTest, ReleaseGivesBackWhatUpdatesTook) {
  DeviceMuon device;
  std::vector<Parameter> parameters = ManyParameters();
  std::vector<SizedUpdate> sized;
  for (const Parameter& p : parameters) sized.push_back({&p.rule, p.shape});
  const uint64_t before = device.device().device().free_bytes();
  ASSERT_TRUE(device.runner().Reserve(sized).ok());
  EXPECT_LT(device.device().device().free_bytes(), before);
  device.runner().Release();
  EXPECT_EQ(device.device().device().free_bytes(), before);
  ASSERT_TRUE(device.runner().Reserve(sized).ok());
  device.Step(parameters);
}

TEST(MuonRunnerTest, AReservationWithoutRoomIsRefused) {
  DeviceMuon device;
  const RuleConfig rule = ConfigOf(NsDType::kBFloat16);
  const std::vector<uint64_t> shape = {1 << 18, 1 << 18};
  const SizedUpdate sized = {&rule, shape};
  const absl::Status refused = device.runner().Reserve({&sized, 1});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("bytes"), absl::string_view::npos) << refused;
}

TEST(MuonRunnerTest, ChosenFormsStayWithinRounding) {
  DeviceMuon plain;
  DeviceMuon chosen;
  MuonConfig config = ConfigOf(NsDType::kBFloat16);
  config.newton_schulz.steps = 1;
  Parameter p(config, {260, 264}, 5);
  Parameter same = p;
  const SymmetricBatch kind = KindOf({NsDType::kBFloat16, 260, 264, 1});
  chosen.runner().product_choice().Set(kind, {SymmetricForm::kBlocks, {}});
  plain.Step({&p});
  chosen.Step({&same});
  EXPECT_EQ(chosen.runner().product_choice().Find(kind)->form, SymmetricForm::kBlocks);
  EXPECT_LE(Distance(p.new_weight, same.new_weight), 1e-2 * Distance(p.weight, p.new_weight));
}

TEST(MuonRunnerTest, TuningTimesTheProductsOfTheUpdates) {
  DeviceMuon device;
  const RuleConfig rule = ConfigOf(NsDType::kFloat32);
  const std::vector<uint64_t> shape = {24, 8};
  const SizedUpdate sized = {&rule, shape};
  absl::Time time = absl::UnixEpoch();
  const auto now = [&] { return time += absl::Microseconds(200); };
  ASSERT_TRUE(device.runner().TuneProducts({&sized, 1}, {now, 1, 1}).ok());
  EXPECT_EQ(device.runner().product_choice().Text(),
            "fp32 8 8 264 dense 200 0 0\n"
            "fp32 8 24 264 dense 200 0 0\n");
}

TEST(MuonRunnerTest, TheLibraryIsNamed) {
  EXPECT_EQ(DeviceMuon().runner().Library().substr(0, 11), "host loops/");
}

}  // namespace
}  // namespace kaon::kernels::cuda
