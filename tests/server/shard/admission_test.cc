#include "server/shard/admission.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/match.h"
#include "server/coordinator/machine/registration.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::shard {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::unique_ptr<kernels::Backend> Cpu() {
  return kernels::CreateBackend(kernels::BackendOptions()).value();
}

v1::RegisterBody Register(const v1::JobDefinition& job) {
  return coordinator::MakeRegistration(job, coordinator::PlacementLimits()).value();
}

TEST(AdmissionTest, TensorsCountAsAShardAllocatesThem) {
  const auto cpu = Cpu();
  const ShardNeeds needs =
      Admit(Register(coordinator::TestJob()), 0, *cpu, {kGiB, 1000, kGiB}).value();
  EXPECT_EQ(needs.reserved_bytes, 1000u);
  ASSERT_EQ(needs.parameters.size(), 5u);
  // Two matrices of 32: two versions, momentum, sum. Frozen: one version, sum.
  EXPECT_EQ(needs.parameters[0].state_bytes(), 4u * 32 * 4);
  EXPECT_EQ(needs.parameters[4].state_bytes(), 2u * 3 * 4);
  EXPECT_GT(needs.workspace_bytes, 0u);
  EXPECT_EQ(Admit(Register(coordinator::TestJob()), 0, *cpu, {needs.used_bytes(), 1000, kGiB})
                .value()
                .used_bytes(),
            needs.used_bytes());
  const absl::Status refused =
      Admit(Register(coordinator::TestJob()), 0, *cpu, {needs.used_bytes() - 1, 1000, kGiB})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(refused.message(), "raise --host-memory-bytes")) << refused;
}

// A parameter that finds no room in memory is on the disk, and so is its sum.
TEST(AdmissionTest, WhatFindsNoRoomInMemoryIsOnTheDisk) {
  const auto cpu = Cpu();
  const v1::RegisterBody job = Register(coordinator::TestJob());
  const ShardNeeds all = Admit(job, 0, *cpu, {kGiB, 0, kGiB}).value();
  ShardMemory memory = {all.used_bytes() - 64, 0, kGiB};
  EXPECT_EQ(Admit(job, 0, *cpu, memory).status().code(), absl::StatusCode::kResourceExhausted);
  memory.nvme_bytes = 1 << 20;
  memory.nvme_staging_bytes = 1 << 20;
  const ShardNeeds needs = Admit(job, 0, *cpu, memory).value();
  EXPECT_LT(needs.tensor_bytes, all.tensor_bytes);
  EXPECT_GT(needs.nvme_bytes, 0u);
  EXPECT_LT(needs.sum_bytes, all.sum_bytes);
  memory.nvme_bytes = 4096;
  EXPECT_TRUE(absl::StrContains(Admit(job, 0, *cpu, memory).status().message(),
                                "raise --nvme-bytes"));
}

// 20 TB, more than this machine has.
TEST(AdmissionTest, NothingIsAllocated) {
  v1::JobDefinition job = coordinator::TestJob();
  coordinator::AddParameter(job, "bias", {uint64_t{1} << 40});
  const auto cpu = Cpu();
  const ShardNeeds needs = Admit(Register(job), 0, *cpu, {uint64_t{1} << 50, 0, kGiB}).value();
  EXPECT_EQ(needs.parameters[5].state_bytes(), uint64_t{20} << 40);
}

// A device reserves memory of its own, which may be less than that of the shard's device.
class Reserving : public kernels::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::Status Reserve(absl::Span<const kernels::SizedUpdate>) override {
    return absl::ResourceExhaustedError("this machine's device is full");
  }
};

TEST(AdmissionTest, NothingIsReservedOnThisMachinesDevice) {
  Reserving device(Cpu());
  EXPECT_TRUE(Admit(Register(coordinator::TestJob()), 0, device, {kGiB, 0, kGiB}).ok());
}

TEST(AdmissionTest, AJournalGrowsToTwiceTheMemoryOfItsParameters) {
  EXPECT_EQ(SnapshotJournalBytes(kGiB), 2 * kGiB);
  EXPECT_EQ(SnapshotJournalBytes(0), kGiB / 4);
}

}  // namespace
}  // namespace kaon::shard
