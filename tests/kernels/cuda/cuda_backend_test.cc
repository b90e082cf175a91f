#include "kernels/cuda/cuda_backend.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/elements/update_facts.h"
#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/gemm/reference_gemm.h"
#include "kernels/reduce/digest.h"
#include "tests/conformance/backend/backend_conformance.h"
#include "tests/kernels/cuda/backend_scenario.h"

namespace kaon::kernels::cuda {
namespace {

INSTANTIATE_TEST_SUITE_P(CudaOnHost, BackendConformanceTest,
                         ::testing::Values([] { return NewBackendOnHost(1, 1); },
                                           [] { return NewBackendOnHost(2, 4); }));

TEST(CudaBackendTest, HasTheBitsOfTheCpuWithAnyStreamsAndSeed) {
  CpuBackend cpu(std::make_unique<ReferenceGemm>());
  const std::vector<uint64_t> expected = RunScenario(cpu);
  for (const int num_streams : {1, 4}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      EXPECT_EQ(RunScenario(*NewBackendOnHost(seed, num_streams)), expected)
          << num_streams << " streams, seed " << seed;
    }
  }
}

TEST(CudaBackendTest, NamesItsDevice) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(1, 1);
  EXPECT_EQ(backend->name(), "cuda_on_host");
  EXPECT_EQ(backend->memory_tier(), "cuda:0");
  EXPECT_EQ(backend->space(), Space::kDevice);
  EXPECT_EQ(backend->capacity_bytes(), on_host::DeviceOnHostOptions().memory_bytes);
  EXPECT_EQ(backend->device_class().find("kaon device on the host sm_90/132/"), 0)
      << backend->device_class();
}

TEST(CudaBackendTest, RefusesWhatItsDeviceHasNoMemoryFor) {
  on_host::DeviceOnHostOptions device;
  device.memory_bytes = uint64_t{80} << 20;
  CudaBackend::Options options;
  options.num_lanes = 2;
  auto backend = CudaBackend::Create(on_host::NewDeviceOnHost(device), options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const absl::Status refused = (*backend)->Allocate(uint64_t{80} << 20).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("needs 83886080 bytes"), std::string::npos) << refused;
  device.memory_bytes = 1000;
  EXPECT_EQ(CudaBackend::Create(on_host::NewDeviceOnHost(device), options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CudaBackendTest, CopiesFromAndToStagingAndAnyMemory) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(3, 2);
  for (const uint64_t bytes : {uint64_t{1}, Lane::kPieceBytes, 3 * Lane::kPieceBytes + 1}) {
    const Region region = backend->Allocate(bytes).value();
    const absl::Span<std::byte> staging = backend->AllocateStaging(bytes).value();
    std::vector<std::byte> memory(bytes);
    for (uint64_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i % 251);
    backend->CopyIn(memory, region);
    backend->CopyOut(region, staging);
    EXPECT_EQ(std::memcmp(staging.data(), memory.data(), bytes), 0) << bytes;
    staging[bytes - 1] = std::byte{99};
    backend->CopyIn(staging, region);
    backend->CopyOut(region, absl::MakeSpan(memory));
    EXPECT_EQ(memory[bytes - 1], std::byte{99});
    EXPECT_EQ(std::memcmp(staging.data(), memory.data(), bytes), 0) << bytes;
    backend->FreeStaging(staging);
    backend->Free(region);
  }
}

TEST(CudaBackendTest, NewMemoryIsZero) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(4, 1);
  const Region region = backend->Allocate(5000).value();
  std::vector<std::byte> memory(5000, std::byte{1});
  backend->CopyOut(region, absl::MakeSpan(memory));
  EXPECT_EQ(memory, std::vector<std::byte>(5000));
  backend->Free(region);
}

TEST(CudaBackendTest, RunsAllElementWiseUpdatesAtOnce) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(5, 1);
  const RuleConfig rule = AdamWConfig();
  const uint64_t shape[] = {uint64_t{1} << 40};
  const std::vector<SizedUpdate> updates(100, SizedUpdate{&rule, shape});
  EXPECT_EQ(backend->NumConcurrentUpdates(updates), 100);
  EXPECT_EQ(backend->WorkspaceBytes(updates), 0);
}

TEST(CudaBackendTest, RunsAsManyMatricesAtOnceAsFitItsWorkspace) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(5, 1);
  const RuleConfig rule = MuonConfig();
  const uint64_t shape[] = {1 << 14, 1 << 14};
  const std::vector<SizedUpdate> updates(100, SizedUpdate{&rule, shape});
  const size_t count = backend->NumConcurrentUpdates(updates);
  EXPECT_GE(count, 1);
  const absl::Span<const SizedUpdate> all = updates;
  if (count > 1) {
    EXPECT_LE(backend->WorkspaceBytes(all.first(count)), uint64_t{1} << 30);
  }
  EXPECT_GE(backend->WorkspaceBytes(all), backend->WorkspaceBytes(all.first(1)));
}

TEST(CudaBackendTest, RunsMoreUpdatesThanALaneHasRoomForFactsOf) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(6, 4);
  constexpr uint64_t kCount = Lane::kResultBytes / sizeof(UpdateFacts) + 10;
  const Region memory = backend->Allocate(8 * (kCount + 1)).value();
  const RuleConfig rule = SgdConfig();
  const uint64_t shape[] = {2};
  std::vector<Update> updates;
  for (uint64_t i = 0; i < kCount; ++i) {
    const Region weight = memory.Sub(8 * i, 8);
    updates.push_back({&rule,
                       {.lr = 1, .parameter_id = static_cast<uint32_t>(i)},
                       shape,
                       {GradView(memory.Sub(8 * kCount, 8)), weight, weight, {}},
                       {}});
  }
  backend->RunUpdates(absl::MakeSpan(updates));
  for (const uint32_t i : {uint32_t{0}, uint32_t{kCount - 1}}) {
    EXPECT_EQ(updates[i].result.weights_digest, TensorDigest(i, kWeightSlot, {0, 0}));
  }
  backend->Free(memory);
}

TEST(CudaBackendDeathTest, RefusesMemoryOfTheHost) {
  const std::unique_ptr<CudaBackend> backend = NewBackendOnHost(7, 1);
  std::vector<float> host(4);
  EXPECT_DEATH(backend->Digest(0, 0, ConstRegion(host)), "memory of the host");
  EXPECT_DEATH(backend->Accumulate(host), "a sum of the device is in host memory");
}

}  // namespace
}  // namespace kaon::kernels::cuda
