// Lanes: a stream each, with the memory that a synchronous call of the backend moves bytes and
// results through. A call borrows a lane, so that no two threads use one stream. The pool owns the
// lanes, and the device outlives it. Any thread.
#ifndef KAON_KERNELS_CUDA_LANE_POOL_H_
#define KAON_KERNELS_CUDA_LANE_POOL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda {

// One thread at a time.
struct Lane {
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  static constexpr uint64_t kResultBytes = uint64_t{16} << 10;

  // Memory of one piece of a copy, on both sides, and the event after its last use.
  struct Piece {
    OwnedMemory pinned;
    OwnedMemory device;
    std::unique_ptr<Event> done;
  };

  std::unique_ptr<Stream> stream;
  // By turns, so that the host copies one while the device copies the other.
  std::array<Piece, 2> pieces;
  // kResultBytes on both sides.
  OwnedMemory result;
  OwnedMemory result_out;
  template <typename T>
  T* results() const {
    return reinterpret_cast<T*>(result.data());
  }
  template <typename T>
  const T* results_out() const {
    return reinterpret_cast<const T*>(result_out.data());
  }
  std::unique_ptr<Event> end;
};

class LanePool {
 public:
  // RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<std::unique_ptr<LanePool>> Create(Device& device, int num_lanes);

  // Gives the lane back at its end. Its work must be done by then.
  class Borrowed {
   public:
    Borrowed(LanePool& pool, Lane& lane) : pool_(&pool), lane_(&lane) {}
    Borrowed(Borrowed&& other) noexcept
        : pool_(other.pool_), lane_(std::exchange(other.lane_, nullptr)) {}
    Borrowed& operator=(Borrowed&&) = delete;
    ~Borrowed() {
      if (lane_ != nullptr) pool_->Return(*lane_);
    }
    Lane& operator*() const { return *lane_; }
    Lane* operator->() const { return lane_; }

   private:
    LanePool* pool_;
    Lane* lane_;
  };

  // Blocks until a lane is idle.
  Borrowed Borrow();
  // Returns 1 .. `most` lanes: blocks for the first, and adds those that are idle.
  std::vector<Borrowed> BorrowSome(size_t most);

 private:
  LanePool() = default;
  void Return(Lane& lane);

  std::vector<std::unique_ptr<Lane>> lanes_;

  Mutex mutex_;
  CondVar returned_;
  std::vector<Lane*> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_LANE_POOL_H_
