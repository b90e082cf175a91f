// The disk of a simulated shard for parameters: it outlives the process that uses it. ShardNode
// owns it; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_SIMULATED_NVME_H_
#define KAON_TESTS_SIMULATION_NODES_SIMULATED_NVME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "server/disk/block_file.h"
#include "server/tier/nvme_tier.h"
#include "tests/simulation/disk/simulated_block_file.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::simulation {

class SimulatedNvme {
 public:
  SimulatedNvme(std::string path, uint64_t seed) : disk_(std::move(path), seed) {}

  // Starts a process that uses the disk. `backend` outlives it.
  void Open(kernels::Backend& backend) {
    file_ = SimulatedBlockFile::Open(disk_, "parameters", kFileBytes).value();
    disk::BlockFile* const files[] = {file_.get()};
    tier_ = std::make_unique<tier::NvmeTier>(files, backend, kStagingBytes);
  }
  void Close() {
    tier_.reset();
    file_.reset();
  }
  // Null before Open, and after Close.
  tier::NvmeTier* tier() { return tier_.get(); }

 private:
  // Room for the job, and for two of its parameters and three of its sums in memory.
  static constexpr uint64_t kFileBytes = uint64_t{1} << 20;
  static constexpr uint64_t kStagingBytes = uint64_t{56} << 10;

  SimulatedDirectory disk_;
  std::unique_ptr<disk::BlockFile> file_;
  std::unique_ptr<tier::NvmeTier> tier_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_SIMULATED_NVME_H_
