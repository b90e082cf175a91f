// Remembers when this coordinator decided the newest log entries, to show it to people
// (`kaonctl steps`). Thread-safe.
#ifndef KAON_SERVER_COORDINATOR_DECISION_TIMES_H_
#define KAON_SERVER_COORDINATOR_DECISION_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::coordinator {

class DecisionTimes {
 public:
  // StepHistory returns at most so many entries.
  static constexpr size_t kMaxEntries = 1000;

  // Keeps the first time of an entry. An entry of another timeline replaces one at its position.
  void Note(uint64_t timeline, uint64_t position, int64_t unix_millis);

  // Returns 0 for an entry that is too old or was not decided here.
  int64_t Of(uint64_t timeline, uint64_t position) const;

 private:
  struct Decision {
    uint64_t timeline = 0;
    int64_t unix_millis = 0;
  };

  mutable Mutex mu_;
  std::map<uint64_t, Decision> by_position_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_DECISION_TIMES_H_
