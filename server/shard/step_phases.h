// Where the time of each step went on this shard: when each kind of work began and ended, how much
// of that was work, and how much of it was hidden behind other work of the step. Measures only;
// nothing is decided by it. Owned by StepLoop; any thread.
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

  // Work that one thread is at, or a wait for what other threads do for that phase.
  struct Work {
    // Of the step; absent if that is not kept.
    std::optional<uint64_t> position;
    Phase phase;
    absl::Time begin;
    bool waits = false;
  };

  // `now` is monotonic; called by any thread.
  explicit StepPhases(std::function<absl::Time()> now) : now_(std::move(now)) {}

  // A plan of `step` was accepted at `position`; of a later round of it, nothing.
  void Begin(uint64_t position, uint64_t step);
  // Work begins now, on the newest step begun, or on `step` if that is a recent one; nothing
  // otherwise. Several threads may be at one phase. Stop ends it, once.
  Work Start(Phase phase, std::optional<uint64_t> step = std::nullopt);
  // As Start, for the newest step, of a wait: it is not counted as work besides while any thread is
  // at work of `phase`.
  Work StartWait(Phase phase);
  void Stop(const Work& work);
  // The decision of the newest step begun has come: it was waited for since the vote was durable.
  void Decided();

  // Oldest first, those at `from_position` and above; at most kMostSteps are kept.
  std::vector<v1::StepPhases> Read(uint64_t from_position) const;

 private:
  struct Span {
    absl::Time begin = absl::InfiniteFuture();
    absl::Time end = absl::InfinitePast();
    // Of all threads together.
    absl::Duration busy;
    // While anybody was at it, and while somebody was at another phase of the step besides.
    absl::Duration active;
    absl::Duration hidden;
    int running = 0;
    int waiting = 0;

    bool open() const { return running + waiting > 0; }
  };
  struct Step {
    uint64_t position = 0;
    uint64_t step = 0;
    absl::Time begun;
    std::array<Span, kNumPhases> spans;
    // While anybody was at any phase, until `seen`.
    absl::Duration active;
    absl::Time seen;
  };

  Work Open(Phase phase, std::optional<uint64_t> step, bool waits);
  Step* FindLocked(std::optional<uint64_t> step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Before work begins or ends: adds the time since the last time to what is running.
  static void SeeLocked(Step& step, absl::Time now);

  const std::function<absl::Time()> now_;
  mutable Mutex mu_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mu_);
};

// At work from its construction to its end. Without a recorder it does nothing. On one thread: one
// inside another, of the same `innermost`, stops the outer's clock.
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
  void Start();
  void Stop();

  StepPhases* const phases_;
  PhaseTimer** const innermost_;
  PhaseTimer* const outer_;
  const std::optional<uint64_t> step_;
  Phase phase_;
  std::optional<StepPhases::Work> work_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_STEP_PHASES_H_
