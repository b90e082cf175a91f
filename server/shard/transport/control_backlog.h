// Messages that one coordinator's stream received while the step thread works on an earlier one. An
// apply may take long, and a coordinator repeats unanswered messages. Owned by its ControlStream
// and used under that stream's mutex.
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
  // Maximum number of different waiting messages. More are dropped; a stream may lose messages.
  static constexpr size_t kMaxWaiting = 4;

  enum class Fate {
    // The caller works on it now; `message` is unchanged.
    kWork,
    // Stored; Next() returns it later.
    kWaits,
    // Dropped: a heartbeat, the backlog is full, or an equal message waits or is being worked on.
    kDropped,
  };

  Fate Add(v1::CoordinatorToShard& message);
  // Marks the current message as finished. Returns the next message to work on, if any waits.
  std::optional<v1::CoordinatorToShard> Next();
  // Returns true if no message is being worked on.
  bool idle() const { return working_.empty(); }

 private:
  // Returns equal strings for messages that ask for the same.
  static std::string KindOf(const v1::CoordinatorToShard& message);

  // Kind of the current message; empty if there is none.
  std::string working_;
  std::deque<v1::CoordinatorToShard> waiting_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_CONTROL_BACKLOG_H_
