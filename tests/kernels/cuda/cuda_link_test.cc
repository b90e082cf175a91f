// The link over the device on the host and a libnccl that only notes its calls.
#include "kernels/cuda/cuda_link.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/on_host/device_on_host.h"
#include "kernels/reduce/digest.h"
#include "kernels/tensor.h"

namespace kaon::kernels::cuda {
namespace {

constexpr char kLibrary[] = "tests/kernels/nccl/libtest_nccl.so";

class CudaLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    calls_ = reinterpret_cast<const char* (*)()>(
        dlsym(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL), "test_nccl_calls"));
    auto api = NcclApi::Load(kLibrary);
    ASSERT_TRUE(api.ok()) << api.status();
    std::unique_ptr<Device> device = on_host::NewDeviceOnHost({});
    device_ = device.get();
    auto link = CudaLink::Create(std::move(device), 0, *std::move(api), "lo");
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    memory_ = *link_->Allocate(1024);
    lane_ = device_->NewStream();
  }
  void TearDown() override {
    lane_.reset();
    link_->Free(memory_);
  }
  // Queues a copy of these bytes to the beginning of `memory_`.
  void CopyIn(const std::vector<std::byte>& bytes) {
    pinned_ = *device_->AllocatePinned(bytes.size());
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(pinned_));
    lane_->CopyIn(pinned_, memory_.data(), bytes.size());
  }
  CommId Join(int rank) {
    const CommId comm = *link_->Init({}, rank);
    while (link_->Poll(comm).kind != CommState::Kind::kReady) continue;
    calls_();
    return comm;
  }

  const char* (*calls_)() = nullptr;
  Device* device_ = nullptr;
  std::unique_ptr<CudaLink> link_;
  Region memory_;
  std::unique_ptr<Stream> lane_;
  void* pinned_ = nullptr;
};

TEST_F(CudaLinkTest, CopiesAndDigestsAfterTheEventOfTheElements) {
  std::vector<std::byte> bytes(100);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  CopyIn(bytes);
  std::vector<std::byte> reversed(bytes.rbegin(), bytes.rend());
  link_->CopyIn(reversed, memory_.Sub(256, 100));
  std::vector<std::byte> copied(100);
  link_->CopyOut(memory_.Sub(256, 100), absl::MakeSpan(copied));
  EXPECT_EQ(copied, reversed);
  const std::unique_ptr<Event> ready = device_->NewEvent();
  lane_->Record(*ready);
  EXPECT_TRUE(link_->IsReady(ready.get()));
  link_->WaitFor(ready.get());
  link_->Copy(memory_.Sub(0, 100), memory_.Sub(512, 100));
  std::vector<std::byte> out(100);
  link_->CopyOut(memory_.Sub(512, 100), absl::MakeSpan(out));
  EXPECT_EQ(out, bytes);
  EXPECT_EQ(link_->Digest(7, memory_.Sub(512, 100)),
            TensorDigester(7, kTransferSlot).OfBytes(bytes, 0));
  lane_->Synchronize();
  device_->FreePinned(pinned_);
}

TEST_F(CudaLinkTest, ABackendOfTheSameNumberComputesOnItsMemory) {
  const auto backend = CudaBackend::Create(on_host::NewDeviceOnHost({}), {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ(link_->memory_tier(), (*backend)->memory_tier());
  const std::vector<float> values = {1, 2, 3, 4, 5};
  const absl::Span<const std::byte> bytes = ConstRegion(values).host_bytes();
  link_->CopyIn(bytes, memory_.Sub(256, 20));
  const Tensor sum(**backend, std::vector<float>(5));
  const std::unique_ptr<Accumulation> accumulation = (*backend)->Accumulate(sum.region());
  accumulation->Begin();
  GradientChunk chunk;
  chunk.memory = memory_.Sub(256, 20);
  chunk.first = true;
  accumulation->Fold(chunk);
  EXPECT_EQ(sum.Floats(), values);
  (*backend)->Round(sum.region(), DType::kFloat32, memory_.Sub(512, 20));
  EXPECT_EQ(link_->Digest(7, memory_.Sub(512, 20)),
            TensorDigester(7, kTransferSlot).OfBytes(bytes, 0));
}

TEST_F(CudaLinkTest, GivesNcclATransferOnlyAfterItHasQueuedTheOneBefore) {
  const CommId comm = Join(1);
  const TransferId first = *link_->Send(comm, memory_.Sub(0, 60));
  const TransferId second = *link_->Send(comm, memory_.Sub(64, 40));
  // NCCL says that the first is in progress.
  EXPECT_EQ(std::string(calls_()), "send 60 of 1 to 0 on 2;");
  while (!link_->IsDone(comm, first)) continue;
  while (!link_->IsDone(comm, second)) continue;
  EXPECT_EQ(std::string(calls_()), "send 40 of 1 to 0 on 2;");
  EXPECT_TRUE(link_->Abort({comm}).ok());
}

TEST_F(CudaLinkTest, RefusesWhatNcclRefusesAndAbortsAsOneGroup) {
  const CommId shard = Join(0);
  const CommId worker = Join(1);
  const auto refused = link_->Receive(shard, memory_.Sub(0, 60));
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  link_->Revoke(shard);
  EXPECT_TRUE(link_->Abort({shard, worker}).ok());
  EXPECT_EQ(std::string(calls_()),
            "recv 60 of 1 from 1 on 1;revoke 1 0;group;abort 1;abort 2;end;");
  EXPECT_FALSE(link_->Init({}, 2).ok());
}

}  // namespace
}  // namespace kaon::kernels::cuda
