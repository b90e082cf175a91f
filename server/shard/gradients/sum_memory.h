// Memory of the sum of one parameter's gradients: memory that the backend computes on, or memory
// that may be in a file. Owned by GradientAccumulator, which holds the parameter's lock around
// every call but pins.
#ifndef KAON_SERVER_SHARD_GRADIENTS_SUM_MEMORY_H_
#define KAON_SERVER_SHARD_GRADIENTS_SUM_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/shard/gradients/gradient_accumulator_options.h"
#include "server/tier/backend_memory.h"
#include "server/tier/swapped_memory.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

// A finished gradient for as long as this object lives.
struct PinnedGradient {
  // Empty if the step leaves the parameter alone ([T7]).
  kernels::ConstRegion values;
  tier::PageHold hold;
};

class SumMemory {
 public:
  // Allocates `num_elements` fp32, and host memory for the journal where they are on a device.
  // `is_swapped`: in options.swapped. RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<std::unique_ptr<SumMemory>> Reserve(
      const GradientAccumulatorOptions& options, uint32_t parameter_id, const std::string& name,
      uint64_t num_elements, bool is_swapped);
  ~SumMemory();

  // Always the same memory; touch it only while it is pinned.
  kernels::Region region() const { return region_; }
  // Returns the extent, if it may be in a file.
  std::optional<tier::SwappedMemory::ExtentId> swapped() const { return swapped_; }
  // Pin it, for reading or for changes as well. Block while it is read from a file. Errors are
  // those of a disk.
  absl::StatusOr<tier::PageHold> Pin();
  absl::StatusOr<tier::PageHold> PinForWrite();
  // Makes the contents undefined.
  void Discard();
  // Copies a sum on a device to host memory and returns that; empty if there is none.
  kernels::ConstRegion CopyToStaging();

 private:
  explicit SumMemory(const GradientAccumulatorOptions& options) : options_(options) {}

  absl::Status AllocateStaging();

  const GradientAccumulatorOptions& options_;
  kernels::Region region_;
  std::optional<tier::SwappedMemory::ExtentId> swapped_;
  // Name of the tensor in the store; empty if there is none.
  std::string tensor_;
  tier::Pin pin_;
  tier::BackendMemory staging_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_SUM_MEMORY_H_
