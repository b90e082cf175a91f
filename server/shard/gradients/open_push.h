// Which step is pushed, and one push stream as the accumulator and the transport see it. Plain
// values; whose threads may call the callbacks is said below.
#ifndef KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_
#define KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::shard {

using PushStreamId = uint64_t;

// Which step the shard may take next.
struct ExpectedStep {
  std::string job;
  uint64_t timeline = 0;
  // 0 until the initial weights are loaded.
  uint64_t step = 0;
};

// Called without a lock held, on any thread, perhaps still after Close: they must keep alive what
// they touch.
struct PushCallbacks {
  // So many more payload bytes may be sent.
  std::function<void(uint64_t bytes)> on_credit;
  // The stream is over; nothing more will be taken from it.
  std::function<void(const absl::Status& status)> on_ended;
};

struct OpenPush {
  PushStreamId stream = 0;
  v1::PushOpened opened;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_
