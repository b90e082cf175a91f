// Rounded values of one parameter's versions on a device, in staging memory: one copy out of the
// device serves all readers. Memory within the budget of a tier; without room, readers read the
// device.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PULL_CACHE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PULL_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "server/tier/backend_memory.h"
#include "server/tier/state_tier.h"

namespace kaon::shard {

// One version in one dtype. Readers round pieces of it as they need them. Thread-safe, except for
// Restart. PullCache and readers share it.
class RoundedVersion {
 public:
  // Size of a piece in bytes; that of the largest chunk of a pull.
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

  // `backend` and `budget` outlive the object.
  RoundedVersion(kernels::Backend& backend, tier::StateTier& budget, kernels::DType dtype)
      : backend_(backend), budget_(budget), dtype_(dtype) {}
  ~RoundedVersion();
  RoundedVersion(const RoundedVersion&) = delete;
  RoundedVersion& operator=(const RoundedVersion&) = delete;

  kernels::DType dtype() const { return dtype_; }
  // Copies elements [offset, offset + num_elements) to `to`. Rounds the pieces that no reader has
  // rounded yet. `weights`, the whole version, must not change meanwhile.
  void Read(kernels::ConstRegion weights, uint64_t offset, uint64_t num_elements, std::byte* to);
  // Forgets all pieces and keeps the memory, for another version. Nobody may be reading.
  void Restart();

 private:
  enum class Piece : uint8_t { kEmpty, kBeingRounded, kRounded };

  // Allocates at the first call. Returns false without room.
  bool HasMemory(uint64_t num_elements);
  absl::Status Allocate(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Round(uint64_t piece, kernels::ConstRegion weights);

  kernels::Backend& backend_;
  tier::StateTier& budget_;
  const kernels::DType dtype_;

  Mutex mu_;
  CondVar rounded_;
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mu_);
  // Written once, under the lock. The state of a piece says who may touch its bytes.
  tier::BackendMemory memory_;
};

// Owned by ParameterPublisher, under the parameter's lock.
class PullCache {
 public:
  // Returns the version that begins with step `first_step`, new if there is none. It takes over the
  // memory of an older version, unless `older_are_read` or a reader still has that version.
  std::shared_ptr<RoundedVersion> Find(kernels::Backend& backend, tier::StateTier& budget,
                                       uint64_t first_step, kernels::DType dtype,
                                       bool older_are_read);
  // Drops the versions whose first step is not `present`. Readers keep theirs for their call.
  void KeepOnly(absl::FunctionRef<bool(uint64_t first_step)> present);
  void Clear() { versions_.clear(); }

 private:
  struct Entry {
    uint64_t first_step = 0;
    std::shared_ptr<RoundedVersion> version;
  };

  std::vector<Entry> versions_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PULL_CACHE_H_
