// Pulls from a device: how often they copy out of it, and what they read.
#include "server/shard/parameters/pull_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/tier/device_tier.h"
#include "server/tier/host_tier.h"
#include "server/tier/memory_home.h"
#include "server/tier/tiered_store.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/server/shard/device/fake_device_backend.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

using kernels::DType;

// Two pieces of fp32 and a bit; one piece of bf16 and a bit.
constexpr uint64_t kElements = RoundedVersion::kPieceBytes / 2 + 100;
constexpr uint64_t kFp32Bytes = kElements * 4;
constexpr uint64_t kBf16Bytes = kElements * 2;

// Counts copies out.
class CountingBackend final : public kernels::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void RoundOut(kernels::ConstRegion floats, DType dtype, std::byte* to) override {
    ++copies;
    if (before_copy) before_copy();
    ForwardingBackend::RoundOut(floats, dtype, to);
    if (after_copy) after_copy();
  }

  std::atomic<int> copies = 0;
  // Called in each copy; set before the first.
  std::function<void()> before_copy;
  std::function<void()> after_copy;
};

std::unique_ptr<kernels::Backend> MakeDevice(FakeDeviceBackend** fake) {
  auto device =
      std::make_unique<FakeDeviceBackend>(kernels::CreateBackend(ShardMemory::Reference()).value());
  *fake = device.get();
  return device;
}

// One parameter, 7, with two buffers on a device.
class PullCacheTest : public testing::Test {
 protected:
  static constexpr uint64_t kBudget = kFp32Bytes * 2 + kBf16Bytes;

  PullCacheTest() {
    publisher_.Serve("gpt2", 1,
                     {{7, "w", kElements, &home_, *home_.Add({"w", kFp32Bytes, {}, false})}});
  }

  static std::vector<float> Weights(float value) {
    std::vector<float> weights(kElements);
    // More digits than bf16 has.
    for (uint64_t i = 0; i < kElements; ++i) weights[i] = value + static_cast<float>(i) / 4099;
    return weights;
  }
  void Write(uint64_t step, float value) {
    const std::vector<float> weights = Weights(value);
    tier::UnitUpdatePin pinned = *publisher_.BeginWrite(7);
    backend_.CopyIn(kernels::ConstRegion(weights).host_bytes(), pinned.next_weights());
    publisher_.Publish(7, step, std::move(pinned));
  }
  // Reads as PullReader does: chunk by chunk, none larger than a piece.
  std::vector<std::byte> Read(uint64_t step, DType dtype) {
    std::vector<std::byte> bytes(kElements * kernels::SizeOf(dtype));
    const uint64_t most = RoundedVersion::kPieceBytes / kernels::SizeOf(dtype);
    for (uint64_t offset = 0; offset < kElements; offset += most) {
      const absl::Status status =
          publisher_.Read(7, step, offset, dtype,
                          absl::MakeSpan(bytes).subspan(offset * kernels::SizeOf(dtype),
                                                        most * kernels::SizeOf(dtype)));
      EXPECT_TRUE(status.ok()) << status;
    }
    return bytes;
  }
  // Returns the values that a shard on the host serves.
  std::vector<std::byte> OnHost(float value, DType dtype) {
    const auto cpu = kernels::CreateBackend(ShardMemory::Reference()).value();
    const std::vector<float> weights = Weights(value);
    std::vector<std::byte> bytes(kElements * kernels::SizeOf(dtype));
    cpu->RoundOut(kernels::ConstRegion(weights), dtype, bytes.data());
    return bytes;
  }
  ReaderId Pin(uint64_t step) {
    v1::PullRequest request;
    request.set_step(step);
    request.add_parameter_ids(7);
    return publisher_.Pin(request);
  }

  FakeDeviceBackend* fake_ = nullptr;
  CountingBackend backend_{MakeDevice(&fake_)};
  tier::HostTier host_{kBudget};
  tier::DeviceTier device_{backend_, uint64_t{8} << 20};
  tier::TieredStore store_{device_};
  tier::DeviceTier weights_tier_{backend_, uint64_t{16} << 20};
  tier::TieredStore weights_{weights_tier_};
  tier::MemoryHome home_{weights_, "test"};
  ParameterPublisher publisher_{backend_, nullptr, &store_, &host_};
};

TEST_F(PullCacheTest, ReadersOfOneVersionShareOneCopyOfEachPiece) {
  Write(0, 10);
  for (int reader = 0; reader < 4; ++reader) {
    EXPECT_EQ(Read(0, DType::kFloat32), OnHost(10, DType::kFloat32));
    EXPECT_EQ(Read(0, DType::kBFloat16), OnHost(10, DType::kBFloat16));
  }
  // Three pieces of fp32 and two of bf16.
  EXPECT_EQ(backend_.copies, 5);
}

TEST_F(PullCacheTest, AReaderOnTheDeviceCopiesNothingOut) {
  Write(0, 10);
  Write(1, 11);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const uint64_t size = kernels::SizeOf(dtype);
    const kernels::Tensor memory(backend_, std::vector<std::byte>(7 * size));
    ASSERT_TRUE(publisher_.Read(7, 0, 5, dtype, memory.region()).ok());
    std::vector<std::byte> bytes(7 * size);
    memory.Read(absl::MakeSpan(bytes));
    EXPECT_EQ(std::memcmp(bytes.data(), OnHost(10, dtype).data() + 5 * size, bytes.size()), 0);
  }
  EXPECT_EQ(backend_.copies, 0);
  EXPECT_EQ(fake_->staging_bytes(), 0u);
}

TEST_F(PullCacheTest, AReaderCopiesOnlyThePiecesThatItNeeds) {
  Write(0, 10);
  const std::vector<std::byte> expected = OnHost(10, DType::kFloat32);
  // Crosses the first border of pieces.
  const uint64_t offset = RoundedVersion::kPieceBytes / 4 - 3;
  std::vector<std::byte> bytes(6 * 4);
  ASSERT_TRUE(publisher_.Read(7, 0, offset, DType::kFloat32, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data() + offset * 4, bytes.size()), 0);
  EXPECT_EQ(backend_.copies, 2);
  EXPECT_EQ(Read(0, DType::kFloat32), expected);
  EXPECT_EQ(backend_.copies, 3);
}

TEST_F(PullCacheTest, ConcurrentReadersShareOneCopyOfEachPiece) {
  constexpr int kReaders = 4;
  Write(0, 10);
  std::atomic<int> started = 0;
  // The first copy ends after every reader began.
  backend_.before_copy = [&] {
    while (started < kReaders) std::this_thread::yield();
  };
  std::vector<std::vector<std::byte>> read(kReaders);
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      ++started;
      read[static_cast<size_t>(i)] = Read(0, DType::kBFloat16);
    });
  }
  for (std::thread& reader : readers) reader.join();
  for (const auto& bytes : read) EXPECT_EQ(bytes, OnHost(10, DType::kBFloat16));
  EXPECT_EQ(backend_.copies, 2);
}

TEST_F(PullCacheTest, EachVersionIsCopiedAnew) {
  for (uint64_t step = 0; step < 4; ++step) {
    const float value = 10 + static_cast<float>(step);
    Write(step, value);
    EXPECT_EQ(Read(step, DType::kBFloat16), OnHost(value, DType::kBFloat16));
    EXPECT_EQ(backend_.copies, 2 * (static_cast<int>(step) + 1));
    // A version takes over the memory of the one before.
    EXPECT_EQ(host_.used_bytes(), kBf16Bytes);
  }
  publisher_.PublishUnchanged(7, 4);
  EXPECT_EQ(Read(4, DType::kBFloat16), OnHost(13, DType::kBFloat16));
  EXPECT_EQ(backend_.copies, 8);
}

TEST_F(PullCacheTest, ATimelineReadsNothingOfTheOneBefore) {
  Write(0, 10);
  Read(0, DType::kBFloat16);
  publisher_.Rewind(2);
  EXPECT_EQ(host_.used_bytes(), 0u);
  Write(0, 20);
  EXPECT_EQ(Read(0, DType::kBFloat16), OnHost(20, DType::kBFloat16));
}

TEST_F(PullCacheTest, AnOlderVersionKeepsItsPiecesWhileItIsPinned) {
  Write(0, 10);
  const ReaderId reader = Pin(0);
  Read(0, DType::kBFloat16);
  Write(1, 11);
  EXPECT_EQ(Read(1, DType::kBFloat16), OnHost(11, DType::kBFloat16));
  // The buffer of version 0 is overwritten; its copy and its pieces stay.
  Write(2, 12);
  EXPECT_GT(store_.used_bytes(), 0u);
  EXPECT_EQ(Read(0, DType::kBFloat16), OnHost(10, DType::kBFloat16));
  EXPECT_EQ(backend_.copies, 4);
  // Pieces that are missing are read from the copy.
  EXPECT_EQ(Read(0, DType::kFloat32), OnHost(10, DType::kFloat32));
  EXPECT_EQ(host_.used_bytes(), kFp32Bytes + 2 * kBf16Bytes);
  publisher_.Unpin(reader, 7);
  EXPECT_EQ(host_.used_bytes(), kBf16Bytes);
}

TEST_F(PullCacheTest, AVersionThatIsGoneReturnsItsMemory) {
  Write(0, 10);
  Read(0, DType::kFloat32);
  Read(0, DType::kBFloat16);
  EXPECT_EQ(host_.used_bytes(), kFp32Bytes + kBf16Bytes);
  EXPECT_EQ(fake_->staging_bytes(), kFp32Bytes + kBf16Bytes);
  Write(1, 11);
  EXPECT_EQ(host_.used_bytes(), kFp32Bytes + kBf16Bytes);
  ASSERT_TRUE(publisher_.BeginWrite(7).ok());
  EXPECT_EQ(host_.used_bytes(), 0u);
  EXPECT_EQ(fake_->staging_bytes(), 0u);
}

TEST_F(PullCacheTest, MemoryThatIsNeededIsReturned) {
  Write(0, 10);
  Read(0, DType::kBFloat16);
  publisher_.DropCopies();
  EXPECT_EQ(host_.used_bytes(), 0u);
  EXPECT_EQ(Read(0, DType::kBFloat16), OnHost(10, DType::kBFloat16));
}

TEST_F(PullCacheTest, WithoutRoomEachReaderReadsTheDevice) {
  Write(0, 10);
  const uint64_t taken = kBudget - kBf16Bytes + 1;
  ASSERT_TRUE(host_.Claim(taken).ok());
  for (int reader = 0; reader < 2; ++reader) {
    EXPECT_EQ(Read(0, DType::kBFloat16), OnHost(10, DType::kBFloat16));
  }
  EXPECT_EQ(backend_.copies, 4);
  EXPECT_EQ(host_.used_bytes(), taken);
  // With room, the next version is shared again.
  host_.Release(taken);
  Write(1, 11);
  for (int reader = 0; reader < 2; ++reader) {
    EXPECT_EQ(Read(1, DType::kBFloat16), OnHost(11, DType::kBFloat16));
  }
  EXPECT_EQ(backend_.copies, 6);
}

// The step thread waits for the one chunk that is under way, and for nothing else.
TEST_F(PullCacheTest, AWriterWaitsForTheReadersOfItsBufferOnly) {
  Write(0, 10);
  std::atomic<bool> copying = false;
  std::atomic<bool> open = false;
  backend_.before_copy = [&] {
    copying = true;
    while (!open) std::this_thread::yield();
  };
  backend_.after_copy = [&] { copying = false; };
  std::vector<std::byte> bytes(4);
  std::thread reader(
      [&] { EXPECT_TRUE(publisher_.Read(7, 0, 0, DType::kFloat32, absl::MakeSpan(bytes)).ok()); });
  while (!copying) std::this_thread::yield();
  Write(1, 11);
  EXPECT_TRUE(publisher_.IsReadable(7, 0));
  std::thread writer([&] {
    EXPECT_TRUE(publisher_.BeginWrite(7).ok());
    EXPECT_FALSE(copying);
  });
  while (publisher_.IsReadable(7, 0)) std::this_thread::yield();
  open = true;
  writer.join();
  reader.join();
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  EXPECT_EQ(value, 10);
}

}  // namespace
}  // namespace kaon::shard
