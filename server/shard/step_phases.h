// Where the time of each step went on this shard: when each kind of work began and ended, and how
// much of that was work. Measures only; nothing is decided by it. Owned by StepLoop; any thread.
#ifndef KAON_SERVER_SHARD_STEP_PHASES_H_
#define KAON_SERVER_SHARD_STEP_PHASES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/mutex.h"

namespace kaon::shard {

// As docs/kaonctl.md explains them.
enum class Phase { kReceive, kFold, kJournal, kPrepare, kSpeculate, kDecide, kApply, kPull };
inline constexpr size_t kNumPhases = 8;

class StepPhases {
 public:
  static constexpr size_t kMostSteps = 1000;

  // `now` is monotonic; called by any thread.
  explicit StepPhases(std::function<absl::Time()> now) : now_(std::move(now)) {}

  absl::Time now() const { return now_(); }

  // A plan of `step` was accepted at `position`; of a later round of it, nothing.
  void Begin(uint64_t position, uint64_t step);
  // Work on the newest step begun, or on `step` if that is a recent one; nothing otherwise.
  void Add(Phase phase, absl::Time begin, absl::Time end,
           std::optional<uint64_t> step = std::nullopt);
  // The decision of the newest step begun has come: it was waited for since the vote was durable.
  void Decided(absl::Time at);

  // Oldest first, those at `from_position` and above; at most kMostSteps are kept.
  std::vector<v1::StepPhases> Read(uint64_t from_position) const;

 private:
  struct Span {
    absl::Time begin = absl::InfiniteFuture();
    absl::Time end = absl::InfinitePast();
    absl::Duration busy;
  };
  struct Step {
    uint64_t position = 0;
    uint64_t step = 0;
    absl::Time begun;
    std::array<Span, kNumPhases> spans;
  };

  Step* FindLocked(std::optional<uint64_t> step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<absl::Time()> now_;
  mutable Mutex mu_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mu_);
};

// Notes what lies between its construction, or Next, and its end. Without a recorder it does
// nothing. On one thread: one inside another, of the same `innermost`, stops the outer's clock.
class PhaseTimer {
 public:
  PhaseTimer(StepPhases* phases, Phase phase, PhaseTimer** innermost = nullptr,
             std::optional<uint64_t> step = std::nullopt);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  // What follows is of another phase.
  void Next(Phase phase);

 private:
  // Notes what lies between `since_` and now, which becomes `since_`.
  void Note();

  StepPhases* const phases_;
  PhaseTimer** const innermost_;
  PhaseTimer* const outer_;
  const std::optional<uint64_t> step_;
  Phase phase_;
  absl::Time since_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_STEP_PHASES_H_
