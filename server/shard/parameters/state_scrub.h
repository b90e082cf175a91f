// Rereads a share of the state in memory before each train step and compares it with the digests
// that were taken as it was written (reliability.md P11): memory that does not keep its bits is
// found, though nothing else looks at them. A pass over everything takes as many steps as it is
// told; a tensor that every step writes is checked as it was since its last writing alone. Owned by
// ShardCore, used by its thread.
#ifndef KAON_SERVER_SHARD_PARAMETERS_STATE_SCRUB_H_
#define KAON_SERVER_SHARD_PARAMETERS_STATE_SCRUB_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

class StateScrub {
 public:
  // `steps` >= 1: of a pass.
  explicit StateScrub(uint64_t steps) : steps_(steps) {}

  // The next share, whole parameters at a time. DATA_LOSS naming the parameter, weights or
  // optimizer state, and both digests.
  absl::Status Check(const ParameterStore& parameters, const ParameterPublisher& publisher);

 private:
  const uint64_t steps_;
  // Index of the parameter whose turn is next.
  size_t next_ = 0;
  // Bytes that should have been read by now, less those that were.
  int64_t due_bytes_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_STATE_SCRUB_H_
