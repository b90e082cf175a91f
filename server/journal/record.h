// What a shard makes durable, in the order in which it appends it. Plain values, owned by whoever
// appends or reads them; any thread.
#ifndef KAON_SERVER_JOURNAL_RECORD_H_
#define KAON_SERVER_JOURNAL_RECORD_H_

#include <variant>

#include "kaon/v1/agreement.pb.h"

namespace kaon::journal {

// The shard answers no ballot below this one any more.
struct PromiseRecord {
  v1::Ballot ballot;
};

// The shard's vote for a plan, or the same vote stamped with a higher (ballot, round).
struct PrepareRecord {
  v1::Prepared prepared;
};

// The outcome of the log entry whose PREPARE was appended before.
struct DecisionRecord {
  v1::StepRecord record;
};

using Record = std::variant<PromiseRecord, PrepareRecord, DecisionRecord>;

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_RECORD_H_
