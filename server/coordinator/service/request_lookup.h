// Finds in the log the control entry that a request led to, so that a retry after a takeover is not
// applied twice (protocol.md 2.2). Walks back from the newest control entry: the plan of each entry
// names the one before. Any thread may start it. It owns itself until `done` has run.
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
  // Upper bound on the entries read. A client repeats a request within seconds, so fewer entries
  // can follow it.
  static constexpr int kMaxEntries = 64;

  using History = absl::StatusOr<v1::ReadHistoryResponse>;
  // Asks `shard` for the record of `position`; runs `answer` once, on any thread.
  using Read =
      std::function<void(int shard, uint64_t position, std::function<void(History)> answer)>;
  // Receives the record. NOT_FOUND if no kept entry came from the request; UNAVAILABLE if no shard
  // could be asked.
  using Done = std::function<void(absl::StatusOr<v1::StepRecord>)>;

  struct Query {
    // Must not be 0.
    uint64_t request_id = 0;
    // Position of the newest control entry: JobDescription.config_revision.
    uint64_t newest = 0;
    // Entries at this position and before are not read.
    uint64_t after = 0;
    int num_shards = 0;
  };

  // Starts a lookup. `done` runs once, on a thread of `read` or before Start returns.
  static void Start(const Query& query, Read read, Done done);

 private:
  RequestLookup(const Query& query, Read read, Done done)
      : query_(query), read_(std::move(read)), done_(std::move(done)) {}

  void Ask(int shard, uint64_t position);
  void OnHistory(int shard, uint64_t position, const History& history);

  const Query query_;
  const Read read_;
  const Done done_;
  // Changed only by the one answer under way. `entries_` counts the entries read so far. The flags
  // are about the present entry: a shard no longer keeps it, a shard could not be asked.
  int entries_ = 0;
  bool forgotten_ = false;
  bool away_ = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_REQUEST_LOOKUP_H_
