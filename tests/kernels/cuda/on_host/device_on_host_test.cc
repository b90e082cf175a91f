#include "kernels/cuda/on_host/device_on_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/launch.h"

namespace kaon::kernels::cuda::on_host {
namespace {

constexpr uint64_t kCount = 1000;
constexpr uint64_t kBytes = kCount * sizeof(float);

__global__ void Add(float* to, float value, uint64_t count) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] += value;
}

void LaunchAdd(Stream& stream, float* to, float value, uint64_t count = kCount) {
  Launch(stream, {static_cast<int64_t>(count + 127) / 128, 128, 0}, Add, to, value, count);
}

// Memory of both kinds, two streams and an event.
struct Trial {
  explicit Trial(uint64_t seed = 1) : device(NewDeviceOnHost({seed})) {
    a = device->NewStream();
    b = device->NewStream();
    event = device->NewEvent();
    memory = static_cast<float*>(device->Allocate(kBytes).value());
    pinned = static_cast<float*>(device->AllocatePinned(kBytes).value());
    out = static_cast<float*>(device->AllocatePinned(kBytes).value());
  }
  ~Trial() {
    a.reset();
    b.reset();
    device->Free(memory);
    device->FreePinned(pinned);
    device->FreePinned(out);
  }
  void Fill(float value) { std::fill(pinned, pinned + kCount, value); }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> a;
  std::unique_ptr<Stream> b;
  std::unique_ptr<Event> event;
  float* memory;
  float* pinned;
  float* out;
};

// Returns how many of 50 seeds give `expected`.
int SeedsThatGive(float expected, const std::function<float(Trial&)>& run) {
  int equal = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Trial trial(seed);
    if (run(trial) == expected) ++equal;
  }
  return equal;
}

TEST(DeviceOnHostTest, RunsWorkOnlyOnceSomebodyWaits) {
  Trial trial;
  trial.Fill(1);
  std::fill(trial.out, trial.out + kCount, 5.0f);
  trial.a->CopyIn(trial.pinned, trial.memory, kBytes);
  LaunchAdd(*trial.a, trial.memory, 2);
  trial.a->CopyOut(trial.memory, trial.out, kBytes);
  EXPECT_NE(trial.out[0], trial.out[0]) << "the target of a copy is a NaN until it is done";
  trial.a->Record(*trial.event);
  trial.event->Await();
  EXPECT_EQ(trial.out[0], 3);
  EXPECT_EQ(trial.out[kCount - 1], 3);
}

TEST(DeviceOnHostTest, FreshMemoryIsNotANumber) {
  Trial trial;
  trial.a->CopyOut(trial.memory, trial.out, kBytes);
  trial.a->Synchronize();
  EXPECT_NE(trial.out[kCount - 1], trial.out[kCount - 1]);
  EXPECT_NE(trial.pinned[0], trial.pinned[0]);
}

TEST(DeviceOnHostTest, SetsMemoryToZeroAndCopiesIt) {
  Trial trial;
  auto* const other = static_cast<float*>(trial.device->Allocate(kBytes).value());
  trial.a->SetZero(trial.memory, kBytes);
  LaunchAdd(*trial.a, trial.memory, 7);
  trial.a->Copy(trial.memory, other, kBytes);
  trial.a->CopyOut(other, trial.out, kBytes);
  trial.a->Synchronize();
  EXPECT_EQ(trial.out[3], 7);
  trial.device->Free(other);
}

TEST(DeviceOnHostTest, StreamsThatWaitForAnEventSeeTheWorkBeforeIt) {
  const auto with_wait = [](Trial& trial) {
    trial.Fill(1);
    trial.a->CopyIn(trial.pinned, trial.memory, kBytes);
    trial.a->Record(*trial.event);
    trial.b->Wait(*trial.event);
    trial.b->CopyOut(trial.memory, trial.out, kBytes);
    trial.b->Synchronize();
    return trial.out[kCount / 2];
  };
  EXPECT_EQ(SeedsThatGive(1, with_wait), 50);
  const auto without_wait = [](Trial& trial) {
    trial.Fill(1);
    trial.a->CopyIn(trial.pinned, trial.memory, kBytes);
    trial.b->CopyOut(trial.memory, trial.out, kBytes);
    trial.b->Synchronize();
    return trial.out[kCount / 2];
  };
  const int lucky = SeedsThatGive(1, without_wait);
  EXPECT_GT(lucky, 0);
  EXPECT_LT(lucky, 50);
}

TEST(DeviceOnHostTest, FindsTheReuseOfAPinnedBufferBeforeItsEvent) {
  const auto reuse = [](Trial& trial, bool awaits) {
    trial.Fill(1);
    trial.b->CopyIn(trial.pinned, trial.memory, kBytes);
    trial.b->Record(*trial.event);
    // As other threads do, waits for work of its own.
    trial.a->Synchronize();
    if (awaits) trial.event->Await();
    trial.Fill(10);
    trial.b->CopyOut(trial.memory, trial.out, kBytes);
    trial.b->Synchronize();
    return trial.out[0];
  };
  EXPECT_EQ(SeedsThatGive(1, [&](Trial& trial) { return reuse(trial, true); }), 50);
  EXPECT_LT(SeedsThatGive(1, [&](Trial& trial) { return reuse(trial, false); }), 50);
}

TEST(DeviceOnHostTest, AnEventWithoutARecordIsDone) {
  Trial trial;
  trial.event->Await();
  trial.a->Wait(*trial.event);
  trial.a->Synchronize();
}

TEST(DeviceOnHostTest, AGraphRunsWithTheScalarsOfItsCapture) {
  Trial trial;
  float value = 1;
  trial.a->SetZero(trial.memory, kBytes);
  trial.a->BeginCapture();
  LaunchAdd(*trial.a, trial.memory, value);
  trial.a->CopyOut(trial.memory, trial.out, kBytes);
  const std::unique_ptr<Graph> graph = trial.a->EndCapture();
  trial.a->Synchronize();
  EXPECT_NE(trial.out[0], 1) << "captured work has run";
  value = 100;
  for (int i = 1; i <= 2; ++i) {
    trial.a->Launch(*graph);
    EXPECT_NE(trial.out[0], trial.out[0]);
    trial.a->Synchronize();
    EXPECT_EQ(trial.out[0], i);
  }
}

TEST(DeviceOnHostTest, RefusesMoreThanItsCapacity) {
  DeviceOnHostOptions options;
  options.memory_bytes = 1000;
  options.pinned_bytes = 500;
  const std::unique_ptr<Device> device = NewDeviceOnHost(options);
  void* const memory = device->Allocate(600).value();
  EXPECT_EQ(device->free_bytes(), 400);
  const absl::StatusOr<void*> refused = device->Allocate(401);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(), "device memory: needs 401 bytes, 400 of 1000 are free");
  EXPECT_EQ(device->AllocatePinned(501).status().code(), absl::StatusCode::kResourceExhausted);
  device->Free(memory);
  void* const again = device->Allocate(1000).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(again) % 256, 0);
  device->Free(again);
}

TEST(DeviceOnHostTest, OpensAnOrdinalThatExists) {
  EXPECT_TRUE(Device::Open(0).ok());
  EXPECT_EQ(Device::Open(kDevicesOnHost).status().code(), absl::StatusCode::kNotFound);
  setenv("KAON_CUDA_ON_HOST_MEMORY", "4096", 1);
  EXPECT_EQ(Device::Open(1).value()->free_bytes(), 4096);
  setenv("KAON_CUDA_ON_HOST_SEED", "seven", 1);
  EXPECT_EQ(Device::Open(1).status().code(), absl::StatusCode::kInvalidArgument);
  unsetenv("KAON_CUDA_ON_HOST_SEED");
  unsetenv("KAON_CUDA_ON_HOST_MEMORY");
}

TEST(DeviceOnHostTest, ThreadsHaveStreamsOfTheirOwn) {
  const std::unique_ptr<Device> device = NewDeviceOnHost({});
  std::vector<float> sums(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<Stream> stream = device->NewStream();
      auto* const memory = static_cast<float*>(device->Allocate(kBytes).value());
      auto* const out = static_cast<float*>(device->AllocatePinned(kBytes).value());
      stream->SetZero(memory, kBytes);
      for (int i = 0; i < 20; ++i) {
        LaunchAdd(*stream, memory, static_cast<float>(t + 1));
        stream->CopyOut(memory, out, kBytes);
        stream->Synchronize();
      }
      sums[t] = out[kCount - 1];
      device->Free(memory);
      device->FreePinned(out);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<float>{20, 40, 60, 80}));
}

TEST(DeviceOnHostDeathTest, FindsCopiesOutsideAnAllocation) {
  Trial trial;
  float unpinned = 0;
  EXPECT_DEATH(trial.a->CopyIn(&unpinned, trial.memory, 4), "source of CopyIn: .*pinned memory");
  EXPECT_DEATH(trial.a->CopyOut(trial.memory, trial.memory, 4), "target of CopyOut");
  EXPECT_DEATH(trial.a->CopyIn(trial.pinned, trial.memory + 1, kBytes), "bytes 4 .. 4004 of 4000");
  EXPECT_DEATH(trial.a->SetZero(trial.pinned, 4), "target of SetZero");
}

TEST(DeviceOnHostDeathTest, FindsAKernelThatWritesOutsideAnAllocation) {
  Trial trial;
  auto* const small = static_cast<float*>(trial.device->Allocate(kBytes).value());
  LaunchAdd(*trial.a, small, 1, kCount + 1);
  trial.a->Synchronize();
  EXPECT_DEATH(trial.device->Free(small), "wrote behind an allocation of 4000 bytes");
  const float* const end = small + kCount;
  std::memset(const_cast<float*>(end), 0xa5, sizeof(float));
  trial.device->Free(small);
}

TEST(DeviceOnHostDeathTest, FindsFreesThatComeTwiceOrTooEarly) {
  Trial trial;
  void* const memory = trial.device->Allocate(8).value();
  trial.device->Free(memory);
  EXPECT_DEATH(trial.device->Free(memory), "was freed already");
  auto* const early = static_cast<float*>(trial.device->Allocate(kBytes).value());
  EXPECT_DEATH(
      {
        trial.a->CopyIn(trial.pinned, early, kBytes);
        trial.device->Free(early);
      },
      "memory of a copy that is not done is freed");
  EXPECT_DEATH(
      {
        trial.device->Free(early);
        trial.a->Copy(early, trial.memory, 4);
      },
      "source of Copy");
  trial.device->Free(early);
}

TEST(DeviceOnHostDeathTest, FindsAKernelThatWritesFreedMemory) {
  EXPECT_DEATH(
      {
        Trial trial;
        auto* const early = static_cast<float*>(trial.device->Allocate(kBytes).value());
        trial.a->SetZero(trial.memory, kBytes);
        Enqueue(*trial.a, [early](uint64_t) { early[7] = 1; });
        trial.device->Free(early);
        trial.a->Synchronize();
        trial.device->Allocate(4).value();
      },
      "wrote a freed allocation");
}

TEST(DeviceOnHostDeathTest, FindsMistakesOfCaptures) {
  Trial trial;
  trial.a->BeginCapture();
  EXPECT_DEATH(trial.device->Allocate(4).value(), "allocates memory while it captures");
  EXPECT_DEATH(trial.a->Synchronize(), "while it captures a graph");
  EXPECT_DEATH(trial.a->Record(*trial.event), "records no event");
  std::unique_ptr<Graph> graph = trial.a->EndCapture();
  EXPECT_DEATH(
      {
        trial.a->Launch(*graph);
        graph.reset();
      },
      "a graph is destroyed before it has run");
}

}  // namespace
}  // namespace kaon::kernels::cuda::on_host
