// Measures where the time of each step went on this shard. It says when each kind of work began and
// ended, and how much of that was work. It also says how much of the work overlapped with other
// work of the step. No decision depends on it. Owned by StepLoop; any thread.
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

// Kinds of work, which docs/kaonctl.md explains.
enum class Phase { kReceive, kFold, kJournal, kPrepare, kSpeculate, kDecide, kApply, kPull };
inline constexpr size_t kNumPhases = 8;

class StepPhases {
 public:
  static constexpr size_t kMostSteps = 1000;

  // Work of one thread, or its wait for work of other threads on that phase.
  struct Work {
    // Position of the step; absent if the step is not kept.
    std::optional<uint64_t> position;
    Phase phase;
    absl::Time begin;
    bool waits = false;
  };

  // `now` is monotonic, `wall_now` the time of day; any thread calls them.
  StepPhases(std::function<absl::Time()> now, std::function<absl::Time()> wall_now)
      : now_(std::move(now)), wall_now_(std::move(wall_now)) {}

  // Tells that a plan of `step` was accepted at `position`. A later round of it changes nothing.
  void Begin(uint64_t position, uint64_t step);
  // Begins work on the newest step, or on `step` if that is recent; else nothing is measured.
  // Several threads may work on one phase. The caller ends the work with one Stop.
  Work Start(Phase phase, std::optional<uint64_t> step = std::nullopt);
  // Begins a wait on the newest step. Its time counts as work only while no thread works on
  // `phase`.
  Work StartWait(Phase phase);
  void Stop(const Work& work);
  // Tells that the newest step is decided; the shard waited since its vote was durable.
  void Decided();

  // Returns the steps from `from_position` on, oldest first. At most kMostSteps are kept.
  std::vector<v1::StepPhases> Read(uint64_t from_position) const;

 private:
  struct Span {
    absl::Time begin = absl::InfiniteFuture();
    absl::Time end = absl::InfinitePast();
    // Sum over all threads.
    absl::Duration busy;
    // Time in which any thread worked on the phase, and the part of it in which another phase of
    // the step had a thread, too.
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
    int64_t begun_unix_micros = 0;
    std::array<Span, kNumPhases> spans;
    // Time until `seen` in which any thread worked on any phase.
    absl::Duration active;
    absl::Time seen;
  };

  Work Open(Phase phase, std::optional<uint64_t> step, bool waits);
  Step* FindLocked(std::optional<uint64_t> step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the time since `seen` to all that runs. Called before work begins or ends.
  static void SeeLocked(Step& step, absl::Time now);

  const std::function<absl::Time()> now_;
  const std::function<absl::Time()> wall_now_;
  mutable Mutex mu_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mu_);
};

// Measures work from its construction to its destruction; null `phases` measures nothing. Used by
// one thread. A timer inside another with the same `innermost` stops the clock of the outer one.
class PhaseTimer {
 public:
  PhaseTimer(StepPhases* phases, Phase phase, PhaseTimer** innermost = nullptr,
             std::optional<uint64_t> step = std::nullopt);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  // Ends the phase and begins another.
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
