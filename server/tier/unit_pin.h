// Access to one unit in memory, for as long as an object lives. Movable. The owner of the units
// outlives them; any thread.
#ifndef KAON_SERVER_TIER_UNIT_PIN_H_
#define KAON_SERVER_TIER_UNIT_PIN_H_

#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/region.h"

namespace kaon::tier {

using UnitId = size_t;

// The memory of a unit.
struct UnitTensors {
  // Of the newest version; tensor 0 is the weights.
  absl::InlinedVector<kernels::Region, 3> newest;
  kernels::Region next_weights;
  // Number of the version that an update makes.
  int next_version = 0;
};

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
  UnitReadPin(UnitPins& owner, UnitId id, UnitTensors tensors)
      : owner_(&owner), id_(id), tensors_(std::move(tensors)) {}
  UnitReadPin(UnitReadPin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        id_(other.id_),
        tensors_(std::move(other.tensors_)) {}
  UnitReadPin& operator=(UnitReadPin&&) = delete;
  ~UnitReadPin() {
    if (owner_ != nullptr) owner_->Unpin(id_);
  }

  // Tensor 0 is the weights.
  kernels::ConstRegion tensor(size_t i) const { return tensors_.newest[i]; }
  // All of the state; valid until this object moves.
  absl::Span<const kernels::Region> states() const {
    return absl::MakeConstSpan(tensors_.newest).subspan(1);
  }

 private:
  // Null once the pin has ended.
  UnitPins* owner_;
  UnitId id_;
  UnitTensors tensors_;
};

// Access to the newest version of a unit, and memory for the next one. State is changed in place.
// Without Commit, weights stay as they were, and so does state that nobody changed. Movable.
class UnitUpdatePin {
 public:
  // Ends at `owner`.
  UnitUpdatePin(UnitPins& owner, UnitId id, UnitTensors tensors)
      : owner_(&owner), id_(id), tensors_(std::move(tensors)) {}
  UnitUpdatePin(UnitUpdatePin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        id_(other.id_),
        tensors_(std::move(other.tensors_)) {}
  UnitUpdatePin& operator=(UnitUpdatePin&&) = delete;
  ~UnitUpdatePin() {
    if (owner_ != nullptr) owner_->EndUpdate(id_, false);
  }

  kernels::ConstRegion weights() const { return tensors_.newest[0]; }
  // Weights of the next version; their contents are undefined.
  kernels::Region next_weights() const { return tensors_.next_weights; }
  kernels::Region state(size_t i) const { return tensors_.newest[i + 1]; }
  // All of the state; valid until this object moves.
  absl::Span<const kernels::Region> states() const {
    return absl::MakeConstSpan(tensors_.newest).subspan(1);
  }
  int next_version() const { return tensors_.next_version; }
  // Makes the next version the newest, and starts to write it. Ends the pin.
  void Commit() { std::exchange(owner_, nullptr)->EndUpdate(id_, true); }

 private:
  // Null once the pin has ended.
  UnitPins* owner_;
  UnitId id_;
  UnitTensors tensors_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_UNIT_PIN_H_
