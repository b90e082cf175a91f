// Where a shard makes its votes durable: the seam between the state machine and the durability
// modes (protocol.md section 3). Owned by whoever builds the shard; Append and AppendGradient are
// called by the shard's step thread alone, everything else by any thread.
#ifndef KAON_SERVER_JOURNAL_JOURNAL_H_
#define KAON_SERVER_JOURNAL_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/journal/record.h"

namespace kaon::journal {

class Journal {
 public:
  virtual ~Journal() = default;

  // `done` runs once the record, and all that was appended before it, is as durable as the mode
  // makes it, in the order of appends, on any thread, perhaps before Append returns. A write that
  // fails for good ends the process: a shard that cannot say whether it voted must not go on. A
  // full disk only delays `done`.
  virtual void Append(Record record, std::function<void()> done) = 0;

  // To be called for the whole gradient of a generation before its PREPARE is appended, each
  // parameter's slices in ascending order of offset. The values are borrowed, unchanged, until that
  // PREPARE's `done` runs, or WithdrawGradients returns.
  virtual void AppendGradient(const GradientSlice& slice) = 0;
  // No PREPARE will come for the gradients appended since the last one: their values are not read
  // any more. Waits for a write of one of them that is under way.
  virtual void WithdrawGradients() = 0;

  // Records of decided entries from `from_position` on, at most `limit`; from the oldest kept if
  // that one is older. OUT_OF_RANGE naming both positions when it is newer than the newest.
  virtual absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                              uint32_t limit) = 0;

  // The snapshot of `position` is durable, and so is that decision: what comes before it is not
  // needed any more, and is removed at some time.
  virtual void Truncate(uint64_t position) = 0;
  // Grows with what is written; 0 where nothing is.
  virtual uint64_t appended_bytes() const = 0;

  // What an operator is told.
  virtual v1::JournalStatus Status() const = 0;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_H_
