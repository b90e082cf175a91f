// Versions of the weights that readers may have (room 8 of a gradient's life): two buffers per
// parameter, so that version t is written while t - 1 is read, copies of what readers still hold on
// to when its buffer is written again, and readers that wait for a version that is on its way.
// Owned by ShardCore. Readers come from any thread; what is under "Step thread" from the one that
// drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/shard_data.pb.h"
#include "kernels/dtype.h"
#include "kernels/mutex.h"
#include "server/shard/parameters/pinned_versions.h"
#include "server/shard/step_phases.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

// Most parameters one pull may name.
inline constexpr int kMaxPulledParameters = 100000;

using WaiterId = uint64_t;

class ParameterPublisher {
 public:
  // One parameter of this shard. The memory outlives its serving.
  struct Source {
    uint32_t parameter_id = 0;
    std::string name;
    absl::Span<float> first;
    // Empty for a parameter that is written once.
    absl::Span<float> second;
  };

  // `phases`, told of what is read, and `store`, which has the memory of copies, outlive the
  // publisher; null if nobody measures, or no version outlives its buffer.
  explicit ParameterPublisher(StepPhases* phases = nullptr, tier::TieredStore* store = nullptr)
      : phases_(phases), store_(store) {}

  // NOT_FOUND, FAILED_PRECONDITION (older timeline; step that is gone: names both),
  // INVALID_ARGUMENT (dtype, parameters), UNAVAILABLE (a timeline that is not there yet; a step
  // that is neither there nor planned), or what the publisher was closed with.
  absl::Status CheckPull(const v1::PullRequest& request) const;

  // 0: Read may be called. Otherwise `ready` will be called once, without a lock held, on any
  // thread, when it is worth asking again, unless Forget comes first; it must keep alive what it
  // touches. Errors are those of CheckPull.
  absl::StatusOr<WaiterId> Await(uint32_t parameter_id, uint64_t step, std::function<void()> ready);
  void Forget(WaiterId waiter);
  // Whether Await would return 0 now.
  bool IsReadable(uint32_t parameter_id, uint64_t step) const;

  // Of a request that CheckPull accepts: from now on its version outlives its buffers, if `store`
  // has room for a copy when they are written again. Each parameter until it is let go of.
  ReaderId Pin(const v1::PullRequest& request);
  void Unpin(ReaderId reader, uint32_t parameter_id);

  // `to` <- elements [offset, offset + num_elements) of version `step`, rounded to `dtype`. The
  // parameter and the range must be this shard's. FAILED_PRECONDITION naming both steps when the
  // version is gone.
  absl::Status Read(uint32_t parameter_id, uint64_t step, uint64_t offset, kernels::DType dtype,
                    uint64_t num_elements, std::byte* to) const;
  // Naming both timelines: FAILED_PRECONDITION when `timeline` is over, UNAVAILABLE when it is not
  // there yet. What was read before is of it as long as this is OK afterwards.
  absl::Status CheckTimeline(uint64_t timeline) const;
  // 0 for a parameter that is not served.
  uint64_t num_elements(uint32_t parameter_id) const;

  // Step thread.

  void Serve(const std::string& job, uint64_t timeline, std::vector<Source> sources);
  // Version `step` is planned: readers may wait for it. Absent: none is.
  void ExpectStep(std::optional<uint64_t> step);
  // What was served is of an older timeline: no version is there, until the next is published.
  void Rewind(uint64_t timeline);
  // The newest version.
  absl::Span<const float> current(uint32_t parameter_id) const;
  // The version before the newest write; empty before the second write.
  absl::Span<const float> previous(uint32_t parameter_id) const;
  // Memory for the next version; what it held is gone from now on.
  absl::Span<float> BeginWrite(uint32_t parameter_id);
  // What was written is version `step`.
  void Publish(uint32_t parameter_id, uint64_t step);
  // Publishes the newest version as version `step`, too: it is unchanged.
  void PublishUnchanged(uint32_t parameter_id, uint64_t step);
  // Memory is needed: readers lose what has no buffer any more.
  void DropCopies();
  // Ends every wait and refuses every pull with `status`.
  void CloseAll(const absl::Status& status);

 private:
  struct Version {
    absl::Span<float> memory;
    // Steps it is the version of.
    bool valid = false;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
  };
  struct Parameter {
    std::string name;
    uint64_t num_elements = 0;
    mutable Mutex mu;
    std::array<Version, 2> versions ABSL_GUARDED_BY(mu);
    int current ABSL_GUARDED_BY(mu) = 0;
    PinnedVersions pinned ABSL_GUARDED_BY(mu);
  };
  struct Waiter {
    WaiterId id = 0;
    uint32_t parameter_id = 0;
    std::function<void()> ready;
  };

  absl::Status CheckTimelineLocked(uint64_t timeline) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckStepLocked(const Parameter& parameter, uint64_t step, bool* readable) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const Parameter*> FindLocked(uint32_t parameter_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Calls what waits for the parameter; absent: everything.
  void Wake(std::optional<uint32_t> parameter_id);

  StepPhases* const phases_;
  tier::TieredStore* const store_;
  // Of the step thread: no two copies have the same name.
  uint64_t copies_made_ = 0;
  // Written by Serve, before the job is known to anyone.
  std::map<uint32_t, std::unique_ptr<Parameter>> parameters_;

  // Taken before a parameter's lock, never inside one.
  mutable Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // Empty until a job is served.
  std::string job_ ABSL_GUARDED_BY(mu_);
  uint64_t timeline_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<uint64_t> expected_step_ ABSL_GUARDED_BY(mu_);
  WaiterId next_waiter_ ABSL_GUARDED_BY(mu_) = 1;
  ReaderId next_reader_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_PUBLISHER_H_
