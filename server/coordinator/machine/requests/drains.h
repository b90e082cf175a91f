// The drain of one shard: from an admin's call until the shard has ended and is back. Steps wait
// from the boundary on; a shard that ends between two steps loses and repeats none. Owned by
// StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_DRAINS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_DRAINS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine/job_state.h"
#include "server/coordinator/machine/machine_phase.h"

namespace kaon::coordinator {

class Drains {
 public:
  explicit Drains(uint64_t seed) : random_(seed) {}

  // NOT_FOUND for an unknown shard. UNAVAILABLE if it is not connected, or silent for longer than
  // `patience`. FAILED_PRECONDITION while another shard is so or a drain is under way, and for a
  // shard without a journal.
  absl::Status Check(uint32_t shard, const std::vector<ShardView>& shards,
                     absl::Duration patience) const;
  void Start(CallId call, uint32_t shard);
  // Shard for which the next step waits: it is to end, or has ended and is not back.
  std::optional<int> shard() const;

  // Returns what to send to shard() between two steps, and at each heartbeat; nothing once it
  // ended.
  std::optional<v1::Drain> Ask() const;
  // Takes the answer of the shard. After an error the job goes on.
  Actions OnReport(int shard, const v1::DrainReport& report);
  // Ends the drain if the shard does not know the order, as one of an older version.
  Actions OnRefused(int shard, const v1::Refused& refused);
  // Answers the call of a drain of this shard, whose stream ended with `why`.
  Actions OnDisconnected(int shard, const absl::Status& why, const JobState& job);
  // Ends the drain if the shard is back.
  void OnConnected(int shard);
  // Ends a drain whose shard is still there. A call that waits gets `status`.
  Actions End(const absl::Status& status);
  // Forgets the call. A shard that was not told to end stays.
  void Cancel(CallId call);

 private:
  enum class Stage { kSnapshot, kEnding, kAway };
  struct Run {
    // Absent once the caller is gone or answered.
    std::optional<CallId> call;
    int shard = 0;
    uint64_t attempt = 0;
    Stage stage = Stage::kSnapshot;
  };

  std::mt19937_64 random_;
  std::optional<Run> run_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_DRAINS_H_
