// Finds memory that loses bits (reliability.md P11). Before each train step, rereads a share of the
// state and compares it with the digests taken when it was written. A full pass takes the given
// number of steps. For a tensor that every step writes, the check covers only the time since its
// last write. Owned by AppliedState, used by its thread.
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
  // `steps`: train steps per pass, >= 1.
  explicit StateScrub(uint64_t steps) : steps_(steps) {}

  // Checks the next share, in whole parameters. Returns DATA_LOSS naming the parameter, weights or
  // moments, and both digests.
  absl::Status Check(const ParameterStore& parameters, const ParameterPublisher& publisher);

 private:
  const uint64_t steps_;
  // Index of the next parameter.
  size_t next_ = 0;
  // Bytes that should have been read by now, minus bytes read.
  int64_t due_bytes_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_STATE_SCRUB_H_
