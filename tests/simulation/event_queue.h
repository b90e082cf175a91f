// Virtual time of the simulator: events run in order of time, ties in order of scheduling, so that
// a seed determines the whole run. Owned by one simulation; one thread.
#ifndef KAON_TESTS_SIMULATION_EVENT_QUEUE_H_
#define KAON_TESTS_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace kaon::simulation {

class EventQueue {
 public:
  absl::Time now() const { return now_; }
  uint64_t num_run() const { return num_run_; }

  void After(absl::Duration delay, std::function<void()> event) {
    At(now_ + delay, std::move(event));
  }
  void At(absl::Time time, std::function<void()> event) {
    events_.push(Event{time < now_ ? now_ : time, next_sequence_++, std::move(event)});
  }

  // Returns false if nothing is left.
  bool RunOne() {
    if (events_.empty()) return false;
    // The event is moved out before it runs: it may schedule others.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.time;
    ++num_run_;
    event.run();
    return true;
  }

 private:
  struct Event {
    absl::Time time;
    uint64_t sequence;
    std::function<void()> run;

    bool operator<(const Event& other) const {
      return std::tie(other.time, other.sequence) < std::tie(time, sequence);
    }
  };

  absl::Time now_ = absl::UnixEpoch();
  uint64_t next_sequence_ = 0;
  uint64_t num_run_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_EVENT_QUEUE_H_
