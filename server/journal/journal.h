// Makes a shard's votes durable: the seam between the state machine and the durability modes
// (protocol.md section 3). The creator of the shard owns it. Only the shard's step thread calls
// Append, AppendGradient and WithdrawGradients; any thread may call the rest.
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

  // Appends a record. `done` runs once the record and everything appended before it are as durable
  // as the mode makes them. Completions run in order of the appends, on any thread, perhaps before
  // Append returns.
  // A full disk only delays `done`. A write that fails permanently ends the process: a shard that
  // cannot say whether it voted must not continue.
  virtual void Append(Record record, std::function<void()> done) = 0;

  // Appends a slice of a gradient. The caller appends the whole gradient of a generation before its
  // PREPARE, each parameter's slices in ascending order of offset. The values must stay unchanged
  // until that PREPARE's `done` runs, or WithdrawGradients returns.
  virtual void AppendGradient(const GradientSlice& slice) = 0;
  // Discards the gradients appended since the last PREPARE: no PREPARE for them will come. Waits
  // for a write of one of them that is in progress. Their values are not read afterwards.
  virtual void WithdrawGradients() = 0;

  // Returns at most `limit` records of decided entries, from `from_position` on. Starts at the
  // oldest kept record if that one is newer. OUT_OF_RANGE names both positions if `from_position`
  // is above the newest.
  virtual absl::StatusOr<std::vector<v1::StepRecord>> History(uint64_t from_position,
                                                              uint32_t limit) = 0;

  // Says that the snapshot and the decision of `position` are durable. The journal may remove
  // everything before that position, at any later time.
  virtual void Truncate(uint64_t position) = 0;
  // Returns the bytes written so far, including removed ones; 0 if the mode writes nothing.
  virtual uint64_t appended_bytes() const = 0;

  // Returns what an operator sees.
  virtual v1::JournalStatus Status() const = 0;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_JOURNAL_H_
