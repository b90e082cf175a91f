// LinkSession: the life of one communicator as the protocol needs it. It joins, transfers in order
// within a deadline, and ends once: Revoke, then Abort, which the owner does (AbortQueue). Pure
// decisions over a DeviceLink and a given time; no threads and no locks. One thread at a time.
#ifndef KAON_KERNELS_NCCL_LINK_SESSION_H_
#define KAON_KERNELS_NCCL_LINK_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/nccl/device_link.h"
#include "kernels/region.h"

namespace kaon::kernels {

class LinkSession {
 public:
  enum class State : uint8_t {
    kConnecting,
    kReady,
    kRevoking,
    // The owner must abort comm(), and then call OnAborted.
    kAborting,
    // The memory of all transfers is free.
    kClosed,
  };

  struct Options {
    // Maximum time until both ranks have joined.
    absl::Duration connect_timeout = absl::Seconds(20);
    // Maximum time without a completed transfer while some are under way.
    absl::Duration transfer_timeout = absl::Seconds(20);
    // Maximum time from Revoke to Abort.
    absl::Duration revoke_timeout = absl::Seconds(5);
  };

  // `link` outlives the session.
  LinkSession(DeviceLink& link, const Options& options) : link_(link), options_(options) {}

  // Begins to join. On an error, the session is closed. Call it once, first.
  absl::Status Start(const UniqueId& id, int rank, absl::Time now);

  // Add a transfer; Advance starts it once both ranks have joined. `tag` names it to the caller.
  // The session's failure once it has ended.
  absl::Status Send(uint64_t tag, ConstRegion from, absl::Time now);
  absl::Status Receive(uint64_t tag, Region to, absl::Time now);

  // Goes on as far as possible. Returns the tags of the transfers that are done, in the order in
  // which they were added.
  std::vector<uint64_t> Advance(absl::Time now);

  // Ends the session. `why` is UNAVAILABLE's message. Does nothing if it has ended.
  void Fail(const std::string& why, absl::Time now);
  // Says that Abort has returned.
  void OnAborted();

  State state() const { return state_; }
  bool ended() const { return state_ > State::kReady; }
  // OK until the session ends, then UNAVAILABLE with the reason.
  const absl::Status& failure() const { return failure_; }
  size_t num_under_way() const { return transfers_.size(); }
  CommId comm() const { return comm_; }

 private:
  struct Transfer {
    uint64_t tag = 0;
    bool sends = false;
    // Memory of a send is not written.
    Region memory;
    // Absent until it is started.
    std::optional<TransferId> id;
  };

  absl::Status Add(Transfer transfer, absl::Time now);
  void StartQueued(absl::Time now);
  bool IsFrontDone();

  DeviceLink& link_;
  const Options options_;
  State state_ = State::kConnecting;
  CommId comm_ = 0;
  absl::Status failure_;
  // When connecting began, the first transfer was added or completed, or the revoke began.
  absl::Time since_;
  std::deque<Transfer> transfers_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_NCCL_LINK_SESSION_H_
