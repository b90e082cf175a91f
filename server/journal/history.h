// The records of the newest decided entries, which a shard shows to a coordinator that takes over
// and to people. Owned by a Journal; any thread.
#ifndef KAON_SERVER_JOURNAL_HISTORY_H_
#define KAON_SERVER_JOURNAL_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/mutex.h"

namespace kaon::journal {

// Records that are kept, and bytes of them: those of thousands of workers are fewer. One is kept
// whatever its size.
inline constexpr size_t kMaxHistory = 1000;
inline constexpr size_t kMaxHistoryBytes = size_t{32} << 20;

class History {
 public:
  // Of a position above the newest, usually the next: those between are not known, or were taken
  // back. A rollback takes back what is above its target. Registrations are left out, which may
  // have megabytes: the one that is so now is part of ShardState.
  void Add(v1::StepRecord record);

  // As Journal::History.
  absl::StatusOr<std::vector<v1::StepRecord>> Read(uint64_t from_position, uint32_t limit);

  // Those up to `position`, oldest first.
  std::vector<v1::StepRecord> UpTo(uint64_t position) const;

 private:
  struct Kept {
    v1::StepRecord record;
    size_t bytes = 0;
  };

  mutable Mutex mu_;
  // Oldest first.
  std::deque<Kept> records_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_HISTORY_H_
