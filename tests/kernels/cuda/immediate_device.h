// A Device whose streams do everything at once on the calling thread, for tests of single kernels.
// Memory is host memory, filled with NaN. Launches of one stream get the seeds seed, seed + 1, ...
// One thread at a time.
#ifndef KAON_TESTS_KERNELS_CUDA_IMMEDIATE_DEVICE_H_
#define KAON_TESTS_KERNELS_CUDA_IMMEDIATE_DEVICE_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "kernels/cuda/device.h"

namespace kaon::kernels::cuda {

class ImmediateStream : public Stream {
 public:
  explicit ImmediateStream(uint64_t seed) : seed_(seed) {}

  void CopyIn(const void* host, void* device, uint64_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyOut(const void* device, void* host, uint64_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void Copy(const void* from, void* to, uint64_t bytes) override { std::memcpy(to, from, bytes); }
  void SetZero(void* to, uint64_t bytes) override { std::memset(to, 0, bytes); }
  void Record(Event&) override {}
  void Wait(const Event&) override {}
  void WaitForNative(void*) override {}
  bool IsNativeDone(void*) override { return true; }
  void Synchronize() override {}
  // No graphs.
  void BeginCapture() override { std::abort(); }
  std::unique_ptr<Graph> EndCapture() override { std::abort(); }
  void Launch(const Graph&) override { std::abort(); }
  void* native() override { return nullptr; }

  void Do(const std::function<void(uint64_t seed)>& work) { work(seed_++); }

 private:
  uint64_t seed_;
};

class ImmediateDevice : public Device {
 public:
  ImmediateDevice(int multiprocessors, uint64_t seed) : seed_(seed) {
    properties_.name = "immediate";
    properties_.major = 9;
    properties_.multiprocessors = multiprocessors;
    properties_.memory_bytes = uint64_t{1} << 40;
    properties_.shared_bytes_per_block = 227 * 1024;
  }

  const DeviceProperties& properties() const override { return properties_; }
  uint64_t free_bytes() const override { return properties_.memory_bytes; }
  absl::StatusOr<void*> Allocate(uint64_t bytes) override {
    void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void Free(void* memory) override { std::free(memory); }
  absl::StatusOr<void*> AllocatePinned(uint64_t bytes) override { return Allocate(bytes); }
  void FreePinned(void* memory) override { std::free(memory); }
  std::unique_ptr<Stream> NewStream() override { return std::make_unique<ImmediateStream>(seed_); }
  std::unique_ptr<Event> NewEvent() override { std::abort(); }

 private:
  DeviceProperties properties_;
  const uint64_t seed_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_IMMEDIATE_DEVICE_H_
