// One push stream as the accumulator and the transport see it, and the step that a shard expects.
// Plain values. Comments below say which threads invoke the callbacks.
#ifndef KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_
#define KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/shard_data.pb.h"

namespace kaon::shard {

using PushStreamId = uint64_t;

// The step that the shard accepts next.
struct ExpectedStep {
  std::string job;
  uint64_t timeline = 0;
  // 0 until the initial weights are loaded.
  uint64_t step = 0;
};

// Invoked without a lock held, on any thread, perhaps even after Close. Keep alive what they use.
struct PushCallbacks {
  // The worker may send `bytes` more payload bytes.
  std::function<void(uint64_t bytes)> on_credit;
  // The stream is over and accepts nothing more.
  std::function<void(const absl::Status& status)> on_ended;
};

struct OpenPush {
  PushStreamId stream = 0;
  v1::PushOpened opened;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_OPEN_PUSH_H_
