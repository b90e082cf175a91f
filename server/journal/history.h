// Records of the newest decided entries, for a coordinator that takes over and for people. A
// Journal owns it. Thread-safe.
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

// Limits of the number of records and of their bytes; with thousands of workers the second is
// reached first. The newest record is kept whatever its size.
inline constexpr size_t kMaxHistory = 1000;
inline constexpr size_t kMaxHistoryBytes = size_t{32} << 20;

class History {
 public:
  // Adds the record of a position above the newest. Positions between them are unknown or rolled
  // back. The record of a rollback removes those above its target. Registrations, which may have
  // megabytes, are left out: the current one is part of ShardState.
  void Add(v1::StepRecord record);

  // Implements Journal::History.
  absl::StatusOr<std::vector<v1::StepRecord>> Read(uint64_t from_position, uint32_t limit);

  // Returns the records up to `position`, oldest first.
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
