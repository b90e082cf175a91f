// What a shard makes durable, in the order in which it appends it. Plain values, owned by whoever
// appends or reads them; any thread.
#ifndef KAON_SERVER_JOURNAL_RECORD_H_
#define KAON_SERVER_JOURNAL_RECORD_H_

#include <cstdint>
#include <variant>

#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::journal {

// The shard answers no ballot below this one any more.
struct PromiseRecord {
  v1::Ballot ballot;
  // Which shard of how many it is: a restarted one must not take another's place.
  uint32_t shard = 0;
  uint32_t num_shards = 0;
};

// The shard's vote for a plan, or the same vote stamped with a higher (ballot, round).
struct PrepareRecord {
  v1::Prepared prepared;
  // Names the gradient voted on: that of the slices of this generation. A re-stamped vote keeps it.
  uint64_t generation = 0;
};

// The outcome of the log entry whose PREPARE was appended before.
struct DecisionRecord {
  v1::StepRecord record;
};

using Record = std::variant<PromiseRecord, PrepareRecord, DecisionRecord>;

// A piece of the reduced gradient of one parameter (of its initial weights, when a plan loads
// them), before the PREPARE that votes on it.
struct GradientSlice {
  uint64_t position = 0;
  uint64_t generation = 0;
  uint32_t parameter_id = 0;
  // Of the first value, in elements.
  uint64_t offset = 0;
  // Borrowed; Journal::AppendGradient says for how long.
  absl::Span<const float> values;
};

// All that is in a journal.
using Entry = std::variant<PromiseRecord, PrepareRecord, DecisionRecord, GradientSlice>;

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_RECORD_H_
