// Access to one unit in memory, for as long as an object lives. Movable. The owner of the units
// outlives them; any thread.
#ifndef KAON_SERVER_TIER_UNIT_PIN_H_
#define KAON_SERVER_TIER_UNIT_PIN_H_

#include <cstddef>
#include <utility>

#include "kernels/region.h"
#include "server/tier/unit_memory.h"

namespace kaon::tier {

using UnitId = size_t;

// The end of pins at the owner of the units.
class UnitPins {
 public:
  virtual void Unpin(UnitId id) = 0;
  virtual void EndUpdate(UnitId id, bool commit) = 0;

 protected:
  virtual ~UnitPins() = default;
};

// Access to the newest version of a unit, for reading. Movable.
class UnitReadPin {
 public:
  // Ends at `owner`.
  UnitReadPin(UnitPins& owner, UnitId id, PinnedUnit unit) : owner_(&owner), id_(id), unit_(unit) {}
  UnitReadPin(UnitReadPin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_), unit_(other.unit_) {}
  UnitReadPin& operator=(UnitReadPin&&) = delete;
  ~UnitReadPin() {
    if (owner_ != nullptr) owner_->Unpin(id_);
  }

  // Tensor 0 is the weights.
  kernels::ConstRegion tensor(size_t i) const { return unit_.tensor(i); }

 private:
  // Null once the pin has ended.
  UnitPins* owner_;
  UnitId id_;
  PinnedUnit unit_;
};

// Access to the newest version of a unit, and memory for the next one. State is changed in place.
// Without Commit, the unit stays as it was. Movable.
class UnitUpdatePin {
 public:
  // Ends at `owner`.
  UnitUpdatePin(UnitPins& owner, UnitId id, PinnedUnit unit)
      : owner_(&owner), id_(id), unit_(unit) {}
  UnitUpdatePin(UnitUpdatePin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_), unit_(other.unit_) {}
  UnitUpdatePin& operator=(UnitUpdatePin&&) = delete;
  ~UnitUpdatePin() {
    if (owner_ != nullptr) owner_->EndUpdate(id_, false);
  }

  kernels::ConstRegion weights() const { return unit_.tensor(0); }
  // Weights of the next version; their contents are undefined.
  kernels::Region next_weights() const { return unit_.next_weights(); }
  kernels::Region state(size_t i) const { return unit_.tensor(i + 1); }
  // Makes the next version the newest, and starts to write it. Ends the pin.
  void Commit() { std::exchange(owner_, nullptr)->EndUpdate(id_, true); }

 private:
  // Null once the pin has ended.
  UnitPins* owner_;
  UnitId id_;
  PinnedUnit unit_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_UNIT_PIN_H_
