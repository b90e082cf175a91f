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
  // Whether what shard `shard` just said means that its promised holder has been silent for long
  // enough.
  bool HolderIsSilent(int shard, const v1::ProbeReply& reply, absl::Time now);
  // Above every ballot seen so far.
  v1::Ballot TakeBallot();
  // The coordinator was refused: the next patience is drawn from twice the range, until one holder
  // was heard of by every shard that speaks for some takeover times. Whoever lost many elections is
  // to stand as soon as anybody else when the one who won them dies much later.
  void Refused();
  // Every shard was read: the next patience is short again.
  void Won();
  // Address of the holder of the highest ballot heard of; empty if none.
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
  // The ballot that all shards have said to be promised and alive since then.
  v1::Ballot settled_ballot_;
  absl::Time settled_since_ = absl::InfiniteFuture();
  // A holder silent for longer than this may be replaced.
  absl::Duration patience_;
  // When a shard that never promised was first heard of.
  std::vector<std::optional<absl::Time>> unpromised_since_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ELECTION_H_
