#include "kernels/offload/offload_backend.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/cpu/update_workspace.h"
#include "tests/conformance/backend/backend_conformance_parameter.h"
#include "tests/kernels/cuda/backend_scenario.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Room for the copies of about four small matrices.
constexpr uint64_t kFewStagedBytes = uint64_t{64} << 10;

std::unique_ptr<Backend> NewCpu() {
  return std::make_unique<CpuBackend>(std::make_unique<ReferenceGemm>(), 2);
}

std::unique_ptr<OffloadBackend> NewOffload(const OffloadBackend::Options& options) {
  auto backend = OffloadBackend::Create(NewCpu(), cuda::NewBackendOnHost(1, 2), options);
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

// Counts what the device is asked for.
class CountingBackend final : public ForwardingBackend {
 public:
  struct Counts {
    bool is_full = false;
    int allocations = 0;
    uint64_t allocated_bytes = 0;
    std::vector<size_t> runs;
  };
  CountingBackend(std::unique_ptr<Backend> to, Counts& counts)
      : ForwardingBackend(std::move(to)), counts_(counts) {}

  absl::StatusOr<Region> Allocate(uint64_t bytes) override {
    if (counts_.is_full) return absl::ResourceExhaustedError("others have it");
    ++counts_.allocations;
    counts_.allocated_bytes += bytes;
    return ForwardingBackend::Allocate(bytes);
  }
  void Free(Region region) override {
    counts_.allocated_bytes -= region.size();
    ForwardingBackend::Free(region);
  }
  void RunUpdates(absl::Span<Update> updates) override {
    counts_.runs.push_back(updates.size());
    ForwardingBackend::RunUpdates(updates);
  }

 private:
  Counts& counts_;
};

std::unique_ptr<OffloadBackend> NewCounted(CountingBackend::Counts& counts) {
  auto device = std::make_unique<CountingBackend>(cuda::NewBackendOnHost(3, 1), counts);
  auto backend =
      OffloadBackend::Create(NewCpu(), std::move(device), {.most_staged_bytes = kFewStagedBytes});
  CHECK(backend.ok()) << backend.status();
  return *std::move(backend);
}

// A job of matrices of two shapes and vectors, in turns, on one backend.
class Job {
 public:
  explicit Job(Backend& backend) : backend_(backend) {
    for (uint32_t id = 0; id < 9; ++id) {
      const RuleConfig rule = id % 3 == 2 ? RuleConfig(AdamWConfig()) : RuleConfig(MuonConfig());
      const std::vector<uint64_t> shape =
          id % 3 == 0 ? std::vector<uint64_t>{24, 40} : std::vector<uint64_t>{40, 32};
      parameters_.emplace_back(rule, shape, reference::GaussianVector(shape[0] * shape[1], id));
    }
  }

  void Step(int t) {
    std::vector<std::unique_ptr<CopiedBuffers>> copies;
    std::vector<Update> updates;
    for (uint32_t id = 0; id < parameters_.size(); ++id) {
      Parameter& parameter = parameters_[id];
      const size_t n = parameter.weight.size();
      copies.push_back(parameter.Copied(backend_, reference::GaussianVector(n, 100 * t + id)));
      updates.push_back({&parameter.rule,
                         {.lr = 1e-2, .t = t, .parameter_id = id},
                         parameter.shape,
                         copies.back()->buffers(),
                         {}});
    }
    backend_.RunUpdates(absl::MakeSpan(updates));
    results_.clear();
    for (size_t i = 0; i < updates.size(); ++i) {
      copies[i]->Read();
      results_.push_back(updates[i].result);
    }
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<UpdateResult>& results() const { return results_; }
  std::vector<SizedUpdate> sized() const {
    std::vector<SizedUpdate> sized;
    for (const Parameter& p : parameters_) sized.push_back({&p.rule, p.shape});
    return sized;
  }

 private:
  Backend& backend_;
  std::vector<Parameter> parameters_;
  std::vector<UpdateResult> results_;
};

TEST(OffloadBackendTest, HasTheBitsOfTheCpuButForWeightsOfMuonWhichAreTheDevices) {
  const std::unique_ptr<Backend> cpu = NewCpu();
  const std::unique_ptr<Backend> device = cuda::NewBackendOnHost(2, 1);
  const std::unique_ptr<Backend> offload = NewOffload({.most_staged_bytes = kFewStagedBytes});
  Job on_cpu(*cpu);
  Job on_device(*device);
  Job job(*offload);
  int differ = 0;
  for (int t = 1; t <= 3; ++t) {
    on_cpu.Step(t);
    on_device.Step(t);
    job.Step(t);
    for (size_t i = 0; i < job.parameters().size(); ++i) {
      SCOPED_TRACE(testing::Message() << "step " << t << ", parameter " << i);
      EXPECT_EQ(job.results()[i].weights_digest, on_device.results()[i].weights_digest);
      EXPECT_EQ(job.results()[i].fault, UpdateFault::kNone);
      EXPECT_EQ(job.results()[i].slots_digest, on_cpu.results()[i].slots_digest);
      EXPECT_TRUE(SameState(job.parameters()[i], on_cpu.parameters()[i]));
      EXPECT_TRUE(SameBits(job.parameters()[i].weight, on_device.parameters()[i].weight));
      if (!SameBits(job.parameters()[i].weight, on_cpu.parameters()[i].weight)) ++differ;
    }
  }
  // Products of the device are in another order, so the comparison above says who computed.
  EXPECT_GT(differ, 0);
  EXPECT_EQ(cuda::RunScenario(*offload), cuda::RunScenario(*cpu));
}

TEST(OffloadBackendTest, ReusesTheMemoryThatItReservedForTheJob) {
  CountingBackend::Counts counts;
  const auto offload = NewCounted(counts);
  Job job(*offload);
  ASSERT_TRUE(offload->Reserve(job.sized()).ok());
  EXPECT_EQ(counts.allocated_bytes, kFewStagedBytes);
  job.Step(1);
  // Three matrices of 24x40, 15360 bytes each, then three of 40x32, 20480 bytes each.
  EXPECT_EQ(counts.runs, std::vector<size_t>({3, 3}));
  job.Step(2);
  EXPECT_EQ(counts.runs, std::vector<size_t>({3, 3, 3, 3}));
  EXPECT_EQ(counts.allocations, 1);
}

TEST(OffloadBackendTest, RefusesAJobWhoseLargestMatrixDoesNotFitTheDevice) {
  const RuleConfig rule = MuonConfig();
  const RuleConfig adam = AdamWConfig();
  const uint64_t shape[] = {1024, 2048};
  const uint64_t vector[] = {uint64_t{1} << 30};
  const std::vector<SizedUpdate> updates = {{&adam, vector}, {&rule, shape}};
  const uint64_t workspace =
      cuda::NewBackendOnHost(4, 1)->WorkspaceBytes(absl::MakeConstSpan(updates).last(1));
  const uint64_t needed = 4 * 4 * 1024 * 2048 + workspace;
  const auto offload = NewOffload({.device_memory_bytes = needed});
  EXPECT_EQ(offload->Reserve(updates), absl::OkStatus());
  const absl::Status refused = NewOffload({.device_memory_bytes = needed - 1})->Reserve(updates);
  EXPECT_EQ(refused, absl::ResourceExhaustedError(absl::StrCat(
                         "cuda:0: Newton-Schulz of 1024x2048 needs 33554432 bytes for gradient, "
                         "old and new weights and state, and ",
                         workspace, " of workspace, ", needed, " in all; the limit is ", needed - 1,
                         " bytes: raise --device-memory-bytes or add shards")));
}

TEST(OffloadBackendTest, RefusesAJobThatTheDeviceHasNoMemoryLeftFor) {
  CountingBackend::Counts counts;
  counts.is_full = true;
  const auto offload = NewCounted(counts);
  const RuleConfig rule = MuonConfig();
  const uint64_t shape[] = {24, 40};
  const absl::Status refused = offload->Reserve({{&rule, shape}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), EndsWith(" of workspace: others have it"));
  counts.is_full = false;
  EXPECT_EQ(offload->Reserve({{&rule, shape}}), absl::OkStatus());
  // The next job has no matrices.
  EXPECT_EQ(offload->Reserve({}), absl::OkStatus());
  EXPECT_EQ(counts.allocated_bytes, 0u);
}

TEST(OffloadBackendTest, RefusesALimitThatTheDeviceDoesNotHave) {
  const uint64_t capacity = cuda::on_host::DeviceOnHostOptions().memory_bytes;
  const absl::Status status = OffloadBackend::Create(NewCpu(), cuda::NewBackendOnHost(1, 1),
                                                     {.device_memory_bytes = capacity + 1})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("must be at most 8589934592, which cuda:0"));
}

TEST(OffloadBackendTest, RunsAsManyUpdatesAtOnceAsItCopies) {
  const auto offload = NewOffload({.most_staged_bytes = kFewStagedBytes});
  const RuleConfig rule = MuonConfig();
  const uint64_t shape[] = {24, 40};
  const std::vector<SizedUpdate> updates(10, SizedUpdate{&rule, shape});
  EXPECT_EQ(offload->NumConcurrentUpdates(updates), 4u);
  const uint64_t large[] = {4096, 4096};
  EXPECT_EQ(offload->NumConcurrentUpdates({{&rule, large}, {&rule, shape}}), 1u);
  EXPECT_EQ(offload->WorkspaceBytes({{&rule, shape}, {&rule, large}, {nullptr, large}}),
            OrthogonalityWorkspaceBytes(rule, large));
}

TEST(OffloadBackendTest, NamesBothBackends) {
  const auto offload = NewOffload({});
  EXPECT_EQ(offload->name(), "cuda_on_host+cpu/reference");
  EXPECT_EQ(offload->memory_tier(), "cpu");
  EXPECT_EQ(offload->device_class(), absl::StrCat(cuda::NewBackendOnHost(1, 1)->device_class(),
                                                  " + ", NewCpu()->device_class()));
}

}  // namespace
}  // namespace kaon::kernels
