// Units that stay in the memory that a backend computes on: two buffers of weights, and state that
// is updated in place. A pin costs nothing. ParameterStore owns it.
#ifndef KAON_SERVER_TIER_MEMORY_HOME_H_
#define KAON_SERVER_TIER_MEMORY_HOME_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "server/tier/tiered_store.h"
#include "server/tier/unit_home.h"
#include "server/tier/unit_pin.h"

namespace kaon::tier {

class MemoryHome final : public UnitHome, private UnitPins {
 public:
  struct Unit {
    // Unique among those of the store.
    std::string name;
    // 0: another home has the weights.
    uint64_t weight_bytes = 0;
    // Name and bytes of each tensor of optimizer state.
    std::vector<std::pair<std::string, uint64_t>> state;
    // Has one buffer of weights: nobody reads them while they are written.
    bool is_written_once = false;
    // State of another unit, which outlives this one; then `state` is empty.
    std::vector<kernels::Region> shared_state = {};
  };

  // `name` is that of the store's tier. The store outlives the home.
  MemoryHome(TieredStore& store, absl::string_view name) : store_(store), name_(name) {}
  // Frees all memory.
  ~MemoryHome() override;

  // Adds a unit of zeros. RESOURCE_EXHAUSTED names the tensor and states the arithmetic.
  absl::StatusOr<UnitId> Add(const Unit& unit);
  // Returns the memory of the state.
  std::vector<kernels::Region> state(UnitId unit) const;

  absl::string_view name() const override { return name_; }
  absl::StatusOr<UnitReadPin> Pin(UnitId unit) override;
  absl::StatusOr<UnitUpdatePin> PinForUpdate(UnitId unit) override;
  void Prefetch(absl::Span<const UnitId>) override {}
  size_t NumPinnable(absl::Span<const UnitId> units) const override { return units.size(); }
  void Remove(UnitId unit) override;
  int newest(UnitId unit) const override;
  int next(UnitId unit) const override;
  kernels::ConstRegion Memory(UnitId unit, int version, size_t tensor) const override;
  absl::Status Read(UnitId unit, int version, size_t tensor, uint64_t offset,
                    absl::Span<std::byte> to) override;

 private:
  struct Held {
    // One or two buffers.
    std::vector<kernels::Region> weights;
    std::vector<kernels::Region> state;
    int newest = 0;
    std::vector<std::pair<std::string, kaon::tier::Pin>> tensors;
  };

  static int NextOf(const Held& held) { return held.weights.size() == 1 ? 0 : 1 - held.newest; }

  absl::StatusOr<kernels::Region> Allocate(std::string name, uint64_t bytes, Held& held);
  void Free(Held& held);
  UnitTensors TensorsOf(UnitId unit) const;
  void Unpin(UnitId) override {}
  void EndUpdate(UnitId unit, bool commit) override;

  TieredStore& store_;
  const std::string name_;

  // Units are added while other threads read.
  mutable Mutex mu_;
  std::deque<Held> units_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_MEMORY_HOME_H_
