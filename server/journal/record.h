// Everything that a shard makes durable, in order of appends. Plain values; the appender or the
// reader owns them.
#ifndef KAON_SERVER_JOURNAL_RECORD_H_
#define KAON_SERVER_JOURNAL_RECORD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::journal {

// After this record the shard answers no lower ballot.
struct PromiseRecord {
  v1::Ballot ballot;
  // Index of the shard and number of shards: a restarted shard must not take another's place.
  uint32_t shard = 0;
  uint32_t num_shards = 0;
};

// The shard's vote for a plan, or the same vote re-stamped with a higher (ballot, round).
struct PrepareRecord {
  v1::Prepared prepared;
  // Generation whose slices form the gradient of the vote. A re-stamped vote keeps it.
  uint64_t generation = 0;
};

// The outcome of the log entry whose PREPARE was appended before.
struct DecisionRecord {
  v1::StepRecord record;
};

using Record = std::variant<PromiseRecord, PrepareRecord, DecisionRecord>;

// A piece of the reduced gradient of one parameter, or of its initial weights if the plan loads
// them. It comes before the PREPARE that votes on it.
struct GradientSlice {
  uint64_t position = 0;
  uint64_t generation = 0;
  uint32_t parameter_id = 0;
  // Offset of the first value, in elements.
  uint64_t offset = 0;
  // The caller's memory; Journal::AppendGradient says how long it must stay valid.
  absl::Span<const float> values;
  // Call it before the values are read, and keep the result meanwhile: they may be in a file. Null:
  // they are in memory. Errors are those of a disk. Any thread.
  std::function<absl::StatusOr<std::shared_ptr<const void>>()> pin = nullptr;
};

// Any entry of a journal.
using Entry = std::variant<PromiseRecord, PrepareRecord, DecisionRecord, GradientSlice>;

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_RECORD_H_
