#include "server/shard/parameters/parameter_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/state_codec.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr uint32_t kW = 0;
constexpr uint32_t kB = 1;
constexpr uint32_t kFrozen = 2;
const std::vector<float> kGradientOfW = {0.5, -1, 2, 0.25, -0.5, 1};
const std::vector<float> kGradientOfB = {1, -2, 3, -4};

v1::ShardParameterRequest RequestFor(uint32_t id) {
  v1::ShardParameterRequest request;
  request.set_parameter_id(id);
  return request;
}

v1::ParameterStats StatsIn(DrivenShard& shard, uint32_t id) {
  const auto stats = shard.core().Stats(RequestFor(id));
  EXPECT_TRUE(stats.ok()) << stats.status();
  return stats.ok() ? *stats : v1::ParameterStats();
}

v1::ParameterDiagnostics DiagnosticsIn(DrivenShard& shard, uint32_t id) {
  const auto diagnostics = shard.core().Diagnostics(RequestFor(id));
  EXPECT_TRUE(diagnostics.ok()) << diagnostics.status();
  return diagnostics.ok() ? *diagnostics : v1::ParameterDiagnostics();
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> Difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> difference;
  for (size_t i = 0; i < a.size(); ++i) difference.push_back(static_cast<double>(a[i]) - b[i]);
  return difference;
}

TEST(ParameterStatsTest, KnowNothingOfAnUpdateBeforeTheFirst) {
  DrivenShard shard;
  shard.Load();
  const v1::ParameterStats stats = StatsIn(shard, kW);
  EXPECT_DOUBLE_EQ(stats.weight_norm(), std::sqrt(91.0));
  EXPECT_FALSE(stats.has_grad_norm());
  EXPECT_FALSE(stats.has_grad_zeros());
  EXPECT_FALSE(stats.has_update_norm());
  EXPECT_FALSE(stats.has_update_to_weight_ratio());
  EXPECT_FALSE(stats.has_orthogonality_error());
  EXPECT_EQ(stats.momentum_norm(), 0);
  EXPECT_EQ(stats.newton_schulz_updates(), 0u);
}

TEST(ParameterStatsTest, OfMuonAreTheNormsOfItsLastUpdate) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::ParameterStats stats = StatsIn(shard, kW);
  const std::vector<double> step = Difference(shard.Read(kW, 0), shard.Read(kW, 1));
  EXPECT_DOUBLE_EQ(stats.grad_norm(), std::sqrt(6.5625));
  EXPECT_DOUBLE_EQ(stats.update_norm(), Norm(step));
  EXPECT_DOUBLE_EQ(stats.update_to_weight_ratio(), stats.update_norm() / stats.weight_norm());
  // [M2] A twentieth of the first gradient.
  EXPECT_NEAR(stats.momentum_norm(), 0.05 * std::sqrt(6.5625), 1e-7);
  EXPECT_EQ(stats.newton_schulz_updates(), 1u);
  EXPECT_EQ(stats.updates_applied(), 1u);
  // [S1] match_rms_adamw of a 2 x 3 matrix, and no decay.
  const double size = 0.02 * 0.2 * std::sqrt(3.0);
  double aa = -1;
  double bb = -1;
  double ab = 0;
  for (int j = 0; j < 3; ++j) {
    aa += step[j] * step[j] / (size * size);
    bb += step[3 + j] * step[3 + j] / (size * size);
    ab += step[j] * step[3 + j] / (size * size);
  }
  EXPECT_NEAR(stats.orthogonality_error(), std::sqrt((aa * aa + bb * bb + 2 * ab * ab) / 2), 1e-6);
}

TEST(ParameterStatsTest, OfAdamWAreThoseOfExpAvg) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::ParameterStats stats = StatsIn(shard, kB);
  EXPECT_NEAR(stats.momentum_norm(), 0.1 * std::sqrt(30.0), 1e-6);
  EXPECT_NEAR(stats.update_norm(), 0.001 * 2, 1e-6);
  EXPECT_FALSE(stats.has_orthogonality_error());
  EXPECT_EQ(stats.newton_schulz_updates(), 0u);
}

TEST(ParameterStatsTest, OfZeroWeightsHaveNoRatio) {
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend({});
  StoredParameter parameter;
  parameter.trace.update = ParameterTrace::Update{0, kernels::AdamWConfig()};
  const std::vector<float> zero(3);
  const std::vector<float> before = {3, 0, 4};
  const v1::ParameterStats stats = StatsOf(parameter, *backend, zero, {}, before);
  EXPECT_EQ(stats.weight_norm(), 0);
  EXPECT_DOUBLE_EQ(stats.update_norm(), 5);
  EXPECT_FALSE(stats.has_update_to_weight_ratio());
  EXPECT_FALSE(stats.has_momentum_norm());
}

// With report_norms off, squares are summed only for decisions ([T5]).
TEST(ParameterStatsTest, OfAGradientWhoseSquaresNobodySummedHaveNoNorm) {
  const std::unique_ptr<kernels::Backend> backend = *kernels::CreateBackend({});
  StoredParameter parameter;
  parameter.trace.sums.emplace().set_absolute_max(0x1p-149);
  EXPECT_FALSE(StatsOf(parameter, *backend, {}, {}, {}).has_grad_norm());
  parameter.trace.sums->set_sum_squares(0x1p-298);
  EXPECT_EQ(StatsOf(parameter, *backend, {}, {}, {}).grad_norm(), 0x1p-149);
  // Zeros need no sum, and are counted ([C1]).
  parameter.trace.sums.emplace().set_num_zeros(4);
  EXPECT_TRUE(StatsOf(parameter, *backend, {}, {}, {}).has_grad_norm());
  EXPECT_EQ(StatsOf(parameter, *backend, {}, {}, {}).grad_norm(), 0);
  EXPECT_EQ(StatsOf(parameter, *backend, {}, {}, {}).grad_zeros(), 4u);
  parameter.trace.sums->set_missing(true);
  EXPECT_FALSE(StatsOf(parameter, *backend, {}, {}, {}).has_grad_zeros());
}

// The last update's values do not change; the gradient's non-finite elements are counted ([T3]).
TEST(ParameterStatsTest, ASkippedStepIsCountedAndKeepsTheRest) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::ParameterStats before = StatsIn(shard, kB);
  shard.Plan(TrainPlan(2, 1, 1));
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(shard.Push(rank, 2, {kGradientOfW, {NAN, 0, INFINITY, 0}}).ok());
  }
  shard.Pump();
  shard.Decide(Skipping(TrainPlan(2, 1, 1)));
  v1::ParameterStats after = StatsIn(shard, kB);
  EXPECT_FALSE(after.has_grad_norm());
  EXPECT_EQ(after.non_finite_steps(), 1u);
  EXPECT_EQ(after.non_finite_elements(), 2u);
  EXPECT_EQ(StatsIn(shard, kW).non_finite_steps(), 0u);
  EXPECT_EQ(after.grad_zeros(), 2u);
  after.set_grad_norm(before.grad_norm());
  after.set_grad_zeros(before.grad_zeros());
  after.clear_non_finite_steps();
  after.clear_non_finite_elements();
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
}

// A parameter without a gradient has no norm and keeps its last update ([T7]).
TEST(ParameterStatsTest, AMissingGradientHasNoNormAndKeepsTheLastUpdate) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::ParameterStats before = StatsIn(shard, kW);
  shard.Train(2, {{}, kGradientOfB});
  const v1::ParameterStats after = StatsIn(shard, kW);
  EXPECT_FALSE(after.has_grad_norm());
  EXPECT_EQ(after.update_norm(), before.update_norm());
  EXPECT_EQ(after.updates_applied(), 1u);
}

TEST(ParameterStatsTest, AreAbsentOfAFrozenParameterButItsWeight) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const v1::ParameterStats stats = StatsIn(shard, kFrozen);
  EXPECT_DOUBLE_EQ(stats.weight_norm(), std::sqrt(5 * 81.0));
  EXPECT_FALSE(stats.has_grad_norm());
  EXPECT_FALSE(stats.has_update_norm());
  EXPECT_FALSE(stats.has_momentum_norm());
}

TEST(ParameterStatsTest, ReadStateAndChangeNone) {
  DrivenShard shard;
  shard.Load();
  shard.Train(1, {kGradientOfW, kGradientOfB});
  const std::string before = shard.core().Describe("")->SerializeAsString();
  StatsIn(shard, kW);
  DiagnosticsIn(shard, kW);
  EXPECT_EQ(shard.core().Describe("")->SerializeAsString(), before);
  // The data that they keep of a step are not part of the digest, either.
  DrivenShard unasked;
  unasked.Load();
  unasked.Train(1, {kGradientOfW, kGradientOfB});
  EXPECT_EQ(shard.core().Describe("")->state_digest(), unasked.core().Describe("")->state_digest());
}

// The norm is that of the stored momentum ([Q1]).
TEST(ParameterStatsTest, DecodeCompactMomentum) {
  ShardMemory memory(1 << 16);
  v1::RegisterBody registration = MakeRegistration();
  registration.mutable_definition()->mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_INT8);
  const auto parameters =
      ParameterStore::Create({memory.store()}, memory.backend(), registration, 0, 1);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  StoredParameter& w = (*parameters)->parameters()[kW];
  const std::vector<float> momentum = {127, -64, 0, 32, 1, -127};
  std::vector<std::byte> bytes(SlotOf(w, 0).size());
  kernels::EncodeState(kernels::StateDType::kInt8, momentum, 0, absl::MakeSpan(bytes));
  memory.Write(SlotOf(w, 0), bytes);
  // Whole numbers up to 127 are kept as they are.
  EXPECT_NEAR(StatsOf(w, memory.backend(), WeightsOf(w), {SlotOf(w, 0)}, {}).momentum_norm(),
              std::sqrt(2 * 127.0 * 127 + 64 * 64 + 32 * 32 + 1), 1e-9);
  const v1::ParameterDiagnostics diagnostics = DiagnosticsOf(w, memory.backend());
  EXPECT_EQ(diagnostics.tensors(2).dtype(), "int8");
  EXPECT_EQ(diagnostics.tensors(2).bytes(), static_cast<uint64_t>(w.state_slots[0].num_bytes));
}

// Diagnostics list every stored tensor with its dtype, shape, bytes and tier ([M11]).
TEST(ParameterDiagnosticsTest, NameEveryTensorThatIsStored) {
  DrivenShard shard;
  shard.Load();
  v1::ParameterDiagnostics diagnostics = DiagnosticsIn(shard, kB);
  ASSERT_EQ(diagnostics.tensors_size(), 4);
  EXPECT_EQ(diagnostics.tensors(1).dtype(), "");
  EXPECT_EQ(diagnostics.tensors(1).first_used_step(), 0u);
  shard.Train(1, {kGradientOfW, {}});
  shard.Train(2, {kGradientOfW, kGradientOfB});
  shard.Train(3, {kGradientOfW, kGradientOfB});
  diagnostics = DiagnosticsIn(shard, kB);
  const std::vector<std::string> names = {"weight", "gradient", "exp_avg", "exp_avg_sq"};
  // Weights are kept twice.
  const std::vector<uint64_t> bytes = {32, 16, 16, 16};
  for (int i = 0; i < 4; ++i) {
    const v1::StoredTensor& tensor = diagnostics.tensors(i);
    EXPECT_EQ(tensor.name(), names[i]);
    EXPECT_EQ(tensor.dtype(), "float32");
    ASSERT_EQ(tensor.shape_size(), 1);
    EXPECT_EQ(tensor.shape(0), 4u);
    EXPECT_EQ(tensor.bytes(), bytes[i]);
    EXPECT_EQ(tensor.tier(), ShardMemory::is_device() ? "fake:0" : "cpu");
    EXPECT_EQ(tensor.first_used_step(), 2u);
  }
  EXPECT_EQ(diagnostics.rule(), "adamw");
  EXPECT_EQ(diagnostics.backend(), "cpu/reference");
}

// Zeros stand in for a gradient that was never pushed, and the diagnostics say so ([T7]).
TEST(ParameterDiagnosticsTest, SayThatZerosStandInForAGradientThatWasNeverPushed) {
  DrivenShard shard;
  v1::StepPlan registration = RegistrationPlan(1, 1);
  registration.mutable_registration()
      ->mutable_definition()
      ->mutable_groups(1)
      ->set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  shard.Load(registration);
  EXPECT_EQ(DiagnosticsIn(shard, kB).tensors(1).dtype(), "");
  shard.Train(1, {kGradientOfW, {}});
  v1::StoredTensor gradient = DiagnosticsIn(shard, kB).tensors(1);
  EXPECT_EQ(gradient.dtype(), "float32 zeros");
  EXPECT_EQ(gradient.first_used_step(), 1u);
  shard.Train(2, {kGradientOfW, kGradientOfB});
  shard.Train(3, {kGradientOfW, {}});
  gradient = DiagnosticsIn(shard, kB).tensors(1);
  EXPECT_EQ(gradient.dtype(), "float32");
  EXPECT_EQ(gradient.first_used_step(), 1u);
}

TEST(ParameterDiagnosticsTest, OfAFrozenParameterNameNoRule) {
  DrivenShard shard;
  shard.Load();
  const v1::ParameterDiagnostics diagnostics = DiagnosticsIn(shard, kFrozen);
  EXPECT_EQ(diagnostics.tensors_size(), 2);
  EXPECT_EQ(diagnostics.tensors(0).bytes(), 20u);
  EXPECT_EQ(diagnostics.rule(), "");
  EXPECT_EQ(diagnostics.backend(), "");
}

TEST(ParameterDiagnosticsTest, AreOfThisShardsJobAndParametersOnly) {
  DrivenShard shard;
  EXPECT_EQ(shard.core().Stats(RequestFor(kW)).status().message(),
            "parameter asked for, this shard holds no job");
  shard.Load();
  EXPECT_EQ(shard.core().Stats(RequestFor(9)).status().message(),
            "parameter_id 9 asked for, this shard holds no such parameter");
  v1::ShardParameterRequest request = RequestFor(kW);
  request.set_job("bert");
  EXPECT_EQ(shard.core().Diagnostics(request).status().message(),
            "job 'bert' asked for, this shard holds 'gpt2'");
}

}  // namespace
}  // namespace kaon::shard
