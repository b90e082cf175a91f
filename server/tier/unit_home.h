// Where the weights and the optimizer state of parameters live: a unit is one parameter. A unit has
// two versions of its weights, so that readers keep the older one while the next one is written.
// MemoryHome and NvmeTier implement it. The shard's ParameterStore uses them on the step thread;
// any thread may call Memory and Read, after the unit was added.
#ifndef KAON_SERVER_TIER_UNIT_HOME_H_
#define KAON_SERVER_TIER_UNIT_HOME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/tier/unit_pin.h"

namespace kaon::tier {

class UnitHome {
 public:
  virtual ~UnitHome() = default;

  // Returns the name for messages, such as "cpu".
  virtual absl::string_view name() const = 0;

  // Pins the newest version, or that and memory for the next one. Errors are those of a disk.
  virtual absl::StatusOr<UnitReadPin> Pin(UnitId unit) = 0;
  virtual absl::StatusOr<UnitUpdatePin> PinForUpdate(UnitId unit) = 0;
  // Tells the order of the next pins.
  virtual void Prefetch(absl::Span<const UnitId> units) = 0;
  // Returns how many units, from the first one on, may be pinned at once; at least 1.
  virtual size_t NumPinnable(absl::Span<const UnitId> units) const = 0;

  // Frees a unit, which is not used any more. Its number is not given again.
  virtual void Remove(UnitId unit) = 0;

  // Returns which version, 0 or 1, is the newest.
  virtual int newest(UnitId unit) const = 0;
  // Returns the version that the next update makes.
  virtual int next(UnitId unit) const = 0;
  // Returns the memory of a tensor that is always in memory; else empty. Optimizer state is the
  // same for all versions. Tensor 0 is the weights.
  virtual kernels::ConstRegion Memory(UnitId unit, int version, size_t tensor) const = 0;
  // Copies bytes of a tensor of either version out of the home; not for memory of a device. An
  // update of the unit may begin meanwhile, and must not if it overwrites this version.
  virtual absl::Status Read(UnitId unit, int version, size_t tensor, uint64_t offset,
                            absl::Span<std::byte> to) = 0;
};

// One tensor of one version of a unit. A value; `home` outlives it.
struct TensorPlace {
  UnitHome* home = nullptr;
  UnitId unit = 0;
  int version = 0;
  size_t tensor = 0;

  kernels::ConstRegion memory() const { return home->Memory(unit, version, tensor); }
  // Copies the tensor to `to`, memory of `backend` of its size. Errors are those of a disk.
  absl::Status CopyTo(kernels::Backend& backend, kernels::Region to) const {
    const kernels::ConstRegion from = memory();
    if (from.empty()) return home->Read(unit, version, tensor, 0, to.host_bytes());
    backend.Copy(from, to);
    return absl::OkStatus();
  }
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_UNIT_HOME_H_
