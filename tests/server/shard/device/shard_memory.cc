#include "tests/server/shard/device/shard_memory.h"

#include <glog/logging.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace kaon::shard {

bool ShardMemory::is_device() {
  const char* memory = std::getenv("KAON_TEST_MEMORY");
  if (memory == nullptr) return false;
  const std::string mode = memory;
  CHECK(mode == "device" || mode == "nvme") << mode;
  return mode == "device";
}

bool ShardMemory::is_nvme() {
  const char* memory = std::getenv("KAON_TEST_MEMORY");
  return memory != nullptr && std::string(memory) == "nvme";
}

kernels::BackendOptions ShardMemory::Reference() {
  kernels::BackendOptions options;
  options.gemm = "reference";
  return options;
}

ShardMemory::ShardMemory(uint64_t capacity_bytes, kernels::BackendOptions options, bool on_device)
    : host_(capacity_bytes) {
  backend_ = kernels::CreateBackend(options).value();
  if (on_device) {
    auto device = std::make_unique<FakeDeviceBackend>(std::move(backend_));
    fake_ = device.get();
    backend_ = std::move(device);
    device_ = NewTier(capacity_bytes);
  }
  store_ = std::make_unique<tier::TieredStore>(on_device ? *device_
                                                         : static_cast<tier::StateTier&>(host_));
  if (!is_nvme()) return;
  constexpr uint64_t kFileBytes = uint64_t{1} << 20;
  constexpr uint64_t kStagingBytes = uint64_t{54} << 10;
  file_ = simulation::SimulatedBlockFile::Open(disk_, "parameters", kFileBytes).value();
  disk::BlockFile* const files[] = {file_.get()};
  nvme_ = std::make_unique<tier::NvmeTier>(files, *backend_, kStagingBytes);
}

std::unique_ptr<tier::StateTier> ShardMemory::NewTier(uint64_t capacity_bytes) {
  if (fake_ != nullptr) return std::make_unique<tier::DeviceTier>(*backend_, capacity_bytes);
  return std::make_unique<tier::HostTier>(capacity_bytes);
}

std::vector<float> ShardMemory::Floats(kernels::ConstRegion region) {
  std::vector<float> floats(region.num_floats());
  if (!floats.empty()) backend_->CopyOut(region, kernels::Region(floats).host_bytes());
  return floats;
}

std::vector<std::byte> ShardMemory::Bytes(kernels::ConstRegion region) {
  std::vector<std::byte> bytes(region.size());
  backend_->CopyOut(region, absl::MakeSpan(bytes));
  return bytes;
}

void ShardMemory::Write(kernels::Region region, absl::Span<const float> floats) {
  Write(region, kernels::ConstRegion(floats).host_bytes());
}

void ShardMemory::Write(kernels::Region region, absl::Span<const std::byte> bytes) {
  backend_->CopyIn(bytes, region.Sub(0, bytes.size()));
}

}  // namespace kaon::shard
