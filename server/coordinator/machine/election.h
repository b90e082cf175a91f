// When a coordinator may stand for election, with which ballot, and whom it believes to hold the
// shards (protocol.md 2.1 rules 1 and 7). Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ELECTION_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ELECTION_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::coordinator {

struct ElectionOptions {
  int num_shards = 0;
  uint64_t incarnation_high = 0;
  uint64_t incarnation_low = 0;
  uint64_t seed = 0;
  absl::Duration takeover;
};

class Election {
 public:
  explicit Election(const ElectionOptions& options);

  // Learns the promised ballot and the holder from any message of a shard.
  void Observe(int shard, const v1::ShardToCoordinator& message, absl::Time now);
  // Returns whether the reply of `shard` shows that its promised holder was silent for long enough.
  bool HolderIsSilent(int shard, const v1::ProbeReply& reply, absl::Time now);
  // Returns a ballot above every ballot seen so far.
  v1::Ballot TakeBallot();
  // Notes that the coordinator was refused: the next patience is drawn from twice the range. The
  // range is the first again once all shards that speak have named the same holder for some
  // takeover times. So a coordinator that lost many elections stands as soon as any other when the
  // winner dies much later.
  void Refused();
  // Notes that every shard was read: the next patience is short again.
  void Won();
  // Address of the holder of the highest ballot seen so far; empty if none.
  const std::string& holder_address() const { return holder_address_; }

 private:
  void DrawPatience();
  void NoteHolder(const v1::ShardToCoordinator& message, absl::Time now);

  const ElectionOptions options_;
  std::mt19937_64 random_;
  uint64_t highest_counter_ = 0;
  v1::Ballot holder_ballot_;
  std::string holder_address_;
  int refusals_ = 0;
  // Ballot that all shards have named as promised, with a holder that is alive, and since when.
  v1::Ballot settled_ballot_;
  absl::Time settled_since_ = absl::InfiniteFuture();
  // A holder silent for longer than this may be replaced.
  absl::Duration patience_;
  // Time when a shard without a promise was first heard.
  std::vector<std::optional<absl::Time>> unpromised_since_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ELECTION_H_
