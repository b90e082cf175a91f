// Versions of the weights for readers (room 8 of a gradient's life). Each parameter has two
// versions in its home, so that version t is written while t - 1 is read. Versions that readers
// still pin are copied before they are overwritten. Readers may wait for a planned version. Owned
// by ShardCore. Reader methods: any thread. Methods below "Step thread": the thread that drives the
// core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "server/shard/parameters/pinned_versions.h"
#include "server/shard/parameters/pull_cache.h"
#include "server/shard/step_phases.h"
#include "server/tier/state_tier.h"
#include "server/tier/tiered_store.h"
#include "server/tier/unit_home.h"

namespace kaon::shard {

// Maximum number of parameters in one pull.
inline constexpr int kMaxPulledParameters = 100000;
using WaiterId = uint64_t;

class ParameterPublisher {
 public:
  // One parameter of this shard. Its home, in the backend's space, outlives the publisher's use.
  struct Source {
    uint32_t parameter_id = 0;
    std::string name;
    uint64_t num_elements = 0;
    tier::UnitHome* home = nullptr;
    tier::UnitId unit = 0;
  };

  // `phases` records the time of reads; null: not measured. `store` allocates copies; null: no
  // version outlives its buffer. `pull_cache` is the budget of host memory that readers of a device
  // share; null: each reads the device. All outlive the publisher.
  explicit ParameterPublisher(kernels::Backend& backend, StepPhases* phases = nullptr,
                              tier::TieredStore* store = nullptr,
                              tier::StateTier* pull_cache = nullptr)
      : backend_(backend), phases_(phases), store_(store), pull_cache_(pull_cache) {}

  // Returns NOT_FOUND, INVALID_ARGUMENT (dtype, parameters), or CloseAll's status. Returns
  // FAILED_PRECONDITION naming both for an older timeline or a replaced step. UNAVAILABLE means a
  // later timeline, or a step that is neither present nor planned.
  absl::Status CheckPull(const v1::PullRequest& request) const;
  // Returns 0 if Read may be called. Otherwise calls `ready` once when a retry makes sense, on any
  // thread, without a lock held, unless Forget comes first. Errors are those of CheckPull.
  absl::StatusOr<WaiterId> Await(uint32_t parameter_id, uint64_t step, std::function<void()> ready);
  void Forget(WaiterId waiter);
  // Returns true if Await would return 0 now.
  bool IsReadable(uint32_t parameter_id, uint64_t step) const;
  // Pins the version that `request` names, after CheckPull accepted it. BeginWrite copies a pinned
  // version before overwriting it, if `store` has room. Each parameter stays pinned until Unpin.
  ReaderId Pin(const v1::PullRequest& request);
  void Unpin(ReaderId reader, uint32_t parameter_id);
  // Fills `to`, host memory or the backend's, with version `step` from element `offset` on, rounded
  // to `dtype`. The parameter and the range must be this shard's. Returns FAILED_PRECONDITION
  // naming both steps if the version is gone.
  absl::Status Read(uint32_t parameter_id, uint64_t step, uint64_t offset, kernels::DType dtype,
                    kernels::Region to) const;
  // Returns FAILED_PRECONDITION if `timeline` is over, UNAVAILABLE if it has not begun; both name
  // both timelines. NOT_FOUND if no job is served. OK after a Read means that the values read
  // belong to `timeline`.
  absl::Status CheckTimeline(uint64_t timeline) const;
  // Returns 0 for a parameter that is not served.
  uint64_t num_elements(uint32_t parameter_id) const;

  // Step thread.
  void Serve(const std::string& job, uint64_t timeline, std::vector<Source> sources);
  // Serves nothing any more, because `job` was deleted: reads get NOT_FOUND. Blocks while readers
  // copy their current chunk. The memory of the sources is not read afterwards.
  void StopServing(const std::string& job);
  // Lets readers wait for the planned version `step`; absent: no version is planned.
  void ExpectStep(std::optional<uint64_t> step);
  // Starts `timeline`: all served versions are invalid. Readers wait until the next Publish.
  void Rewind(uint64_t timeline);
  // Pins the newest version. Errors are those of the home.
  absl::StatusOr<tier::UnitReadPin> PinNewest(uint32_t parameter_id) const;
  // Returns whether the version before the newest is valid.
  bool HasPrevious(uint32_t parameter_id) const;
  // Pins the newest version, and memory for the next one. The older version is invalid from now on.
  // Blocks while readers copy their current chunk of it. Errors are those of the home.
  absl::StatusOr<tier::UnitUpdatePin> BeginWrite(uint32_t parameter_id);
  // Commits what was written, and publishes it as version `step`.
  void Publish(uint32_t parameter_id, uint64_t step, tier::UnitUpdatePin written);
  // Publishes the newest version as version `step`, too: it is unchanged.
  void PublishUnchanged(uint32_t parameter_id, uint64_t step);
  // Serves the parameter from another home, whose unit has the newest version. The older version is
  // invalid from now on. Blocks as BeginWrite does.
  void Move(uint32_t parameter_id, tier::UnitHome* home, tier::UnitId unit);
  // Memory is needed: readers lose what has no buffer any more, and the cache of pulls is emptied.
  void DropCopies();
  // Ends every wait, and refuses every pull, with `status`.
  void CloseAll(const absl::Status& status);

 private:
  struct Version {
    // The unit's version of that number is the one of the steps first_step to last_step.
    bool valid = false;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
    // Readers that copy out of a device or a disk without the lock.
    mutable int reads = 0;
  };
  struct Parameter {
    explicit Parameter(Source served) : source(std::move(served)) {}
    // Returns the weights of version `i`.
    tier::TensorPlace Weights(int i) const { return {source.home, source.unit, i, 0}; }

    // Move, on the step thread, changes it under the lock.
    Source source;
    mutable Mutex mu;
    // The index is the number of the unit's version.
    std::array<Version, 2> versions ABSL_GUARDED_BY(mu);
    PinnedVersions pinned ABSL_GUARDED_BY(mu);
    // Used for a device only.
    mutable PullCache cache ABSL_GUARDED_BY(mu);
    // Notified when the last reader of a version has copied.
    mutable CondVar read;
  };
  // Elements of a version that a reader wants.
  struct Range {
    uint64_t offset = 0;
    uint64_t num_elements = 0;
    kernels::DType dtype = kernels::DType::kFloat32;
    kernels::Region to;
  };
  struct Waiter {
    WaiterId id = 0;
    uint32_t parameter_id = 0;
    std::function<void()> ready;
  };

  absl::Status CheckTimelineLocked(uint64_t timeline) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckStepLocked(const Parameter& parameter, uint64_t step, bool* readable) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<const Parameter>> FindLocked(uint32_t parameter_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns NOT_FOUND: this shard does not serve `job`.
  absl::Status NotServedLocked(absl::string_view job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns null if readers of `from` share nothing.
  std::shared_ptr<RoundedVersion> Rounded(const Parameter& parameter, const StepWeights& from,
                                          const Range& range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  void Copy(RoundedVersion* rounded, kernels::ConstRegion weights, const Range& range) const;
  // Copies version `i` out of a device or a disk without the lock.
  absl::Status CopyUnlocked(const Parameter& parameter, int i, const Range& range) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  absl::Status CopyFromDisk(const tier::TensorPlace& weights, const Range& range) const;
  // Makes version `i` invalid, after a copy for readers and the end of all reads.
  void Retire(uint32_t parameter_id, Parameter& parameter, int i)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  void KeepCopy(uint32_t parameter_id, Parameter& parameter, int i)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  // Drops what the cache has of versions that nobody can read any more.
  static void TrimCache(const Parameter& parameter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parameter.mu);
  // Wakes the readers that wait for the parameter; absent: all readers.
  void Wake(std::optional<uint32_t> parameter_id);

  kernels::Backend& backend_;
  StepPhases* const phases_;
  tier::TieredStore* const store_;
  tier::StateTier* const pull_cache_;
  // Used by the step thread; makes the names of copies unique.
  uint64_t copies_made_ = 0;
  // The step thread writes the map, under the lock. A reader keeps its parameter in StopServing.
  std::map<uint32_t, std::shared_ptr<Parameter>> parameters_;

  // Never acquired inside a parameter's lock.
  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // Empty until a job is served, and after StopServing.
  std::string job_ ABSL_GUARDED_BY(mu_);
  std::string deleted_job_ ABSL_GUARDED_BY(mu_);
  uint64_t timeline_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<uint64_t> expected_step_ ABSL_GUARDED_BY(mu_);
  WaiterId next_waiter_ ABSL_GUARDED_BY(mu_) = 1;
  ReaderId next_reader_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_
