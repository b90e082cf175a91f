// What one coordinator's stream has received while the step thread is at work on an earlier message
// of it: an apply may take long, and a coordinator repeats what is not answered. Owned by its
// ControlStream, under whose mutex it is used.
#ifndef KAON_SERVER_SHARD_TRANSPORT_CONTROL_BACKLOG_H_
#define KAON_SERVER_SHARD_TRANSPORT_CONTROL_BACKLOG_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "kaon/v1/shard_control.pb.h"

namespace kaon::shard {

class ControlBacklog {
 public:
  // Different messages that wait; more are dropped, as a stream may lose messages.
  static constexpr size_t kMaxWaiting = 4;

  enum class Fate {
    // To be worked on now; `message` is left alone.
    kWork,
    // Taken; Next() gives it in its turn.
    kWaits,
    // Dropped: a heartbeat, or one like a message that waits or is worked on.
    kDropped,
  };

  Fate Add(v1::CoordinatorToShard& message);
  // The message that was worked on is worked off. The one to work on now, if any waits.
  std::optional<v1::CoordinatorToShard> Next();
  // Nothing is worked on.
  bool idle() const { return working_.empty(); }

 private:
  // The same for messages that ask for the same.
  static std::string KindOf(const v1::CoordinatorToShard& message);

  // Empty when there is none.
  std::string working_;
  std::deque<v1::CoordinatorToShard> waiting_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_CONTROL_BACKLOG_H_
