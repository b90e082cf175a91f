// Backend, tiers and store of a test's shard: the CPU backend, or a FakeDeviceBackend where the
// test asks for it or the environment has KAON_TEST_MEMORY=device. With KAON_TEST_MEMORY=nvme it
// has a disk too, and MakeRegistration puts all parameters there. on_device.bzl runs tests in all
// three. The test owns it; one thread.
#ifndef KAON_TESTS_SERVER_SHARD_DEVICE_SHARD_MEMORY_H_
#define KAON_TESTS_SERVER_SHARD_DEVICE_SHARD_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/tier/device_tier.h"
#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/state_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/server/shard/device/fake_device_backend.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::shard {

class ShardMemory {
 public:
  explicit ShardMemory(uint64_t capacity_bytes, kernels::BackendOptions options = Reference(),
                       bool on_device = is_device());

  // Return what the environment says.
  static bool is_device();
  static bool is_nvme();
  // Granularity of the tier, in bytes.
  static uint64_t least_extent() {
    return is_device() ? tier::kDeviceAlignmentBytes : tier::kHostAlignmentBytes;
  }
  // Options of a backend with reference products.
  static kernels::BackendOptions Reference();

  kernels::Backend& backend() { return *backend_; }
  // Null on the host.
  FakeDeviceBackend* device() { return fake_; }
  tier::TieredStore& store() { return *store_; }
  // Budget of staging.
  tier::StateTier& host() { return host_; }
  // Null unless is_nvme(). Staging has room for two small parameters and three small sums.
  tier::NvmeTier* nvme() { return nvme_.get(); }
  // Returns another tier of the same memory.
  std::unique_ptr<tier::StateTier> NewTier(uint64_t capacity_bytes);

  // Copies out.
  std::vector<float> Floats(kernels::ConstRegion region);
  std::vector<std::byte> Bytes(kernels::ConstRegion region);
  // Copies in, from the region's first byte on.
  void Write(kernels::Region region, absl::Span<const float> floats);
  void Write(kernels::Region region, absl::Span<const std::byte> bytes);

 private:
  std::unique_ptr<kernels::Backend> backend_;
  FakeDeviceBackend* fake_ = nullptr;
  tier::HostTier host_;
  // Null on the host.
  std::unique_ptr<tier::StateTier> device_;
  std::unique_ptr<tier::TieredStore> store_;
  simulation::SimulatedDirectory disk_{"disk", 1};
  std::unique_ptr<disk::BlockFile> file_;
  std::unique_ptr<tier::NvmeTier> nvme_;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_DEVICE_SHARD_MEMORY_H_
