// Swapped memory for sums on a simulated disk, with room for two small ones. A test owns it.
#ifndef KAON_TESTS_SERVER_SHARD_GRADIENTS_SWAPPED_SUMS_H_
#define KAON_TESTS_SERVER_SHARD_GRADIENTS_SWAPPED_SUMS_H_

#include <memory>

#include "server/tier/swapped_memory.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::shard {

class SwappedSums {
 public:
  tier::SwappedMemory& memory() { return memory_; }
  // Returns the bytes of the file that sums take.
  uint64_t file_bytes() const { return space_.used_bytes(); }

 private:
  simulation::SimulatedDirectory disk_{"/sums", 1};
  std::unique_ptr<disk::BlockFile> file_ =
      simulation::SimulatedBlockFile::Open(disk_, "sums", 1 << 20).value();
  disk::BlockFile* const files_[1] = {file_.get()};
  tier::FileSpace space_{files_};
  tier::SwappedMemory memory_{space_, 2 * disk::kBlockBytes, nullptr};
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_GRADIENTS_SWAPPED_SUMS_H_
