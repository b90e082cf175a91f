// Finds in the log the control entry that a request led to (protocol.md 2.2: "Each control entry
// carries its client's request id, kept with the record, so a retry after a takeover is not applied
// twice"). Goes back from the newest control entry: the plan of each names the one before. Started
// by any thread; owns itself until it is done.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_REQUEST_LOOKUP_H_
#define KAON_SERVER_COORDINATOR_SERVICE_REQUEST_LOOKUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::coordinator {

class RequestLookup : public std::enable_shared_from_this<RequestLookup> {
 public:
  // Entries that are looked at: a request is repeated within seconds, not after so many others.
  static constexpr int kMaxEntries = 64;

  using History = absl::StatusOr<v1::ReadHistoryResponse>;
  // Asks `shard` for the record of `position`; `answer` runs once, on any thread.
  using Read =
      std::function<void(int shard, uint64_t position, std::function<void(History)> answer)>;
  // The record; NOT_FOUND when no entry that is kept came of the request; UNAVAILABLE when no shard
  // could be asked.
  using Done = std::function<void(absl::StatusOr<v1::StepRecord>)>;

  struct Query {
    // Not 0.
    uint64_t request_id = 0;
    // Position of the newest control entry, JobDescription.config_revision.
    uint64_t newest = 0;
    // The entry comes after this one.
    uint64_t after = 0;
    int num_shards = 0;
  };

  // `done` runs once, on a thread of `read`'s, or at once.
  static void Start(const Query& query, Read read, Done done);

 private:
  RequestLookup(const Query& query, Read read, Done done)
      : query_(query), read_(std::move(read)), done_(std::move(done)) {}

  void Ask(int shard, uint64_t position);
  void OnHistory(int shard, uint64_t position, const History& history);

  const Query query_;
  const Read read_;
  const Done done_;
  // Of the one answer that is waited for: entries looked at so far, and whether of the shards asked
  // for the present one some do not keep it any more, or could not be asked.
  int entries_ = 0;
  bool forgotten_ = false;
  bool away_ = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_REQUEST_LOOKUP_H_
