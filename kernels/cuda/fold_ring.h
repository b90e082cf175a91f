// FoldRing holds the parts that all sums of a backend share. They are streams of folds, a ring of
// chunks on their way to the device, and a list of the memory that is being summed. The backend
// owns it, and the device outlives it. Any thread.
#ifndef KAON_KERNELS_CUDA_FOLD_RING_H_
#define KAON_KERNELS_CUDA_FOLD_RING_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/accumulation.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/mutex.h"
#include "kernels/region.h"

namespace kaon::kernels::cuda {

// Folds of many sums, and the means of these, in the order of its calls.
struct FoldStream {
  // Held while work is queued, never while somebody waits for the device.
  Mutex mutex;
  std::unique_ptr<Stream> stream ABSL_GUARDED_BY(mutex);
  // Recorded after all work queued so far.
  std::unique_ptr<Event> end;
};

// One piece of a chunk.
struct FoldSlot {
  static constexpr uint64_t kBytes = uint64_t{1} << 20;
  // Most blocks of kFoldBlockElements in a piece.
  static constexpr uint64_t kBlocks = kBytes / 2 / kFoldBlockElements;

  OwnedMemory pinned;
  OwnedMemory device;
  // Scratch for the squares of the blocks.
  OwnedMemory squares;
  // Recorded after the last use.
  std::unique_ptr<Event> done;
};

class FoldRing {
 public:
  struct Options {
    int num_streams = 4;
    int num_slots = 32;
  };
  // RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<std::unique_ptr<FoldRing>> Create(Device& device, const Options& options);

  // Returns the slot that was used longest ago, once the device has finished its work. Blocks until
  // a slot is free. The caller records `done` after its use, and gives the slot back.
  FoldSlot& Take();
  void GiveBack(FoldSlot& slot);

  // Assigns a stream to a sum. Until Remove, OrderAfter knows that the sum is written there.
  FoldStream& Add(ConstRegion sum);
  void Remove(ConstRegion sum);
  // Later work of `stream` waits for the folds of all sums that share bytes with `memory`.
  void OrderAfter(ConstRegion memory, Stream& stream);

 private:
  FoldRing() = default;

  struct Sum {
    uint64_t size = 0;
    FoldStream* stream = nullptr;
    int accumulations = 0;
  };

  std::vector<std::unique_ptr<FoldStream>> streams_;
  std::vector<std::unique_ptr<FoldSlot>> slots_;

  Mutex mutex_;
  CondVar given_back_;
  // Longest unused first.
  std::deque<FoldSlot*> free_ ABSL_GUARDED_BY(mutex_);
  // Sorted by address. No two overlap, but several accumulations may be of the same memory.
  std::map<uintptr_t, Sum> sums_ ABSL_GUARDED_BY(mutex_);
  size_t next_stream_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_FOLD_RING_H_
